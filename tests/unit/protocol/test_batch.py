from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from crc32c import crc32c

from fencepost.protocol import errors, produced
from fencepost.protocol.batch import (
    ATTRIBUTES_AT,
    CHECKED_AT,
    CHECKED_HEADER,
    CONTROL,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LEADER_EPOCH,
    LENGTH_AT,
    MAGIC,
    MAGIC_AT,
    MAX_SEQUENCE,
    MAX_TIMESTAMP,
    PRODUCER,
    PRODUCER_AT,
    PRODUCER_ID,
    TRANSACTIONAL,
    UNCHECKED_HEADER,
    WALKED_HEADER,
    BatchHeader,
    Corrupt,
    Truncated,
    advance_sequence,
    assemble,
    decode_batch,
    decode_header,
    decode_marker,
    encode_batch,
    encode_marker,
    stamp,
    stamp_append_time,
    stamp_in_place,
)
from fencepost.protocol.produced import RefusedBatch, check_produce_batch
from fencepost.protocol.records import (
    Record,
    compress,
    decode_varint,
    decompress,
    encode_records,
    find_record_without_key,
    holds_records,
    iter_batches,
    iter_records,
)

NOW = 1_700_000_000_000
MARKER_BYTES = 78
CODECS = [0, 1, 2, 3, 4]


def patched(batch: bytes, at: int, layout: str, value: int) -> bytes:
    """The batch with one field changed and its checksum made right again."""
    out = bytearray(batch)
    struct.pack_into(layout, out, at, value)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def with_count(batch: bytes, count: int) -> bytes:
    return patched(patched(batch, 57, ">i", count), 23, ">i", count - 1)


def three(codec: int = 0) -> bytes:
    return encode_records([Record(0, NOW + i, b"k%d" % i, b"v" * 20) for i in range(3)], codec)


def code_of(records: bytes, max_message_bytes: int = 1 << 20) -> int:
    answer = check_produce_batch(records, max_message_bytes)
    return answer.code if isinstance(answer, RefusedBatch) else errors.NONE


# Headers.


def test_a_short_header_says_what_it_needs_and_what_there_is() -> None:
    with pytest.raises(Truncated, match=r"batch header needs 61 bytes, there are 60 \(at byte 0\)") as e:
        decode_header(three()[:60])
    assert (e.value.need, e.value.have, e.value.at) == (61, 60, 0)


def test_a_cut_batch_says_what_it_needs_and_what_there_is() -> None:
    batch = three()
    with pytest.raises(Truncated, match=f"batch needs {len(batch)} bytes, there are {len(batch) - 1}"):
        decode_batch(batch[:-1])


def test_a_wrong_crc_names_both_values() -> None:
    batch = three()
    broken = batch[:-1] + bytes([batch[-1] ^ 1])
    crc = decode_header(batch).crc
    with pytest.raises(Corrupt, match=rf"crc is 0x[0-9a-f]+, the header says {crc:#010x} \(at byte 17\)"):
        decode_batch(broken)


def test_another_magic_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="magic is 1, expected 2"):
        decode_header(patched(three(), 16, "b", 1))


def test_a_length_too_small_for_a_header_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="length is 48"):
        decode_header(patched(three(), 8, ">i", 48))


def test_sequences_wrap_after_the_greatest_int() -> None:
    assert advance_sequence(MAX_SEQUENCE, 1) == 0
    assert advance_sequence(MAX_SEQUENCE - 1, 3) == 1
    assert advance_sequence(0, 5) == 5
    assert advance_sequence(-1, 5) == -1


# Stamping.


def test_stamping_leaves_the_checksum_alone() -> None:
    batch = three()
    stamped = stamp(memoryview(batch), 1234, 5)
    header, _ = decode_batch(stamped)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (1234, 1236, 5)
    assert stamped[16:] == batch[16:]


def test_stamping_in_place_gives_the_same_bytes() -> None:
    batch = three()
    memory = bytearray(batch)
    assert stamp_in_place(memoryview(memory), 1234, 5) == stamp(batch, 1234, 5) == memory


def test_log_append_time_changes_a_batch_only_if_it_is_writable() -> None:
    batch = three()
    memory = bytearray(batch)
    copied = stamp_append_time(memoryview(batch), 10, 1, NOW + 99)
    assert batch == three()
    assert stamp_append_time(memoryview(memory), 10, 1, NOW + 99) == copied == memory


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_goes_into_header_and_checksum(codec: int) -> None:
    header, _ = decode_batch(stamp_append_time(three(codec), 10, 1, NOW + 99))
    assert (header.base_offset, header.max_timestamp, header.codec) == (10, NOW + 99, codec)
    assert header.has_log_append_time
    assert {r.timestamp for r in iter_records(stamp_append_time(three(codec), 10, 1, NOW + 99))} == {NOW + 99}


