"""The work of the checkers grows with the history, also if a broken broker made thousands of mistakes."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from fencepost.verify.checkers import check_history
from fencepost.verify.checkers.arranging import arrange
from fencepost.verify.history import Acked, End, Event, Poll, TxnEnded
from tests.unit.verify.checkers.simulated import Run

RECORDS = 3000
# Of the transactions that were committed.
MISTAKES = 0.1


def with_mistakes(run: Run) -> Iterator[Event]:
    """Some commits of version 1 are aborts that readers got, some of them without acknowledgements; others are torn."""
    rng = random.Random(run.seed)
    committed = [(e.by, e.txn) for e in run.events if isinstance(e, TxnEnded) and e.outcome == "committed"]
    chosen = rng.sample(committed, int(len(committed) * MISTAKES))
    aborted, unacknowledged, torn = set(chosen[::3]) | set(chosen[1::3]), set(chosen[1::3]), set(chosen[2::3])
    missing = {f"{by}:{number}:0" for by, number in torn}
    for event in run.events:
        if isinstance(event, TxnEnded) and (event.by, event.txn) in aborted:
            yield event._replace(outcome="aborted")
        elif isinstance(event, End) and (event.by, event.txn) in aborted:
            yield event._replace(commit=False)
        elif isinstance(event, Poll):
            yield event._replace(records=[record for record in event.records if record[1] not in missing])
        elif not isinstance(event, Acked) or (event.by, int(event.value.split(":")[1])) not in unacknowledged:
            yield event


def calls_to_judge(run: Run) -> tuple[int, int]:
    """How many calls of Python functions it takes to judge a run with mistakes, and how many anomalies are found."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    index = arrange(run.header, with_mistakes(run))
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = check_history(index)
    finally:
        sys.setprofile(before)
    return calls, len(found)


def test_twice_the_history_with_twice_the_mistakes_is_twice_the_work() -> None:
    calls, found = calls_to_judge(Run(1).play(RECORDS))
    more_calls, more_found = calls_to_judge(Run(1).play(2 * RECORDS))
    assert more_found > 1.8 * found > 100
    assert more_calls < 2.3 * calls
