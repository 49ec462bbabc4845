"""The broker's log on stderr: one line for each event, with its time (UTC) and its level.

    2026-11-16T21:52:01.004Z INFO    listens on 127.0.0.1:9092
    2026-11-16T21:52:07.310Z TXN     begin    orders-1 (producer 1000, epoch 0)

A text is one line, whatever a client put into it; that of an error, which is often a traceback, may have several.
Lines below the chosen level are left out. Lines of `--log txn` have a level of their own and are always written.
Lines are not buffered, so those before a crash are in the log. A terminal or pipe that stops reading stops the broker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING

from fencepost import __version__
from fencepost.broker.cluster import BrokerAddress, Cluster
from fencepost.broker.config import Config, setting_of
from fencepost.broker.coordinator.txn_trace import TxnEvent
from fencepost.broker.listeners import PLAINTEXT, format_address
from fencepost.counting import counted
from fencepost.machines.txn.states import IDLE
from fencepost.printable import printable

if TYPE_CHECKING:
    from fencepost.server.listeners import Listener


class Level(IntEnum):
    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


def _to_stderr(line: str) -> None:
    # One system call, without Python's buffers, which take longer than everything else that a line needs.
    with suppress(OSError):  # Standard error may be a file on the disk that is full.
        os.write(2, f"{line}\n".encode(errors="backslashreplace"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class OperatorLog:
    """Writes the lines; `write` takes each of them, without its newline."""

    def __init__(
        self,
        level: Level = Level.INFO,
        write: Callable[[str], None] = _to_stderr,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.level = level
        self._write = write
        self._now_ms = now_ms
        self._second = -1
        self._date = ""  # Of `_second`.

    def debug(self, text: str) -> None:
        self._log(Level.DEBUG, [text])

    def info(self, text: str) -> None:
        self._log(Level.INFO, [text])

    def warning(self, text: str) -> None:
        self._log(Level.WARNING, [text])

    def error(self, text: str) -> None:
        self._log(Level.ERROR, text.split("\n"))

    def txn(self, event: TxnEvent) -> None:
        self._write(f"{self._stamp()} TXN     {printable(describe(event))}")

    def _log(self, level: Level, lines: Iterable[str]) -> None:
        if level >= self.level:
            for line in lines:
                if line.strip():
                    self._write(f"{self._stamp()} {level.name:<7} {printable(line)}")

    def _stamp(self) -> str:
        second, ms = divmod(self._now_ms(), 1000)
        if second != self._second:
            self._second, self._date = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._date}.{ms:03d}Z"


def describe(event: TxnEvent) -> str:
    """One event as text."""
    name = event.transactional_id or "(unknown id)"
    text = f"{event.kind.value:<8} {name} (producer {event.producer_id}, epoch {event.producer_epoch})"
    return f"{text}: {event.about}" if event.about else text


def starting_line(data: str | None) -> str:
    where = "in memory" if data is None else f"in {os.path.abspath(data)}"
    return f"fencepost {__version__} starts as process {os.getpid()}, data {where}"


def settings_line(config: Config) -> str:
    """The settings that are not defaults, without the secrets among them."""
    changed = []
    for name, value in sorted(config.given.items()):
        setting = setting_of(name)
        assert setting is not None
        if value != setting.default:
            shown = "[hidden]" if setting.kind == "password" else value
            changed.append(f"{name}={str(shown).lower() if isinstance(value, bool) else shown}")
    return f"settings: {', '.join(changed)}" if changed else "settings: all have their defaults"


def ready_text(listeners: Sequence[Listener], clusters: Sequence[Cluster], took_ms: int) -> str:
    text = f"listens on {' and '.join(_addresses_of(listener) for listener in listeners)}"
    topics = counted(len(clusters[0].topics), "topic")
    return f"{text}; ready after {took_ms} ms with {topics} and {_open_txns(clusters)}"


def stopped_text(data: str | None, clusters: Sequence[Cluster], connections: int, took_ms: int) -> str:
    closed = f"{counted(connections, 'connection')} closed"
    if data is None:
        return f"stopped after {took_ms} ms: {closed}; the data was in memory and is gone"
    from fencepost.server.storage.last_stop import CLEAN_NAME

    if not os.path.exists(os.path.join(data, CLEAN_NAME)):
        return f"stopped after {took_ms} ms, but not cleanly: {closed}; the next start recovers the data"
    saved = counted(sum(topic.partition_count for topic in clusters[0].topics.values()), "partition")
    return f"stopped cleanly after {took_ms} ms: {closed}, {saved} saved; {_open_txns(clusters)}"


def _addresses_of(listener: Listener) -> str:
    text = _addresses(listener.listens_on)
    labels = dict.fromkeys((listener.endpoint.name, listener.endpoint.protocol))
    if list(labels) != [PLAINTEXT]:
        text += f" ({', '.join(labels)})"
    if listener.listens_on != listener.given_to_clients:
        text += f", clients are given {_addresses(listener.given_to_clients)}"
    return text


def _addresses(brokers: Sequence[BrokerAddress]) -> str:
    return ", ".join(format_address(broker.host, broker.port) for broker in brokers)


def _open_txns(clusters: Sequence[Cluster]) -> str:
    txns = (txn for cluster in clusters for txn in cluster.txns.all_txns())
    return counted(sum(txn.state not in IDLE for txn in txns), "open transaction")
