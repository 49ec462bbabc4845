"""The broker's log lines about clients that the ACLs denied something, and the count of denials for metrics.

    denied User:alice at 10.0.0.7: WRITE on topic orders (Produce)

A client that asks again and again gets one line a minute, and all clients together `LINES_A_MINUTE`. The rest is
counted, and the count is logged at the end of the minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fencepost.broker.api import APIS
from fencepost.machines.acl.acls import Denial, Operation, ResourceType
from fencepost.server.complaints import shortened

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
