"""The settlements of the refunds story: which are due, and which only look like it."""

from __future__ import annotations

import random

from fencepost.demo.refunds.settlements import due, plan_transactions


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
