"""Checks the bytes that a client produces to a partition: one valid v2 batch of data. Answers as Kafka does.

Header and checksum are always checked. Records are read only where that is cheap or needed, because reading all of them
would take most of a broker's time: the records of a small batch are counted, and those of a batch that is refused
because of a setting are named (`refuse_records`). Follows Kafka's ProduceRequest, UnifiedLog and LogValidator.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from fencepost.protocol import errors
from fencepost.protocol.batch import (
    CHECKED_AT,
    CODEC_MASK,
    CODECS,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LEAST_LENGTH_OF_ANY_MAGIC,
    LENGTH_AT,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    SMALLEST_BATCH_BYTES,
    SMALLEST_RECORD_BYTES,
    TRANSACTIONAL,
    UP_TO_MAGIC_BYTES,
    BatchHeader,
    Buffer,
    Corrupt,
)
from fencepost.protocol.crc import crc32c
from fencepost.protocol.filtering import skim
from fencepost.protocol.records import (
    MAX_UNCOMPRESSED_BYTES,
    find_record_without_key,
    holds_records,
    uncompressed_records,
)

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
# The records of a batch this small are counted, which costs little compared with the request itself.
COUNTED_RECORDS = 32
COUNTED_COMPRESSED_BYTES = 4096
COUNTED_COMPRESSED_RECORDS = 4096
# Equal records compress to half a byte each at best, because every record has its own offset.
RECORDS_PER_COMPRESSED_BYTE = 4
# Records that are read are decompressed up to this size, and somewhat further for large batches. Kafka's clients put
# megabytes into a batch that compresses well, not more.
UNPACKED_BYTES = 32 << 20
UNPACKED_BYTES_PER_BYTE = 64
UNCOMMON = CODEC_MASK | LOG_APPEND_TIME | CONTROL
# Differs: Kafka examines all records of a batch that it refuses, and names each record at fault. Fencepost examines the
# first 100,000.
EXAMINED_RECORDS = 100_000

_INT32 = struct.Struct(">i")


class RecordError(NamedTuple):
    """Why one record of a batch is not accepted."""

    batch_index: int
    message: str


class RefusedBatch(NamedTuple):
    """The answer to a batch that is not accepted."""

    code: int
    message: str
    record_errors: Sequence[RecordError] = ()


def check_produce_batch(
    records: Buffer, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
) -> BatchHeader | RefusedBatch:
    """The header of the batch, or why it is refused.

    Kafka: bytes after the batch that are too few for another one are ignored; the batch ends at `size_bytes`.
    """
    have = len(records)
    if have < HEADER_BYTES:
        return _refuse_scrap(records)
    header = BatchHeader._make(HEADER.unpack_from(records))
    size = header.length + PREFIX_BYTES
    if header.magic != MAGIC or size != have:
        refused = _refuse_shape(records, size, header.magic)
        if refused is not None:
            return refused
    if header.base_offset != 0:
        return RefusedBatch(errors.INVALID_RECORD, f"the batch has base offset {header.base_offset}, expected 0")
    if size > max_message_bytes:
        return RefusedBatch(
            errors.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {max_message_bytes}"
        )
    crc = crc32c(memoryview(records)[CHECKED_AT:size])
    if crc != header.crc:
        return RefusedBatch(errors.CORRUPT_MESSAGE, f"the crc is {crc:#010x}, the header says {header.crc:#010x}")
    count = header.record_count
    if count != header.last_offset_delta + 1 or count <= 0:
        return RefusedBatch(
            errors.INVALID_RECORD,
            f"the batch says {count} records and a last offset delta of {header.last_offset_delta}",
        )
    if header.producer_id < 0:
        uncommon = header.attributes & (UNCOMMON | TRANSACTIONAL)
    else:
        uncommon = header.attributes & UNCOMMON or header.base_sequence < 0 or header.producer_epoch < 0
    if uncommon:
        refused = _refuse_uncommon(header)
        if refused is not None:
            return refused
    if count == 1 and not header.attributes & CODEC_MASK and size >= SMALLEST_BATCH_BYTES:
        # A batch of one record, the most frequent kind: the record must end where the batch does.
        first = records[HEADER_BYTES]
        if first < 0x80:
            if first == (size - HEADER_BYTES - 1) << 1:
                return header
        elif records[HEADER_BYTES + 1] < 0x80 and (
            first & 0x7F | records[HEADER_BYTES + 1] << 7 == (size - HEADER_BYTES - 2) << 1
        ):
            return header
    return _refuse_count(records, header) or header


def _refuse_scrap(records: Buffer) -> RefusedBatch:
    """Why bytes too few for a header are refused."""
    have = len(records)
    if have >= UP_TO_MAGIC_BYTES:
        (length,) = _INT32.unpack_from(records, LENGTH_AT)
        refused = _refuse_shape(records, length + PREFIX_BYTES, records[MAGIC_AT])
        if refused is not None:
            return refused
    return RefusedBatch(errors.INVALID_RECORD, f"expected a record batch, there are {have} bytes")


def _refuse_shape(records: Buffer, size: int, magic: int) -> RefusedBatch | None:
    """Check size and magic of the batch, and that no other batch follows it."""
    have = len(records)
    if size < PREFIX_BYTES + LEAST_LENGTH_OF_ANY_MAGIC:
        return RefusedBatch(errors.CORRUPT_MESSAGE, f"the batch says {size} bytes, less than any batch has")
    if not 0 <= magic <= MAGIC:
        return RefusedBatch(errors.CORRUPT_MESSAGE, f"the batch has magic {magic}, expected 2")
    if size > have:
        return RefusedBatch(errors.INVALID_RECORD, f"the batch says {size} bytes, there are {have}")
    if magic != MAGIC:
        return RefusedBatch(errors.INVALID_RECORD, f"the batch has magic {magic}, expected 2")
    if size < HEADER_BYTES:
        return RefusedBatch(errors.CORRUPT_MESSAGE, f"the batch says {size} bytes, a header has {HEADER_BYTES}")
    rest = have - size
    if rest >= UP_TO_MAGIC_BYTES:
        (length,) = _INT32.unpack_from(records, size + LENGTH_AT)
        if length < LEAST_LENGTH_OF_ANY_MAGIC or not 0 <= records[size + MAGIC_AT] <= MAGIC:
            return RefusedBatch(errors.CORRUPT_MESSAGE, f"{rest} bytes follow the batch, and they are not a batch")
        if length + PREFIX_BYTES <= rest:
            return RefusedBatch(errors.INVALID_RECORD, "there is more than one record batch for the partition")
    return None


def _refuse_uncommon(header: BatchHeader) -> RefusedBatch | None:
    """Check features that an ordinary batch does not have: a codec, control records, a producer without a sequence."""
    if header.codec >= len(CODECS):
        # Differs: Kafka answers UNKNOWN_SERVER_ERROR to a codec that does not exist. Fencepost answers
        # UNSUPPORTED_COMPRESSION_TYPE.
        return RefusedBatch(errors.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.codec} is unknown")
    if header.is_control:
        return RefusedBatch(errors.INVALID_RECORD, "clients may not write control records")
    # Differs: Kafka accepts batches with a producer id and no epoch (-1), and does not check their order. Fencepost
    # refuses them.
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return RefusedBatch(
            errors.INVALID_RECORD,
            f"producer {header.producer_id}: epoch {header.producer_epoch}, sequence {header.base_sequence}",
        )
    if header.is_transactional and header.producer_id < 0:
        return RefusedBatch(errors.INVALID_RECORD, "a transactional batch needs a producer id")
    # Differs: if a batch claims LogAppendTime, Kafka clears the bit for a CreateTime topic, which takes a new checksum.
    # Fencepost answers INVALID_TIMESTAMP. No client sets the bit.
    if header.has_log_append_time:
        return RefusedBatch(errors.INVALID_TIMESTAMP, "producers may not set the timestamp type to LogAppendTime")
    return None


def most_unpacked_bytes(compressed_bytes: int) -> int:
    """The limit for decompressing the records of a batch."""
    return min(MAX_UNCOMPRESSED_BYTES, UNPACKED_BYTES + UNPACKED_BYTES_PER_BYTE * compressed_bytes)


def _refuse_count(records: Buffer, header: BatchHeader) -> RefusedBatch | None:
    """Refuse a wrong record count, where checking is cheap or the count is implausible."""
    # Differs: Kafka reads the records of every batch. Fencepost only counts the records of small batches.
    count = header.record_count
    room = header.length + PREFIX_BYTES - HEADER_BYTES
    payload = records
    try:
        if header.attributes & CODEC_MASK:
            # Ordinary data does not compress to less than a byte per record, so such a batch is checked too.
            if count <= room and (count > COUNTED_RECORDS or room > COUNTED_COMPRESSED_BYTES):
                return None
            # Differs: Kafka decompresses and reads every batch. Here all other clients would wait meanwhile, so a batch
            # with more than 4 records per compressed byte, or of 4 KiB that decompress to more than 32 MiB, is refused
            # with INVALID_RECORD. No client writes such a batch, because every record has its own offset.
            if count > room * RECORDS_PER_COMPRESSED_BYTE:
                return RefusedBatch(errors.INVALID_RECORD, f"the batch says {count} records in {room} compressed bytes")
            payload = uncompressed_records(header, records, most_unpacked_bytes(room))
            at, end, counted = 0, len(payload), COUNTED_COMPRESSED_RECORDS
        else:
            at, end, counted = HEADER_BYTES, HEADER_BYTES + room, COUNTED_RECORDS
        if count <= counted:
            is_held = holds_records(payload, at, end, count)
        else:
            is_held = count <= (end - at) // SMALLEST_RECORD_BYTES
    except Corrupt as e:
        return RefusedBatch(errors.INVALID_RECORD, f"the records cannot be read: {e}")
    if not is_held:
        return RefusedBatch(errors.INVALID_RECORD, f"the batch says {count} records, its bytes do not hold as many")
    return None


def refuse_records(
    records: Buffer, header: BatchHeader, topic_partition: str, timestamps: tuple[int, int] | None, needs_keys: bool
) -> RefusedBatch | None:
    """Refuse a batch because of records without a key, or with a timestamp outside of the range, and name each of them.

    Returns None if there are none, and raises Corrupt. Code and words are Kafka's.
    """
    found = []
    code = errors.INVALID_RECORD
    payload = uncompressed_records(header, records, most_unpacked_bytes(header.length))
    for n, record in enumerate(islice(skim(header, payload), EXAMINED_RECORDS)):
        timestamp = header.base_timestamp + record.timestamp_delta
        if needs_keys and record.key is None:
            problem = f"Compacted topic cannot accept message without key in topic partition {topic_partition}"
        elif timestamps and timestamp != NO_TIMESTAMP and not timestamps[0] <= timestamp <= timestamps[1]:
            code = errors.INVALID_TIMESTAMP
            problem = (
                f"Timestamp {timestamp} of message with offset {record.offset_delta} is out of range. The timestamp "
                f"should be within [{timestamps[0]}, {timestamps[1]}]"
            )
        else:
            continue
        found.append(RecordError(n, problem))
    if not found:
        return None
    message = "One or more records have been rejected due to "
    if code == errors.INVALID_TIMESTAMP:
        return RefusedBatch(code, message + "invalid timestamp", found)
    first = ", ".join(f"RecordError(batchIndex={each.batch_index}, message='{each.message}')" for each in found[:3])
    message += f"{len(found)} record errors in total, and only showing the first three errors at most: [{first}]"
    return RefusedBatch(code, message, found)


def refuse_by_settings(
    records: Buffer, header: BatchHeader, partition: str, allowed: tuple[int, int] | None, is_compacted: bool
) -> RefusedBatch | None:
    """Check a batch against the topic's settings: times in the range `allowed`, and keys if it `is_compacted`."""
    # Differs: Kafka checks the timestamp of every record, and corrects the maximum in the header. Fencepost checks the
    # header, and reads records only to name those at fault.
    fault = None
    if allowed is not None:
        early, late = allowed
        for timestamp in (header.base_timestamp, header.max_timestamp):
            if timestamp != NO_TIMESTAMP and not early <= timestamp <= late:
                reason = f"timestamp {timestamp} is not between {early} and {late}"
                fault = RefusedBatch(errors.INVALID_TIMESTAMP, reason)
    try:
        if fault is None and is_compacted:
            place = find_record_without_key(records, most_unpacked_bytes(header.length))
            if place is not None:
                reason = f"record {place} has no key, and the topic of {partition} is compacted"
                fault = RefusedBatch(errors.INVALID_RECORD, reason)
        if fault is None:
            return None
        return refuse_records(records, header, partition, allowed, is_compacted) or fault
    except Corrupt as e:
        return RefusedBatch(errors.INVALID_RECORD, str(e))
