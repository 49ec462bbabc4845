"""`fencepost tap`: a proxy that shows the transactions of clients on the wire, and causes faults.

A thread of its own prints, so that a slow terminal or pipe does not hold up the proxy.
"""

from __future__ import annotations

import ipaddress
import json
import os
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, TextIO, TypeVar

import click

from fencepost.cli.options import ClusterOptions, Unanswered, certificate_options, cluster_options, with_hint
from fencepost.cli.streams import Failure, WrongUse, say
from fencepost.counting import counted

T = TypeVar("T")
MOST_WAITING = 10_000
# How long the end waits for a reader that takes no lines.
END_S = 2.0


class PrintingThread(Generic[T]):
    """Lines of a stream, in order. If more of them wait than the limit, the next ones are left out and counted."""

    def __init__(
        self,
        stream: TextIO,
        line_of: Callable[[T], str],
        left_out_line: Callable[[int], str],
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._stream = stream
        self._line_of = line_of
        self._left_out_line = left_out_line
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._waiting: list[T] = []
        self._left_out = 0
        self._is_ended = False
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="fencepost-printing", daemon=True)
        self._thread.start()

    def add(self, item: T) -> None:
        """Print it soon. Raises OSError if the stream cannot be written any more, as when its reader has gone."""
        with self._changed:
            if self._has_failed:
                # Once more and in this thread, where the error ends the command.
                print(self._line_of(item), file=self._stream, flush=True)
            elif len(self._waiting) < self._most_waiting:
                self._waiting.append(item)
            else:
                self._left_out += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Print what waits, unless the reader is too slow even for that. Raises OSError as `add` does."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        self._thread.join(END_S)
        if self._has_failed:
            print(file=self._stream, flush=True)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._left_out or self._is_ended)
                items, self._waiting = self._waiting, []
                left_out, self._left_out = self._left_out, 0
            if not items and not left_out:
                return  # It has ended, and everything is printed.
            lines = [self._line_of(item) for item in items]
            if left_out:  # They came after all that waited.
                lines.append(self._left_out_line(left_out))
            try:
                self._write("".join(f"{line}\n" for line in lines))
            except OSError:
                with self._changed:
                    self._has_failed = True
                return

    def _write(self, text: str) -> None:
        """Not through the stream: a write that waits would keep its lock, and the process could not end."""
        left = memoryview(text.encode(self._stream.encoding, "backslashreplace"))
        while left:
            left = left[os.write(self._stream.fileno(), left) :]


if TYPE_CHECKING:
    from fencepost.faults.fault import Fault
    from fencepost.tap.decoding import WireEvent

