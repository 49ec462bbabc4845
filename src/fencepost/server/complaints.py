"""The broker's log lines about clients that misbehave, or that the ACLs denied something: enough to find them.

Bad input is one line without a traceback, and there are never more than a few lines a second. A bug in the broker shows
its traceback once for each place in the source.

    denied User:alice at 10.0.0.7: WRITE on topic orders (Produce)

A client that asks again and again gets one such line a minute, and all clients together `LINES_A_MINUTE`. The rest is
counted, and the count is logged at the end of the minute.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from fencepost.broker.api import APIS
from fencepost.machines.acl.acls import Denial, Operation, ResourceType

LINES_A_SECOND = 20
MAX_LINE = 400
MAX_PLACES = 1000

_HTTP = (b"GET ", b"PUT ", b"HEAD", b"POST", b"PATC", b"DELE", b"OPTI", b"CONN", b"TRAC", b"PRI ")
_OTHERS = {b"SSH-": "SSH", b"HELO": "SMTP", b"EHLO": "SMTP"}


def guess_protocol(head: bytes) -> str:
    """The protocol of a client whose first bytes are not the length of a Kafka request; empty if unknown."""
    if head[:4] in _HTTP:
        return "HTTP"
    # A TLS record: handshake, and a version that begins with 3.
    if head[:2] == b"\x16\x03":
        return "TLS"
    return _OTHERS.get(head[:4], "")


class Complaints:
    def __init__(self, warning: Callable[[str], None], error: Callable[[str], None] | None = None) -> None:
        """`error` logs the bugs of the broker; without it, they are warnings too."""
        self._warning = warning
        self._error = error or warning
        self._second = 0
        self._lines = 0
        self._suppressed = 0
        self._places: set[tuple[str, int, str]] = set()

    def line(self, text: str) -> None:
        """Log one line; beyond the limit it is only counted, and `flush` logs the count."""
        second = int(time.monotonic())
        if second != self._second:
            self.flush()
            self._second, self._lines = second, 0
        if self._lines < LINES_A_SECOND:
            self._lines += 1
            self._say(self._warning, shortened(text))
        else:
            self._suppressed += 1

    def flush(self) -> None:
        """Called regularly, so that the count does not wait for the next complaint."""
        if self._suppressed:
            count, self._suppressed = self._suppressed, 0
            self._say(self._warning, f"{count} more lines like these within a second")

    def bug(self, error: BaseException) -> None:
        """Log the traceback of a bug, the first time that it comes from its place."""
        frames = traceback.extract_tb(error.__traceback__)
        place = (frames[-1].filename, frames[-1].lineno or 0, type(error).__name__) if frames else ("", 0, "")
        if place not in self._places and len(self._places) < MAX_PLACES:
            self._places.add(place)
            self._say(self._error, "".join(traceback.format_exception(error)).rstrip())

    def _say(self, log: Callable[[str], None], text: str) -> None:
        # The log may be a file on a full disk. The connection must be closed all the same.
        with suppress(OSError, ValueError):
            log(text)


def shortened(text: str) -> str:
    """A text that a client may have made very long."""
    return text if len(text) <= MAX_LINE else text[:MAX_LINE] + "…"


LINES_A_MINUTE = 60
MINUTE_S = 60.0
MAX_NAME = 249  # As long as the longest name of a topic.


class Denials:
    def __init__(self, log: Callable[[str], None], later: Callable[[float, Callable[[], None]], object]) -> None:
        """`later(seconds, action)` calls the action when the time has passed."""
        self.counts: Counter[tuple[int, Operation, ResourceType]] = Counter()  # By API key, operation and resource.
        self._log = log
        self._later = later
        self._logged: set[Denial] = set()  # In this minute, which begins with a denial.
        self._unlogged = 0

    def add(self, denial: Denial) -> None:
        self.counts[denial.api_key, denial.operation, denial.resource_type] += 1
        if not self._logged:
            self._later(MINUTE_S, self._end_minute)
        denial = denial._replace(name=denial.name[:MAX_NAME])
        if denial in self._logged or len(self._logged) >= LINES_A_MINUTE:
            self._unlogged += 1
        else:
            self._logged.add(denial)
            self._log(shortened(in_words(denial)))

    def _end_minute(self) -> None:
        if self._unlogged:
            self._log(f"{self._unlogged} more denials within a minute; a denial that repeats has one line a minute")
        self._logged.clear()
        self._unlogged = 0


def in_words(denial: Denial) -> str:
    resource = denial.resource_type.words
    if denial.resource_type is not ResourceType.CLUSTER:
        resource = f"{resource} {denial.name}"
    api = APIS[denial.api_key].name
    return f"denied {denial.principal} at {denial.host}: {denial.operation.name} on {resource} ({api})"
