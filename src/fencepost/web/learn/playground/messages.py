"""A request or an answer as plain values: the fields that its version has, with their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.batch import HEADER_BYTES, decode_header
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
