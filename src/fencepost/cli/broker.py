"""`fencepost broker`: runs a broker until a signal stops it, and with `--web` the workbench beside it.

The workbench is a process of its own: a page that asks much of it takes no time from the broker. The child ends when
its stdin closes, which it does however the broker ends.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from fencepost.cli.options import with_hint
from fencepost.cli.streams import Failure, WrongUse, announce, say
from fencepost.counting import whole_number
from fencepost.interrupts import EndsAtOnce

if TYPE_CHECKING:
    from fencepost.server.listeners import Listener

DEFAULT_WEB_ADDRESS = "127.0.0.1:8080"
PLAINTEXT = "PLAINTEXT"
STOP_TIMEOUT_S = 5.0
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def check_web(address: str, protocols: Collection[str]) -> None:
    """Raises Failure or WrongUse if the workbench cannot run beside a broker whose listeners have these protocols."""
    from fencepost.cli.broker import parse_address
    from fencepost.cli.web import INSTALL

    host, _ = parse_address(address)
    try:
        from fencepost.web.serving import is_loopback
    except ModuleNotFoundError as e:
        raise Failure(f"not installed: {e.name}", INSTALL) from None
    if not is_loopback(host):
        raise WrongUse(
            f"other machines reach {address}, and --web has no token",
            "run `fencepost web --token-file FILE` beside the broker, or use a loopback address",
        )
    if PLAINTEXT not in protocols:
        raise WrongUse(
            "--web needs a listener without login and TLS",
            "add a PLAINTEXT listener on 127.0.0.1, or run `fencepost web --command-config FILE` beside the broker",
        )


class WorkbenchBeside:
    def __init__(self, address: str) -> None:
        self._address = address
        self._child: subprocess.Popen[str] | None = None
        self._is_stopping = False

    def start(self, listeners: Sequence[Listener]) -> None:
        """Call it when clients can connect to the broker."""
        from fencepost.child import start_module

        bootstrap = bootstrap_of(listeners)
        arguments = ("--bootstrap", bootstrap, "--listen", self._address, "--until-stdin-closes")
        self._child = start_module("fencepost", "web", *arguments)
        threading.Thread(target=self._announce, args=(self._child,), daemon=True).start()

    def _announce(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        ready = child.stdout.readline().split()
        if ready[:1] == ["ready"]:
            say(f"the workbench is at {ready[1]}")
        elif not self._is_stopping:
            # The child has said why, with the hints of `fencepost web`.
            say(
                "warning: the broker runs without the workbench\n\nhint: if its address was the reason, choose another "
                "address with --web HOST:PORT; --listen is for the broker"
            )

    def stop(self) -> None:
        child = self._child
        if child is None:
            return
        self._is_stopping = True
        assert child.stdin is not None
        with suppress(OSError):
            child.stdin.close()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def bootstrap_of(listeners: Sequence[Listener]) -> str:
    """The address of each node, as a client on the same machine reaches it without a login."""
    listener = next(listener for listener in listeners if listener.endpoint.protocol == PLAINTEXT)
    hosts = [(EVERY_ADDRESS.get(host, host), port) for _, host, port in listener.listens_on]
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)


MAX_PORT = 65_535
MAX_BROKERS = 16
DEFAULT_ADDRESS = "127.0.0.1:9092"
MAX_PARTITIONS = 2_147_483_647  # Kafka's own rules allow fewer, and say so.
SETTINGS_HINT = "docs/reference/settings.md lists the settings, with their values and defaults"


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="The address for clients. Port 0 picks a free port; IPv6 is written [::1]:9092.  [default: 127.0.0.1:9092] "
    "The setting `listeners` has several addresses, with TLS and login.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="The address for clients that cannot use the one of --listen: behind a port mapping or NAT. "
    "The same as --set advertised.listeners=PLAINTEXT://HOST:PORT.",
)
@click.option("--data", metavar="DIR", help="The folder for all data; created if it does not exist.")
@click.option("--memory", is_flag=True, help="Keep all data in memory, until the broker stops.")
@click.option(
    "--brokers",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help=f"The number of nodes, up to {MAX_BROKERS}, in one process and over one folder: each has a port of its own, "
    "from that of --listen on, and leads some of the partitions.",
)
@click.option("--config", "file", metavar="FILE", help="A file of settings, one name=value per line (Java properties).")
@click.option("--set", "pairs", metavar="NAME=VALUE", multiple=True, help="One setting; overrides FILE. Repeatable.")
@click.option(
    "--topic",
    "topics",
    metavar="NAME[:PARTITIONS]",
    multiple=True,
    help="Create this topic at the start if it does not exist. Repeatable. It is an error if the topic exists with "
    "another number of partitions.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus at http://HOST:PORT/metrics.")
@click.option(
    "--web",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=DEFAULT_WEB_ADDRESS,
    help="Run the workbench beside the broker: the pages of `fencepost web`, which only read.  "
    f"[without an address: {DEFAULT_WEB_ADDRESS}]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least important lines of the log on stderr.",
)
@click.option(
    "--log",
    "logs",
    type=click.Choice(["txn"]),
    multiple=True,
    help="txn: also log each begin, added partition, decision, marker, fence and timeout of a transaction.",
)
@click.option("--control-on-stdin", is_flag=True, hidden=True)
@EndsAtOnce()
def broker(
    listen: str | None,
    advertise: str | None,
    data: str | None,
    memory: bool,
    brokers: int,
    file: str | None,
    pairs: tuple[str, ...],
    topics: tuple[str, ...],
    metrics: str | None,
    web: str | None,
    log_level: str,
    logs: tuple[str, ...],
    control_on_stdin: bool,
) -> None:
    """Run a Kafka broker

    Prints `ready HOST:PORT` on stdout as soon as clients can connect; that is the address of --listen, also if
    --advertise gives clients another one. The log is on stderr. Ctrl-C, SIGTERM or SIGHUP stops the broker cleanly;
    after kill -9, the next start on the same folder recovers the data. Settings have Kafka's names and defaults.

    \b
    Example:
        fencepost broker --data ./brew-data
        fencepost broker --listen 127.0.0.1:0 --memory --set transaction.max.timeout.ms=60000
        fencepost broker --data ./brew-data --metrics 127.0.0.1:9404 --log-level warning
        fencepost broker --memory --topic orders:3 --topic payments --log txn
        fencepost broker --data ./brew-data --brokers 3
        fencepost broker --data ./brew-data --web
        fencepost broker --data ./brew-data --listen 127.0.0.1:9092 --advertise broker.example.com:19092
    """
    host, port = parse_address(listen or DEFAULT_ADDRESS)
    metrics_address = parse_address(metrics) if metrics is not None else None
    advertised = parse_address(advertise) if advertise is not None else None
    # `--data "$UNSET"` is empty, and an empty path would mean the current folder.
    if data is not None and not data.strip():
        raise WrongUse("--data is empty", "name a folder, for example --data ./brew-data; `.` is the current one")
    if data is None and not memory:
        raise WrongUse(
            "no place for the data", "name a folder with --data DIR, or keep the data in memory with --memory"
        )
    if data is not None and memory:
        raise WrongUse(f"both --data {data} and --memory", "choose one of them")
    if not 1 <= brokers <= MAX_BROKERS:
        raise WrongUse(f"--brokers {brokers} is not possible", f"choose a number from 1 to {MAX_BROKERS}")
    wanted = parse_topics(topics)
    control = None
    if control_on_stdin:
        from fencepost.server.control import Control

        control = Control()
        control.start()

    from fencepost.server.addresses import endpoints
    from fencepost.server.app import Settings, serve
    from fencepost.server.operator_log import Level
    from fencepost.server.startup import BadSetting, explain, load_config, ready_line

    try:
        config = load_config(file, pairs, advertised)
        listeners = endpoints(config, host, port)
    except BadSetting as error:
        raise WrongUse(*with_hint(str(error), SETTINGS_HINT)) from None
    if config["listeners"] and (listen is not None or advertise is not None):
        option, setting = ("--listen", "listeners") if listen is not None else ("--advertise", "advertised.listeners")
        raise WrongUse(
            f"both {option} and the setting listeners={config['listeners']}",
            f"leave out {option}; {setting} has its place",
        )
    if web is not None:
        check_web(web, {endpoint.protocol for endpoint in listeners})
    workbench = WorkbenchBeside(web) if web is not None else None

    def ready(listeners: list[Listener]) -> None:
        announce(ready_line(listeners))
        if workbench is not None:
            workbench.start(listeners)

    try:
        settings = Settings(
            host=host,
            port=port,
            data=data,
            brokers=brokers,
            config=config,
            topics=wanted,
            metrics=metrics_address,
            control=control,
            log_level=Level[log_level.upper()],
            logs_txns="txn" in logs,
        )
        serve(settings, ready)
    except Exception as error:
        reason = explain(error, data)
        if reason is None:
            raise
        raise Failure(reason) from None
    finally:
        if workbench is not None:
            workbench.stop()


def parse_topics(texts: tuple[str, ...]) -> dict[str, int | None]:
    """The topics of --topic: the number of partitions by name, None where it is not given."""
    found: dict[str, int | None] = {}
    for text in texts:
        name, colon, count = text.partition(":")
        number = whole_number(count, MAX_PARTITIONS) if colon else None
        if not name or (colon and not number):
            raise WrongUse(f"--topic {text} is not a topic", "write NAME:PARTITIONS, for example --topic orders:3")
        if found.setdefault(name, number) != number:
            raise WrongUse(
                f"--topic {name} with {found[name] or 'the default number of'} and with "
                f"{number or 'the default number of'} partitions",
                "name each topic once",
            )
    return found


def parse_address(text: str) -> tuple[str, int]:
    """Split HOST:PORT; the brackets around an IPv6 host are removed."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not port or not colon or not host or (":" in host) != bracketed:
        raise WrongUse(f"{text} is not an address", "write HOST:PORT, for example 127.0.0.1:9092 or [::1]:9092")
    number = whole_number(port, MAX_PORT)
    if number is None:
        raise WrongUse(f"there is no port {port}", "ports go up to 65535; 0 picks a free one")
    return host, number


if TYPE_CHECKING:
    from fencepost.server.listeners import Listener
