"""Committed offsets, plain and transactional: who may commit, what a marker does, what expires."""

from __future__ import annotations

import pytest

from fencepost.machines.group.classic.group import Group, GroupConfig, Member, State, restore
from fencepost.machines.group.classic.requests import GroupChange, GroupRecord, MemberRecord
from fencepost.machines.group.offsets import (
    CommittedOffset,
    Committer,
    FetchedOffset,
    OffsetRecord,
    Offsets,
    OffsetToCommit,
)
from fencepost.machines.group.shard import Deletion, GroupShard
from fencepost.protocol import errors

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names


def stable_record(*topics: str) -> GroupRecord:
    member = MemberRecord("m", "i", "c", "/h", 60_000, 10_000, subscription(*topics), b"")
    return GroupRecord("consumer", 5, "range", "m", 1_000, (member,))


def shard_with(group: Group | None = None) -> GroupShard:
    shard = GroupShard(GroupConfig(), append=lambda group_id, record: 0, new_uuid=lambda: "id")
    if group is not None:
        shard.groups["g"] = group
    return shard


def stable_group(*topics: str, state: State = State.STABLE) -> Group:
    group = restore("g", stable_record(*topics))
    group.state = state
    return group


def value(offset: int, commit_timestamp: int = 0, **fields: object) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", commit_timestamp, **fields)  # type: ignore[arg-type]


def record(offset: int | None, topic: str = "t", partition: int = 0, group_id: str = "g") -> OffsetRecord:
    return OffsetRecord(group_id, topic, partition, None if offset is None else value(offset))


def fetch(offsets: Offsets, require_stable: bool = True) -> FetchedOffset:
    return offsets.fetch("g", "t", 0, require_stable)


MEMBER = Committer(5, "m", "i")
NOBODY = Committer()

# (committer, state or None for no group, what a plain commit answers, what a transactional one answers)
WHO_MAY_COMMIT = [
    (NOBODY, None, errors.NONE, errors.NONE),
    (MEMBER, None, errors.GROUP_ID_NOT_FOUND, errors.ILLEGAL_GENERATION),
    (NOBODY, State.EMPTY, errors.NONE, errors.NONE),
    (Committer(-1, "anyone"), State.EMPTY, errors.NONE, errors.NONE),
    (Committer(5, "gone"), State.EMPTY, errors.UNKNOWN_MEMBER_ID, errors.UNKNOWN_MEMBER_ID),
    (NOBODY, State.STABLE, errors.UNKNOWN_MEMBER_ID, errors.NONE),
    (MEMBER, State.STABLE, errors.NONE, errors.NONE),
    (Committer(5, "m"), State.STABLE, errors.NONE, errors.NONE),
    (Committer(4, "m", "i"), State.STABLE, errors.ILLEGAL_GENERATION, errors.ILLEGAL_GENERATION),
    (Committer(6, "m", "i"), State.STABLE, errors.ILLEGAL_GENERATION, errors.ILLEGAL_GENERATION),
    (Committer(-1, "m"), State.STABLE, errors.ILLEGAL_GENERATION, errors.ILLEGAL_GENERATION),
    (Committer(5, "other"), State.STABLE, errors.UNKNOWN_MEMBER_ID, errors.UNKNOWN_MEMBER_ID),
    (Committer(5, ""), State.STABLE, errors.UNKNOWN_MEMBER_ID, errors.UNKNOWN_MEMBER_ID),
    (Committer(5, "m", "other"), State.STABLE, errors.UNKNOWN_MEMBER_ID, errors.UNKNOWN_MEMBER_ID),
    (Committer(5, "old", "i"), State.STABLE, errors.FENCED_INSTANCE_ID, errors.FENCED_INSTANCE_ID),
    (MEMBER, State.PREPARING_REBALANCE, errors.NONE, errors.NONE),
    (MEMBER, State.COMPLETING_REBALANCE, errors.REBALANCE_IN_PROGRESS, errors.NONE),
    (Committer(4, "m"), State.COMPLETING_REBALANCE, errors.ILLEGAL_GENERATION, errors.ILLEGAL_GENERATION),
    (NOBODY, State.COMPLETING_REBALANCE, errors.UNKNOWN_MEMBER_ID, errors.NONE),
    (MEMBER, State.DEAD, errors.COORDINATOR_NOT_AVAILABLE, errors.COORDINATOR_NOT_AVAILABLE),
]


