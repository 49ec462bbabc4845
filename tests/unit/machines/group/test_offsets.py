"""Committed offsets, plain and pending: what a fetch finds, before and after the marker."""

from __future__ import annotations

from fencepost.machines.group.offsets import FetchedOffset, OffsetRecord, Offsets
from tests.group_shard import value


def fetch(offsets: Offsets, require_stable: bool = True) -> FetchedOffset:
    return offsets.fetch("g", "t", 0, require_stable)


def test_an_offset_of_a_deleted_topic_is_not_given_for_its_namesake() -> None:
    offsets = Offsets()
    old, new = b"o" * 16, b"n" * 16
    offsets.apply_offset(OffsetRecord("g", "t", 0, value(10, topic_id=old)), None, 0)
    assert offsets.fetch("g", "t", 0, True, topic_id=new).offset == -1
    assert offsets.fetch("g", "t", 0, True, topic_id=old).offset == 10
    assert offsets.fetch("g", "t", 0, True).offset == 10
