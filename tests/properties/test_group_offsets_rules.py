"""Offsets against a model that knows nothing but the log, and against the log itself after every request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.machines.group.commits import Committer, OffsetToCommit, offset_commit, txn_offset_commit
from fencepost.machines.group.deletion import clean_up, delete_group, delete_offsets, delete_topics
from fencepost.machines.group.offsets import CommittedOffset, OffsetRecord, Offsets
from fencepost.protocol import errors
from tests.group_shard import GroupsInMemory

Event = tuple[str, int, str, int, int]  # (kind, producer, group, partition, offset)

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "pending", "pending", "tombstone", "commit", "abort"]),
        st.integers(1, 3),
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.integers(0, 1_000),
    ),
    max_size=30,
)


def apply(offsets: Offsets, event: Event, position: int) -> None:
    kind, producer_id, group_id, partition, offset = event
    if kind in ("commit", "abort"):
        offsets.apply_marker(producer_id, kind == "commit")
        return
    value = None if kind == "tombstone" else CommittedOffset(offset, -1, "", 0)
    record = OffsetRecord(group_id, "t", partition, value)
    offsets.apply_offset(record, producer_id if kind == "pending" else None, position)


def expected(events: list[Event], group_id: str, partition: int) -> tuple[int | None, bool]:
    """The offset of a partition and whether one is pending, worked out from the whole log each time."""
    written: dict[int, tuple[str, int, int]] = {}  # Position -> (plain, pending or committed; producer; offset).
    for position, (kind, producer_id, group, part, offset) in enumerate(events):
        if kind in ("commit", "abort"):
            for at, (state, owner, value) in list(written.items()):
                if state == "pending" and owner == producer_id:
                    written[at] = ("committed" if kind == "commit" else "aborted", owner, value)
        elif (group, part) != (group_id, partition):
            continue
        elif kind == "tombstone":
            written.clear()
        else:
            written[position] = (kind, producer_id, offset)
    visible = [at for at, (state, _, _) in written.items() if state in ("plain", "committed")]
    is_pending = any(state == "pending" for state, _, _ in written.values())
    return (written[max(visible)][2] if visible else None), is_pending


@given(EVENTS)
def test_offsets_are_what_the_log_says(events: list[Event]) -> None:
    offsets = Offsets()
    for position, event in enumerate(events):
        apply(offsets, event, position)
    for group_id in "ab":
        pending = False
        for partition in (0, 1):
            offset, is_pending = expected(events, group_id, partition)
            pending = pending or is_pending
            assert offsets.is_unstable(group_id, "t", partition) == is_pending
            assert offsets.fetch(group_id, "t", partition, False).offset == (-1 if offset is None else offset)
        assert offsets.has_open_txn(group_id) == pending


@given(EVENTS, st.sampled_from("ab"))
def test_what_a_deletion_names_is_all_there_is(events: list[Event], group_id: str) -> None:
    offsets = Offsets()
    for position, event in enumerate(events):
        apply(offsets, event, position)
    for record in offsets.decide_delete(group_id):
        offsets.apply_offset(record, None, len(events))
    assert group_id not in offsets.group_ids()


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["commit", "commit", "in a txn", "in a txn", "marker", "offsets go", "group goes", "topic goes", "cleanup"]
        ),
        st.integers(1, 2),
        st.sampled_from("ab"),
        st.sampled_from([("t", 0), ("t", 1), ("u", 0)]),
        st.booleans(),
    ),
    max_size=30,
)
RETENTION_MS = 5


@given(REQUESTS)
def test_after_every_request_the_log_rebuilds_the_offsets(
    requests: list[tuple[str, int, str, tuple[str, int], bool]],
) -> None:
    groups = GroupsInMemory()
    shard, config = groups.shard, groups.config
    for now_ms, (what, producer_id, group_id, where, is_written) in enumerate(requests):
        groups.append_error = errors.NONE if is_written else errors.NOT_COORDINATOR
        before = len(groups.records)
        asked = [OffsetToCommit(*where, offset=now_ms)]
        if what == "commit":
            answer = groups.run(offset_commit(shard, config, group_id, Committer(), asked, version=9, now_ms=now_ms))
            assert answer.error_code == groups.append_error
        elif what == "in a txn":
            decision = txn_offset_commit(shard, config, group_id, Committer(), asked, now_ms=now_ms)
            assert groups.run(decision, producer_id).error_code == groups.append_error
        elif what == "marker":
            groups.write_marker(producer_id, commit=is_written)
        elif what == "offsets go":
            groups.run(delete_offsets(shard, group_id, [where]))
        elif what == "group goes":
            groups.run(delete_group(shard, group_id))
        elif what == "topic goes":
            groups.run(delete_topics(shard, {where[0]}))
        else:
            groups.run(clean_up(shard, RETENTION_MS, now_ms))
        assert is_written or len(groups.records) == before
        assert groups.replayed().durable() == shard.durable()
        assert shard.offsets.group_ids() <= shard.classic.keys()