@pytest.mark.parametrize(("committer", "state", "plain", "transactional"), WHO_MAY_COMMIT)
def test_who_may_commit(committer: Committer, state: State | None, plain: int, transactional: int) -> None:
    if state is State.EMPTY:
        group: Group | None = Group("g", generation=5)
    else:
        group = None if state is None else stable_group("t", state=state)
    asked = [OffsetToCommit("t", 0, 10)]
    shard = shard_with(group)
    assert shard.offset_commit("g", committer, asked, version=9, now_ms=0).error_code == plain
    assert shard.txn_offset_commit("g", committer, asked, now_ms=0).error_code == transactional


def test_before_version_9_a_commit_to_an_unknown_group_has_an_illegal_generation() -> None:
    decision = shard_with().offset_commit("g", MEMBER, [], version=8, now_ms=0)
    assert decision.error_code == errors.ILLEGAL_GENERATION


def test_a_transactional_commit_needs_a_group_id() -> None:
    assert shard_with().txn_offset_commit("", NOBODY, [], now_ms=0).error_code == errors.INVALID_GROUP_ID


def test_a_commit_keeps_the_session_alive() -> None:
    group = stable_group("t")
    shard_with(group).offset_commit("g", MEMBER, [], version=9, now_ms=50_000)
    assert group.session_deadlines == {"m": 60_000}


def test_metadata_that_is_too_long_refuses_its_partition_only() -> None:
    asked = [
        OffsetToCommit("t", 0, 1, metadata="x" * 4096),
        OffsetToCommit("t", 1, 2, metadata="x" * 4097),
        OffsetToCommit("t", 2, 3, metadata="é" * 4096),
    ]
    decision = shard_with().txn_offset_commit("g", NOBODY, asked, now_ms=7)
    assert decision.partition_errors == (errors.NONE, errors.OFFSET_METADATA_TOO_LARGE, errors.NONE)
    assert [r.partition for r in decision.records] == [0, 2]


def test_a_commit_is_stamped_with_the_time_unless_it_brings_its_own() -> None:
    asked = [OffsetToCommit("t", 0, 1), OffsetToCommit("t", 1, 1, commit_timestamp=3)]
    decision = shard_with().offset_commit("g", NOBODY, asked, version=2, now_ms=7, retention_time_ms=10)
    stamps = [(r.value.commit_timestamp, r.value.expire_timestamp) for r in decision.records if r.value]
    assert stamps == [(7, 17), (3, 17)]


# Markers.


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


# What goes, and when.


def committed_at(shard: GroupShard, topic: str, commit_timestamp: int, **fields: object) -> None:
    shard.apply_offset(OffsetRecord("g", topic, 0, value(1, commit_timestamp, **fields)), None, 0)


def gone(deletion: Deletion) -> list[str]:
    return [r.group_id if isinstance(r, GroupChange) else r.topic for r in deletion.records]


def test_offsets_without_a_group_expire_a_week_after_their_commit_and_the_group_with_the_last() -> None:
    shard = shard_with()
    committed_at(shard, "a", 0)
    committed_at(shard, "b", DAY_MS)
    assert gone(shard.cleanup(WEEK_MS - 1)) == []
    assert gone(shard.cleanup(WEEK_MS)) == ["a"]
    last = shard.cleanup(WEEK_MS + DAY_MS)
    assert gone(last) == ["a", "b", "g"]
    shard.apply(last, record_offset=9)
    assert shard.groups == {}
    assert shard.offsets == Offsets()


def test_offsets_of_a_group_that_became_empty_are_kept_from_then_on() -> None:
    group = Group("g", state_timestamp_ms=10 * DAY_MS, protocol_type="consumer", subscribed_topics=frozenset())
    shard = shard_with(group)
    committed_at(shard, "a", 0)
    assert gone(shard.cleanup(17 * DAY_MS - 1)) == []
    assert gone(shard.cleanup(17 * DAY_MS)) == ["a", "g"]


