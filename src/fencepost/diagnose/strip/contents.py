"""The bytes of a key, a value or a header as text that a person can read. They are untrusted and may be large. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

MOST_CHARS = 16_384
MOST_HEX_BYTES = 2_048
HEX_BYTES_PER_LINE = 16
INDENT = "  "
# Deeper JSON is shown as it is: indented, it would grow with the square of its depth.
DEEPEST_INDENTED = 40
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    # `null`, `text` (UTF-8), `json` (indented, otherwise as it was written) or `hex`.
    format: str
    text: str
    size_bytes: int
    # The text ends before the bytes do.
    is_cut: bool


def content_of(data: bytes | None) -> Content:
    if data is None:
        return Content(format="null", text="", size_bytes=0, is_cut=False)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        shown = data[:MOST_HEX_BYTES]
        return Content(format="hex", text=_hex(shown), size_bytes=len(data), is_cut=len(shown) < len(data))
    if len(text) > MOST_CHARS:
        return Content(format="text", text=text[:MOST_CHARS], size_bytes=len(data), is_cut=True)
    indented = _indented_json(text)
    if indented is not None:
        return Content(format="json", text=indented, size_bytes=len(data), is_cut=False)
    return Content(format="text", text=text, size_bytes=len(data), is_cut=False)


def _hex(data: bytes) -> str:
    lines = range(0, len(data), HEX_BYTES_PER_LINE)
    return "\n".join(f"{at:08x}  {data[at : at + HEX_BYTES_PER_LINE].hex(' ')}" for at in lines)


def _indented_json(text: str) -> str | None:
    """A JSON object or array with a line for each of its parts; None if the text is none, or is nested too deeply.

    Names that occur twice and numbers stay as they were written, which a decoder and an encoder would not ensure.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    out: list[str] = []
    depth = 0
    tokens = _JSON_TOKEN.findall(text)
    for n, token in enumerate(tokens):
        if token in "}]":
            depth -= 1
            if tokens[n - 1] not in "{[":
                out.append(f"\n{INDENT * depth}")
        elif n and tokens[n - 1] in "{[":
            out.append(f"\n{INDENT * depth}")
        out.append({",": f",\n{INDENT * depth}", ":": ": "}.get(token, token))
        if token in "{[":
            depth += 1
            if depth > DEEPEST_INDENTED:
                return None
    return "".join(out)
