"""OffsetCommit and TxnOffsetCommit: who may commit, and what is stored."""

from __future__ import annotations

import pytest

from fencepost.machines.group.classic.group import ClassicGroup, GroupState
from fencepost.machines.group.commits import CommitDecision, Committer, OffsetToCommit, offset_commit, txn_offset_commit
from fencepost.protocol import errors
from tests.group_shard import GroupsInMemory, groups_with, stable_group


def commit(groups: GroupsInMemory, committer: Committer, asked: list[OffsetToCommit], **fields: int) -> CommitDecision:
    fields = {"version": 9, "now_ms": 0} | fields
    return groups.run(offset_commit(groups.shard, groups.config, "g", committer, asked, **fields))


def commit_in_txn(
    groups: GroupsInMemory, committer: Committer, asked: list[OffsetToCommit], group_id: str = "g", now_ms: int = 0
) -> CommitDecision:
    return groups.run(txn_offset_commit(groups.shard, groups.config, group_id, committer, asked, now_ms=now_ms), 1)


MEMBER = Committer(5, "m", "i")
NO_MEMBER = Committer()

# (committer, state or None for no group, what a plain commit answers, what a transactional one answers)
WHO_MAY_COMMIT = [
    (NO_MEMBER, None, errors.NONE, errors.NONE),
    (MEMBER, None, errors.GROUP_ID_NOT_FOUND, errors.ILLEGAL_GENERATION),
    (NO_MEMBER, GroupState.EMPTY, errors.NONE, errors.NONE),
    (Committer(-1, "anyone"), GroupState.EMPTY, errors.NONE, errors.NONE),
    (Committer(5, "gone"), GroupState.EMPTY, errors.UNKNOWN_MEMBER_ID, errors.UNKNOWN_MEMBER_ID),
    (NO_MEMBER, GroupState.STABLE, errors.UNKNOWN_MEMBER_ID, errors.NONE),
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
    (NO_MEMBER, GroupState.COMPLETING_REBALANCE, errors.UNKNOWN_MEMBER_ID, errors.NONE),
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
    assert commit_in_txn(groups_with(), NO_MEMBER, [], group_id="").error_code == errors.INVALID_GROUP_ID


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
    decision = commit_in_txn(groups_with(), NO_MEMBER, asked, now_ms=7)
    assert decision.partition_errors == (errors.NONE, errors.OFFSET_METADATA_TOO_LARGE, errors.NONE)
    assert [r.partition for r in decision.records] == [0, 2]


def test_a_commit_is_stamped_with_the_time_unless_it_brings_its_own() -> None:
    asked = [OffsetToCommit("t", 0, 1), OffsetToCommit("t", 1, 1, commit_timestamp=3)]
    decision = commit(groups_with(), NO_MEMBER, asked, version=2, now_ms=7, retention_time_ms=10)
    stamps = [(r.value.commit_timestamp, r.value.expire_timestamp) for r in decision.records if r.value]
    assert stamps == [(7, 17), (3, 17)]
