"""Replaces the addresses of brokers in replies, and changes no other byte.

`rewritten` walks over the fields of a reply by its definition. It skips everything but addresses by its length, so
fields, tags and records that it does not know stay as they are. A large Fetch reply is passed on in pieces. Its length
is sent before its addresses are seen, so `EndpointHider` cannot replace them: it hides them. Its client asks for
Metadata instead, as clients do that do not know KIP-951.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping
from functools import cache
from typing import NamedTuple

from fencepost.protocol.apis import api_names, response_class
from fencepost.protocol.schema import FIXED, Field, Malformed, MessageDef, parse, write_uvarint

Buffer = bytes | bytearray | memoryview
# The address that clients get for a broker: node id, host, port -> host, port. None: the address stays.
AddressOf = Callable[[int, str, int], tuple[str, int] | None]

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 0, 1, 3, 10, 60
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
WITH_ADDRESSES = frozenset(
    {PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE}
)
HIDING_TAG = 127  # Kafka has no such tag, so a client skips it.
UUID_BYTES = 16
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
    return api_key in WITH_ADDRESSES and version in _definition(api_key).versions


def rewritten(frame: Buffer, api_key: int, version: int, address_of: AddressOf) -> Buffer:
    """The reply, with its length, and other addresses in it. Raises Malformed."""
    plan = _plan(api_key, version)
    if not plan:
        return frame
    scan = _Scan(frame, 8, address_of)
    for _ in _walk(plan, scan):
        raise Malformed(f"the reply to API {api_key} v{version} ends too early: after {len(frame)} bytes")
    if not scan.edits:
        return frame
    out, pos = bytearray(), 0
    for edit in scan.edits:
        out += frame[pos : edit.begin]
        out += edit.new
        pos = edit.end
    out += frame[pos:]
    _INT32.pack_into(out, 0, len(out) - 4)
    return out


class EndpointHider:
    """Follows a reply that is passed on in pieces, from its length on, and hides the addresses at its end."""

    def __init__(self, api_key: int, version: int) -> None:
        self._scan = _Scan(b"", 8, None)
        self._walk = _walk(_plan(api_key, version), self._scan)

    def pass_on(self, piece: memoryview) -> Buffer:
        scan = self._scan
        scan.base, scan.buf = scan.end, piece
        scan.end += len(piece)
        next(self._walk, None)
        if not scan.edits:
            return piece
        out = bytearray(piece)
        for edit in scan.edits:
            out[edit.begin - scan.base : edit.end - scan.base] = edit.new
        scan.edits.clear()
        return out


# --- the plan of a walk -----------------------------------------------------------------------------------


class _Skip(NamedTuple):
    size: int


class _Blob(NamedTuple):
    """A string, bytes or records: skipped by its length, which has so many bytes (0: a varint)."""

    length_bytes: int


class _Address(NamedTuple):
    """Host and port; the node id comes before them."""

    length_bytes: int


class _Array(NamedTuple):
    length_bytes: int
    element: tuple[_Step, ...]


class _Optional(NamedTuple):
    """A struct after a byte that says whether it is there."""

    steps: tuple[_Step, ...]


class _Tags(NamedTuple):
    with_addresses: Mapping[int, tuple[_Step, ...]]


_Step = _Skip | _Blob | _Address | _Array | _Optional | _Tags


@cache
def _definition(api_key: int) -> MessageDef:
    if api_key in api_names():
        return response_class(api_key).definition
    return next(definition for definition in parse(SHARE_REPLIES) if definition.api_key == api_key)


@cache
def _plan(api_key: int, version: int) -> tuple[_Step, ...]:
    """The steps of a walk over the reply, from the end of its correlation id up to its last address."""
    definition = _definition(api_key)
    is_flexible = version >= definition.flexible_from
    header: list[_Step] = [_Tags({})] if is_flexible else []
    steps = _joined(header + _steps(definition.fields, version, is_flexible))
    last = max((n for n, step in enumerate(steps) if _has_address(step)), default=-1)
    return steps[: last + 1]


def _steps(fields: list[Field], version: int, is_flexible: bool) -> list[_Step]:
    steps: list[_Step] = []
    tagged: dict[int, tuple[_Step, ...]] = {}
    present = [f for f in fields if version in f.versions]
    for f in present:
        if f.tag is not None:
            own = _joined(_field_steps(f, version, is_flexible))
            if any(_has_address(step) for step in own):
                tagged[f.tag] = own
        elif f.name != "port" or not any(each.name == "host" for each in present):
            steps += _field_steps(f, version, is_flexible)
    return [*steps, _Tags(tagged)] if is_flexible else steps


def _field_steps(f: Field, version: int, is_flexible: bool) -> list[_Step]:
    if f.is_array:
        return [_Array(0 if is_flexible else 4, _joined(_element_steps(f, version, is_flexible)))]
    steps = _element_steps(f, version, is_flexible)
    is_optional = f.struct is not None and version in f.null_versions
    return [_Optional(_joined(steps))] if is_optional else steps


def _element_steps(f: Field, version: int, is_flexible: bool) -> list[_Step]:
    if f.struct is not None:
        return _steps(f.struct.fields, version, is_flexible)
    if f.type == "uuid":
        return [_Skip(UUID_BYTES)]
    if f.type in FIXED:
        return [_Skip(struct.calcsize(">" + FIXED[f.type]))]
    length_bytes = 0 if is_flexible else 2 if f.type == "string" else 4
    return [_Address(length_bytes) if f.name == "host" else _Blob(length_bytes)]


def _joined(steps: list[_Step]) -> tuple[_Step, ...]:
    """The same steps, with neighbouring skips as one."""
    out: list[_Step] = []
    for step in steps:
        if isinstance(step, _Skip) and out and isinstance(out[-1], _Skip):
            out[-1] = _Skip(out[-1].size + step.size)
        else:
            out.append(step)
    return tuple(out)


def _has_address(step: _Step) -> bool:
    if isinstance(step, _Array):
        return any(map(_has_address, step.element))
    if isinstance(step, _Optional):
        return any(map(_has_address, step.steps))
    return isinstance(step, _Address) or (isinstance(step, _Tags) and bool(step.with_addresses))


# --- the walk ---------------------------------------------------------------------------------------------


class _Edit(NamedTuple):
    begin: int
    end: int
    new: bytes


class _Scan:
    """The bytes of a reply from `base` to `end`, the place of the walk, which may be beyond them, and the edits."""

    __slots__ = ("address_of", "base", "buf", "edits", "end", "pos")

    def __init__(self, buf: Buffer, pos: int, address_of: AddressOf | None) -> None:
        self.buf = buf
        self.base = 0
        self.end = len(buf)
        self.pos = pos
        self.address_of = address_of  # None: addresses are hidden.
        self.edits: list[_Edit] = []


_Walk = Generator[None, None, None]


def _walk(steps: tuple[_Step, ...], scan: _Scan) -> _Walk:
    """Yields whenever it needs bytes beyond `scan.end`."""
    for step in steps:
        if isinstance(step, _Skip):
            scan.pos += step.size
        elif isinstance(step, _Blob):
            size = yield from _length(scan, step.length_bytes)
            scan.pos += max(size, 0)
        elif isinstance(step, _Array):
            count = yield from _length(scan, step.length_bytes)
            if len(step.element) == 1 and isinstance(step.element[0], _Skip):
                scan.pos += max(count, 0) * step.element[0].size
            else:
                for _ in range(count):
                    yield from _walk(step.element, scan)
        elif isinstance(step, _Tags):
            yield from _walk_tags(step, scan)
        elif isinstance(step, _Address):
            yield from _walk_address(step, scan)
        elif isinstance(step, _Optional) and (yield from _byte(scan)) < 128:
            yield from _walk(step.steps, scan)


def _byte(scan: _Scan) -> Generator[None, None, int]:
    while scan.pos >= scan.end:
        yield
    byte = scan.buf[scan.pos - scan.base]
    scan.pos += 1
    return byte


def _length(scan: _Scan, length_bytes: int) -> Generator[None, None, int]:
    """The length of a field or an array; -1: null."""
    if not length_bytes:
        return (yield from _uvarint(scan)) - 1
    value = 0
    for _ in range(length_bytes):
        value = value << 8 | (yield from _byte(scan))
    sign = 1 << (8 * length_bytes - 1)
    return (value ^ sign) - sign


def _uvarint(scan: _Scan) -> Generator[None, None, int]:
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = yield from _byte(scan)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise Malformed(f"a varint at {scan.pos} is longer than five bytes")


def _walk_tags(step: _Tags, scan: _Scan) -> _Walk:
    for _ in range((yield from _uvarint(scan))):
        tag_at = scan.pos
        tag = yield from _uvarint(scan)
        is_found = tag in step.with_addresses
        if is_found and scan.address_of is None:
            scan.edits.append(_Edit(tag_at, tag_at + 1, bytes([HIDING_TAG])))
        size_at = scan.pos
        size = yield from _uvarint(scan)
        body_at, before = scan.pos, len(scan.edits)
        if is_found and scan.address_of is not None:
            yield from _walk(step.with_addresses[tag], scan)
            growth = sum(len(edit.new) - (edit.end - edit.begin) for edit in scan.edits[before:])
            scan.edits.insert(before, _Edit(size_at, body_at, write_uvarint(size + growth)))
        scan.pos = body_at + size


def _walk_address(step: _Address, scan: _Scan) -> _Walk:
    begin = scan.pos
    size = yield from _length(scan, step.length_bytes)
    host_at, scan.pos = scan.pos, scan.pos + max(size, 0) + _INT32.size
    while scan.pos > scan.end:
        yield
    (node_id,) = _INT32.unpack_from(scan.buf, begin - _INT32.size)
    (port,) = _INT32.unpack_from(scan.buf, scan.pos - _INT32.size)
    host = str(scan.buf[host_at : host_at + max(size, 0)], "utf-8", "replace")
    # Without a broker, as in an error, there is no address.
    if node_id < 0 or not host or port <= 0 or scan.address_of is None:
        return
    new = scan.address_of(node_id, host, port)
    if new is not None and new != (host, port):
        raw = new[0].encode()
        length = write_uvarint(len(raw) + 1) if not step.length_bytes else _INT16.pack(len(raw))
        scan.edits.append(_Edit(begin, scan.pos, length + raw + _INT32.pack(new[1])))