HINT = "\n\nhint: "
# As in the other commands: green is good or committed, red is bad or aborted.
COLOURS = {"ok": "green", "committed": "green", "aborted": "red", "error": "red", "fault": "magenta"}


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9093",
    show_default=True,
    help="The address for clients. Each broker of the cluster gets a port of its own, from the next one on. Port 0 "
    "picks free ports.",
)
@click.option(
    "--advertise",
    metavar="HOST",
    help="The host for clients that cannot use the one of --listen: behind a port mapping or NAT. The ports stay the "
    "same.",
)
@click.option(
    "--fault",
    "faults",
    metavar="FAULT",
    multiple=True,
    help="A fault, such as 'delay EndTxn 2s', 'drop EndTxn reply', 'duplicate Produce', 'disconnect InitProducerId' or "
    "'error AddPartitionsToTxn COORDINATOR_NOT_AVAILABLE times=3'. Repeatable.",
)
@click.option("--fetches", is_flag=True, help="Also show the fetches of readers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
@click.option("--output", metavar="FILE", help="Append the lines to FILE instead of stdout.")
@certificate_options
@cluster_options
def tap(
    listen: str,
    advertise: str | None,
    faults: tuple[str, ...],
    fetches: bool,
    as_json: bool,
    output: str | None,
    client_tls: ssl.SSLContext | None,
    cluster: ClusterOptions,
) -> None:
    """Show the transactions of any clients on the wire, and cause faults

    A proxy for clients that cannot be changed, and any Kafka: clients connect to --listen instead of the cluster. The
    tap replaces the addresses of brokers by its own and passes everything else on as it is. It prints a line for each
    request and reply of a transaction: time, connection, client, API with its version, transactional id, producer id
    and epoch, what it asks for, and for a reply its error and duration.

    A fault is an action (delay, drop, disconnect, error, duplicate), an API (`*` for every API), and what the action
    needs. It strikes the next request, or times=N, times=always; skip=N requests pass first; client_id=PATTERN names
    clients; `request` strikes before the broker sees the request, `reply` after it has carried it out.

    The login of a client (SASL) passes through. With security.protocol=SSL, the tap speaks TLS with the cluster. Prints
    `ready HOST:PORT` on stderr as soon as clients can connect; Ctrl-C or SIGTERM ends it.

    \b
    Example:
        fencepost tap --bootstrap kafka:9092 --listen 127.0.0.1:9093
        fencepost tap --bootstrap kafka:9092 --json --output wire.jsonl
        fencepost tap --bootstrap kafka:9092 --fault 'drop EndTxn reply' --fault 'delay Produce 500ms times=10'
    """
    from fencepost.cli.broker import parse_address
    from fencepost.client.failures import BadClientSetting
    from fencepost.client.settings import parse_settings
    from fencepost.printable import printable
    from fencepost.tap.proxy import PortUnusable, Proxy, Unreached
    from fencepost.tap.running import run

    address = parse_address(listen)
    if advertise is not None:
        _check_host(advertise)
    set_faults = [(line, _parsed(line)) for line in faults]
    is_ready = False

    def ready() -> None:
        nonlocal is_ready
        is_ready = True
        say(f"ready {running.address}")

    try:
        settings = parse_settings(cluster.settings())
        with _lines_to(output) as stream, _shown(stream, as_json) as show:
            running = Proxy(
                settings,
                address,
                show=show,
                say=lambda text: say(f"warning: {printable(text.replace(HINT, '; '))}"),
                shows_fetches=fetches,
                client_tls=client_tls,
                advertised_host=advertise,
            )
            for _, fault in set_faults:
                running.add_fault(fault)
            run(running, ready)
    except BadClientSetting as e:
        raise WrongUse(*with_hint(str(e), "the settings are those of Kafka's clients")) from None
    except PortUnusable as e:
        raise Failure(str(e), "choose another address with --listen") from None
    except Unreached as e:
        raise Unanswered(
            str(e), "is --bootstrap right, is the broker running, and is security.protocol right?"
        ) from None
    except OSError as e:
        if output is None:
            raise  # Of stdout.
        raise Failure(f"cannot write to {output}: {e.strerror}", "is its disk full?") from None
    finally:
        for line, fault in set_faults if is_ready else ():
            say(f"the fault '{line}' struck {counted(fault.hits, 'time') if fault.hits else 'nothing'}")


def _parsed(line: str) -> Fault:
    from fencepost.faults.fault import EXAMPLE, BadFault, parse_line

    try:
        return parse_line(line)
    except BadFault as e:
        problem, hint = with_hint(str(e), EXAMPLE)
        raise WrongUse(f"--fault: {problem}", hint) from None


def _check_host(host: str) -> None:
    """Raises WrongUse for what clients cannot connect to, such as an address with a port."""
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return
    if not host or not host.isprintable() or set(host) & set(":/[] "):
        raise WrongUse(f"--advertise {host!r} is not a host", "write a name or an IP address, without a port")


@contextmanager
def _lines_to(output: str | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    try:
        file = open(output, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as e:
        raise Failure(f"cannot write to {output}: {e.strerror}", "--output names a file") from None
    with file:
        yield file


@contextmanager
def _shown(stream: TextIO, as_json: bool) -> Iterator[Callable[[WireEvent], None]]:
    """Prints events. A terminal or a pipe that takes lines slowly does not hold the clients of the tap up."""
    from fencepost.cli.tap import PrintingThread
    from fencepost.tap.text import document_of, line_of, plain

    def style(text: str, meaning: str) -> str:
        return click.style(text, fg=COLOURS[meaning])

    coloured = style if stream.isatty() else plain

    def line(event: WireEvent) -> str:
        return json.dumps(document_of(event)) if as_json else line_of(event, coloured)

    def left_out(count: int) -> str:
        if as_json:
            return json.dumps({"kind": "left_out", "count": count})
        return f"... {counted(count, 'line')} left out, because they were read too slowly"

    printing = PrintingThread(stream, line, left_out)
    try:
        yield printing.add
    finally:
        printing.end()