# Markers.


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_decodes_to_what_was_put_in(commit: bool) -> None:
    batch = encode_marker(77, 4, commit, 9, NOW, 500, 2)
    header, end = decode_batch(batch)
    assert end == len(batch) == MARKER_BYTES
    assert (header.attributes, header.base_sequence, header.record_count) == (0x30, -1, 1)
    assert (header.base_offset, header.leader_epoch) == (500, 2)
    assert decode_marker(batch) == (77, 4, commit, 9, 500, NOW)
    (record,) = iter_records(batch)
    assert record.key == struct.pack(">hh", 0, int(commit))
    assert record.value == struct.pack(">hi", 0, 9)


def test_data_and_emptied_control_batches_are_no_markers() -> None:
    assert decode_marker(three()) is None
    assert decode_marker(patched(encode_marker(1, 0, True, 0, NOW), 57, ">i", 0)[:HEADER_BYTES]) is None


def test_a_control_record_of_another_kind_is_no_marker() -> None:
    assert decode_marker(patched(encode_marker(1, 0, True, 0, NOW), HEADER_BYTES + 7, ">h", 2)) is None


def test_a_cut_marker_is_truncated() -> None:
    with pytest.raises(Truncated, match="control record needs 17 bytes, there are 3"):
        decode_marker(encode_marker(1, 0, True, 0, NOW)[:64])


# What may be produced. The codes are those of Apache Kafka 4.3.1, unless it says otherwise.


@pytest.mark.parametrize("codec", CODECS)
def test_a_sound_batch_is_accepted_with_any_codec(codec: int) -> None:
    assert code_of(three(codec)) == errors.NONE
    assert code_of(memoryview(three(codec))) == errors.NONE  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("why", "records", "code"),
    [
        ("no bytes", b"", errors.INVALID_RECORD),
        ("five bytes", b"12345", errors.INVALID_RECORD),
        ("zeros", bytes(61), errors.CORRUPT_MESSAGE),
        ("few zeros", bytes(17), errors.CORRUPT_MESSAGE),
        ("a cut batch", three()[:-1], errors.INVALID_RECORD),
        ("a cut header", three()[:40], errors.INVALID_RECORD),
        ("garbage behind", three() + bytes(20), errors.CORRUPT_MESSAGE),
        ("two batches", three() + three(), errors.INVALID_RECORD),
        ("magic 1", patched(three(), 16, "b", 1), errors.INVALID_RECORD),
        ("magic 3", patched(three(), 16, "b", 3), errors.CORRUPT_MESSAGE),
        ("magic -1", patched(three(), 16, "b", -1), errors.CORRUPT_MESSAGE),
        ("length 10", patched(three(), 8, ">i", 10), errors.CORRUPT_MESSAGE),
        ("length 30", patched(three(), 8, ">i", 30), errors.CORRUPT_MESSAGE),
        ("negative length", patched(three(), 8, ">i", -5), errors.CORRUPT_MESSAGE),
        ("wrong crc", three()[:17] + b"abcd" + three()[21:], errors.CORRUPT_MESSAGE),
        ("count and delta differ", patched(three(), 57, ">i", 4), errors.INVALID_RECORD),
        ("a count too great", with_count(three(), 4), errors.INVALID_RECORD),
        ("a count too small", with_count(three(), 2), errors.INVALID_RECORD),
        ("a count of none", with_count(three(), 0), errors.INVALID_RECORD),
        ("a negative count", with_count(three(), -1), errors.INVALID_RECORD),
        ("a huge count", with_count(three(), 2**31 - 1), errors.INVALID_RECORD),
        ("a huge compressed count", with_count(three(4), 2**31 - 1), errors.INVALID_RECORD),
        ("a compressed count too small", with_count(three(1), 2), errors.INVALID_RECORD),
        ("a base offset", patched(three(), 0, ">q", 7), errors.INVALID_RECORD),
        ("control records", patched(three(), 21, ">h", 0x20), errors.INVALID_RECORD),
        ("a marker", encode_marker(5, 0, True, 0, NOW), errors.INVALID_RECORD),
        ("a producer without sequence", encode_batch([(b"k", b"v")], NOW, 5, 0, -1), errors.INVALID_RECORD),
        ("a codec that is not used", patched(three(), 21, ">h", 1), errors.INVALID_RECORD),
        # Apache Kafka answers these four differently; the reasons stand in produced.py.
        ("an unknown codec", patched(three(), 21, ">h", 5), errors.UNSUPPORTED_COMPRESSION_TYPE),
        ("a producer without epoch", encode_batch([(b"k", b"v")], NOW, 5, -1, 0), errors.INVALID_RECORD),
        ("log append time", patched(three(), 21, ">h", 8), errors.INVALID_TIMESTAMP),
        ("a transaction without a producer id", patched(three(), 21, ">h", 0x10), errors.INVALID_RECORD),
        ("one record and no bytes", assemble(b"", 1, 0, NOW, NOW), errors.INVALID_RECORD),
        ("a record without bytes", assemble(b"\0", 1, 0, NOW, NOW), errors.INVALID_RECORD),
        ("a record too short", assemble(b"\x0a\0\0\0\1\1", 1, 0, NOW, NOW), errors.INVALID_RECORD),
        ("a negative length", assemble(b"\x0d\0\0\0\1\1\0", 1, 0, NOW, NOW), errors.INVALID_RECORD),
        ("records without bytes", assemble(bytes(7), 7, 0, NOW, NOW), errors.INVALID_RECORD),
        ("compressed records without bytes", assemble(compress(1, bytes(7)), 7, 1, NOW, NOW), errors.INVALID_RECORD),
    ],
)
def test_what_is_not_one_sound_batch_is_refused(why: str, records: bytes, code: int) -> None:
    assert code_of(records) == code, why


