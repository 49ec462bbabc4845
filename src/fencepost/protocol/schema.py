"""Turns the message definitions (`definitions/*.txt`) into classes; `compiler.py` makes their decoders and encoders.

One definition describes all versions of a message, and its class has the fields of all of them. A field that a version
lacks has its default after decoding, and is left out when encoding.

A line reads `name  type  [v2+|v2-5|v3]  [null|null:v2+]  [tag:0]  [=default]`; deeper lines are the fields
of the struct above them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
BLOBS = {"string", "bytes", "records"}
NO_UUID = bytes(16)
UNBOUNDED = 1 << 15
MAX_STRING_BYTES = (1 << 15) - 1
# Differs: Fencepost accepts 200,000 array elements in a request, because a few bytes on the wire become a few hundred
# in memory.
MAX_REQUEST_ELEMENTS = 200_000
MAX_MESSAGE_CHARS = 1000


class Malformed(ValueError):
    """The bytes do not follow the definition; the peer is at fault."""


@dataclass(slots=True)
class Field:
    name: str
    type: str  # Of one element, for an array.
    is_array: bool
    versions: range
    null_versions: range
    tag: int | None
    default: Any
    struct: StructDef | None = None

    def default_source(self) -> str:
        if self.default is not None:
            return repr(self.default)
        if self.is_array:
            return "()"
        return {
            "string": "''",
            "bytes": "b''",
            "records": "None",
            "uuid": "NO_UUID",
            "bool": "False",
            "float64": "0.0",
        }.get(self.type, "None" if self.struct else "0")


@dataclass(slots=True)
class StructDef:
    name: str
    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True)
class MessageDef(StructDef):
    api_key: int = -1
    versions: range = range(0)
    flexible_from: int = UNBOUNDED


class Struct:
    """The methods of every generated class."""

    __slots__: tuple[str, ...] = ()

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({', '.join(values)})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            _plain(getattr(self, name)) == _plain(getattr(other, name)) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


class Message(Struct):
    """A request, a response or a stored record, in all its versions."""

    __slots__ = ()
    definition: ClassVar[MessageDef]
    _decoders: ClassVar[dict[int, Callable[[bytes | memoryview, int], tuple[Any, int]]]]
    _encoders: ClassVar[dict[int, Callable[[Any, bytearray], None]]]
    _structs: ClassVar[dict[str, type[Struct]]]

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return version >= cls.definition.flexible_from

    @classmethod
    def decode(cls, buf: bytes | memoryview, pos: int, version: int) -> tuple[Self, int]:
        """Decode the message that begins at `pos`; return it and where it ends."""
        decoder = cls._decoders.get(version)
        if decoder is None:
            from fencepost.protocol.compiler import compile_decoder

            decoder = cls._decoders[version] = compile_decoder(cls, version)
        try:
            return decoder(buf, pos)
        except (struct.error, IndexError):
            # Without Python's own words, which differ between bytes and a view of them.
            raise Malformed(f"{cls.__name__} v{version} ends too early: after {len(buf) - pos} bytes") from None
        except UnicodeDecodeError as e:
            raise Malformed(f"{cls.__name__} v{version} has a string that is not UTF-8: {e}") from None

    def encode_into(self, out: bytearray, version: int) -> None:
        encoder = self._encoders.get(version)
        if encoder is None:
            from fencepost.protocol.compiler import compile_encoder

            encoder = self._encoders[version] = compile_encoder(type(self), version)
        encoder(self, out)

    def encode(self, version: int) -> bytes:
        out = bytearray()
        self.encode_into(out, version)
        return bytes(out)


# --- reading the definitions ------------------------------------------------------------------------------


def _parse_versions(text: str) -> range:
    if text.endswith("+"):
        return range(int(text[:-1]), UNBOUNDED)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _parse_default(text: str, type_name: str) -> Any:
    if text == "null":
        return None
    if type_name == "bool":
        return text == "true"
    return text if type_name == "string" else int(text)


def parse(text: str) -> list[MessageDef]:
    messages: list[MessageDef] = []
    open_structs: list[StructDef] = []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        depth = (len(line) - len(line.lstrip(" "))) // 4
        if depth == 0:
            options = dict(zip(words[1::2], words[2::2], strict=True))
            message = MessageDef(
                name=words[0],
                api_key=int(options.get("key", -1)),
                versions=_parse_versions(options["versions"]),
                flexible_from=_parse_versions(options["flexible"]).start if "flexible" in options else UNBOUNDED,
            )
            messages.append(message)
            open_structs = [message]
            continue
        parsed = _parse_field(words)
        open_structs[depth - 1].fields.append(parsed)
        if parsed.struct:
            open_structs[depth:] = [parsed.struct]
    return messages


def _parse_field(words: list[str]) -> Field:
    is_array = words[1].startswith("[]")
    type_name = words[1][2:] if is_array else words[1]
    result = Field(words[0], type_name, is_array, range(UNBOUNDED), range(0), None, None)
    for word in words[2:]:
        if word.startswith("v"):
            result.versions = _parse_versions(word[1:])
        elif word.startswith("null"):
            result.null_versions = _parse_versions(word[6:]) if ":" in word else range(UNBOUNDED)
        elif word.startswith("tag:"):
            result.tag = int(word[4:])
        else:
            assert word.startswith("="), word
            result.default = _parse_default(word[1:], type_name)
            if word == "=null" and is_array:
                result.default = None
                result.null_versions = result.null_versions or range(UNBOUNDED)
    if type_name not in FIXED and type_name not in BLOBS and type_name != "uuid":
        result.struct = StructDef(type_name)
    # An array without a default is empty, and one with `=null` is null. `_NULL` lets `default_source` tell them apart.
    if "=null" in words:
        result.default = _NULL
    return result


class _Null:
    def __repr__(self) -> str:
        return "None"


_NULL = _Null()


# --- building the classes ---------------------------------------------------------------------------------


def build_class(definition: MessageDef) -> type[Message]:
    structs: dict[str, type[Struct]] = {}
    _build_structs(definition, structs)
    cls = _build_class(definition, (Message,))
    cls.definition = definition
    cls._decoders = {}
    cls._encoders = {}
    cls._structs = structs
    for name, struct_class in structs.items():
        setattr(cls, name, struct_class)
    return cls


def _build_structs(definition: StructDef, into: dict[str, type[Struct]]) -> None:
    for f in definition.fields:
        if f.struct and f.struct.name not in into:
            if not f.struct.fields:
                continue  # The fields of this struct are elsewhere in the message.
            into[f.struct.name] = _build_class(f.struct, (Struct,))
            _build_structs(f.struct, into)


def _build_class(definition: StructDef, bases: tuple[type, ...]) -> type[Any]:
    names = [f.name for f in definition.fields]
    params = ", ".join(f"{f.name}={f.default_source()}" for f in definition.fields)
    body = "".join(f"    self.{name} = {name}\n" for name in names) or "    pass\n"
    namespace: dict[str, Any] = {"NO_UUID": NO_UUID}
    exec(f"def __init__(self{', ' if params else ''}{params}):\n{body}", namespace)
    return type(definition.name, bases, {"__slots__": tuple(names), "__init__": namespace["__init__"]})


# --- variable-length numbers ------------------------------------------------------------------------------


def read_uvarint_rest(buf: bytes | bytearray | memoryview, pos: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose first byte, with its high bit set, was already read."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise Malformed(f"a varint at {pos} is longer than five bytes")


def skip_tags(buf: bytes | memoryview, pos: int, count: int) -> int:
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > len(buf):
            raise Malformed(f"a tagged field of {size} bytes runs past the end")
    return pos


def read_uvarint(buf: bytes | bytearray | memoryview, pos: int) -> tuple[int, int]:
    first = buf[pos]
    return read_uvarint_rest(buf, pos + 1, first) if first >= 0x80 else (first, pos + 1)


_ONE_BYTE = [bytes([i]) for i in range(128)]


def write_uvarint(value: int) -> bytes:
    if value < 128:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
