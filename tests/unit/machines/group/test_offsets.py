"""Committed offsets, plain and pending: what a fetch finds, before and after the marker."""

from __future__ import annotations

from fencepost.machines.group.offsets import FetchedOffset, OffsetRecord, Offsets
from fencepost.protocol import errors
from tests.group_shard import record, value


def fetch(offsets: Offsets, require_stable: bool = True) -> FetchedOffset:
    return offsets.fetch("g", "t", 0, require_stable)


def test_a_pending_offset_is_visible_only_after_its_commit_marker() -> None:
    offsets = Offsets()
    offsets.apply_offset(record(10), None, 0)
    offsets.apply_offset(record(20), 1, 1)
    assert fetch(offsets) == FetchedOffset(errors.UNSTABLE_OFFSET_COMMIT, -1, -1, "")
    assert fetch(offsets, require_stable=False).offset == 10
    offsets.apply_marker(1, commit=True)
    assert fetch(offsets).offset == 20


def test_a_pending_offset_vanishes_with_an_abort_marker() -> None:
    offsets = Offsets()
    offsets.apply_offset(record(20), 1, 0)
    offsets.apply_marker(1, commit=False)
    assert fetch(offsets) == FetchedOffset(errors.NONE, -1, -1, "")
    assert offsets == Offsets()


def test_a_later_plain_commit_wins_over_a_transaction_that_ends_after_it() -> None:
    offsets = Offsets()
    offsets.apply_offset(record(20), 1, 0)
    offsets.apply_offset(record(30), None, 1)
    offsets.apply_marker(1, commit=True)
    assert fetch(offsets).offset == 30


def test_of_two_transactions_the_one_that_wrote_later_wins_whichever_ends_first() -> None:
    offsets = Offsets()
    offsets.apply_offset(record(20), 1, 0)
    offsets.apply_offset(record(30), 2, 1)
    offsets.apply_marker(2, commit=True)
    assert fetch(offsets).error_code == errors.UNSTABLE_OFFSET_COMMIT
    offsets.apply_marker(1, commit=True)
    assert fetch(offsets).offset == 30


def test_a_marker_touches_no_other_producer_and_repeats_without_effect() -> None:
    offsets = Offsets()
    offsets.apply_offset(record(20), 1, 0)
    for _ in range(2):
        offsets.apply_marker(2, commit=True)
    assert offsets.is_unstable("g", "t", 0)


def test_a_tombstone_drops_pending_offsets_too() -> None:
    offsets = Offsets()
    offsets.apply_offset(record(10), None, 0)
    offsets.apply_offset(record(20), 1, 1)
    offsets.apply_offset(record(20, partition=1), 1, 2)
    offsets.apply_offset(record(None), None, 3)
    offsets.apply_marker(1, commit=True)
    assert fetch(offsets).offset == -1
    assert offsets.fetch("g", "t", 1, True).offset == 20


def test_only_the_pending_partitions_are_unstable() -> None:
    offsets = Offsets()
    offsets.apply_offset(record(10), None, 0)
    offsets.apply_offset(record(11, partition=1), None, 1)
    offsets.apply_offset(record(20), 1, 2)
    assert offsets.fetch_all("g", require_stable=True) == {
        "t": [(0, FetchedOffset(errors.UNSTABLE_OFFSET_COMMIT)), (1, FetchedOffset(0, 11, -1, ""))]
    }


def test_an_offset_of_a_deleted_topic_is_not_given_for_its_namesake() -> None:
    offsets = Offsets()
    old, new = b"o" * 16, b"n" * 16
    offsets.apply_offset(OffsetRecord("g", "t", 0, value(10, topic_id=old)), None, 0)
    assert offsets.fetch("g", "t", 0, True, topic_id=new).offset == -1
    assert offsets.fetch("g", "t", 0, True, topic_id=old).offset == 10
    assert offsets.fetch("g", "t", 0, True).offset == 10