def test_a_count_that_cannot_fit_is_refused_in_a_batch_too_large_to_be_counted() -> None:
    many = encode_batch([(None, None)] * 100, NOW)
    assert code_of(many) == errors.NONE
    assert code_of(with_count(many, 130)) == errors.INVALID_RECORD


def same_record(count: int, codec: int) -> bytes:
    """Records that all have offset 0, which compress to almost nothing. No client writes such a batch."""
    return assemble(compress(codec, b"\x0e\0\0\0\2k\1\0" * count), count, codec, NOW, NOW)


def test_more_records_than_so_few_bytes_can_hold_are_refused_before_they_are_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(produced, "uncompressed_records", lambda *_: pytest.fail("unpacked"))
    assert code_of(same_record(200_000, 4)) == errors.INVALID_RECORD


def test_a_small_batch_is_unpacked_as_far_as_clients_go_and_no_further() -> None:
    assert code_of(encode_records([Record(0, NOW, None, bytes(16 << 20))], 4)) == errors.NONE
    assert code_of(encode_records([Record(0, NOW, None, bytes(40 << 20))], 4)) == errors.INVALID_RECORD
    hidden = patched(with_count(same_record(1_000_000, 4), 1), 0, ">q", 0)
    assert code_of(hidden) == errors.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("count", "size"), [(10_000, 1000), (100_000, 0), (32, 300_000)])
def test_data_that_shrinks_well_is_accepted(codec: int, count: int, size: int) -> None:
    batch = encode_batch([(b"k", bytes(size))] * count, NOW)
    header = decode_header(batch)
    records = assemble(compress(codec, batch[HEADER_BYTES:]), count, codec, NOW, header.max_timestamp)
    assert code_of(records, max_message_bytes=1 << 30) == errors.NONE
    assert find_record_without_key(records) is None


def test_the_first_record_without_a_key_is_found_whatever_stands_before() -> None:
    keys = [b"", b"k", b"k" * 63, b"k" * 64, b"k" * 20_000]
    for codec in CODECS:
        records = [Record(0, NOW + 1000 * n, key, b"v" * 100 * n) for n, key in enumerate(keys)]
        assert find_record_without_key(encode_records(records, codec)) is None
        assert find_record_without_key(encode_records([*records, Record(0, NOW, None, b"v")], codec)) == len(keys)
    with pytest.raises(Corrupt):
        find_record_without_key(with_count(three(), 4))
    with pytest.raises(Corrupt):
        find_record_without_key(with_count(three(), 2))


def test_a_large_batch_is_refused_before_its_checksum_is_computed() -> None:
    batch = three()[:17] + b"abcd" + three()[21:]
    assert code_of(batch, max_message_bytes=len(batch) - 1) == errors.MESSAGE_TOO_LARGE
    assert code_of(three(), max_message_bytes=len(three())) == errors.NONE


def test_a_scrap_behind_the_batch_is_ignored() -> None:
    answer = check_produce_batch(three() + three()[:30])
    assert not isinstance(answer, RefusedBatch)
    assert answer.size_bytes == len(three())


