"""Offsets against a model that knows nothing but the log: whatever is appended, both agree."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.machines.group.offsets import CommittedOffset, OffsetRecord, Offsets

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
@settings(deadline=None)
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
@settings(deadline=None)
def test_what_a_deletion_names_is_all_there_is(events: list[Event], group_id: str) -> None:
    offsets = Offsets()
    for position, event in enumerate(events):
        apply(offsets, event, position)
    for record in offsets.decide_delete(group_id):
        offsets.apply_offset(record, None, len(events))
    assert group_id not in offsets.group_ids()
