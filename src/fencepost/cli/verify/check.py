"""`fencepost verify check`: judges a history that was written before."""

from __future__ import annotations

import click

from fencepost.cli.options import as_json_option
from fencepost.cli.verify.judging import html_option, judge_file


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
