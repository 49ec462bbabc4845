"""Replies that carry an error: built from a request that was not served, or from the reply to one that was.

If a message has error codes for each topic or partition, these are set; otherwise the one of the whole message.
"""

from __future__ import annotations

import struct
from typing import Any

from fencepost.broker.api import APIS
from fencepost.broker.node import Frame
from fencepost.protocol import messages
from fencepost.protocol.schema import Field, StructDef, read_uvarint, skip_tags

_HEADER = struct.Struct(">hhih")
_REPLY = struct.Struct(">ii")
API_VERSIONS, PRODUCE = 18, 0
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
    return _has_error(_response_class(api_key).definition)


def refusal(frame: Frame, error_code: int) -> list[bytes] | None:
    """The reply that refuses the request `frame`. None if it has no error field, or the request cannot be decoded."""
    api_key, version, correlation_id, _ = _HEADER.unpack_from(frame)
    request = _decode_request(frame)
    if request is None:
        return None
    response_class = _response_class(api_key)
    response = response_class()
    _mirror(request, request.definition, response, response_class, response_class.definition, version)
    return _encode(response, api_key, version, correlation_id, error_code)


def stamped(frame: Frame, parts: list[bytes], error_code: int) -> list[bytes] | None:
    """The reply `parts` with the error in it. None if it has no error field."""
    if not parts:
        return None
    api_key, version, correlation_id, _ = _HEADER.unpack_from(frame)
    reply = b"".join(parts)
    response, _ = _response_class(api_key).decode(reply, 8 + _extra_bytes(api_key, version), version)
    return _encode(response, api_key, version, correlation_id, error_code)


def _encode(response: Any, api_key: int, version: int, correlation_id: int, error_code: int) -> list[bytes] | None:
    if not _stamp(response, response.definition, version, error_code):
        return None
    body = response.encode(version)
    extra = _extra_bytes(api_key, version)
    return [_REPLY.pack(4 + extra + len(body), correlation_id) + bytes(extra), body]


def _extra_bytes(api_key: int, version: int) -> int:
    """A flexible header ends in a count of tags, which is 0."""
    # Kafka: ApiVersions is always answered with the old header, because the client does not know the versions yet.
    return 1 if api_key != API_VERSIONS and version >= _response_class(api_key).definition.flexible_from else 0


def _response_class(api_key: int) -> Any:
    return getattr(messages, f"{APIS[api_key].name}Response")


def _decode_request(frame: Frame) -> Any:
    frame = bytes(frame)
    api_key, version, _, client_id_size = _HEADER.unpack_from(frame)
    api = APIS.get(api_key)
    if api is None or not api.first <= version <= api.last:
        return None
    request_class = getattr(messages, f"{api.name}Request")
    pos = 10 + max(client_id_size, 0)
    if version >= request_class.definition.flexible_from:
        count, pos = read_uvarint(frame, pos)
        pos = skip_tags(frame, pos, count)
    return request_class.decode(frame, pos, version)[0]


def _is_error(f: Field) -> bool:
    return f.name.endswith("error_code") and f.type == "int16"


def _has_error(definition: StructDef) -> bool:
    return any(_is_error(f) or (f.struct is not None and _has_error(f.struct)) for f in definition.fields)


def _lists(definition: StructDef, version: int) -> list[Field]:
    return [f for f in definition.fields if f.is_array and version in f.versions and f.tag is None]


def _mirror(
    source: Any, source_definition: StructDef, target: Any, response_class: Any, definition: StructDef, version: int
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
        entry = getattr(response_class, struct_def.name)()
        if asked[0].struct is not None:
            _mirror(item, asked[0].struct, entry, response_class, struct_def, version)
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
