"""Requests and answers as plain values, with the fields of their version; record batches, also some to be refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fencepost.client.transaction import ProducerIdentity
from fencepost.protocol import errors
from fencepost.protocol.batch import (
    CRC_AT,
    HEADER_BYTES,
    TRANSACTIONAL,
    assemble,
    decode_header,
    encode_batch,
    encode_marker,
    encode_record,
)
from fencepost.protocol.schema import Message, Struct, StructDef

MOST_CHARS = 200


def plain(message: Message, version: int) -> dict[str, Any]:
    return _fields(message, message.definition, version)


def _fields(value: Struct, definition: StructDef, version: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in definition.fields:
        if version not in field.versions:
            continue
        found = getattr(value, field.name)
        if field.is_array and found is not None:
            out[field.name] = [_value(each, field.type, field.struct, version) for each in found]
        else:
            out[field.name] = _value(found, field.type, field.struct, version)
    return out


def _value(value: Any, type_name: str, struct: StructDef | None, version: int) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if struct is not None:
        return _fields(value, struct, version)
    if type_name == "records":
        return _batch(bytes(value))
    if type_name == "uuid":
        return bytes(value).hex()
    if isinstance(value, str):
        return value if len(value) <= MOST_CHARS else f"{value[:MOST_CHARS]}... ({len(value)} characters)"
    return f"{len(value)} bytes"


def _batch(records: bytes) -> Any:
    """The header of a record batch: this is where a producer says who it is."""
    if len(records) < HEADER_BYTES:
        return f"{len(records)} bytes"
    header = decode_header(records)
    return {
        "bytes": len(records),
        "records": header.record_count,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
    }


def error_in(document: Any) -> int:
    """The first error code in an answer."""
    return next(_codes(document), errors.NONE)


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name in ("error_code", "partition_error_code"):
                if each:
                    yield each
            else:
                yield from _codes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _codes(each)


TOO_LARGE_BYTES = 1_100_000  # More than message.max.bytes, which is 1,048,588.
YEAR_2100_MS = 4_102_444_800_000
UNKNOWN_CODEC = 7


def batch(who: ProducerIdentity, sequence: int, key: str, value: str, now_ms: int, mistake: str = "") -> bytes:
    """One record in a transactional batch; `mistake` is an option of the button `produce`."""
    producer = (who.producer_id, who.producer_epoch)
    record = (key.encode(), value.encode())
    if mistake == "control-batch":
        return encode_marker(*producer, True, 0, now_ms)
    if mistake == "unknown-codec":
        payload = encode_record(*record)
        return assemble(payload, 1, TRANSACTIONAL | UNKNOWN_CODEC, now_ms, now_ms, *producer, sequence)
    if mistake == "too-large":
        record = (record[0], b"x" * TOO_LARGE_BYTES)
    at_ms = YEAR_2100_MS if mistake == "year-2100" else now_ms
    made = encode_batch([record], at_ms, *producer, sequence, transactional=True)
    if mistake == "damaged":
        return made[:CRC_AT] + bytes(byte ^ 0xFF for byte in made[CRC_AT : CRC_AT + 4]) + made[CRC_AT + 4 :]
    return made
