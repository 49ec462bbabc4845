"""The settlements of the refunds, and their verdict, which fails when it should: a wrong history for each way."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fencepost.demo.refunds.settlements import Settlement, due, plan_transactions
from fencepost.demo.refunds.verdict import Found, judge
from fencepost.demo.topics import Seen

SETTLEMENTS, REFUNDS, AUDIT = "settlements", "refunds-emitted", "refund-audit"
DUE = {id_: Settlement(id_, "crema-and-co", 10_000) for id_ in ("a", "b", "c")}
RIGHT = 9_725  # 2.75 % less.
ENDS = {(SETTLEMENTS, 0): 40, (SETTLEMENTS, 1): 50}

ONE_REFUND, ONE_AUDIT, NOT_DUE, AMOUNTS, WATCHED, COMMITS, OFFSETS = (
    "settlements with exactly one refund",
    "settlements with exactly one audit row",
    "rows without a committed settlement",
    "wrong amounts",
    "differences seen by the reader that ran throughout",
    "commits in which every refund came with its audit row",
    "the group's offsets equal the end offsets of the settlements",
)


def rows(topic: str, *ids: str, run: int = 1, batch: int = 0, cents: int = RIGHT, first: int = 0) -> list[Seen]:
    value = json.dumps({"refund_cents": cents, "run": run, "batch": batch})
    return [Seen(topic, 0, first + i, id_, value) for i, id_ in enumerate(ids)]


def batch(*ids: str, **tags: int) -> list[Seen]:
    """Refunds and audit rows of one commit."""
    return rows(REFUNDS, *ids, **tags) + rows(AUDIT, *ids, **tags)


RIGHT_HISTORY = batch("a", "b") + batch("c", batch=1, first=3)


def found(final: list[Seen], watched: list[Seen] | None = None, **changed: Any) -> Found:
    return replace(
        Found(DUE, REFUNDS, AUDIT, final, final if watched is None else watched, ENDS, dict(ENDS)), **changed
    )


def failed(history: Found) -> dict[str, list[str]]:
    """The claims that do not hold, with what they have to say about it."""
    verdict = judge(history)
    wrong = {check.claim: list(check.evidence or check.found) for check in verdict.checks if not check.holds}
    assert verdict.is_exactly_once == (not wrong)
    assert str(verdict).startswith("exactly once: no (" if wrong else "exactly once: yes")
    return wrong


def test_a_right_history_is_exactly_once() -> None:
    assert failed(found(RIGHT_HISTORY)) == {}
    assert str(judge(found(RIGHT_HISTORY))) == "exactly once: yes"
    assert judge(found(RIGHT_HISTORY)).commits == 2


def test_a_lost_settlement_is_named() -> None:
    history = batch("a", "b")
    assert failed(found(history)) == {ONE_REFUND: ["c has no refund"], ONE_AUDIT: ["c has no audit row"]}
    assert str(judge(found(history))) == (
        "exactly once: no (2 rows missing, 0 duplicates, 0 refunds without an audit row)"
    )


def test_a_micro_batch_that_was_written_twice_is_counted() -> None:
    history = RIGHT_HISTORY + batch("c", run=2, batch=1, first=5)
    assert failed(found(history)) == {ONE_REFUND: ["c has 2 refunds"], ONE_AUDIT: ["c has 2 audit rows"]}
    assert judge(found(history)).duplicates == 2


def test_a_row_three_times_is_two_duplicates() -> None:
    history = RIGHT_HISTORY + rows(AUDIT, "a", "a", first=9)
    assert judge(found(history)).audit.duplicates == 2
    assert failed(found(history))[ONE_AUDIT] == ["a has 3 audit rows"]


def test_a_refund_whose_audit_row_came_with_a_later_commit_is_torn_although_the_totals_are_right() -> None:
    history = batch("a", "b") + rows(REFUNDS, "c", run=1, batch=1, first=3) + rows(AUDIT, "c", run=2, batch=1, first=3)
    assert failed(found(history)) == {
        COMMITS: [
            "run 1, micro-batch 1: 1 refunds without their audit rows, for example for c",
            "run 2, micro-batch 1: 1 audit rows without refunds, for example for c",
        ]
    }
    assert judge(found(history)).refunds_without_audit == 1


def test_what_an_at_least_once_sink_leaves_after_a_crash() -> None:
    """The refunds of a micro-batch, then a kill, then the whole micro-batch again."""
    history = (
        batch("a")
        + rows(REFUNDS, "b", "c", run=1, batch=1, first=2)
        + rows(REFUNDS, "b", "c", run=2, batch=1, first=5)
        + rows(AUDIT, "b", "c", run=2, batch=1, first=2)
    )
    assert failed(found(history)).keys() == {ONE_REFUND, COMMITS}
    assert str(judge(found(history))) == "exactly once: no (2 duplicates, 2 refunds without an audit row)"


def test_a_refund_of_an_aborted_settlement_is_found() -> None:
    history = RIGHT_HISTORY + batch("aborted-1", batch=2, first=5)
    assert failed(found(history)) == {NOT_DUE: ["aborted-1", "aborted-1"]}


def test_a_wrong_amount_is_found() -> None:
    history = batch("a", "b") + batch("c", batch=1, first=3, cents=10_000)
    wrong = failed(found(history))
    assert wrong.keys() == {AMOUNTS}
    assert wrong[AMOUNTS][0].endswith("9725 cents were due")


@pytest.mark.parametrize(
    ("watched", "said"),
    [
        (RIGHT_HISTORY[:-1], "not received by this reader: refund-audit-0"),
        (RIGHT_HISTORY + batch("z"), "received by this reader only: "),
    ],
    ids=["less", "more"],
)
def test_a_reader_that_watched_and_got_something_else_is_believed(watched: list[Seen], said: str) -> None:
    assert failed(found(RIGHT_HISTORY, watched))[WATCHED][0].startswith(said)


@pytest.mark.parametrize(
    ("committed", "said"),
    [
        ({(SETTLEMENTS, 0): 40, (SETTLEMENTS, 1): 49}, "settlements-1: the group's offset is 49, the end offset is 50"),
        ({(SETTLEMENTS, 0): 40}, "settlements-1: the group's offset is none, the end offset is 50"),
        ({(SETTLEMENTS, 0): 50, (SETTLEMENTS, 1): 40}, "settlements-0: the group's offset is 50, the end offset is 40"),
    ],
    ids=["short", "none", "swapped"],
)
def test_a_group_that_is_not_at_the_end_is_found(committed: Mapping[tuple[str, int], int], said: str) -> None:
    assert failed(found(RIGHT_HISTORY, committed=committed))[OFFSETS][0] == said


def test_a_sink_without_a_group_is_not_asked_for_one() -> None:
    assert failed(found(RIGHT_HISTORY, committed=None)) == {}


def test_evidence_stays_short() -> None:
    due = {f"{i}": Settlement(f"{i}", "crema-and-co", 100) for i in range(100)}
    evidence = failed(found([], due=due, committed=None))[ONE_REFUND]
    assert evidence[-1] == "and 95 more"
    assert len(evidence) == 6


def test_every_settlement_is_committed_and_some_are_sent_twice_or_only_aborted() -> None:
    plan = plan_transactions(1000, random.Random(7))
    committed = [s for transaction in plan if transaction.commit for s in transaction.settlements]
    aborted = {s.settlement_id for transaction in plan if not transaction.commit for s in transaction.settlements}
    assert len(due(plan)) == 1000
    assert 1020 < len(committed) < 1200
    assert aborted
    assert not aborted & due(plan).keys()


def test_a_settlement_is_sent_again_as_it_was_and_in_a_later_transaction() -> None:
    plan = plan_transactions(400, random.Random(7))
    first_seen: dict[str, int] = {}
    for number, transaction in enumerate(plan):
        for settlement in transaction.settlements:
            if settlement.settlement_id in first_seen:
                assert first_seen[settlement.settlement_id] < number
                assert due(plan)[settlement.settlement_id] == settlement
            first_seen.setdefault(settlement.settlement_id, number)


def test_the_same_seed_makes_the_same_settlements() -> None:
    assert plan_transactions(100, random.Random(3)) == plan_transactions(100, random.Random(3))
    assert plan_transactions(100, random.Random(3)) != plan_transactions(100, random.Random(4))


def test_settlements_of_two_rounds_do_not_share_ids() -> None:
    first, second = (plan_transactions(100, random.Random(3), prefix) for prefix in ("s1", "s2"))
    assert not due(first).keys() & due(second).keys()
