"""Batches with fewer records: what is left reads as it did before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.batch import (
    COMMIT_MARKER,
    LOG_APPEND_TIME,
    BatchHeader,
    Corrupt,
    assemble,
    decode_batch,
    decode_header,
    decode_marker,
    encode_marker,
    encode_varint,
    stamp,
)
from fencepost.protocol.filtering import delete_horizon, keep_no_records, keep_records, skim
from fencepost.protocol.records import Record, encode_records, iter_records, uncompressed_records

NOW = 1_700_000_000_000

small = st.one_of(st.none(), st.binary(max_size=70))
headers = st.lists(st.tuples(st.text(max_size=5), small), max_size=2).map(tuple)
records = st.lists(
    st.builds(Record, st.just(0), st.integers(NOW - 10**9, NOW + 10**9), small, small, headers), min_size=1, max_size=8
)


def encode(written: list[Record], codec: int = 0, attributes: int = 0) -> tuple[BatchHeader, bytes, bytes]:
    batch = stamp(encode_records(written, codec, attributes, 7, 3, 100), 50, 9)
    header = decode_header(batch)
    return header, batch, uncompressed_records(header, batch)


@given(records, st.sampled_from([0, 1, 2, 3, 4]), st.sampled_from([0, LOG_APPEND_TIME]), st.data())
def test_the_records_that_stay_are_the_same_and_so_is_their_place(
    written: list[Record], codec: int, attributes: int, data: st.DataObject
) -> None:
    header, batch, payload = encode(written, codec, attributes)
    before = list(iter_records(batch))
    skimmed = list(skim(header, payload))
    assert [(50 + s.offset_delta, s.key, s.has_value) for s in skimmed] == [
        (r.offset, r.key, r.value is not None) for r in before
    ]
    chosen = data.draw(st.sets(st.integers(0, len(before) - 1), min_size=1), label="chosen")
    horizon = data.draw(st.one_of(st.none(), st.integers(NOW - 10**9, NOW + 10**9)), label="horizon")
    kept = keep_records(header, payload, [s for n, s in enumerate(skimmed) if n in chosen], horizon)
    after, end = decode_batch(kept)
    assert end == len(kept)
    assert list(iter_records(kept)) == [r for n, r in enumerate(before) if n in chosen]
    for name in ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "last_sequence"):
        assert getattr(after, name) == getattr(header, name)
    assert after.codec == codec
    assert delete_horizon(after) == horizon
    if not attributes:
        assert after.max_timestamp == max(before[n].timestamp for n in chosen)


def test_an_emptied_batch_keeps_its_place_and_its_producer() -> None:
    header, batch, _ = encode([Record(0, NOW, b"a", b"1"), Record(1, NOW + 5, b"b", b"2")], codec=2, attributes=0x10)
    empty = keep_no_records(header)
    after, _ = decode_batch(empty)
    assert len(empty) == 61
    assert list(iter_records(empty)) == []
    assert (after.base_offset, after.last_offset, after.last_sequence) == (50, 51, 101)
    assert (after.producer_id, after.producer_epoch, after.leader_epoch) == (7, 3, 9)
    assert (after.is_transactional, after.codec, after.max_timestamp) == (True, 0, NOW + 5)
    assert len(batch) > len(empty)


@pytest.mark.parametrize("horizon", [NOW, NOW + 1, NOW + 86_400_000, NOW - 10**12, 2**62])
def test_a_marker_with_a_horizon_is_still_a_marker(horizon: int) -> None:
    batch = encode_marker(7, 3, True, 5, NOW, 50, 9)
    header = decode_header(batch)
    payload = uncompressed_records(header, batch)
    kept = keep_records(header, payload, list(skim(header, payload)), horizon)
    assert decode_marker(kept) == decode_marker(batch)
    assert delete_horizon(decode_header(kept)) == horizon
    marker = decode_marker(kept)
    assert marker is not None
    assert marker.commit == bool(COMMIT_MARKER)


@given(st.binary(max_size=60), st.integers(1, 5))
def test_what_are_no_records_is_corrupt(payload: bytes, count: int) -> None:
    try:
        found = list(skim(decode_header(assemble(payload, count, 0, NOW, NOW)), payload))
    except Corrupt:
        return
    assert len(found) == count
    assert found[-1].end == len(payload)


@pytest.mark.parametrize(
    ("timestamp_delta", "offset_delta", "key_length"),
    [(2**63 - 1, 0, 1), (-(2**63), 0, 1), (0, 1, 1), (0, -1, 1), (0, 2**40, 1), (0, 0, 9)],
)
def test_a_record_with_a_time_or_a_place_that_cannot_be_is_corrupt(
    timestamp_delta: int, offset_delta: int, key_length: int
) -> None:
    body = b"\0" + encode_varint(timestamp_delta) + encode_varint(offset_delta) + encode_varint(key_length)
    body += b"k\0\0"
    payload = encode_varint(len(body)) + body
    base_timestamp = NOW if timestamp_delta >= 0 else -NOW
    batch = assemble(payload, 1, 0, base_timestamp, NOW)
    for read in (lambda: list(skim(decode_header(batch), payload)), lambda: list(iter_records(batch))):
        with pytest.raises(Corrupt):
            read()


def test_a_record_that_a_horizon_would_move_too_far_is_corrupt() -> None:
    header, _, payload = encode([Record(0, -(2**62), b"k", b"v")])
    with pytest.raises(Corrupt):
        keep_records(header, payload, list(skim(header, payload)), 2**63 - 1)
