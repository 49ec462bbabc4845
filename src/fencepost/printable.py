"""Text from a cluster or a client on its way to a terminal, a pipe or a log.

Clients choose ids, host names, keys and messages. A control character in one could erase a terminal's other lines,
write to its clipboard, reverse its text, or begin a line that looks like one of the log's own.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_LETTERS = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """The text with control characters, direction marks and other invisible ones as `\\n`, `\\x1b` or `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def printable_lines(text: str) -> str:
    """The same for a text that is several lines."""
    return "\n".join(map(printable, text.split("\n")))


class Lines(str):
    """A text of several lines, each of them printable."""

    __slots__ = ()

    @staticmethod
    def of(lines: Iterable[str]) -> Lines:
        return Lines("\n".join(map(printable, lines)))


def printable_document(value: T) -> T:
    """A document in which every text is printable."""
    return _printable(value)  # type: ignore[no-any-return]  # Of the same type as the value.


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value if isinstance(value, Lines) else printable(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(found, field.name, _printable(getattr(value, field.name)))
        return found
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(_printable, value))
    if isinstance(value, Mapping):
        return {_printable(key): _printable(field) for key, field in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(map(_printable, value))
    return value


def _escaped(char: str) -> str:
    code = ord(char)
    numbered = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return _LETTERS.get(char, numbered)
