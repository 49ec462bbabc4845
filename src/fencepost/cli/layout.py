"""Fits a table into a number of columns without breaking a word.

An id that is broken in two can be neither copied nor found. A table that is too wide is therefore tried in this order:

1. Headers, and columns of prose, are wrapped at spaces.
2. The columns that the table calls optional are left out, one after the other.
3. Each row becomes a block of its own, with one line for each value.

Only a word that is longer than the line reaches beyond its end.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

GAP = "  "
# A column of prose is not made narrower than this.
LEAST_PROSE = 24
COMMANDS = ("fencepost ", "kafka-configs ")
ABBREVIATIONS = ("LSO",)
NO_BREAK = "\N{NO-BREAK SPACE}"
_DURATION = re.compile(r"\b\d+(\.\d+)? (ms|s|m|h|d)\b")


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers are aligned to the right; None is a dash."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    # Columns of sentences and lists, which may be wrapped at spaces.
    prose: Collection[str] = ()
    # Columns that a narrow terminal leaves out; the first of them is the first to go.
    optional: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """A table that fits: the lines of its header and of each row, and the columns that are left out.

    A line has one text for each column, padded to the width of the column.
    """

    header: list[list[str]]
    rows: list[list[list[str]]]
    left_out: list[str]


def cell(value: object) -> str:
    return "-" if value is None else str(value)


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, broken at spaces; the rest of a list item is indented like its beginning.

    A line that is a command stays whole, so that it can be copied.
    """
    return [
        part
        for line in text.splitlines()
        for part in ([line] if line.lstrip().startswith(COMMANDS) else _broken_at_spaces(line, width))
    ]


def _broken_at_spaces(line: str, width: int) -> list[str]:
    # textwrap does not break at this space, so that a number stays with its unit.
    whole = _DURATION.sub(lambda found: found[0].replace(" ", NO_BREAK), line)
    lines = textwrap.wrap(whole, width, subsequent_indent=_indent(line), break_long_words=False, break_on_hyphens=False)
    return [part.replace(NO_BREAK, " ") for part in lines]


def _indent(line: str) -> str:
    return " " * (len(line) - len(line.lstrip(" -")))


def fit(table: Table, width: int | None) -> Grid | None:
    """The table in `width` columns (None: as many as it takes); None if it does not fit."""
    left_out: list[str] = []
    while True:
        shown = [n for n, name in enumerate(table.columns) if name not in left_out]
        widths = _widths(table, shown, width)
        if widths is not None:
            return _grid(table, shown, widths, left_out)
        rest = [name for name in table.optional if name in table.columns and name not in left_out]
        if not rest:
            return None
        left_out.append(rest[0])


def _widths(table: Table, shown: Sequence[int], width: int | None) -> list[int] | None:
    """The width of each column that is shown; None if they do not fit."""
    headers = [table.columns[n] for n in shown]
    longest = [max((len(cell(row[n])) for row in table.rows), default=0) for n in shown]
    natural = [max(len(header), size) for header, size in zip(headers, longest, strict=True)]
    if width is None:
        return natural
    least = []
    for n, header, size in zip(shown, headers, longest, strict=True):
        if header in table.prose:
            words = _longest_word(cell(row[n]) for row in table.rows)
            least.append(max(min(size, LEAST_PROSE), words, _longest_word([header])))
        else:
            least.append(max(size, _longest_word([header])))
    spare = width - len(GAP) * (len(shown) - 1) - sum(least)
    return None if spare < 0 else _grown(least, natural, spare, [header in table.prose for header in headers])


def _grown(least: Sequence[int], natural: Sequence[int], spare: int, is_prose: Sequence[bool]) -> list[int]:
    """The widths with what is left of the line: headers come first, then prose."""
    widths = list(least)
    for n, is_wrapped in enumerate(is_prose):
        if not is_wrapped and natural[n] - widths[n] <= spare:
            spare -= natural[n] - widths[n]
            widths[n] = natural[n]
    while spare and (wanting := [n for n, wraps in enumerate(is_prose) if wraps and widths[n] < natural[n]]):
        for n in wanting:
            more = min(max(spare // len(wanting), 1), natural[n] - widths[n], spare)
            widths[n] += more
            spare -= more
    return widths


def _longest_word(texts: Iterable[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


def _grid(table: Table, shown: Sequence[int], widths: Sequence[int], left_out: list[str]) -> Grid:
    right = _right_columns(table)

    def lines(cells: Sequence[object], is_header: bool) -> list[list[str]]:
        texts = [cell(cells[n]) for n in shown]
        parts = [
            wrapped(text, w) or [""] if is_header or table.columns[n] in table.prose else [text]
            for n, text, w in zip(shown, texts, widths, strict=True)
        ]
        return [
            [f"{part:>{w}}" if n in right else f"{part:<{w}}" for n, part, w in zip(shown, line, widths, strict=True)]
            for line in zip_longest(*parts, fillvalue="")
        ]

    return Grid(lines(table.columns, True), [lines(row, False) for row in table.rows], left_out)


def _right_columns(table: Table) -> set[int]:
    """The columns in which all values are numbers."""
    return {
        n
        for n in range(len(table.columns))
        if any(isinstance(row[n], int) for row in table.rows)
        and all(row[n] is None or isinstance(row[n], int) for row in table.rows)
    }


def _in_small_letters(header: str) -> str:
    return " ".join(word if word in ABBREVIATIONS else word.lower() for word in header.split())


def named_values(table: Table) -> list[list[tuple[str, object]]]:
    """Each row as names and values, without those that have none."""
    return [
        [(_in_small_letters(name), value) for name, value in zip(table.columns, row, strict=True) if value is not None]
        for row in table.rows
    ]
