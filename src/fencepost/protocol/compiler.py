"""Compiles a decoder and an encoder for one version of a message, as straight-line Python.

The generated functions walk no tables: neighbouring fields of fixed size become one `struct` call, and everything about
the version is decided when a function is made. Decoders trust nothing: they compare every length with the bytes that
are left before they allocate anything. Tracebacks show the generated lines.

The decoder of Produce requests takes a memoryview too: record batches are then parts of it, and all else is copied.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from typing import Any

from fencepost.protocol.schema import (
    FIXED,
    MAX_MESSAGE_CHARS,
    MAX_REQUEST_ELEMENTS,
    MAX_STRING_BYTES,
    NO_UUID,
    Field,
    Malformed,
    Message,
    StructDef,
    read_uvarint,
    read_uvarint_rest,
    skip_tags,
    write_uvarint,
)


def _too_long(what: str, size: int, left: int) -> Malformed:
    return Malformed(f"{what} claims {size}, but {left} bytes are left")


def _is_null(what: str) -> Malformed:
    return Malformed(f"{what} is null, which it may not be")


def _tag_size(tag: int, size: int, found: int) -> Malformed:
    return Malformed(f"tagged field {tag} claims {size} bytes, but has {found}")


def _too_many(what: str, size: int, left: int) -> Malformed:
    limit = f"; a request may have {MAX_REQUEST_ELEMENTS} elements in all" if size <= left else ""
    return Malformed(f"{what} claims {size} elements, and {left} bytes are left{limit}")


class _Source:
    """Collects the lines of one generated function, and the structs it unpacks with."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = cls.is_flexible(version)
        self.takes_views = cls.__name__.endswith("Request") and _has_records(cls.definition)
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {
            "NO_UUID": NO_UUID,
            "more": read_uvarint_rest,
            "skip_tags": skip_tags,
            "read_uvarint": read_uvarint,
            "write_uvarint": write_uvarint,
            "too_long": _too_long,
            "is_null": _is_null,
            "tag_size": _tag_size,
            "too_many": _too_many,
            "Message_": cls,
            **{f"new_{name}": struct_class for name, struct_class in cls._structs.items()},
        }
        self.counter = 0

    def add(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def fixed(self, codes: str, method: str) -> str:
        name = f"{method}_{codes}".replace("?", "B")
        self.namespace[name] = getattr(struct.Struct(">" + codes), method)
        return name

    def compile(self, head: str) -> Any:
        """Make the function: `head` is its name and parameters."""
        lines = [f"def {head}:", *self.lines]
        function = head.partition("(")[0]
        filename = f"<{function} {self.cls.__name__} v{self.version}>"
        exec(compile("\n".join(lines), filename, "exec"), self.namespace)
        # Here tracebacks and debuggers find the lines. Entries without a time of modification are never discarded.
        linecache.cache[filename] = (sum(map(len, lines)), None, [line + "\n" for line in lines], filename)
        return self.namespace[function]

    def fields_of(self, f: Field) -> list[Field]:
        assert f.struct is not None
        return f.struct.fields or _find_struct(self.cls.definition, f.struct.name)


def _has_records(definition: StructDef) -> bool:
    return any(f.type == "records" or (f.struct and _has_records(f.struct)) for f in definition.fields)


def _find_struct(definition: StructDef, name: str) -> list[Field]:
    for f in definition.fields:
        if f.struct:
            if f.struct.name == name and f.struct.fields:
                return f.struct.fields
            found = _find_struct(f.struct, name)
            if found:
                return found
    return []


def compile_decoder(cls: type[Message], version: int) -> Callable[[bytes | memoryview, int], tuple[Any, int]]:
    source = _Source(cls, version)
    source.add(1, "limit = left = len(buf)")
    if cls.__name__.endswith("Request"):
        source.add(1, f"if left > {MAX_REQUEST_ELEMENTS}: left = {MAX_REQUEST_ELEMENTS}")
    _decode_struct(source, 1, cls.definition.fields, "Message_", "result")
    source.add(1, "return result, pos")
    return source.compile("decode(buf, pos)")  # type: ignore[no-any-return]


def _decode_struct(s: _Source, ind: int, fields: list[Field], maker: str, target: str) -> None:
    present = [f for f in fields if s.version in f.versions]
    plain = [f for f in present if f.tag is None]
    tagged = [f for f in present if f.tag is not None]
    names = {f.name: s.name("x") for f in present}
    run: list[Field] = []

    def flush() -> None:
        if not run:
            return
        codes = "".join(FIXED[f.type] for f in run)
        targets = ", ".join(names[f.name] for f in run)
        s.add(ind, f"{targets}, = {s.fixed(codes, 'unpack_from')}(buf, pos)")
        s.add(ind, f"pos += {struct.calcsize('>' + codes)}")
        run.clear()

    for f in plain:
        if f.type in FIXED and not f.is_array:
            run.append(f)
            continue
        flush()
        _decode_field(s, ind, f, names[f.name])
    flush()
    if s.flexible:
        for f in tagged:
            s.add(ind, f"{names[f.name]} = {_default_for(f)}")
        _decode_tags(s, ind, tagged, names)
    arguments = ", ".join(f"{f.name}={names[f.name]}" for f in present if f.tag is None or s.flexible)
    if [f.name for f in present] == [f.name for f in fields] and (s.flexible or not tagged):
        arguments = ", ".join(names[f.name] for f in present)
    s.add(ind, f"{target} = {maker}({arguments})")


def _default_for(f: Field) -> str:
    if f.struct and not f.is_array and not f.null_versions:
        return f"new_{f.struct.name}()"
    return f.default_source()


def _decode_tags(s: _Source, ind: int, tagged: list[Field], names: dict[str, str]) -> None:
    count = s.name("n")
    s.add(ind, f"{count} = buf[pos]; pos += 1")
    s.add(ind, f"if {count}:")
    s.add(ind + 1, f"if {count} >= 128: {count}, pos = more(buf, pos, {count})")
    if not tagged:
        s.add(ind + 1, f"pos = skip_tags(buf, pos, {count})")
        return
    tag, size, end = s.name("t"), s.name("s"), s.name("e")
    s.add(ind + 1, f"for _ in range({count}):")
    s.add(ind + 2, f"{tag}, pos = read_uvarint(buf, pos)")
    s.add(ind + 2, f"{size}, pos = read_uvarint(buf, pos)")
    s.add(ind + 2, f"{end} = pos + {size}")
    s.add(ind + 2, f"if {end} > limit: raise too_long('a tagged field', {size}, limit - pos)")
    for i, f in enumerate(tagged):
        s.add(ind + 2, f"{'if' if i == 0 else 'elif'} {tag} == {f.tag}:")
        if f.type in FIXED and not f.is_array:
            width = struct.calcsize(">" + FIXED[f.type])
            s.add(ind + 3, f"{names[f.name]}, = {s.fixed(FIXED[f.type], 'unpack_from')}(buf, pos); pos += {width}")
        else:
            _decode_field(s, ind + 3, f, names[f.name])
        s.add(ind + 3, f"if pos != {end}: raise tag_size({f.tag}, {size}, pos - {end} + {size})")
    s.add(ind + 2, f"pos = {end}")


def _decode_length(s: _Source, ind: int, name: str, code: str) -> None:
    """Read a length into `name`. In both encodings, -1 is null."""
    if s.flexible:
        s.add(ind, f"{name} = buf[pos]; pos += 1")
        s.add(ind, f"if {name} >= 128: {name}, pos = more(buf, pos, {name})")
        s.add(ind, f"{name} -= 1")
    else:
        s.add(ind, f"{name}, = {s.fixed(code, 'unpack_from')}(buf, pos); pos += {struct.calcsize('>' + code)}")


def _decode_field(s: _Source, ind: int, f: Field, target: str) -> None:
    if not f.is_array:
        _decode_element(s, ind, f, target)
        return
    size = s.name("n")
    _decode_length(s, ind, size, "i")
    s.add(ind, f"if {size} < 0: {_when_null(s, f, target)}")
    # A count of more elements than the bytes left can hold must never lead to an allocation.
    width = _smallest_size(s, f)
    s.add(ind, f"elif {size} > left or {size} * {width} > limit - pos:")
    s.add(ind + 1, f"raise too_many({f.name!r}, {size}, limit - pos)")
    s.add(ind, "else:")
    s.add(ind + 1, f"left -= {size}")
    if f.type in FIXED:
        s.namespace["unpack_from"] = struct.unpack_from
        s.add(
            ind + 1, f"{target} = list(unpack_from('>%d{FIXED[f.type]}' % {size}, buf, pos)); pos += {size} * {width}"
        )
    else:
        s.add(ind + 1, f"{target} = []")
        s.add(ind + 1, f"for _ in range({size}):")
        element = s.name("y")
        _decode_element(s, ind + 2, f, element)
        s.add(ind + 2, f"{target}.append({element})")


def _when_null(s: _Source, f: Field, target: str, is_element: bool = False) -> str:
    """The statement for a null: some fields may be null, but never an element of an array."""
    if f.type == "records" or (s.version in f.null_versions and not is_element):
        return f"{target} = None"
    what = f"an element of {f.name}" if is_element else f.name
    return f"raise is_null({what!r})"


def _smallest_size(s: _Source, f: Field) -> int:
    """The least number of bytes that one element of the field takes."""
    if f.type in FIXED:
        return struct.calcsize(">" + FIXED[f.type])
    if f.type == "uuid":
        return 16
    if f.struct:
        fields = [each for each in s.fields_of(f) if s.version in each.versions and each.tag is None]
        sizes = (
            (1 if s.flexible else 4) if each.is_array else 1 if _is_optional(s, each) else _smallest_size(s, each)
            for each in fields
        )
        return max(sum(sizes) + (1 if s.flexible else 0), 1)
    return 1 if s.flexible else 2 if f.type == "string" else 4


def _is_optional(s: _Source, f: Field) -> bool:
    return f.struct is not None and s.version in f.null_versions


def _decode_element(s: _Source, ind: int, f: Field, target: str) -> None:
    if f.struct:
        maker = f"new_{f.struct.name}"
        if s.version in f.null_versions and not f.is_array:
            s.add(ind, "marker = buf[pos]; pos += 1")
            # Kafka: in a tagged field, 0 is null too.
            is_null = "marker >= 128" if f.tag is None else "marker >= 128 or not marker"
            s.add(ind, f"if {is_null}: {target} = None")
            s.add(ind, "else:")
            ind += 1
        _decode_struct(s, ind, s.fields_of(f), maker, target)
    elif f.type == "uuid":
        uuid = "bytes(buf[pos:pos + 16])" if s.takes_views else "buf[pos:pos + 16]"
        s.add(ind, f"{target} = {uuid}; pos += 16")
        s.add(ind, f"if pos > limit: raise too_long({f.name!r}, 16, limit - pos + 16)")
    elif f.type in FIXED:
        width = struct.calcsize(">" + FIXED[f.type])
        s.add(ind, f"{target}, = {s.fixed(FIXED[f.type], 'unpack_from')}(buf, pos); pos += {width}")
    else:
        size = s.name("n")
        _decode_length(s, ind, size, "h" if f.type == "string" else "i")
        s.add(ind, f"if {size} < 0: {_when_null(s, f, target, is_element=f.is_array)}")
        s.add(ind, "else:")
        s.add(ind + 1, f"if {size} > limit - pos: raise too_long({f.name!r}, {size}, limit - pos)")
        if f.type == "string" and s.flexible:
            # Kafka: a string is never longer than its older encoding allows.
            s.add(ind + 1, f"if {size} > {MAX_STRING_BYTES}: raise too_long({f.name!r}, {size}, {MAX_STRING_BYTES})")
        part = f"buf[pos:pos + {size}]"
        if f.type == "string":
            part = f"str({part}, 'utf-8')" if s.takes_views else f"{part}.decode()"
        s.add(ind + 1, f"{target} = {part}; pos += {size}")


# --- encoders ---------------------------------------------------------------------------------------------


def compile_encoder(cls: type[Message], version: int) -> Callable[[Any, bytearray], None]:
    source = _Source(cls, version)
    _encode_struct(source, 1, cls.definition.fields, "m", "out")
    source.add(1, "return None")
    return source.compile("encode(m, out)")  # type: ignore[no-any-return]


def _encode_struct(s: _Source, ind: int, fields: list[Field], value: str, out: str) -> None:
    present = [f for f in fields if s.version in f.versions]
    run: list[Field] = []

    def flush() -> None:
        if run:
            codes = "".join(FIXED[f.type] for f in run)
            values = ", ".join(f"{value}.{f.name}" for f in run)
            s.add(ind, f"{out} += {s.fixed(codes, 'pack')}({values})")
            run.clear()

    for f in present:
        if f.tag is not None:
            continue
        if f.type in FIXED and not f.is_array:
            run.append(f)
            continue
        flush()
        _encode_field(s, ind, f, f"{value}.{f.name}", out)
    flush()
    if s.flexible:
        _encode_tags(s, ind, sorted((f for f in present if f.tag is not None), key=lambda f: f.tag or 0), value, out)


def _encode_tags(s: _Source, ind: int, tagged: list[Field], value: str, out: str) -> None:
    if not tagged:
        s.add(ind, f"{out} += b'\\0'")
        return
    tags = s.name("tags")
    s.add(ind, f"{tags} = []")
    for f in tagged:
        item, body = f"{value}.{f.name}", s.name("body")
        is_default = f"{item} == {f.default_source()}"
        if f.null_versions and f.default_source() == "None":
            is_default = f"{item} is None"
        elif f.is_array:
            is_default = f"not {item}"
        elif f.struct:
            is_default = f"{item} is None or {item} == new_{f.struct.name}()"
        s.add(ind, f"if not ({is_default}):")
        s.add(ind + 1, f"{body} = bytearray()")
        _encode_field(s, ind + 1, f, item, body)
        s.add(ind + 1, f"{tags}.append(write_uvarint({f.tag}) + write_uvarint(len({body})) + {body})")
    s.add(ind, f"{out} += write_uvarint(len({tags}))")
    s.add(ind, f"for tag in {tags}: {out} += tag")


def _encode_length(s: _Source, ind: int, length: str, code: str, out: str) -> None:
    if s.flexible:
        s.add(ind, f"{out} += write_uvarint({length} + 1)")
    else:
        s.add(ind, f"{out} += {s.fixed(code, 'pack')}({length})")


def _encode_field(s: _Source, ind: int, f: Field, value: str, out: str) -> None:
    if not f.is_array:
        _encode_element(s, ind, f, value, out)
        return
    if s.version in f.null_versions:
        s.add(ind, f"if {value} is None:")
        _encode_length(s, ind + 1, "-1", "i", out)
        s.add(ind, "else:")
        ind += 1
    _encode_length(s, ind, f"len({value})", "i", out)
    element = s.name("y")
    s.add(ind, f"for {element} in {value}:")
    _encode_element(s, ind + 1, f, element, out)


def _encode_element(s: _Source, ind: int, f: Field, value: str, out: str) -> None:
    nullable = s.version in f.null_versions and not f.is_array
    if f.struct:
        if nullable:
            s.add(ind, f"if {value} is None: {out} += b'\\xff'")
            s.add(ind, "else:")
            ind += 1
            s.add(ind, f"{out} += b'\\1'")
        _encode_struct(s, ind, s.fields_of(f), value, out)
    elif f.type == "uuid":
        s.add(ind, f"{out} += {value}")
    elif f.type in FIXED:
        s.add(ind, f"{out} += {s.fixed(FIXED[f.type], 'pack')}({value})")
    else:
        code = "h" if f.type == "string" else "i"
        if nullable or f.type == "records":
            s.add(ind, f"if {value} is None:")
            _encode_length(s, ind + 1, "-1", code, out)
            s.add(ind, "else:")
            ind += 1
        raw = value
        if f.type == "string":
            raw = s.name("b")
            # A message may quote what a client sent, which may be as long as a string can be.
            cut = f"[:{MAX_MESSAGE_CHARS}]" if f.name == "error_message" else ""
            s.add(ind, f"{raw} = {value}{cut}.encode()")
        _encode_length(s, ind, f"len({raw})", code, out)
        s.add(ind, f"{out} += {raw}")