def test_a_stable_group_loses_only_offsets_of_topics_it_no_longer_reads() -> None:
    shard = shard_with(stable_group("read"))
    committed_at(shard, "read", 0)
    committed_at(shard, "left", 0)
    assert gone(shard.cleanup(WEEK_MS)) == ["left"]


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE])
def test_nothing_expires_during_a_rebalance(state: State) -> None:
    shard = shard_with(stable_group("read", state=state))
    committed_at(shard, "left", 0)
    assert gone(shard.cleanup(10 * WEEK_MS)) == []


def test_an_offset_with_its_own_retention_expires_by_that() -> None:
    shard = shard_with()
    committed_at(shard, "short", 0, expire_timestamp=100)
    assert gone(shard.cleanup(99)) == []
    assert gone(shard.cleanup(100)) == ["short", "g"]


def test_a_pending_offset_keeps_both_the_old_one_and_the_group() -> None:
    shard = shard_with()
    committed_at(shard, "t", 0)
    shard.apply_offset(record(20), 1, 1)
    assert gone(shard.cleanup(10 * WEEK_MS)) == []
    shard.apply_offset(record(None), None, 2)
    shard.apply_offset(record(21, topic="other"), 1, 3)
    assert gone(shard.cleanup(10 * WEEK_MS)) == [], "only a pending offset is left, but it may yet count"
    shard.apply_marker(1, commit=False)
    assert gone(shard.cleanup(10 * WEEK_MS)) == ["g"]


def test_a_group_that_somebody_is_about_to_join_is_not_cleaned_up() -> None:
    group = Group("g")
    group.pending_members.add("m")
    assert gone(shard_with(group).cleanup(WEEK_MS)) == []


def test_deleting_a_topic_drops_its_offsets_in_every_group_pending_or_not() -> None:
    shard = shard_with()
    shard.apply_offset(record(1, "t", group_id="a"), None, 0)
    shard.apply_offset(record(1, "t", group_id="b"), 7, 1)
    shard.apply_offset(record(1, "kept", group_id="b"), 7, 2)
    deletion = shard.topics_deleted({"t"})
    assert sorted((r.group_id, r.topic) for r in deletion.records if isinstance(r, OffsetRecord)) == [
        ("a", "t"),
        ("b", "t"),
    ]
    shard.apply(deletion, 3)
    shard.apply_marker(7, commit=True)
    assert shard.offsets.committed("a") == {}
    assert list(shard.offsets.committed("b")) == [("kept", 0)]


def test_a_group_with_members_is_not_deleted() -> None:
    assert shard_with(stable_group("t")).delete_group("g") == Deletion(errors.NON_EMPTY_GROUP)
    assert shard_with().delete_group("g") == Deletion(errors.GROUP_ID_NOT_FOUND)


def test_a_deleted_group_takes_its_offsets_with_it() -> None:
    shard = shard_with()
    shard.apply_offset(record(1), None, 0)
    shard.apply_offset(record(2, partition=1), 7, 1)
    deletion = shard.delete_group("g")
    assert deletion.records == (record(None), record(None, partition=1), GroupChange("g", None))
    shard.apply(deletion, 2)
    assert shard.offsets == Offsets()
    assert shard.describe("g") is None


def test_offsets_of_a_topic_that_is_being_read_are_not_deleted() -> None:
    shard = shard_with(stable_group("read"))
    committed_at(shard, "read", 0)
    committed_at(shard, "left", 0)
    deletion = shard.delete_offsets("g", [("read", 0), ("left", 0), ("left", 1)])
    assert deletion.partition_errors == (errors.GROUP_SUBSCRIBED_TO_TOPIC, errors.NONE, errors.NONE)
    assert gone(deletion) == ["left"]


def test_offsets_of_a_group_that_is_not_of_consumers_are_not_deleted_while_it_has_members() -> None:
    group = Group("g", state=State.STABLE, protocol_type="connect", protocol="p")
    group.add(Member("m", None, "c", "/h", 1, 1, (("p", b""),)), "connect")
    assert shard_with(group).delete_offsets("g", []).error_code == errors.NON_EMPTY_GROUP
    assert shard_with().delete_offsets("g", []).error_code == errors.GROUP_ID_NOT_FOUND
