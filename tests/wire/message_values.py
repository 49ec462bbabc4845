"""Random messages for tests of the codec: any message of the definitions, with extreme or ordinary values."""

from __future__ import annotations

from importlib import resources
from random import Random
from typing import Any

from fencepost.protocol import messages
from fencepost.protocol.schema import FIXED, Field, Message, MessageDef, StructDef, parse

LIMITS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
# Lengths around those where the encoded length takes one more byte.
LENGTHS = (0, 1, 3, 126, 127, 128, 300)
LETTERS = "abz-_.é€😀\0"


def definitions() -> list[MessageDef]:
    folder = resources.files("fencepost.protocol") / "definitions"
    return [message for file in sorted(folder.iterdir(), key=lambda f: f.name) for message in parse(file.read_text())]


def message_class(definition: MessageDef) -> type[Message]:
    found: type[Message] = getattr(messages, definition.name)
    return found


def fields_of(owner: MessageDef, f: Field) -> list[Field]:
    """The fields of a struct, which may be defined elsewhere in the message."""
    assert f.struct is not None
    return f.struct.fields or _find(owner, f.struct.name)


def _find(struct: StructDef, name: str) -> list[Field]:
    for f in struct.fields:
        if f.struct:
            if f.struct.name == name and f.struct.fields:
                return f.struct.fields
            if found := _find(f.struct, name):
                return found
    return []


def random_message(definition: MessageDef, version: int, rng: Random, tame: bool = False) -> Message:
    """A message with the fields of `version`. If `tame`, its numbers are plausible times, error codes and so on."""
    return Values(definition, version, rng, tame).message()


class Values:
    def __init__(self, definition: MessageDef, version: int, rng: Random, tame: bool) -> None:
        self.definition = definition
        self.cls = message_class(definition)
        self.version = version
        self.rng = rng
        self.tame = tame

    def message(self) -> Message:
        return self.cls(**self._fields(self.definition.fields))

    def _fields(self, fields: list[Field]) -> dict[str, Any]:
        return {f.name: self._value(f) for f in fields if self.version in f.versions}

    def _value(self, f: Field) -> Any:
        # Not for tagged fields: one that is not sent decodes to its default.
        if self.version in f.null_versions and f.tag is None and self.rng.random() < 0.3:
            return None
        if f.is_array:
            return [self._one(f) for _ in range(self.rng.choice((0, 1, 2, 3)))]
        return self._one(f)

    def _one(self, f: Field) -> Any:
        rng = self.rng
        if f.struct:
            return self.cls._structs[f.struct.name](**self._fields(fields_of(self.definition, f)))
        if f.type == "string":
            return "".join(rng.choice(LETTERS) for _ in range(rng.choice(LENGTHS)))
        if f.type in ("bytes", "records"):
            return rng.randbytes(rng.choice(LENGTHS))
        if f.type == "uuid":
            return rng.randbytes(15) + b"\1"
        if f.type == "bool":
            return rng.random() < 0.5
        if f.type == "float64":
            return rng.uniform(-1e9, 1e9)
        assert f.type in FIXED
        if self.tame:
            return rng.randrange(0, 50 if f.name.endswith("error_code") else 100 if f.type == "int8" else 30_000)
        low, high = LIMITS[f.type]
        return rng.choice((low, -1 if low < 0 else 0, 0, 1, high, rng.randint(low, high)))
