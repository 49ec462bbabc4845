"""Replies that carry an error: built from a request that was not served, or from the reply to one that was.

If a message has error codes for each topic or partition, these are set; otherwise the one of the whole message.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from fencepost.protocol.apis import (
    body_of_reply,
    body_of_request,
    has_flexible_reply_header,
    knows,
    request_class,
    response_class,
)
from fencepost.protocol.batch import Part
from fencepost.protocol.schema import Field, Malformed, StructDef

Frame = bytes | memoryview
_HEADER = struct.Struct(">hhi")
_REPLY = struct.Struct(">ii")
PRODUCE = 0
# The values of these fields in a reply with an error.
UNKNOWN = {"base_offset": -1, "records": b"", "producer_id": -1, "producer_epoch": -1}


def client_id_of(frame: Frame) -> str:
    size = int.from_bytes(frame[8:10], "big", signed=True)
    return str(frame[10 : 10 + size], errors="replace") if size > 0 else ""


def is_answered(frame: Frame) -> bool:
    """All requests are answered, except for Produce with acks=0."""
    if int.from_bytes(frame[:2], "big") != PRODUCE:
        return True
    request = _decode_request(frame)
    return request is None or request.acks != 0


def can_carry_error(api_key: int) -> bool:
    return _has_error(response_class(api_key).definition)


def refusal(frame: Frame, error_code: int) -> list[bytes] | None:
    """The reply that refuses the request `frame`. None if it has no error field, or the request cannot be decoded."""
    api_key, version, correlation_id = _HEADER.unpack_from(frame)
    request = _decode_request(frame)
    if request is None:
        return None
    kind = response_class(api_key)
    response = kind()
    _mirror(request, request.definition, response, kind, kind.definition, version)
    return _encode(response, api_key, version, correlation_id, error_code)


def stamped(frame: Frame, parts: Sequence[Part], error_code: int) -> list[bytes] | None:
    """The reply `parts` to the request `frame`, with the error in it. None if it has no error field.

    The request may be cut off after its header.
    """
    if not parts:
        return None
    api_key, version, correlation_id = _HEADER.unpack_from(frame)
    if not knows(api_key, version):
        return None
    reply = b"".join(parts)[4:]
    try:
        response, _ = response_class(api_key).decode(reply, body_of_reply(reply, api_key, version), version)
    except Malformed:
        return None
    return _encode(response, api_key, version, correlation_id, error_code)


def _encode(response: Any, api_key: int, version: int, correlation_id: int, error_code: int) -> list[bytes] | None:
    if not _stamp(response, response.definition, version, error_code):
        return None
    body = response.encode(version)
    # A flexible header ends in a count of tags, which is 0.
    tags = b"\0" if has_flexible_reply_header(api_key, version) else b""
    return [_REPLY.pack(4 + len(tags) + len(body), correlation_id) + tags, body]


def _decode_request(frame: Frame) -> Any:
    frame = bytes(frame)
    api_key, version, _ = _HEADER.unpack_from(frame)
    if not knows(api_key, version):
        return None
    try:
        return request_class(api_key).decode(frame, body_of_request(frame, api_key, version), version)[0]
    except Malformed:
        return None


def _is_error(f: Field) -> bool:
    return f.name.endswith("error_code") and f.type == "int16"


def _has_error(definition: StructDef) -> bool:
    return any(_is_error(f) or (f.struct is not None and _has_error(f.struct)) for f in definition.fields)


def _lists(definition: StructDef, version: int) -> list[Field]:
    return [f for f in definition.fields if f.is_array and version in f.versions and f.tag is None]


def _mirror(
    source: Any, source_definition: StructDef, target: Any, kind: Any, definition: StructDef, version: int
) -> None:
    """Give the reply the topics and partitions of the request: the first list of each corresponds to the other's."""
    for f in definition.fields:
        if hasattr(source, f.name) and f.struct is None and not _is_error(f):
            setattr(target, f.name, getattr(source, f.name))
    asked = _lists(source_definition, version)
    answered = [f for f in _lists(definition, version) if f.struct is not None and _has_error(f.struct)]
    if not asked or not answered:
        return
    struct_def = answered[0].struct
    assert struct_def is not None
    made = []
    for item in getattr(source, asked[0].name) or ():
        entry = getattr(kind, struct_def.name)()
        if asked[0].struct is not None:
            _mirror(item, asked[0].struct, entry, kind, struct_def, version)
        bare, type_name = (
            (item, asked[0].type) if asked[0].struct is None else (getattr(item, "partition", None), "int32")
        )
        if bare is not None:
            # The partition number, or the name that was looked for; it is the first such field of the entry.
            name = next(f.name for f in struct_def.fields if f.type == type_name and "error" not in f.name)
            setattr(entry, name, bare)
        made.append(entry)
    setattr(target, answered[0].name, made)


def _stamp(target: Any, definition: StructDef, version: int, error_code: int) -> bool:
    """Set the innermost error codes; return whether there was one."""
    below = False
    for f in definition.fields:
        if f.is_array and f.struct is not None and version in f.versions and _has_error(f.struct):
            for item in getattr(target, f.name) or ():
                below |= _stamp(item, f.struct, version, error_code)
    if below:
        return True
    found = False
    for f in definition.fields:
        if _is_error(f) and version in f.versions:
            setattr(target, f.name, error_code)
            found = True
    if found:
        for f in definition.fields:
            if f.name in UNKNOWN:
                setattr(target, f.name, UNKNOWN[f.name])
    return found