# Records.


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_from_every_codec(codec: int) -> None:
    records = [
        Record(
            i,
            NOW - 5 * i,
            None if i % 3 else b"key",
            b"value %d" % i,
            (("h", b"1"), ("n", None)) if i % 2 else (),
        )
        for i in range(500)
    ]
    batch = encode_records(records, codec)
    assert list(iter_records(batch)) == records
    assert decode_batch(batch)[0].max_timestamp == NOW


def test_raw_snappy_without_framing_is_read_too() -> None:
    import cramjam

    assert decompress(2, bytes(cramjam.snappy.compress_raw(b"abc" * 100))) == b"abc" * 100


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("spoil", [lambda good: b"x" * 60, lambda good: good[:-20]], ids=["garbage", "cut short"])
def test_data_that_cannot_be_decompressed_takes_little_memory(codec: int, spoil: Callable[[bytes], bytes]) -> None:
    """Memory for the largest output took a broker a tenth of a second for each such batch."""
    broken = spoil(compress(codec, random.Random(codec).randbytes(10_000)))
    with pytest.raises(Corrupt):
        decompress(codec, broken)  # The library is loaded.
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt):
            decompress(codec, broken)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_decompression_bomb_is_refused(codec: int) -> None:
    bomb = compress(codec, bytes(30_000_000))
    with pytest.raises(Corrupt, match="at most"):
        decompress(codec, bomb, max_bytes=1_000_000)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_broken_compressed_data_is_corrupt(codec: int) -> None:
    data = compress(codec, b"hello world" * 100)
    for broken in (data[:-3], data[: len(data) // 2], b"", b"garbage garbage garbage"):
        if broken != b"" or codec == 2:
            with pytest.raises(Corrupt):
                decompress(codec, broken)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 1000, 2**31 - 1])
def test_a_lying_count_is_corrupt(count: int) -> None:
    with pytest.raises(Corrupt):
        list(iter_records(with_count(three(), count)))


def test_a_varint_of_more_than_64_bits_is_corrupt() -> None:
    assert decode_varint(b"\xff" * 9 + b"\x01", 0) == (-(2**63), 10)
    with pytest.raises(Corrupt):
        decode_varint(b"\xff" * 9 + b"\x02", 0)


def test_a_varint_without_end_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        decode_varint(b"\xff" * 20, 0)
    with pytest.raises(Truncated):
        decode_varint(b"\xff", 0)


def test_records_are_counted_by_their_lengths() -> None:
    batch = encode_batch([(b"k", b"v" * n) for n in range(0, 20_000, 500)], NOW)
    assert holds_records(batch, HEADER_BYTES, len(batch), 40)
    assert not holds_records(batch, HEADER_BYTES, len(batch), 39)
    assert not holds_records(batch, HEADER_BYTES, len(batch), 41)
    assert not holds_records(batch, HEADER_BYTES, len(batch) - 1, 40)


def test_a_chunk_is_split_into_its_whole_batches() -> None:
    chunk = stamp(three(), 5, 0) + encode_marker(1, 0, True, 0, NOW, 8) + three()[:70]
    assert [(h.base_offset, len(b)) for h, b in iter_batches(chunk)] == [(5, len(three())), (8, MARKER_BYTES)]


def test_the_places_of_the_layout_are_those_of_the_header() -> None:
    header = BatchHeader(11, 49, 22, MAGIC, 33, TRANSACTIONAL | CONTROL, 44, 55, 66, 77, 88, 99, 1)
    raw = HEADER.pack(*header)
    assert UNCHECKED_HEADER.unpack(raw[:CHECKED_AT]) == header[:5]
    assert CHECKED_HEADER.unpack(raw[CHECKED_AT:]) == header[5:]
    walked = (header.base_offset, header.length, header.magic, header.crc, header.attributes)
    assert WALKED_HEADER.unpack_from(raw) == (*walked, header.last_offset_delta, header.max_timestamp)
    assert PRODUCER.unpack_from(raw, PRODUCER_AT) == (header.producer_id, header.producer_epoch)
    found = [int.from_bytes(raw[at], "big") for at in (LEADER_EPOCH, MAX_TIMESTAMP, PRODUCER_ID)]
    assert found == [header.leader_epoch, header.max_timestamp, header.producer_id]
    assert raw[LENGTH_AT + 3] == header.length
    assert raw[MAGIC_AT] == header.magic
    assert raw[CRC_AT + 3] == header.crc
    assert raw[ATTRIBUTES_AT] == header.attributes
