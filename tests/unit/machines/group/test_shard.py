"""The state of a shard: what records of groups and offsets make of it, live and when the log is loaded."""

from __future__ import annotations

import pytest

from fencepost.machines.group.classic.group import ClassicGroup, GroupState
from fencepost.machines.group.classic.requests import GroupChange, GroupRecord
from fencepost.machines.group.consumer.group import EpochRecord, tombstones
from fencepost.machines.group.shard import GroupShard
from tests.group_shard import record, stable_record

EMPTY_RECORD = GroupRecord("consumer", 6, None, None, 2_000, ())


def shard_of(*records: object) -> GroupShard:
    shard = GroupShard()
    for offset, each in enumerate(records):
        shard.apply(each, offset, None)  # type: ignore[arg-type]
    return shard


def test_a_name_that_only_keeps_offsets_is_a_classic_group_without_members() -> None:
    shard = shard_of(record(5))
    assert shard.classic == {"g": ClassicGroup("g")}
    assert shard.durable()[0] == {}


@pytest.mark.parametrize("is_offset_first", [True, False])
def test_a_group_and_its_offsets_may_be_loaded_in_any_order(is_offset_first: bool) -> None:
    records = [record(5), GroupChange("g", stable_record("t"))]
    shard = shard_of(*(records if is_offset_first else reversed(records)))
    assert shard.classic["g"].state is GroupState.STABLE
    assert [stored.offset for stored in shard.offsets.committed("g").values()] == [5]


def test_a_later_record_of_a_group_replaces_an_earlier_one() -> None:
    shard = shard_of(GroupChange("g", stable_record("t")), GroupChange("g", EMPTY_RECORD))
    assert shard.durable() == shard_of(GroupChange("g", EMPTY_RECORD)).durable()
    assert shard.classic["g"].members == {}


def test_a_tombstone_ends_a_group() -> None:
    assert shard_of(GroupChange("g", stable_record("t")), GroupChange("g", None)).classic == {}


def test_a_group_changes_its_protocol_by_records() -> None:
    shard = shard_of(record(5), GroupChange("g", EMPTY_RECORD), GroupChange("g", None), EpochRecord("g", (7, 0)))
    assert (list(shard.classic), list(shard.consumer)) == ([], ["g"])
    back = [*tombstones(shard.consumer["g"]), GroupChange("g", stable_record("t"))]
    for offset, each in enumerate(back, 4):
        shard.apply(each, offset, None)
    assert (list(shard.classic), list(shard.consumer)) == (["g"], [])


def test_offsets_outlive_the_consumer_group() -> None:
    shard = shard_of(EpochRecord("g", (7, 0)), record(5), EpochRecord("g", None))
    assert shard.classic == {"g": ClassicGroup("g")}
    assert shard.consumer == {}


def test_a_tombstone_of_an_unknown_consumer_group_makes_none() -> None:
    assert shard_of(EpochRecord("g", None)).durable() == GroupShard().durable()


def test_a_record_cannot_take_a_running_group_where_the_protocol_does_not_go() -> None:
    shard = shard_of(GroupChange("g", stable_record("t")))
    group = shard.classic["g"]
    group.expect_heartbeat(group.members["m"], 0)
    with pytest.raises(AssertionError, match=r"STABLE -> GroupState\.EMPTY"):
        shard.apply(GroupChange("g", EMPTY_RECORD), 1, None)
    assert group.recorded == stable_record("t")
