"""The error codes in a reply, found without decoding it: metrics count them by API.

`scanner(api_key, version)` makes a function that walks over the fields of one version of a response and collects the
codes that are not NONE. It skips everything else by its length, so a Fetch of a megabyte costs as much as an empty one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache

from fencepost.broker.api import APIS
from fencepost.protocol import errors, messages
from fencepost.protocol.batch import Part
from fencepost.protocol.schema import FIXED, Field, Message, read_uvarint, skip_tags

API_VERSIONS = 18
UUID_BYTES = 16
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class ReplyWalk:
    """The parts of a reply's body, and where the walk over them is."""

    __slots__ = ("buf", "codes", "pos", "rest")

    def __init__(self, parts: Sequence[Part]) -> None:
        self.buf = parts[0]
        self.rest = list(parts[:0:-1])
        self.pos = 0
        self.codes: list[int] = []

    def skip(self, size: int) -> None:
        """Pass a field. The records of a Fetch are parts of their own, which are passed without a look."""
        self.pos += size
        while self.rest and self.pos >= len(self.buf):
            self.pos -= len(self.buf)
            self.buf = self.rest.pop()

    def number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self.buf, self.pos)
        self.skip(layout.size)
        return int(value)

    def uvarint(self) -> int:
        value, after = read_uvarint(self.buf, self.pos)
        self.skip(after - self.pos)
        return value


Step = Callable[[ReplyWalk], None]


def codes_in(api_key: int, version: int, parts: Sequence[Part]) -> set[int]:
    """The error codes in the body of a reply, without NONE. `parts` are its bytes, in pieces."""
    if api_key == API_VERSIONS and not APIS[api_key].first <= version <= APIS[api_key].last:
        version = 0  # Kafka: the answer to a version that is unknown.
    reply = ReplyWalk(parts)
    for step in scanner(api_key, version):
        step(reply)
    return set(reply.codes)


@cache
def scanner(api_key: int, version: int) -> tuple[Step, ...]:
    """The steps of a walk over the response, up to its last error code."""
    response: type[Message] = getattr(messages, f"{APIS[api_key].name}Response")
    return tuple(_steps(response.definition.fields, version, response.is_flexible(version), is_element=False))


def _steps(fields: Sequence[Field], version: int, is_flexible: bool, is_element: bool) -> list[Step]:
    """The steps over the fields of a struct. An element of an array is walked to its end, to find the next one."""
    present = [f for f in fields if version in f.versions and f.tag is None]
    if not is_element:
        last = max((i for i, f in enumerate(present) if _has_code(f, version)), default=-1)
        present = present[: last + 1]
    steps: list[Step] = []
    fixed_bytes = 0
    for f in present:
        size = _fixed_size(f)
        if size is not None and not _is_code(f):
            fixed_bytes += size
            continue
        if fixed_bytes:
            steps.append(_skip(fixed_bytes))
            fixed_bytes = 0
        steps.append(_step(f, version, is_flexible))
    if fixed_bytes:
        steps.append(_skip(fixed_bytes))
    if is_element and is_flexible:
        steps.append(_skip_tags)
    return steps


def _is_code(f: Field) -> bool:
    return f.name.endswith("error_code") and not f.is_array


def _has_code(f: Field, version: int) -> bool:
    inner = f.struct.fields if f.struct is not None else []
    return _is_code(f) or any(_has_code(i, version) for i in inner if version in i.versions and i.tag is None)


def _fixed_size(f: Field) -> int | None:
    if f.is_array or f.struct is not None:
        return None
    if f.type == "uuid":
        return UUID_BYTES
    return struct.calcsize(">" + FIXED[f.type]) if f.type in FIXED else None


def _step(f: Field, version: int, is_flexible: bool) -> Step:
    if _is_code(f):
        return _take_code
    if f.is_array:
        return _array(f, version, is_flexible)
    if f.struct is not None:
        return _nested(f, version, is_flexible)
    if is_flexible:
        return _skip_compact
    return _skip_string if f.type == "string" else _skip_bytes


def _take_code(reply: ReplyWalk) -> None:
    code = reply.number(_INT16)
    if code != errors.NONE:
        reply.codes.append(code)


def _skip(size: int) -> Step:
    return lambda reply: reply.skip(size)


def _skip_compact(reply: ReplyWalk) -> None:
    reply.skip(max(reply.uvarint() - 1, 0))


def _skip_string(reply: ReplyWalk) -> None:
    reply.skip(max(reply.number(_INT16), 0))


def _skip_bytes(reply: ReplyWalk) -> None:
    reply.skip(max(reply.number(_INT32), 0))


def _skip_tags(reply: ReplyWalk) -> None:
    if reply.buf[reply.pos] == 0:
        reply.skip(1)
        return
    count, pos = read_uvarint(reply.buf, reply.pos)
    reply.skip(skip_tags(reply.buf, pos, count) - reply.pos)


def _nested(f: Field, version: int, is_flexible: bool) -> Step:
    assert f.struct is not None
    steps = _steps(f.struct.fields, version, is_flexible, is_element=True)
    is_nullable = version in f.null_versions

    def walk(reply: ReplyWalk) -> None:
        if is_nullable:
            is_null = reply.buf[reply.pos] >= 128
            reply.skip(1)
            if is_null:
                return
        for step in steps:
            step(reply)

    return walk


def _array(f: Field, version: int, is_flexible: bool) -> Step:
    if f.struct is not None:
        steps = _steps(f.struct.fields, version, is_flexible, is_element=True)
    elif f.type == "uuid" or f.type in FIXED:
        size = UUID_BYTES if f.type == "uuid" else struct.calcsize(">" + FIXED[f.type])
        return lambda reply: reply.skip(size * max(_count(reply, is_flexible), 0))
    elif is_flexible:
        steps = [_skip_compact]
    else:
        steps = [_skip_string if f.type == "string" else _skip_bytes]

    def walk(reply: ReplyWalk) -> None:
        for _ in range(_count(reply, is_flexible)):
            for step in steps:
                step(reply)

    return walk


def _count(reply: ReplyWalk, is_flexible: bool) -> int:
    return reply.uvarint() - 1 if is_flexible else reply.number(_INT32)
