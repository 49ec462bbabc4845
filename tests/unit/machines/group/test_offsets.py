"""Committed offsets, plain and transactional: who may commit, what a marker does, what expires."""

from __future__ import annotations

import pytest

from fencepost.machines.group.classic.group import ClassicGroup, GroupState, Member
from fencepost.machines.group.classic.requests import ClassicMemberRecord, GroupChange, GroupRecord
from fencepost.machines.group.commits import CommitDecision, Committer, OffsetToCommit, offset_commit, txn_offset_commit
from fencepost.machines.group.decision import LogRecord
from fencepost.machines.group.deletion import OffsetDeletion, clean_up, delete_group, delete_offsets, delete_topics
from fencepost.machines.group.describing import describe_classic
from fencepost.machines.group.offsets import CommittedOffset, FetchedOffset, OffsetRecord, Offsets
from fencepost.protocol import errors
from tests.group_shard import GroupsInMemory, decided

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names


def stable_record(*topics: str) -> GroupRecord:
    member = ClassicMemberRecord("m", "i", "c", "/h", 60_000, 10_000, subscription(*topics), b"")
    return GroupRecord("consumer", 5, "range", "m", 1_000, (member,))


def groups_with(group: ClassicGroup | None = None) -> GroupsInMemory:
    groups = GroupsInMemory()
    if group is not None:
        groups.shard.classic["g"] = group
    return groups


def stable_group(*topics: str, state: GroupState = GroupState.STABLE) -> ClassicGroup:
    group = ClassicGroup("g")
    group.apply(stable_record(*topics))
    group.state = state
    return group


def commit(groups: GroupsInMemory, committer: Committer, asked: list[OffsetToCommit], **fields: int) -> CommitDecision:
    fields = {"version": 9, "now_ms": 0} | fields
    return groups.run(offset_commit(groups.shard, groups.config, "g", committer, asked, **fields))


def commit_in_txn(
    groups: GroupsInMemory, committer: Committer, asked: list[OffsetToCommit], group_id: str = "g", now_ms: int = 0
) -> CommitDecision:
    return groups.run(txn_offset_commit(groups.shard, groups.config, group_id, committer, asked, now_ms=now_ms), 1)


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
    (NOBODY, GroupState.EMPTY, errors.NONE, errors.NONE),
    (Committer(-1, "anyone"), GroupState.EMPTY, errors.NONE, errors.NONE),
    (Committer(5, "gone"), GroupState.EMPTY, errors.UNKNOWN_MEMBER_ID, errors.UNKNOWN_MEMBER_ID),
    (NOBODY, GroupState.STABLE, errors.UNKNOWN_MEMBER_ID, errors.NONE),
    (MEMBER, GroupState.STABLE, errors.NONE, errors.NONE),
    (Committer(5, "m"), GroupState.STABLE, errors.NONE, errors.NONE),
    (Committer(4, "m", "i"), GroupState.STABLE, errors.ILLEGAL_GENERATION, errors.ILLEGAL_GENERATION),
    (Committer(6, "m", "i"), GroupState.STABLE, errors.ILLEGAL_GENERATION, errors.ILLEGAL_GENERATION),
    (Committer(-1, "m"), GroupState.STABLE, errors.ILLEGAL_GENERATION, errors.ILLEGAL_GENERATION),
    (Committer(5, "other"), GroupState.STABLE, errors.UNKNOWN_MEMBER_ID, errors.UNKNOWN_MEMBER_ID),
    (Committer(5, ""), GroupState.STABLE, errors.UNKNOWN_MEMBER_ID, errors.UNKNOWN_MEMBER_ID),
    (Committer(5, "m", "other"), GroupState.STABLE, errors.UNKNOWN_MEMBER_ID, errors.UNKNOWN_MEMBER_ID),
    (Committer(5, "old", "i"), GroupState.STABLE, errors.FENCED_INSTANCE_ID, errors.FENCED_INSTANCE_ID),
    (MEMBER, GroupState.PREPARING_REBALANCE, errors.NONE, errors.NONE),
    (MEMBER, GroupState.COMPLETING_REBALANCE, errors.REBALANCE_IN_PROGRESS, errors.NONE),
    (Committer(4, "m"), GroupState.COMPLETING_REBALANCE, errors.ILLEGAL_GENERATION, errors.ILLEGAL_GENERATION),
    (NOBODY, GroupState.COMPLETING_REBALANCE, errors.UNKNOWN_MEMBER_ID, errors.NONE),
    (MEMBER, GroupState.DEAD, errors.COORDINATOR_NOT_AVAILABLE, errors.COORDINATOR_NOT_AVAILABLE),
]


