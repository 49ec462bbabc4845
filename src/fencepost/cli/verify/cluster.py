"""`fencepost verify cluster`: a workload with faults on any Kafka cluster, and the search for anomalies in it."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from fencepost.cli.options import ClusterOptions, Duration, Unanswered, as_json_option, cluster_options, with_hint
from fencepost.cli.streams import Failure, WrongUse, say
from fencepost.cli.verify.check import html_option, judge_file

if TYPE_CHECKING:
    from fencepost.protocol.transaction_version import TransactionVersion
    from fencepost.verify.cluster_run import ClusterRun, RunOptions

LEAST_SECONDS, MOST_SECONDS = 1.0, 86_400.0
MOST_SEED = 2**31 - 1
MOST_WRITERS = 100
NONE = "none"


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(LEAST_SECONDS, MOST_SECONDS),
    default=60.0,
    show_default=True,
    help="How long the clients work.",
)
@click.option("--seed", type=click.IntRange(0, MOST_SEED), help="The seed of faults and clients. Default: a new one.")
@click.option(
    "--clients",
    metavar="KIND=N,...",
    help="The number of writers of each kind: librdkafka (confluent-kafka, transaction version 1), java (Kafka's own "
    "client), fencepost-v1 and fencepost-v2. Each kind has copiers too. Default: all that the cluster and this "
    "installation have.",
)
@click.option(
    "--java-clients",
    metavar="PATH",
    help="kafka-clients for `java` clients: the libs folder of Apache Kafka, or a class path. Default: "
    "$KAFKA_HOME/libs. Needs a JDK, in $JAVA_HOME or on the PATH.",
)
@click.option(
    "--faults",
    metavar="KIND,...",
    help="Which faults happen at random times: network (delays, losses and duplicates of requests), errors (in place "
    "of answers), kill, pause and zombie (of clients), or none. Default: all.",
)
@click.option(
    "--fault",
    "tap_faults",
    metavar="FAULT",
    multiple=True,
    help="A fault for the whole run, in the words of `fencepost tap`, such as 'delay EndTxn 3s request times=5'. "
    "Repeatable.",
)
@click.option("--nemesis", metavar="COMMAND", help="A command of yours that disturbs the cluster, run in a shell.")
@click.option(
    "--nemesis-every", type=Duration(least_ms=100), default="10s", show_default=True, help="The interval of --nemesis."
)
@click.option("--replication-factor", type=click.IntRange(1, 32767), help="Of the topics. Default: the cluster's.")
@click.option("--keep", is_flag=True, help="Do not delete the topics at the end.")
@click.option("--history", metavar="FILE", type=click.Path(), help="Write the history to FILE.")
@html_option
@as_json_option
@cluster_options
def cluster(
    cluster: ClusterOptions,
    seconds: float,
    seed: int | None,
    clients: str | None,
    java_clients: str | None,
    faults: str | None,
    tap_faults: tuple[str, ...],
    nemesis: str | None,
    nemesis_every: int,
    replication_factor: int | None,
    keep: bool,
    history: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Run transactions on a cluster among faults, and search for anomalies

    Creates topics of its own, whose names begin with `fencepost-verify-`, and deletes them at the end. Transactional
    writers and consume-process-produce loops work there, each in a process of its own, and readers follow them. They
    connect through a tap, which delays, loses and doubles their requests; clients are killed, paused, and replaced
    while they are paused. At the end everything is read, and the history is judged as by `fencepost verify check`.

    Ctrl-C ends the run early; what was seen until then is judged. The same --seed gives the same faults at the same
    times, but not the same history: the processes run freely.

    \b
    Example:
        fencepost verify cluster --bootstrap localhost:9092
        fencepost verify cluster --bootstrap kafka:9092 --seconds 300 --nemesis 'kubectl delete pod kafka-1'
        fencepost verify cluster --bootstrap kafka:9092 --clients librdkafka=3 --faults kill,zombie --html report.html
    """
    from fencepost.cli.demo import stopped_once
    from fencepost.cli.progress import progress_bar
    from fencepost.client.client import retry
    from fencepost.verify.cluster_run import ClusterRun
    from fencepost.verify.workload.plan import JAVA

    chosen = secrets.randbelow(MOST_SEED) if seed is None else seed
    for line in tap_faults:
        _check_fault(line)
    kinds = None if clients is None else parse_clients(clients)
    chosen_faults = parse_faults(faults)
    if history is not None:
        # A run of minutes must not end with a file that cannot be written.
        _write(history, lambda file: None)
    with tempfile.TemporaryDirectory(prefix="fencepost-verify-") as folder:
        with stopped_once(), progress_bar("verify") as (print_line, count), cluster.connect() as client:
            version = retry(lambda: client.transaction_version, 10.0)
            reasons = _reasons_against(version, java_clients)
            writers = _available(reasons) if kinds is None else _possible(reasons, kinds)
            options = _options(
                cluster,
                prefix=f"fencepost-verify-{secrets.token_hex(4)}",
                writers=writers,
                seconds=seconds,
                seed=chosen,
                faults=chosen_faults,
                tap_faults=tap_faults,
                command=nemesis,
                command_every_s=nemesis_every / 1000,
                replication_factor=-1 if replication_factor is None else replication_factor,
                keep=keep,
                transaction_version=int(version),
                java=_java_command(java_clients, Path(folder)) if JAVA in writers else (),
            )
            run = ClusterRun(options, Path(folder), print_line, lambda at_s: count(int(at_s), int(seconds)))
            print_line(_beginning(options))
            _go(run)
        for problem in run.problems:
            say(f"warning: {problem.replace(chr(10) * 2 + 'hint: ', '; ')}")
        file = history or str(Path(folder) / "history.jsonl")
        _write(file, run.write_history)
        try:
            judge_file(file, html, as_json)
        except Failure:
            if history is None:
                _keep_history(run, chosen)
            raise
    if run.is_incomplete:
        raise Unanswered(
            "the end of the run could not be read whole: partitions that could not be read were not judged",
            "the cluster did not answer, or answered with errors: run it again when it works",
        )


