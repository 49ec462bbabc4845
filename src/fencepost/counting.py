"""A number with its noun, for messages of every package."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
