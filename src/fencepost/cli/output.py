"""Writes a document: as JSON, as text into a pipe, as tables on a terminal; once, or repeatedly.

A document is a frozen dataclass. The caller turns it into a list of blocks, which this module formats as text.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.cli.options import Unanswered, unanswered

if TYPE_CHECKING:
    from rich.console import RenderableType

D = TypeVar("D")
MOST_COLUMNS = 120
LEAST_COLUMNS = 40
STYLES = {"ok": "green", "FAIL": "bold red"}


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers are aligned to the right; None is a dash."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Fields:
    """Names and values, each on a line of its own; long values are wrapped."""

    pairs: Sequence[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str
    is_bold: bool = False


Block = Table | Fields | Paragraph
Blocks = Callable[[D], Iterable[Block]]


def write(document: D, blocks: Blocks[D], as_json: bool) -> None:
    """Write to stdout; the problems of the document go to stderr as warnings."""
    _warn(document)
    if as_json:
        print(json.dumps(plain(document), indent=2), flush=True)
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        for block in blocks(document):
            console.print(drawn(block))
    else:
        print(as_text(blocks(document)), flush=True)


def _warn(document: object) -> None:
    for problem in _problems(document):
        print(f"warning: {problem}", file=sys.stderr, flush=True)


def _problems(document: object) -> Sequence[str]:
    return [*getattr(document, "problems", ()), *getattr(document, "warnings", ())]


def watch(collect: Callable[[], D], blocks: Blocks[D], as_json: bool, every_ms: int) -> None:
    """Collect and write a document at an interval, until Ctrl-C. Continues if the cluster does not answer."""
    if sys.stdout.isatty() and not as_json:
        _watch_live(collect, blocks, every_ms)
        return
    try:
        while True:
            document = _attempt(collect)
            if isinstance(document, Unanswered):
                print(f"warning: {document.format_message()}", file=sys.stderr, flush=True)
            elif as_json:
                print(json.dumps(plain(document)), flush=True)
            else:
                _warn(document)
                print(as_text(blocks(document)), end="\n\n", flush=True)
            time.sleep(every_ms / 1000)
    except KeyboardInterrupt:
        pass


def _watch_live(collect: Callable[[], D], blocks: Blocks[D], every_ms: int) -> None:
    from rich.console import Group
    from rich.live import Live

    try:
        with Live(auto_refresh=False, screen=True) as live:
            while True:
                document = _attempt(collect)
                shown = [Paragraph(str(document))] if isinstance(document, Unanswered) else blocks(document)
                warnings = [Paragraph(f"warning: {problem}") for problem in _problems(document)]
                live.update(Group(*map(drawn, [*warnings, *shown])), refresh=True)
                time.sleep(every_ms / 1000)
    except KeyboardInterrupt:
        pass


def _attempt(collect: Callable[[], D]) -> D | Unanswered:
    from fencepost.client.failures import ClientError

    try:
        return collect()
    except ClientError as e:
        return unanswered(e)


# --- JSON -------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A document as JSON values: a dataclass or named tuple becomes an object, an enum its name in lower case."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain(field) for name, field in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): plain(field) for key, field in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name.lower()
    return value


# --- text -------------------------------------------------------------------------------------------------


def as_text(blocks: Iterable[Block]) -> str:
    return "\n\n".join("\n".join(_lines(block)) for block in blocks)


def _lines(block: Block) -> list[str]:
    if isinstance(block, Paragraph):
        return _wrapped(block.text, _columns())
    if isinstance(block, Fields):
        width = max((len(name) for name, _ in block.pairs), default=0)
        return [
            f"{name if n == 0 else '':<{width}}  {line}".rstrip()
            for name, value in block.pairs
            for n, line in enumerate(_wrapped(_cell(value), _value_columns(block)) or [""])
        ]
    rows = [list(block.columns), *([_cell(cell) for cell in row] for row in block.rows)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(block.columns))]
    right = _right_columns(block)
    return [
        "  ".join(f"{cell:>{w}}" if n in right else f"{cell:<{w}}" for n, (cell, w) in enumerate(zip(row, widths)))
        .rstrip()
        for row in rows
    ]  # fmt: skip


def _columns() -> int:
    return min(shutil.get_terminal_size((MOST_COLUMNS, 0)).columns, MOST_COLUMNS)


def _value_columns(fields: Fields) -> int:
    """What the names of the fields leave for the values."""
    return max(_columns() - max((len(name) for name, _ in fields.pairs), default=0) - 2, LEAST_COLUMNS)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, broken at spaces; the rest of a list item is indented like its beginning."""
    return [
        wrapped
        for line in text.splitlines()
        for wrapped in textwrap.wrap(
            line, width, subsequent_indent=_indent(line), break_long_words=False, break_on_hyphens=False
        )
    ]


def _indent(line: str) -> str:
    return " " * (len(line) - len(line.lstrip(" -")))


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _right_columns(table: Table) -> set[int]:
    """The columns in which all values are numbers."""
    return {
        n
        for n in range(len(table.columns))
        if any(isinstance(row[n], int) for row in table.rows)
        and all(row[n] is None or isinstance(row[n], int) for row in table.rows)
    }


def drawn(block: Block) -> RenderableType:
    """A block for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.padding import Padding
    from rich.table import Table as RichTable
    from rich.text import Text

    if isinstance(block, Paragraph):
        return Padding(Text("\n".join(_lines(block)), style="bold" if block.is_bold else ""), (0, 0, 1, 0))
    if isinstance(block, Fields):
        table = RichTable(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        for name, value in block.pairs:
            lines = _wrapped(_cell(value), _value_columns(block))
            table.add_row(Text(name, style="bold"), Text("\n".join(lines)))
        return Padding(table, (0, 0, 1, 0))
    table = RichTable(box=SIMPLE_HEAD)
    right = _right_columns(block)
    for n, column in enumerate(block.columns):
        table.add_column(column, justify="right" if n in right else "left", overflow="fold")
    for row in block.rows:
        table.add_row(*(Text(_cell(cell), style=STYLES.get(_cell(cell), "")) for cell in row))
    return table
