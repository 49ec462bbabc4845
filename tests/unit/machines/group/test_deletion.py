"""How groups and offsets go: expired, deleted, or with their topic."""

from __future__ import annotations

import pytest

from fencepost.machines.group.classic.group import ClassicGroup, GroupState, Member
from fencepost.machines.group.decision import LogRecord
from fencepost.machines.group.deletion import OffsetDeletion, clean_up, delete_group, delete_offsets
from fencepost.machines.group.offsets import OffsetRecord, Offsets
from fencepost.protocol import errors
from tests.group_shard import GroupsInMemory, decided, groups_with, stable_group, value

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def committed_at(groups: GroupsInMemory, topic: str, commit_timestamp: int, **fields: object) -> None:
    groups.write([OffsetRecord("g", topic, 0, value(1, commit_timestamp, **fields))])


def expired(groups: GroupsInMemory, now_ms: int) -> list[str]:
    """The topics whose offsets would be deleted now, and the group if it would be."""
    return names(decided(clean_up(groups.shard, WEEK_MS, now_ms)))


def names(records: tuple[LogRecord, ...]) -> list[str]:
    return [r.topic if isinstance(r, OffsetRecord) else r.group_id for r in records]


def test_offsets_without_a_group_expire_a_week_after_their_commit_and_the_group_with_the_last() -> None:
    groups = groups_with()
    committed_at(groups, "a", 0)
    committed_at(groups, "b", DAY_MS)
    assert expired(groups, WEEK_MS - 1) == []
    assert expired(groups, WEEK_MS) == ["a"]
    assert expired(groups, WEEK_MS + DAY_MS) == ["a", "b", "g"]
    groups.run(clean_up(groups.shard, WEEK_MS, WEEK_MS + DAY_MS))
    assert groups.shard.classic == {}
    assert groups.shard.offsets == Offsets()


def test_offsets_of_a_group_that_became_empty_are_kept_from_then_on() -> None:
    group = ClassicGroup("g", state_timestamp_ms=10 * DAY_MS, protocol_type="consumer", subscribed_topics=frozenset())
    groups = groups_with(group)
    committed_at(groups, "a", 0)
    assert expired(groups, 17 * DAY_MS - 1) == []
    assert expired(groups, 17 * DAY_MS) == ["a", "g"]


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_nothing_expires_during_a_rebalance(state: GroupState) -> None:
    groups = groups_with(stable_group("read", state=state))
    committed_at(groups, "left", 0)
    assert expired(groups, 10 * WEEK_MS) == []


def test_an_offset_with_its_own_retention_expires_by_that() -> None:
    groups = groups_with()
    committed_at(groups, "short", 0, expire_timestamp=100)
    assert expired(groups, 99) == []
    assert expired(groups, 100) == ["short", "g"]


def test_a_group_with_members_is_not_deleted() -> None:
    for groups, error in (
        (groups_with(stable_group("t")), errors.NON_EMPTY_GROUP),
        (groups_with(), errors.GROUP_ID_NOT_FOUND),
    ):
        assert groups.run(delete_group(groups.shard, "g")) == error
        assert groups.records == []


def test_offsets_of_a_topic_that_is_being_read_are_not_deleted() -> None:
    groups = groups_with(stable_group("read"))
    committed_at(groups, "read", 0)
    committed_at(groups, "left", 0)
    decision = delete_offsets(groups.shard, "g", [("read", 0), ("left", 0), ("left", 1)])
    codes = (errors.GROUP_SUBSCRIBED_TO_TOPIC, errors.NONE, errors.NONE)
    written = len(groups.records)
    assert groups.run(decision) == OffsetDeletion(errors.NONE, codes)
    assert names(tuple(groups.records[written:])) == ["left"]


def test_offsets_of_a_group_that_is_not_of_consumers_are_not_deleted_while_it_has_members() -> None:
    group = ClassicGroup("g", state=GroupState.STABLE, protocol_type="connect", protocol="p")
    group.add(Member("m", None, "c", "/h", 1, 1, (("p", b""),)), "connect")
    for groups, error in ((groups_with(group), errors.NON_EMPTY_GROUP), (groups_with(), errors.GROUP_ID_NOT_FOUND)):
        assert groups.run(delete_offsets(groups.shard, "g", [])).error_code == error
