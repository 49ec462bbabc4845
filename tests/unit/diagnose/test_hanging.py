"""Which transactions hang and which only seem to; and the producers of a partition."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client.admin.answers import DescribedTxn, ListedTxn
from fencepost.diagnose.hanging import diagnose_hanging, diagnose_producers
from fencepost.diagnose.snapshot import Look, ProducersSnapshot, open_txn, settled
from tests.unit.diagnose.snapshots import NOW_MS, ORDERS, PAYMENTS, described, ends, producer

OPEN = {ORDERS: (producer(40), producer(-1, producer_id=9))}


def look(txn: DescribedTxn | None, **changes: Any) -> Look:
    txns = {} if txn is None else {txn.producer_id: txn}
    fields: dict[str, Any] = {"ends": {ORDERS: ends(40, 50)}, "producers": OPEN, "txns": txns}
    return Look(now_ms=NOW_MS, **fields | changes)


@pytest.mark.parametrize(
    ("txn", "why"),
    [
        (None, "no transactional id has this producer id"),
        (described("Empty", partitions=()), "`orders-sink` has no open transaction (it is Empty)"),
        (described("CompleteAbort", partitions=()), "`orders-sink` has no open transaction (it is CompleteAbort)"),
        (described(partitions=(PAYMENTS,)), "the open transaction of `orders-sink` does not include the partition"),
    ],
)
def test_a_transaction_that_no_coordinator_will_end_hangs(txn: DescribedTxn | None, why: str) -> None:
    [hanging] = diagnose_hanging(look(txn)).hanging
    assert hanging.why == why
    assert hanging.abort_command == "fencepost txn abort --topic orders --partition 0 --producer-id 7"
    assert (hanging.start_offset, hanging.age_ms) == (40, 11_000)
    assert hanging.producer.producer_epoch == 4


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort"])
def test_a_transaction_that_its_coordinator_lists_does_not_hang(state: str) -> None:
    report = diagnose_hanging(look(described(state)))
    assert (report.hanging, report.open_count) == ((), 1)


def test_a_transaction_that_has_ended_meanwhile_does_not_hang() -> None:
    """Its marker was written after the partition and before the coordinator was asked."""
    suspects = {open_txn(ORDERS, producer(40))}
    for now in (producer(-1), producer(55), producer(40, producer_epoch=5)):
        assert settled(suspects, {ORDERS: (now,)}, {}) == suspects
    assert settled(suspects, {ORDERS: (producer(40),)}, {}) == set()
    assert settled(suspects, {}, {}) == set()


def test_a_transaction_whose_leader_did_not_answer_again_is_undecided() -> None:
    report = diagnose_hanging(look(None, unconfirmed={ORDERS}))
    assert (report.hanging, report.undecided_count) == ((), 1)


def test_a_producer_whose_coordinator_may_not_have_answered_is_undecided() -> None:
    report = diagnose_hanging(look(None, unanswered_coordinators=("broker 2 could not be asked",)))
    assert (report.hanging, report.undecided_count) == ((), 1)
    assert report.problems == ("broker 2 could not be asked",)
    # Here its coordinator did answer, and has no open transaction.
    known = look(described("Empty", partitions=()), unanswered_coordinators=("broker 2 could not be asked",))
    assert len(diagnose_hanging(known).hanging) == 1


@pytest.mark.parametrize("stamped_ms", [-1, 0, NOW_MS - 2 * 365 * 86_400_000, NOW_MS * 1000])
def test_a_timestamp_that_is_not_the_time_of_writing_gives_no_age(stamped_ms: int) -> None:
    """Producers choose it: none, the time of an event years ago, or a time in microseconds."""
    hangs = {ORDERS: (producer(40, last_timestamp_ms=stamped_ms),)}
    [hanging] = diagnose_hanging(look(None, producers=hangs)).hanging
    assert (hanging.age_ms, hanging.last_write_ms) == (None, stamped_ms)


def test_producers_are_shown_with_their_ids_and_the_open_ones_first() -> None:
    plain = producer(-1, producer_id=3, last_sequence=-1, last_timestamp_ms=-1, coordinator_epoch=-1)
    listed = ListedTxn("orders-sink", 1, 7, "Ongoing")
    snapshot = ProducersSnapshot(now_ms=NOW_MS, producers={ORDERS: (plain, producer(40))}, txns={7: listed})
    first, second = diagnose_producers(snapshot).producers
    assert (first.transactional_id, first.txn_start_offset, first.idle_ms) == ("orders-sink", 40, 11_000)
    assert (second.transactional_id, second.txn_start_offset, second.idle_ms) == (None, None, None)
    assert (second.last_sequence, second.coordinator_epoch) == (None, None)
