"""Writes a document: as JSON, as text into a pipe, as tables on a terminal; once, or repeatedly.

A document is a frozen dataclass. The caller turns it into a list of blocks, which this module formats as text;
`layout.py` fits tables into the terminal.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from fencepost.cli.layout import GAP, cell, fit, named_values, wrapped
from fencepost.cli.layout import Table as Table  # So that callers import all blocks from here.
from fencepost.cli.options import failure_of
from fencepost.cli.streams import Failure, say
from fencepost.diagnose.words import plain
from fencepost.printable import printable, printable_document

if TYPE_CHECKING:
    from rich.text import Text

D = TypeVar("D")
MOST_COLUMNS = 120
LEAST_COLUMNS = 40
# Between the message and the hint of an error. A warning is one line with both.
HINT = "\n\nhint: "
STYLES = {"ok": "green", "FAIL": "bold red"}


@dataclass(frozen=True, slots=True)
class Fields:
    """Names and values, each on a line of its own; long values are wrapped."""

    pairs: Sequence[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str
    is_bold: bool = False


Block = Table | Fields | Paragraph
Line = list[tuple[str, str]]  # Texts, each with its style.
Blocks = Callable[[D], Iterable[Block]]


def write(document: D, blocks: Blocks[D], as_json: bool) -> None:
    """Write to stdout; the problems of the document go to stderr as warnings."""
    _warn(document)
    if as_json:
        print(json.dumps(plain(document), indent=2), flush=True)
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        for block in safe_blocks(document, blocks):
            # A word that is longer than the line is left to the terminal, which does not cut it when it is copied.
            console.print(drawn(block), soft_wrap=True)
    elif text := as_text(safe_blocks(document, blocks)):
        print(text, flush=True)


def _warn(document: object) -> None:
    for problem in _problems(document):
        say(f"warning: {problem}")


def _problems(document: object) -> Sequence[str]:
    found = [*getattr(document, "problems", ()), *getattr(document, "warnings", ())]
    return [printable(problem.replace(HINT, "; ")) for problem in found]


def safe_blocks(document: D, blocks: Blocks[D]) -> list[Block]:
    """The blocks of a document, in whose texts nothing is invisible and only the layout begins new lines.

    All that the commands write as text comes through here, so no command has to think of ids that attack terminals.
    """
    return shown(blocks(printable_document(document)))


def watch(
    collect: Callable[[], D],
    blocks: Blocks[D],
    as_json: bool,
    every_ms: int,
    is_enough: Callable[[D], bool] = lambda document: False,
) -> D | None:
    """Collect and write a document at an interval, until Ctrl-C, or until one is enough, which is returned.

    Continues if the cluster does not answer.
    """
    if sys.stdout.isatty() and not as_json:
        return _watch_live(collect, blocks, every_ms, is_enough)
    try:
        while True:
            document = _attempt(collect)
            if isinstance(document, Failure):
                say(f"warning: {document.format_message()}")
            elif as_json:
                print(json.dumps(plain(document)), flush=True)
            else:
                _warn(document)
                print(f"{_moment()}\n{as_text(safe_blocks(document, blocks))}", end="\n\n", flush=True)
            if not isinstance(document, Failure) and is_enough(document):
                return document
            time.sleep(every_ms / 1000)
    except KeyboardInterrupt:
        return None


def _moment() -> str:
    from fencepost.diagnose.words import instant

    return instant(time.time_ns() // 1_000_000)


def _watch_live(collect: Callable[[], D], blocks: Blocks[D], every_ms: int, is_enough: Callable[[D], bool]) -> D | None:
    from rich.console import Group
    from rich.live import Live

    try:
        with Live(auto_refresh=False, screen=True) as live:
            while True:
                document = _attempt(collect)
                if not isinstance(document, Failure) and is_enough(document):
                    break
                found = [Paragraph(str(document))] if isinstance(document, Failure) else safe_blocks(document, blocks)
                warnings = [Paragraph(f"warning: {problem}") for problem in _problems(document)]
                live.update(Group(*map(drawn, [*warnings, *found])), refresh=True)
                time.sleep(every_ms / 1000)
    except KeyboardInterrupt:
        return None
    # The screen was restored, so print the reason for the end of the watch once more.
    write(document, blocks, as_json=False)
    return document


def _attempt(collect: Callable[[], D]) -> D | Failure:
    from fencepost.client.failures import ClientError

    try:
        return collect()
    except ClientError as e:
        return failure_of(e)


# --- text -------------------------------------------------------------------------------------------------


def shown(blocks: Iterable[Block]) -> list[Block]:
    """The blocks without tables that have no rows: a header alone says nothing."""
    return [block for block in blocks if not isinstance(block, Table) or block.rows]


def as_text(blocks: Iterable[Block]) -> str:
    return "\n\n".join("\n".join("".join(text for text, _ in line) for line in _lines(b)) for b in shown(blocks))


def drawn(block: Block) -> Text:
    """A block for a terminal, with an empty line below it; the same lines as in a pipe."""
    from rich.text import Text

    return Text("\n").join([Text.assemble(*line) for line in _lines(block)] + [Text("")])


def _lines(block: Block) -> list[Line]:
    """The lines of a block, without spaces at their ends."""
    return [_stripped(line) for line in _padded_lines(block)]


def _stripped(line: Line) -> Line:
    while line and not line[-1][0].strip():
        line = line[:-1]
    return [*line[:-1], (line[-1][0].rstrip(), line[-1][1])] if line else line


def _padded_lines(block: Block) -> list[Line]:
    if isinstance(block, Paragraph):
        return [[(line, "bold" if block.is_bold else "")] for line in wrapped(block.text, _columns())]
    if isinstance(block, Fields):
        return _field_lines(block)
    grid = fit(block, _table_columns())
    if grid is None:
        blocks = [_field_lines(Fields(pairs)) for pairs in named_values(block)]
        return [line for n, lines in enumerate(blocks) for line in ([[("", "")], *lines] if n else lines)]
    lines = [_grid_line(cells, "bold") for cells in grid.header]
    lines += [_grid_line(cells) for row in grid.rows for cells in row]
    if grid.left_out:
        note = f"(not shown in {_table_columns()} columns: {', '.join(grid.left_out)}; --json has everything)"
        lines += [[(line, "dim")] for line in wrapped(note, _columns())]
    return lines


def _grid_line(cells: Sequence[str], style: str = "") -> Line:
    return [(f"{GAP if n else ''}{text}", style or STYLES.get(text.strip(), "")) for n, text in enumerate(cells)]


def _field_lines(fields: Fields) -> list[Line]:
    width = max((len(name) for name, _ in fields.pairs), default=0)
    return [
        [(f"{name if n == 0 else '':<{width}}{GAP}", "bold"), (line, "")]
        for name, value in fields.pairs
        for n, line in enumerate(wrapped(cell(value), max(_columns() - width - len(GAP), LEAST_COLUMNS)) or [""])
    ]


def _columns() -> int:
    """The columns for sentences, which are hard to read in very long lines."""
    return min(shutil.get_terminal_size((MOST_COLUMNS, 0)).columns, MOST_COLUMNS)


def _table_columns() -> int | None:
    """The columns for tables: those of the terminal. In a pipe, one line for each row, unless COLUMNS is set."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size((MOST_COLUMNS, 0)).columns
    return None
