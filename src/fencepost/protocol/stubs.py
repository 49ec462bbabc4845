"""Writes `messages.pyi`, the types of the generated message classes. Run: python -m fencepost.protocol.stubs"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

from fencepost.protocol.schema import Field, MessageDef, StructDef, parse

TYPES = {"string": "str", "bytes": "bytes", "records": "bytes", "uuid": "bytes", "bool": "bool", "float64": "float"}


def _type_of(f: Field, owner: str) -> str:
    base = f"{owner}.{f.struct.name}" if f.struct else TYPES.get(f.type, "int")
    if f.type == "records" and owner.endswith("Request"):
        base = "bytes | memoryview"
    if f.is_array:
        base = f"Sequence[{base}]"
    nullable = f.null_versions or f.type == "records" or (f.struct and not f.is_array)
    return f"{base} | None" if nullable else base


def _class_lines(definition: StructDef, owner: str, base: str, indent: str) -> Iterator[str]:
    yield f"{indent}class {definition.name}({base}):"
    inner = indent + "    "
    yield from _nested(definition, owner, inner) if base == "Message" else ()
    for f in definition.fields:
        yield f"{inner}{f.name}: {_type_of(f, owner)}"
    params = "".join(f", {f.name}: {_type_of(f, owner)} = ..." for f in definition.fields)
    yield f"{inner}def __init__(self{params}) -> None: ..."


def _nested(definition: StructDef, owner: str, indent: str, seen: set[str] | None = None) -> Iterator[str]:
    seen = set() if seen is None else seen
    for f in definition.fields:
        if f.struct and f.struct.fields and f.struct.name not in seen:
            seen.add(f.struct.name)
            yield from _class_lines(f.struct, owner, "Struct", indent)
            yield from _nested(f.struct, owner, indent, seen)


def render() -> str:
    lines = [
        "# Generated from definitions/ by `python -m fencepost.protocol.stubs`. Do not edit.",
        "from collections.abc import Sequence",
        "",
        "from fencepost.protocol.schema import Message, Struct",
        "",
    ]
    folder = resources.files("fencepost.protocol") / "definitions"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        definition: MessageDef
        for definition in parse(file.read_text()):
            lines += [*_class_lines(definition, definition.name, "Message", ""), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    import sys

    target = resources.files("fencepost.protocol") / "messages.pyi"
    with open(str(target), "w") as out:
        out.write(render())
    print(f"wrote {target}", file=sys.stderr)
