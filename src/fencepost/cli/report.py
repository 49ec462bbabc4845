"""Writes a demo's report: for people on a terminal, as plain text into a pipe, or as one JSON document."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.demo.report import Check, Report, Section

WIDTH = 100
CHECK_COLUMNS = ("", "check", "expected", "found")
STYLES = {"ok": "green", "FAIL": "bold red"}


def write_report(report: Report, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.document(), indent=2))
    elif sys.stdout.isatty():
        _write_rich(report)
    else:
        print(plain_text(report))


def plain_text(report: Report) -> str:
    return "\n".join(line for section in report.sections for line in _plain_section(section)) + _verdict(report)


def _plain_section(section: Section) -> list[str]:
    lines = [section.title, "-" * len(section.title)]
    for sentence in section.sentences:
        lines += textwrap.wrap(sentence, WIDTH)
    if section.columns:
        lines += ["", *_plain_table([section.columns, *section.rows])]
    rows = [_check_row(check) for check in section.checks]
    lines += ["", *_plain_table([CHECK_COLUMNS, *rows])]
    return [*lines, *_evidence(section), ""]


def _plain_table(rows: Sequence[Sequence[str | int]]) -> list[str]:
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(_aligned(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _aligned(cell: str | int, width: int) -> str:
    return f"{cell:>{width}}" if isinstance(cell, int) else f"{cell:<{width}}"


def _check_row(check: Check) -> tuple[str, str, str, str]:
    return "ok" if check.holds else "FAIL", check.claim, _value(check.expected), _value(check.found)


def _evidence(section: Section) -> list[str]:
    return [f"FAIL {check.claim}: {line}" for check in section.checks if not check.holds for line in check.evidence]


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _verdict(report: Report) -> str:
    failed = sum(not check.holds for check in report.checks)
    return f"{failed} of {len(report.checks)} checks failed" if failed else f"all {len(report.checks)} checks hold"


def _write_rich(report: Report) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def table(columns: Sequence[str], rows: Sequence[Sequence[str | int]]) -> Table:
        drawn = Table(box=SIMPLE_HEAD)
        for name, cell in zip(columns, rows[0], strict=True):
            drawn.add_column(name, justify="right" if isinstance(cell, int) else "left")
        for row in rows:
            drawn.add_row(*(Text(str(cell), style=STYLES.get(str(cell), "")) for cell in row))
        return drawn

    console = Console(highlight=False)
    for section in report.sections:
        console.print(Text(section.title, style="bold"))
        for sentence in section.sentences:
            console.print(Text(sentence))
        if section.rows:
            console.print(table(section.columns, section.rows))
        console.print(table(CHECK_COLUMNS, [_check_row(check) for check in section.checks]))
        for line in _evidence(section):
            console.print(Text(line, style="red"))
        console.print()
    console.print(Text(_verdict(report), style="bold green" if report.holds else "bold red"))
