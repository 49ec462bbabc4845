"""Replaces the addresses of brokers in replies, and changes no other byte.

`rewritten` walks over a reply by its definition (`protocol/walking.py`), so fields, tags and records that it does not
know stay as they are. A large Fetch reply is passed on in pieces. Its length
is sent before its addresses are seen, so `EndpointHider` cannot replace them: it hides them. Its client asks for
Metadata instead, as clients do that do not know KIP-951.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from fencepost.protocol.apis import api_names, response_class
from fencepost.protocol.schema import Malformed, Message, build_class, parse, read_uvarint, write_uvarint
from fencepost.protocol.walking import TAGS_OF_HEADER, Buffer, FoundField, MessageBytes, Step, Walk, named, plan, walk

# The address that clients get for a broker: node id, host, port -> host, port. None: the address stays.
AddressOf = Callable[[int, str, int], tuple[str, int] | None]

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 0, 1, 3, 10, 60
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
WITH_ADDRESSES = frozenset(
    {PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE}
)
HIDING_TAG = 127  # Kafka has no such tag, so a client skips it.
AFTER_CORRELATION_ID = 8  # And after the length of the reply.
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
# Replies of APIs that the broker and the client of Fencepost do not have.
SHARE_REPLIES = """
ShareFetchResponse key 78 versions 1-2 flexible 0+
    throttle_time_ms             int32
    error_code                   int16
    error_message                string  null
    acquisition_lock_timeout_ms  int32
    responses                    []ShareFetchableTopicResponse
        topic_id    uuid
        partitions  []PartitionData
            partition_index            int32
            error_code                 int16
            error_message              string  null
            acknowledge_error_code     int16
            acknowledge_error_message  string  null
            current_leader             LeaderIdAndEpoch
                leader_id     int32
                leader_epoch  int32
            records                    records  null
            acquired_records           []AcquiredRecords
                first_offset    int64
                last_offset     int64
                delivery_count  int16
    node_endpoints               []NodeEndpoint
        node_id  int32
        host     string
        port     int32
        rack     string  null

ShareAcknowledgeResponse key 79 versions 1-2 flexible 0+
    throttle_time_ms             int32
    error_code                   int16
    error_message                string  null
    acquisition_lock_timeout_ms  int32  v2+
    responses                    []ShareAcknowledgeTopicResponse
        topic_id    uuid
        partitions  []PartitionData
            partition_index  int32
            error_code       int16
            error_message    string  null
            current_leader   LeaderIdAndEpoch
                leader_id     int32
                leader_epoch  int32
    node_endpoints               []NodeEndpoint
        node_id  int32
        host     string
        port     int32
        rack     string  null
"""


def knows_addresses(api_key: int, version: int) -> bool:
    """False for a version that is newer than the definitions: its addresses cannot be found."""
    return api_key in WITH_ADDRESSES and version in _response_class(api_key).definition.versions


def rewritten(frame: Buffer, api_key: int, version: int, address_of: AddressOf) -> Buffer:
    """The reply, with its length, and other addresses in it. Raises Malformed."""
    place = MessageBytes(frame, AFTER_CORRELATION_ID)
    edits: list[_Edit] = []
    tags: list[FoundField] = []
    host: FoundField | None = None
    is_flexible = _response_class(api_key).is_flexible(version)
    for found in _walk(api_key, version, place):
        if found is None:
            raise Malformed(f"the reply to API {api_key} v{version} ends too early: after {len(frame)} bytes")
        if found.field.tag is not None:
            tags.append(found)
        elif found.field.name == "host":
            host = found
        elif host is not None:
            edits += _edit_of(place, host, found, is_flexible, address_of)
            host = None
    if not edits:
        return frame
    for tag in tags:
        size, begin = read_uvarint(frame, tag.end)
        growth = sum(len(edit.new) - (edit.end - edit.begin) for edit in edits if begin <= edit.begin < begin + size)
        edits.append(_Edit(tag.end, begin, write_uvarint(size + growth)))
    out, pos = bytearray(), 0
    for edit in sorted(edits):
        out += frame[pos : edit.begin]
        out += edit.new
        pos = edit.end
    out += frame[pos:]
    _INT32.pack_into(out, 0, len(out) - 4)
    return out


class _Edit(NamedTuple):
    begin: int
    end: int
    new: bytes


def _edit_of(
    place: MessageBytes, host: FoundField, port: FoundField, is_flexible: bool, address_of: AddressOf
) -> list[_Edit]:
    """The edit that replaces one address, if it is another one; its node id comes before it."""
    (node_id,) = _INT32.unpack_from(place.buf, host.at - _INT32.size)
    old = str(place.bytes_of(host), "utf-8", "replace"), _INT32.unpack(place.bytes_of(port))[0]
    # Without a broker, as in an error, there is no address.
    new = address_of(node_id, *old) if node_id >= 0 and old[0] and old[1] > 0 else None
    if new is None or new == old:
        return []
    raw = new[0].encode()
    length = write_uvarint(len(raw) + 1) if is_flexible else _INT16.pack(len(raw))
    return [_Edit(host.at, port.end, length + raw + _INT32.pack(new[1]))]


class EndpointHider:
    """Follows a reply that is passed on in pieces, from its length on, and hides the addresses at its end."""

    def __init__(self, api_key: int, version: int) -> None:
        self._place = MessageBytes(b"", AFTER_CORRELATION_ID)
        self._walk = _walk(api_key, version, self._place)

    def pass_on(self, piece: memoryview) -> Buffer:
        begin = self._place.end
        self._place.go_on_in(piece)
        out: Buffer = piece
        while (found := next(self._walk, None)) is not None:
            if found.field.tag is not None:
                out = bytearray(out)
                out[found.at - begin] = HIDING_TAG
        return out


def _walk(api_key: int, version: int, place: MessageBytes) -> Walk:
    """A walk to the addresses in a reply, from the end of its correlation id."""
    yield from walk(_plan(api_key, version), place)


@cache
def _plan(api_key: int, version: int) -> tuple[Step, ...]:
    kind = _response_class(api_key)
    steps = plan(kind, version, named("host", "port"))
    return (TAGS_OF_HEADER, *steps) if steps and kind.is_flexible(version) else steps


@cache
def _response_class(api_key: int) -> type[Message]:
    if api_key in api_names():
        return response_class(api_key)
    return next(build_class(definition) for definition in parse(SHARE_REPLIES) if definition.api_key == api_key)
