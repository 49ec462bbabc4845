"""The record of a committed offset is laid out by hand. It has the bytes that the compiled codec gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.machines.group.offsets import NO_TIMESTAMP, NO_TOPIC_ID, CommittedOffset, OffsetRecord
from fencepost.machines.group.records import OFFSET_VALUE_VERSION, decode, encode
from fencepost.protocol.messages import OffsetCommitValue

int64 = st.integers(-(2**63), 2**63 - 1)
values = st.builds(
    CommittedOffset,
    offset=int64,
    leader_epoch=st.integers(-(2**31), 2**31 - 1),
    metadata=st.text(max_size=200),
    commit_timestamp=int64,
    expire_timestamp=st.one_of(st.just(NO_TIMESTAMP), st.integers(0, 2**63 - 1)),
    topic_id=st.one_of(st.just(NO_TOPIC_ID), st.binary(min_size=16, max_size=16)),
)


@given(values)
def test_an_offset_is_laid_out_as_the_codec_does_it(value: CommittedOffset) -> None:
    _, raw = encode(OffsetRecord("g", "t", 0, value))
    assert raw is not None
    version = int.from_bytes(raw[:2], "big")
    assert (version == OFFSET_VALUE_VERSION) == (value.expire_timestamp == NO_TIMESTAMP)
    assert raw[2:] == OffsetCommitValue(*value[:-1]).encode(version)


@given(values)
def test_an_offset_is_read_back_as_it_was_written(value: CommittedOffset) -> None:
    key, raw = encode(OffsetRecord("g", "t", 7, value))
    assert raw is not None
    found = decode(key, raw, 42)
    kept = value._replace(record_offset=42)
    if value.expire_timestamp != NO_TIMESTAMP:  # The older layout has no room for these.
        kept = kept._replace(leader_epoch=-1, topic_id=NO_TOPIC_ID)
    assert found == OffsetRecord("g", "t", 7, kept)
