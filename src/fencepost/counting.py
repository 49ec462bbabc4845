"""Numbers in messages, settings and arguments of every package."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# Python refuses to convert strings of some thousand digits; no number that is asked for has more than these.
MOST_DIGITS = 20


def whole_number(text: str, most: int) -> int | None:
    """The number from 0 to `most` that `text` spells with the digits 0 to 9; None for any other text."""
    is_number = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    return int(text) if is_number and int(text) <= most else None
