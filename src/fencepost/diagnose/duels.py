"""Two processes with one transactional id: each registers when it finds itself fenced, and so fences the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.diagnose.history import is_fenced_by_order
from fencepost.diagnose.snapshot import LogEntry
from fencepost.machines.txn.states import COMPLETE_COMMIT, EMPTY, Txn

# A process that restarts does not register so often in this time: two processes fence each other.
DUEL_REGISTRATIONS = 4
DUEL_MS = 60_000
# A duel that ended earlier than this is history.
DUEL_IS_OVER_MS = 600_000


class Duel(NamedTuple):
    registrations: int
    first_ms: int
    last_ms: int


def find_duel(entries: Sequence[LogEntry], now_ms: int) -> Duel | None:
    """The duel that the records of an id show, oldest first; None if they show none, or if it is over."""
    txns = [entry.txn for entry in entries]
    times = [
        txn.updated_ms
        for before, txn in zip([None, *txns], txns, strict=False)
        if txn is not None and is_registration(before, txn)
    ]
    last = [ms for ms in times if times[-1] - ms <= DUEL_MS]
    if len(last) < DUEL_REGISTRATIONS or now_ms - last[-1] > DUEL_IS_OVER_MS:
        return None
    return Duel(len(last), last[0], last[-1])


def is_registration(before: Txn | None, txn: Txn) -> bool:
    """Whether a producer registered that may have fenced another.

    One after a commit does not count: with TV1 our sink registers before each micro-batch. Neither does the order of an
    operator.
    """
    if txn.state is not EMPTY or is_fenced_by_order(before, txn):
        return False
    return before is None or before.state is not COMPLETE_COMMIT
