"""What one client has noted: its part of the history, in a file that survives the client.

Each event is one write of a whole line. A client that takes the place of one that was killed continues its file, and
finds there the transaction that it left unfinished.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.verify.history import Begin, End, Event, Send, TxnEnded, TxnOutcome, encode
from fencepost.verify.workload.producer import key_of


class Unfinished(NamedTuple):
    """A transaction that its client cannot end. It is over when the next producer of its id is initialised."""

    txn: int
    outcome: TxnOutcome  # Its outcome then.
    error: str = ""


class Notes:
    def __init__(self, path: Path, by: str) -> None:
        self.by = by
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        lines = whole_lines(path.read_bytes())
        # A kill may have cut off the last line.
        os.truncate(self._fd, sum(map(len, lines)))
        events = [json.loads(line) for line in lines]
        self._last_txn, self.left_behind = find_unfinished(events)
        self.last_read = find_last_read(events)
        self._place = 0

    def note(self, event: Event) -> None:
        os.write(self._fd, encode(event).encode())

    def begin(self) -> int:
        self._last_txn += 1
        self._place = 0
        self.note(Begin(now(), self.by, self._last_txn))
        return self._last_txn

    def send(self, txn: int, topic: str, partition: int, source: tuple[str, int, int] | None = None) -> str:
        """Note that a record is about to be sent; return its value."""
        value = f"{self.by}:{txn}:{self._place}"
        self._place += 1
        self.note(Send(now(), self.by, txn, value, topic, partition, source, key_of(value)))
        return value

    def end(self, txn: int, commit: bool) -> None:
        self.note(End(now(), self.by, txn, commit))

    def ended(self, txn: int, outcome: TxnOutcome, error: str = "") -> None:
        self.note(TxnEnded(now(), self.by, txn, outcome.value, error))


def now() -> int:
    return time.monotonic_ns()


def whole_lines(content: bytes) -> list[bytes]:
    return [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


def find_last_read(events: Any) -> dict[tuple[str, int], int]:
    """The offset behind the last record that a reader got of each partition. `events` are JSON objects."""
    return {
        (event["topic"], event["partition"]): event["records"][-1][0] + 1
        for event in events
        if event["event"] == "poll" and event["records"]
    }


def find_unfinished(events: Any) -> tuple[int, Unfinished | None]:
    """The number of the last transaction, or -1, and that transaction if it is not over. `events` are JSON objects."""
    last, is_over, is_asked = -1, True, False
    for event in events:
        if event["event"] == "begin":
            last, is_over, is_asked = event["txn"], False, False
        elif event["event"] == "end":
            is_asked = is_asked or event["commit"]
        elif event["event"] == "ended":
            is_over = True
    if is_over:
        return last, None
    return last, Unfinished(last, TxnOutcome.UNKNOWN if is_asked else TxnOutcome.ABORTED, "KILLED")
