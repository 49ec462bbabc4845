"""The options and exit codes that several commands share: the cluster, the output, durations."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from fencepost.cli.groups import ReaderGone
from fencepost.cli.streams import Failure, WrongUse, say
from fencepost.interrupts import INTERRUPTED

if TYPE_CHECKING:
    import ssl

    from fencepost.client.client import KafkaClient

Command = Callable[..., Any]
D = TypeVar("D")

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", re.ASCII)
# Kafka's clients count milliseconds in 32 bits.
MOST_DAYS_TO_WAIT = 24
# Between two looks at a cluster.
LEAST_PAUSE_MS = 100
# For ports where nothing listens: a wrong address is reported soon, and a broker that just starts is still found.
FIRST_PATIENCE_S = 1.0
# Settings of Kafka's own tools (AdminClientConfig) that have no meaning here: retries, buffers and metrics.
WITHOUT_EFFECT = frozenset(
    {
        *("auto.include.jmx.reporter", "client.dns.lookup", "connections.max.idle.ms", "default.api.timeout.ms"),
        *("enable.metrics.push", "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms"),
        *("metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level"),
        *("metrics.sample.window.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms"),
        *("retries", "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes"),
        "socket.connection.setup.timeout.max.ms",
    }
)
# Words in the names of settings whose values must not be printed.
SECRET = ("password", "jaas", "secret", "key.pem", "keystore.key", "oauthbearer.config")
EXIT_CODES = {
    0: "the command succeeded and found no problem; also Ctrl-C where a command runs until then: `broker`, `exporter`, "
    "`web`, `tail --follow`, `tap` and `--watch`",
    1: "the command failed, found a problem, was refused, or its subject (a topic, a group, an id) does not exist",
    2: "the command was called with wrong arguments",
    3: "the cluster could not be reached, did not answer, or did not answer in full: there may be a problem",
    INTERRUPTED: "Ctrl-C before the command was done",
    ReaderGone.exit_code: "the reader of its output closed the pipe, as `head` does; shells use the same number",
}
NEVER = "never"
# When a command ends with 1. A test has an example for each row.
WHEN_1 = {
    "broker": "the broker could not start, or had to stop: the message says why",
    "cluster move-coordinator": "the order was refused: there is no such node, or it is not up",
    "cluster move-leader": "the order was refused: there is no such partition or node, or the node is not up",
    "cluster nodes": "the cluster has no Fencepost broker",
    "cluster pause-node": "the order was refused: there is no such node, or it is not up, or it is the last one",
    "cluster resume-node": "the order was refused: there is no such node, or it is not paused",
    "cluster start-node": "the order was refused: there is no such node, or it is not stopped",
    "cluster stop-node": "the order was refused: there is no such node, or it is stopped, or it is the last one",
    "demo": "a check failed",
    "doctor": "a problem or a risk was found",
    "error": "there is no such error",
    "exporter": "the exporter cannot listen on the address of --listen",
    "group describe": "there is no such group",
    "group list": f"{NEVER}: groups that wait give 0",
    "salvage check": "something is missing or damaged, or the folder cannot be read",
    "salvage export": "a file cannot be read",
    "salvage list": "the folder cannot be read",
    "salvage restore": "a file cannot be read, there is nothing to restore, or no such topic, or it refuses a batch",
    "salvage show": "a file cannot be read",
    "spark check": "the pipeline would not run: a topic, permission, port or package is missing, or a limit too low",
    "spark-jar": "the jar was not built, which can only be in a checkout",
    "tail": "there is no such topic or partition, the topic was deleted meanwhile, or a record batch is damaged",
    "tap": "the tap cannot listen on the address of --listen, or cannot write to the file of --output",
    "topic create": "a topic was refused, or exists already and --if-not-exists is not given",
    "topic delete": "the order was refused or not confirmed, or a topic does not exist and --if-exists is not given",
    "topic describe": "there is no such topic",
    "topic list": NEVER,
    "txn abort": "the order was refused or not confirmed, or there is nothing to abort",
    "txn describe": "no coordinator knows the id",
    "txn explain": "no coordinator knows the id, or a transaction hangs that is or may be of the id",
    "txn fence": "the order was refused or not confirmed, or a transaction hangs that is or may be of the id",
    "txn hanging": "a transaction hangs, or there is no such topic or partition",
    "txn history": "no coordinator knows the id, or --rpc asks brokers that do not remember requests",
    "txn list": "no id matches --id; other filters that leave nothing give 0",
    "txn lso": "readers wait for longer than --max-age, or there is no such topic or partition",
    "txn producers": "there is no such topic or partition",
    "user add": "the cluster refused the user, or a broker runs on the folder of --data",
    "user delete": "there is no such user, the order was refused or not confirmed, or a broker runs on --data",
    "user list": "the folder of --data cannot be read",
    "verify check": "anomalies were found, or the file is no history, or cannot be read",
    "verify cluster": "anomalies were found, a client of the run failed, or the file of --history cannot be written",
    "verify pipeline": "anomalies were found, the program could not be started or wrote nothing, or a topic is missing",
    "web": "the workbench cannot listen on the address of --listen, or the extra `web` is not installed",
}


class Duration(click.ParamType):  # type: ignore[type-arg]  # In older versions it is not generic.
    """`500ms`, `10s`, `5m`, `2h`, `7d`: milliseconds."""

    name = "duration"

    def __init__(self, most_days: int = 36_500, least_ms: int = 0) -> None:
        self._most_days = most_days
        self._least_ms = least_ms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a duration: write a number and a unit, such as 500ms, 10s, 5m, 2h or 7d")
        ms = float(match[1]) * UNITS_MS[match[2]]
        if ms > self._most_days * UNITS_MS["d"]:
            self.fail(f"{value} is too long: at most {self._most_days}d")
        if ms < self._least_ms:
            self.fail(f"{value} is too short: at least {self._least_ms}ms")
        return round(ms)


class Unanswered(Failure):
    """The cluster could not be reached, or did not answer."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster to connect to, and the settings of the client."""

    bootstrap: str | None
    file: str | None
    pairs: tuple[str, ...]
    # The environment has `bootstrap`, so that commands need not repeat it.
    is_exported: bool = False

    @property
    def is_given(self) -> bool:
        return self.bootstrap is not None or self.file is not None or bool(self.pairs)

    def arguments(self) -> list[str]:
        """The options that a command needs to reach the same cluster; the user has to fill in what may be secret."""
        found = ["--bootstrap", self.bootstrap] if self.bootstrap is not None and not self.is_exported else []
        found += ["--command-config", self.file] if self.file is not None else []
        for pair in self.pairs:
            name, equals, _ = pair.partition("=")
            found += ["--set", f"{name}{equals}..." if _is_secret(name) else pair]
        return found

    def command(self, *words: str, about: str | None = None) -> str:
        """A command for the same cluster, as a line that can be pasted into a shell."""
        from fencepost.commands import command, for_cluster

        return for_cluster(command(*words, about=about), self.arguments())

    def pasteable(self, document: D) -> D:
        """The document of a command, whose commands are for the same cluster."""
        from fencepost.commands import for_cluster

        return for_cluster(document, self.arguments())

    def settings(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.file is not None:
            found |= _settings_of_file(self.file)
        for pair in self.pairs:
            name, equals, value = pair.partition("=")
            if not equals or not name.strip():
                raise WrongUse(
                    f"--set {pair} is not a setting", "write name=value, for example --set security.protocol=SSL"
                )
            found[name.strip()] = value.strip()
        if self.bootstrap is not None:
            found["bootstrap.servers"] = self.bootstrap
        if not found.get("bootstrap.servers"):
            raise WrongUse("no cluster is named", "give --bootstrap HOST:PORT, or set FENCEPOST_BOOTSTRAP")
        for name in sorted(found.keys() & WITHOUT_EFFECT):
            del found[name]
            say(f"warning: {name} has no effect on this tool")
        return found

    @contextmanager
    def connect(self) -> Iterator[KafkaClient]:
        """A client for the length of a block; its errors become failures of the command."""
        from fencepost.client.admin.answers import DEADLINE_S
        from fencepost.client.client import KafkaClient
        from fencepost.client.failures import BadClientSetting, ClientError

        try:
            # One request must not take longer than the whole question may take.
            settings = {"request.timeout.ms": round(DEADLINE_S * 1000), **self.settings()}
            with KafkaClient(settings, FIRST_PATIENCE_S) as client:
                yield client
        except BadClientSetting as e:
            text = str(e) if self.bootstrap is None else str(e).replace("bootstrap.servers", "--bootstrap", 1)
            raise WrongUse(*with_hint(text, "the settings are those of Kafka's clients")) from None
        except ClientError as e:
            raise failure_of(e) from None


def _is_secret(name: str) -> bool:
    return any(word in name for word in SECRET)


def failure_of(error: Exception) -> Failure:
    """The failure of the command for an error of the client."""
    from fencepost.client.admin.topics import NO_SUCH_TOPIC
    from fencepost.client.failures import BrokerError
    from fencepost.client.session import Unsupported
    from fencepost.printable import printable

    if isinstance(error, BrokerError) and error.code in NO_SUCH_TOPIC:
        # The cluster has answered, and there is nothing to try again.
        return Failure(printable(str(error)), "is the name right, and is --bootstrap the right cluster?")
    if isinstance(error, BrokerError):
        return Unanswered(printable(str(error)), f"`fencepost error {error.code}` explains this error")
    if isinstance(error, Unsupported):
        return Unanswered(str(error), "`fencepost txn` needs Apache Kafka 3.0 or later")
    return Unanswered(*with_hint(str(error), "is --bootstrap right, and is the broker running?"))


def with_hint(text: str, otherwise: str) -> tuple[str, str]:
    """A message as a problem and a hint; the other hint if the message has none."""
    problem, _, hint = text.partition("\n\nhint: ")
    return problem, hint or otherwise


def _settings_of_file(file: str) -> dict[str, str]:
    from fencepost.server.startup import read_properties

    try:
        with open(file, encoding="utf-8") as opened:
            return {name: value.strip() for _, name, value in read_properties(opened.read())}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise WrongUse(f"cannot read the settings in {file}: {reason}", "--command-config names a file") from None


def cluster_options(command: Command) -> Command:
    """Adds --bootstrap, --command-config and --set; the command gets them as `cluster`."""

    @click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="FENCEPOST_BOOTSTRAP",
        help="Any broker of the cluster, or several separated by commas. Default: $FENCEPOST_BOOTSTRAP.",
    )
    @click.option(
        "--command-config",
        "file",
        metavar="FILE",
        help="A file of client settings, one name=value per line, as for Kafka's own tools.",
    )
    @click.option(
        "--set", "pairs", metavar="NAME=VALUE", multiple=True, help="One client setting; overrides FILE. Repeatable."
    )
    @functools.wraps(command)
    def with_cluster(*args: Any, bootstrap: str | None, file: str | None, pairs: tuple[str, ...], **given: Any) -> Any:
        source = click.get_current_context().get_parameter_source("bootstrap")
        is_exported = source is ParameterSource.ENVIRONMENT
        return command(*args, cluster=ClusterOptions(bootstrap, file, pairs, is_exported), **given)

    return with_cluster


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def watch_options(command: Command) -> Command:
    """Adds --watch and --every; the command gets them as `every_ms`, None without --watch."""

    @click.option(
        "--watch",
        is_flag=True,
        help="Repeat until Ctrl-C. Into a pipe, each time begins with a timestamp; with --json, it is one line.",
    )
    @click.option(
        "--every",
        type=Duration(MOST_DAYS_TO_WAIT, LEAST_PAUSE_MS),
        default="2s",
        show_default=True,
        help="The interval of --watch.",
    )
    @functools.wraps(command)
    def with_watch(*args: Any, watch: bool, every: int, **given: Any) -> Any:
        return command(*args, every_ms=every if watch else None, **given)

    return with_watch


def certificate_options(command: Command) -> Command:
    """Adds --certificate and --key; the command gets `client_tls`, None without them."""

    @click.option("--certificate", metavar="FILE", help="Speak TLS with clients, with this certificate chain (PEM).")
    @click.option(
        "--key", metavar="FILE", help="The private key of --certificate (PEM), if it is in a file of its own."
    )
    @functools.wraps(command)
    def with_certificate(*args: Any, certificate: str | None, key: str | None, **given: Any) -> Any:
        return command(*args, client_tls=_client_tls(certificate, key), **given)

    return with_certificate


def _client_tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    import ssl

    if certificate is None:
        if key is not None:
            raise WrongUse("--key without --certificate", "name the certificate with --certificate FILE")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as e:
        raise WrongUse(f"--certificate {certificate} cannot be used: {e}", "both files have to be PEM") from None
    return context