@pytest.mark.parametrize(("committer", "state", "plain", "transactional"), WHO_MAY_COMMIT)
def test_who_may_commit(committer: Committer, state: GroupState | None, plain: int, transactional: int) -> None:
    if state is GroupState.EMPTY:
        group: ClassicGroup | None = ClassicGroup("g", generation=5)
    else:
        group = None if state is None else stable_group("t", state=state)
    asked = [OffsetToCommit("t", 0, 10)]
    assert commit(groups_with(group), committer, asked).error_code == plain
    assert commit_in_txn(groups_with(group), committer, asked).error_code == transactional


def test_before_version_9_a_commit_to_an_unknown_group_has_an_illegal_generation() -> None:
    assert commit(groups_with(), MEMBER, [], version=8).error_code == errors.ILLEGAL_GENERATION


def test_a_transactional_commit_needs_a_group_id() -> None:
    assert commit_in_txn(groups_with(), NOBODY, [], group_id="").error_code == errors.INVALID_GROUP_ID


def test_a_commit_keeps_the_session_alive() -> None:
    group = stable_group("t")
    commit(groups_with(group), MEMBER, [], now_ms=50_000)
    assert group.session_deadlines == {"m": 60_000}


def test_metadata_that_is_too_long_refuses_its_partition_only() -> None:
    asked = [
        OffsetToCommit("t", 0, 1, metadata="x" * 4096),
        OffsetToCommit("t", 1, 2, metadata="x" * 4097),
        OffsetToCommit("t", 2, 3, metadata="é" * 4096),
    ]
    decision = commit_in_txn(groups_with(), NOBODY, asked, now_ms=7)
    assert decision.partition_errors == (errors.NONE, errors.OFFSET_METADATA_TOO_LARGE, errors.NONE)
    assert [r.partition for r in decision.records] == [0, 2]


def test_a_commit_is_stamped_with_the_time_unless_it_brings_its_own() -> None:
    asked = [OffsetToCommit("t", 0, 1), OffsetToCommit("t", 1, 1, commit_timestamp=3)]
    decision = commit(groups_with(), NOBODY, asked, version=2, now_ms=7, retention_time_ms=10)
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


def test_a_stable_group_loses_only_offsets_of_topics_it_no_longer_reads() -> None:
    groups = groups_with(stable_group("read"))
    committed_at(groups, "read", 0)
    committed_at(groups, "left", 0)
    assert expired(groups, WEEK_MS) == ["left"]


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


def test_a_pending_offset_keeps_both_the_old_one_and_the_group() -> None:
    groups = groups_with()
    committed_at(groups, "t", 0)
    groups.write([record(20)], 1)
    assert expired(groups, 10 * WEEK_MS) == []
    groups.write([record(None)])
    groups.write([record(21, topic="other")], 1)
    assert expired(groups, 10 * WEEK_MS) == [], "only a pending offset is left, but it may yet count"
    groups.write_marker(1, commit=False)
    assert expired(groups, 10 * WEEK_MS) == ["g"]


def test_a_group_that_somebody_is_about_to_join_is_not_cleaned_up() -> None:
    group = ClassicGroup("g")
    group.pending_members.add("m")
    assert expired(groups_with(group), WEEK_MS) == []


def test_deleting_a_topic_drops_its_offsets_in_every_group_pending_or_not() -> None:
    groups = groups_with()
    groups.write([record(1, "t", group_id="a")])
    groups.write([record(1, "t", group_id="b")], 7)
    groups.write([record(1, "kept", group_id="b")], 7)
    records = decided(delete_topics(groups.shard, {"t"}))
    assert sorted((r.group_id, r.topic) for r in records if isinstance(r, OffsetRecord)) == [
        ("a", "t"),
        ("b", "t"),
    ]
    groups.run(delete_topics(groups.shard, {"t"}))
    groups.write_marker(7, commit=True)
    assert groups.shard.offsets.committed("a") == {}
    assert list(groups.shard.offsets.committed("b")) == [("kept", 0)]


def test_a_group_with_members_is_not_deleted() -> None:
    for groups, error in (
        (groups_with(stable_group("t")), errors.NON_EMPTY_GROUP),
        (groups_with(), errors.GROUP_ID_NOT_FOUND),
    ):
        assert groups.run(delete_group(groups.shard, "g")) == error
        assert groups.records == []


def test_a_deleted_group_takes_its_offsets_with_it() -> None:
    groups = groups_with()
    groups.write([record(1)])
    groups.write([record(2, partition=1)], 7)
    tombstones = (record(None), record(None, partition=1), GroupChange("g", None))
    assert decided(delete_group(groups.shard, "g")) == tombstones
    assert groups.run(delete_group(groups.shard, "g")) == errors.NONE
    assert groups.shard.offsets == Offsets()
    assert describe_classic(groups.shard, "g") is None


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
