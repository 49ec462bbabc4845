"""`fencepost verify check`: judges a history that was written before, as the other commands judge that of their run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fencepost.cli.options import as_json_option
from fencepost.cli.streams import Failure, say

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.verify.report.document import FoundKind, VerifyReport

html_option = click.option(
    "--html", metavar="FILE", type=click.Path(), help="Write the report as an HTML page, with timelines, to FILE."
)


def judge_file(file: str, html: str | None, as_json: bool) -> None:
    """Write the report on a history to stdout, and with `html` to a file. Fails if there are anomalies."""
    from fencepost.cli.output import write

    report = judged(file)
    if html is not None:
        _write_page(report, html)
    write(report, blocks_of, as_json)
    if report.anomalies:
        kinds = [kind for kind in report.kinds if not kind.is_allowed]
        names = ", ".join(f"{kind.title} ({kind.count})" for kind in kinds)
        page = "" if html is not None else "; --html FILE draws their timelines"
        raise Failure(f"{file}: anomalies were found: {names}", f"the report says what each of them means{page}")
    say(f"no anomaly: {_size(report)}")


def judged(file: str) -> VerifyReport:
    """The report on the history in a file. Raises Failure."""
    from fencepost.verify.history import NotAHistory, decode
    from fencepost.verify.report.document import judge

    try:
        with open(file, "rb") as lines, _without_collections():
            return judge(*decode(lines))
    except NotAHistory as error:
        hint = "`fencepost verify` writes such files; the first line is the header, each other one an event"
        raise Failure(f"{file} is no history: {error}", hint) from None
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}", "FILE is the history of a run") from None


@contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage collection for the length of a block: millions of events are no garbage, and it would cost a third."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _write_page(report: VerifyReport, html: str) -> None:
    from fencepost.verify.report.page import draw_page

    try:
        with open(html, "w", encoding="utf-8") as page:
            page.write(draw_page(report))
    except OSError as error:
        raise Failure(f"cannot write {html}: {error.strerror}", "--html names a file in a folder that exists") from None


def _size(report: VerifyReport) -> str:
    from fencepost.counting import counted

    ended = f"{report.committed} committed, {report.aborted} aborted, {report.unknown} in doubt"
    return (
        f"{counted(report.clients, 'client')}, transactions: {ended}; {counted(report.sent, 'record')} sent, "
        f"{report.read} read, {counted(report.faults, 'fault')}, {report.seconds:.1f} s"
    )


def blocks_of(report: VerifyReport) -> Iterator[Block]:
    from fencepost.cli.output import Fields, Paragraph, Table

    yield Fields([("seed", report.seed), *report.what.items(), ("history", _size(report))])
    columns = ("count", "anomaly", "name")
    yield Table(columns, [(kind.count, f"{kind.title}{_note(kind)}", kind.kind) for kind in report.kinds])
    for kind in report.kinds:
        yield Paragraph(f"{kind.title} ({kind.kind}): {kind.count}{_note(kind)}", is_bold=True)
        yield Fields([("meaning", kind.meaning), ("mistake", kind.mistake), ("what to do", kind.remedy)])
        for anomaly in kind.shown:
            yield Paragraph(anomaly.what)
            rows = [(event.line, f"{event.at_ms:.3f}", event.by, event.text) for event in anomaly.events]
            yield Table(("line", "ms", "client", "event"), rows, prose=("event",))
        if kind.count > len(kind.shown):
            yield Paragraph(f"and {kind.count - len(kind.shown)} more")
    if report.not_judged:
        yield Paragraph("Not judged:\n" + "\n".join(f"- {what}" for what in report.not_judged))


def _note(kind: FoundKind) -> str:
    return ", allowed in Kafka" if kind.is_allowed else ""


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@html_option
@as_json_option
def check(file: str, html: str | None, as_json: bool) -> None:
    """Search a history for what exactly-once forbids

    FILE is a history of JSON lines. The report depends on nothing else, and no cluster is asked. The exit code is 1 if
    anomalies were found, and also if FILE is no history.

    \b
    Example:
        fencepost verify check history.jsonl
        fencepost verify check history.jsonl --json
        fencepost verify check history.jsonl --html report.html
    """
    judge_file(file, html, as_json)