def _options(cluster: ClusterOptions, **given: Any) -> RunOptions:
    from fencepost.verify.cluster_run import RunOptions

    return RunOptions(settings=cluster.settings(), **given)


def _go(run: ClusterRun) -> None:
    from fencepost.client.client import KafkaClient
    from fencepost.tap.proxy import Unreached
    from fencepost.verify.cluster_run import TopicsRefused
    from fencepost.verify.workload.process import ClientFailed

    try:
        # A broker that a fault has stopped comes back: this client has more patience than that of a question.
        with KafkaClient(run.options.settings) as client:
            run.go(client)
    except ClientFailed as e:
        raise Failure(str(e), "a client of the workload has failed, which is a mistake of the verifier") from None
    except TopicsRefused as e:
        raise Failure(str(e), "records that the cluster deletes would count as lost: permit these settings") from None
    except Unreached as e:
        raise Unanswered(str(e), "is --bootstrap right, and is the broker running?") from None


def _beginning(options: RunOptions) -> str:
    who = ", ".join(f"{count} {kind}" for kind, count in options.writers.items())
    return (
        f"seed {options.seed}: {options.seconds:g} s with {who} writers and their copiers, "
        f"faults: {', '.join(options.faults) or NONE}; topics {options.prefix}-*"
    )


def _write(file: str, write: Callable[[IO[bytes]], None]) -> None:
    try:
        with open(file, "wb") as opened:
            write(opened)
    except OSError as e:
        raise Failure(f"cannot write {file}: {e.strerror}", "--history names a file in a folder that exists") from None


def _keep_history(run: ClusterRun, seed: int) -> None:
    """Anomalies were found, and the user did not name a file: keep the history as evidence."""
    with tempfile.NamedTemporaryFile(prefix=f"fencepost-verify-{seed}-", suffix=".jsonl", delete=False) as kept:
        run.write_history(kept.file)
    say(f"the history is in {kept.name}: `fencepost verify check` judges it again")


def parse_faults(text: str | None) -> Sequence[str]:
    """Raises WrongUse."""
    from fencepost.verify.nemesis.schedule import FAULTS

    if text is None:
        return FAULTS
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == [NONE]:
        return ()
    for word in words:
        if word not in FAULTS:
            raise WrongUse(f"--faults: {word!r} is none of {', '.join(FAULTS)}", f"or --faults {NONE}")
    return tuple(dict.fromkeys(words))


def parse_clients(text: str) -> dict[str, int]:
    """Raises WrongUse."""
    from fencepost.verify.workload.plan import KINDS

    found: dict[str, int] = {}
    for word in text.split(","):
        kind, equals, number = word.strip().partition("=")
        count = int(number) if number.isascii() and number.isdecimal() else 0 if equals else 1
        if kind not in KINDS:
            raise WrongUse(f"--clients: {kind!r} is none of {', '.join(KINDS)}", "for example --clients librdkafka=2")
        if not 1 <= count <= MOST_WRITERS:
            raise WrongUse(
                f"--clients: {word.strip()!r} does not say how many, from 1 to {MOST_WRITERS}",
                "for example --clients librdkafka=2",
            )
        found[kind] = count
    return found


def _available(reasons: Mapping[str, tuple[str, str]]) -> Mapping[str, int]:
    """The usual number of each kind of client that can work here."""
    from fencepost.verify.workload.plan import WRITERS

    for kind, (reason, hint) in reasons.items():
        say(f"without {kind} clients: {reason}; {hint}")
    return {kind: count for kind, count in WRITERS.items() if kind not in reasons}


def _possible(reasons: Mapping[str, tuple[str, str]], kinds: Mapping[str, int]) -> Mapping[str, int]:
    for kind, (reason, hint) in reasons.items():
        if kind in kinds:
            raise Failure(f"--clients {kind}: {reason}", hint)
    return kinds


def _reasons_against(version: TransactionVersion, java_clients: str | None) -> dict[str, tuple[str, str]]:
    """The kinds of clients that cannot work here, each with the reason and what to do."""
    from fencepost.verify.workload.java.finding import NoJava, find_java, find_library
    from fencepost.verify.workload.plan import JAVA, LIBRDKAFKA, OWN_V2

    found = {}
    if find_spec("confluent_kafka") is None:
        found[LIBRDKAFKA] = ("not installed: confluent-kafka", "pip install 'fencepost[verify]'")
    try:
        find_library(java_clients, os.environ)
        find_java(os.environ)
    except NoJava as e:
        found[JAVA] = (e.problem, e.hint)
    if not version.bumps_epoch:
        found[OWN_V2] = (
            f"the cluster has transaction.version {int(version)}, and they need 2",
            "name other kinds, or upgrade the feature transaction.version",
        )
    return found


def _java_command(java_clients: str | None, folder: Path) -> list[str]:
    from fencepost.verify.workload.java.finding import NoJava, compiled, find_java, find_library

    try:
        return compiled(find_library(java_clients, os.environ), find_java(os.environ), folder)
    except NoJava as e:
        raise Failure(e.problem, e.hint) from None


def _check_fault(line: str) -> None:
    from fencepost.faults.fault import EXAMPLE, BadFault, parse_line

    try:
        parse_line(line)
    except BadFault as e:
        problem, hint = with_hint(str(e), EXAMPLE)
        raise WrongUse(f"--fault: {problem}", hint) from None
