"""Text from a cluster or a client on its way to a terminal, a pipe or a log.

Anyone who may connect chooses ids, host names, keys and messages. A control character in one could erase a terminal's
other lines, write to its clipboard, reverse its text, or begin a line that looks like one of the log's own.
"""

from __future__ import annotations

_LETTERS = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """The text with control characters, direction marks and other invisible ones as `\\n`, `\\x1b` or `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def printable_lines(text: str) -> str:
    """The same for a text that is several lines."""
    return "\n".join(map(printable, text.split("\n")))


def _escaped(char: str) -> str:
    code = ord(char)
    numbered = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return _LETTERS.get(char, numbered)
