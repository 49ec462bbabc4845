"""Walks over a message by its definition, without decoding it.

A walk stops at the fields that are wanted, and skips all else by its length. So fields, tags and records that are not
wanted cost nothing, and the message may be cut off, or come in pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from fencepost.protocol.apis import API_VERSIONS, body_of_request, knows, request_class, response_class
from fencepost.protocol.schema import FIXED, Field, Malformed, Message, StructDef, read_uvarint

Buffer = bytes | bytearray | memoryview
Wanted = Callable[[Field], bool]
UUID_BYTES = 16
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class EndsTooEarly(Malformed):
    """The bytes end before the last wanted field."""


class FoundField(NamedTuple):
    """The value of a wanted field. Of an array of structs it is the count; before a tagged field, it is the tag."""

    field: Field
    at: int  # Where its length begins; without one, where its value begins.
    begin: int
    end: int  # A value that has a length may end beyond the bytes that are there.


class MessageBytes:
    """The bytes of a message from `base` to `end`, and the place of a walk, which may be beyond them."""

    __slots__ = ("base", "buf", "end", "pos")

    def __init__(self, buf: Buffer, pos: int) -> None:
        self.buf = buf
        self.base = 0
        self.end = len(buf)
        self.pos = pos

    def go_on_in(self, piece: Buffer) -> None:
        """The bytes that follow. The rest of the bytes before is kept: a number may be in both."""
        rest = self.buf[self.pos - self.base :]
        self.base = self.end - len(rest)
        self.buf = bytes(rest) + piece if rest else piece
        self.end += len(piece)

    def bytes_of(self, found: FoundField) -> Buffer:
        return self.buf[found.begin - self.base : found.end - self.base]


# Yields None whenever it needs bytes beyond `MessageBytes.end`.
Walk = Generator[FoundField | None, None, None]


# --- the plan of a walk -----------------------------------------------------------------------------------


class _Skip(NamedTuple):
    size: int


class _Take(NamedTuple):
    """A wanted value of fixed size."""

    field: Field
    size: int


class _Blob(NamedTuple):
    """A string, bytes or records: skipped by its length, which has so many bytes (0: a varint)."""

    length_bytes: int
    wanted: Field | None


class _Array(NamedTuple):
    length_bytes: int
    element: tuple[Step, ...]
    wanted: Field | None


class _Optional(NamedTuple):
    """A struct after a byte that says whether it is there."""

    steps: tuple[Step, ...]


class _Tags(NamedTuple):
    """Tagged fields; those with wanted fields in them by their tags."""

    wanted: Mapping[int, tuple[Field, tuple[Step, ...]]]


Step = _Skip | _Take | _Blob | _Array | _Optional | _Tags
TAGS_OF_HEADER = _Tags({})


def plan(kind: type[Message], version: int, wanted: Wanted) -> tuple[Step, ...]:
    """The steps of a walk over the body of a message, up to its last wanted field."""
    steps = _joined(_steps(kind.definition, version, kind.is_flexible(version), wanted))
    last = max((n for n, step in enumerate(steps) if _is_wanted(step)), default=-1)
    return steps[: last + 1]


def _steps(definition: StructDef, version: int, is_flexible: bool, wanted: Wanted) -> list[Step]:
    steps: list[Step] = []
    tagged: dict[int, tuple[Field, tuple[Step, ...]]] = {}
    for f in definition.fields:
        if version not in f.versions:
            continue
        own = _field_steps(f, version, is_flexible, wanted)
        if f.tag is None:
            steps += own
        elif any(map(_is_wanted, own)):
            tagged[f.tag] = f, _joined(own)
    return [*steps, _Tags(tagged)] if is_flexible else steps


def _field_steps(f: Field, version: int, is_flexible: bool, wanted: Wanted) -> list[Step]:
    if f.is_array:
        elements = _joined(_element_steps(f, version, is_flexible, wanted))
        return [_Array(0 if is_flexible else 4, elements, f if f.struct is not None and wanted(f) else None)]
    steps = _element_steps(f, version, is_flexible, wanted)
    is_optional = f.struct is not None and version in f.null_versions
    return [_Optional(_joined(steps))] if is_optional else steps


def _element_steps(f: Field, version: int, is_flexible: bool, wanted: Wanted) -> list[Step]:
    if f.struct is not None:
        return _steps(f.struct, version, is_flexible, wanted)
    if f.type == "uuid" or f.type in FIXED:
        size = UUID_BYTES if f.type == "uuid" else struct.calcsize(">" + FIXED[f.type])
        return [_Take(f, size) if wanted(f) else _Skip(size)]
    return [_Blob(0 if is_flexible else 2 if f.type == "string" else 4, f if wanted(f) else None)]


def _joined(steps: list[Step]) -> tuple[Step, ...]:
    """The same steps, with neighbouring skips as one."""
    out: list[Step] = []
    for step in steps:
        if isinstance(step, _Skip) and out and isinstance(out[-1], _Skip):
            out[-1] = _Skip(out[-1].size + step.size)
        else:
            out.append(step)
    return tuple(out)


def _is_wanted(step: Step) -> bool:
    if isinstance(step, _Array):
        return step.wanted is not None or any(map(_is_wanted, step.element))
    if isinstance(step, _Optional):
        return any(map(_is_wanted, step.steps))
    return isinstance(step, _Take) or bool(isinstance(step, _Blob | _Tags) and step.wanted)


# --- the walk ---------------------------------------------------------------------------------------------


def walk(steps: tuple[Step, ...], place: MessageBytes) -> Walk:
    for step in steps:
        if isinstance(step, _Skip):
            place.pos += step.size
        elif isinstance(step, _Take):
            begin = place.pos
            while begin + step.size > place.end:
                yield None
            place.pos = begin + step.size
            yield FoundField(step.field, begin, begin, place.pos)
        elif isinstance(step, _Blob):
            at = place.pos
            while (size := _length(place, step.length_bytes)) is None:
                yield None
            begin = place.pos
            if size > 0:
                place.pos += size
            if step.wanted is not None and size >= 0:
                yield FoundField(step.wanted, at, begin, place.pos)
        elif isinstance(step, _Array):
            at = place.pos
            while (count := _length(place, step.length_bytes)) is None:
                yield None
            if step.wanted is not None:
                yield FoundField(step.wanted, at, at, place.pos)
            if len(step.element) == 1 and isinstance(step.element[0], _Skip):
                place.pos += max(count, 0) * step.element[0].size
            else:
                for _ in range(count):
                    yield from walk(step.element, place)
        elif isinstance(step, _Tags):
            while (count := _uvarint(place)) is None:
                yield None
            for _ in range(count):
                yield from _walk_tag(step, place)
        else:
            while place.pos >= place.end:
                yield None
            is_null = place.buf[place.pos - place.base] >= 128
            place.pos += 1
            if not is_null:
                yield from walk(step.steps, place)


def _walk_tag(step: _Tags, place: MessageBytes) -> Walk:
    at = place.pos
    while (tag := _uvarint(place)) is None:
        yield None
    field, steps = step.wanted.get(tag, (None, ()))
    if field is not None:
        yield FoundField(field, at, at, place.pos)
    while (size := _uvarint(place)) is None:
        yield None
    end = place.pos + size
    yield from walk(steps, place)
    place.pos = end


def _length(place: MessageBytes, length_bytes: int) -> int | None:
    """The length of a field or an array, of which -1 is null; None if its bytes are not all there."""
    if not length_bytes:
        value = _uvarint(place)
        return None if value is None else value - 1
    if place.pos + length_bytes > place.end:
        return None
    layout = _INT16 if length_bytes == _INT16.size else _INT32
    (size,) = layout.unpack_from(place.buf, place.pos - place.base)
    place.pos += length_bytes
    return int(size)


def _uvarint(place: MessageBytes) -> int | None:
    try:
        value, after = read_uvarint(place.buf, place.pos - place.base)
    except IndexError:
        return None
    place.pos = place.base + after
    return value


# --- what walks find --------------------------------------------------------------------------------------


def named(*names: str) -> Wanted:
    return lambda f: f.name in names


def _is_error_code(f: Field) -> bool:
    return f.name.endswith("error_code") and not f.is_array and f.tag is None


@cache
def _way_to_errors(api_key: int, version: int) -> tuple[Step, ...]:
    if api_key == API_VERSIONS and not knows(api_key, version):
        version = 0  # Kafka: the answer to a version that is unknown.
    return plan(response_class(api_key), version, _is_error_code)


def error_codes(api_key: int, version: int, parts: Sequence[Buffer]) -> Iterator[int]:
    """The error codes in the body of a reply, without NONE, up to where its bytes end. `parts` are its pieces."""
    place = MessageBytes(parts[0], 0)
    rest = iter(parts[1:])
    for found in walk(_way_to_errors(api_key, version), place):
        if found is not None:
            (code,) = _INT16.unpack(place.bytes_of(found))
            if code:
                yield code
        elif (piece := next(rest, None)) is not None:
            place.go_on_in(piece)
        else:
            return


@cache
def _way_into_request(api_key: int, version: int, wanted: Wanted) -> tuple[Step, ...]:
    return plan(request_class(api_key), version, wanted)


def values_in_request(
    api_key: int, version: int, frame: bytes | memoryview, wanted: Wanted
) -> Iterator[tuple[str, Any]]:
    """The wanted values in a request without its length, with their names; of records, as many bytes as there are.

    Null has no value. Raises EndsTooEarly where the bytes end, and Malformed.
    """
    place = MessageBytes(frame, body_of_request(frame, api_key, version))
    for found in walk(_way_into_request(api_key, version, wanted), place):
        if found is None or (found.field.type == "string" and found.end > place.end):
            raise EndsTooEarly(f"a request to API {api_key} v{version} ends too early: after {len(frame)} bytes")
        kind, raw = found.field.type, bytes(place.bytes_of(found))
        value: Any = raw
        if kind == "string":
            value = raw.decode()
        elif kind in FIXED:
            (value,) = struct.unpack(">" + FIXED[kind], raw)
        elif found.field.struct is not None:
            is_flexible = request_class(api_key).is_flexible(version)
            value = read_uvarint(raw, 0)[0] - 1 if is_flexible else int.from_bytes(raw, "big")
        yield found.field.name, value
