"""The report of a demo as blocks for `output.py`: its sections, each with its checks, and the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fencepost.cli.output import Block, Paragraph, Table, write

if TYPE_CHECKING:
    from fencepost.demo.report import Check, Report

CHECK_COLUMNS = ("", "check", "expected", "found")


def write_report(report: Report, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.document(), indent=2))
    else:
        write(report, blocks_of, as_json=False)


def blocks_of(report: Report) -> Iterator[Block]:
    for section in report.sections:
        yield Paragraph(section.title, is_bold=True)
        if section.sentences:
            yield Paragraph("\n".join(section.sentences))
        if section.rows:
            yield Table(section.columns, section.rows, prose=section.columns)
        yield Table(CHECK_COLUMNS, [_check_row(check) for check in section.checks], prose=CHECK_COLUMNS[1:])
        for check in section.checks:
            if not check.holds and check.evidence:
                yield Paragraph("\n".join(f"FAIL {check.claim}: {line}" for line in check.evidence))
    yield Paragraph(_verdict(report), is_bold=True)


def _check_row(check: Check) -> tuple[str, str, str, str]:
    return "ok" if check.holds else "FAIL", check.claim, _value(check.expected), _value(check.found)


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _verdict(report: Report) -> str:
    failed = sum(not check.holds for check in report.checks)
    return f"{failed} of {len(report.checks)} checks failed" if failed else f"all {len(report.checks)} checks hold"
