"""`fencepost error`: what one of Kafka's errors means, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fencepost.cli.errors import Failure, WrongUse
from fencepost.cli.options import as_json_option

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.diagnose.errors.entry import ErrorEntry
    from fencepost.diagnose.errors.lookup import OtherError


# `-1` is a code, not an option.
@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("error", metavar="CODE|NAME", required=False)
@click.option("--list", "lists", is_flag=True, help="Show all errors that a transactional client can meet.")
@as_json_option
def error(error: str | None, lists: bool, as_json: bool) -> None:
    """Say what an error of Kafka's means, and what to do

    By its number, or by any name of it: Kafka's, the Java client's, librdkafka's, or a part of one. Exit code 1 if
    there is no such error.

    \b
    Example:
        fencepost error 47
        fencepost error ProducerFencedException
        fencepost error concurrent --json
    """
    from fencepost.cli.output import write
    from fencepost.diagnose.errors.lookup import NotFound, look_up

    if lists:
        if error is not None:
            raise WrongUse(f"both --list and {error}", "choose one of them")
        write(_all(), _table, as_json)
        return
    if error is None:
        raise WrongUse("which error?", "give its number or its name, or --list for all")
    if error.startswith("--"):
        raise WrongUse(f"No such option: {error}", "`fencepost error --help` shows what it takes")
    found = look_up(error)
    if isinstance(found, NotFound):
        several = ", ".join(found.similar)
        raise Failure(
            f"Kafka has no error {error}" if not several else f"{error} is not the name of an error",
            f"did you mean {several}?" if several else "`fencepost error --list` shows those that clients meet",
        )
    write(found, _fields, as_json)


def _all() -> tuple[ErrorEntry, ...]:
    from fencepost.diagnose.errors.table import TABLE

    return tuple(TABLE.values())


def _table(entries: tuple[ErrorEntry, ...]) -> Iterator[Block]:
    from fencepost.cli.output import Table

    yield Table(
        ("CODE", "NAME", "RETRIABLE", "WHAT IT MEANS"),
        [(e.code, e.name, "yes" if e.retriable else "no", e.meaning) for e in entries],
    )


def _fields(entry: ErrorEntry | OtherError) -> Iterator[Block]:
    from fencepost.cli.output import Fields, Paragraph
    from fencepost.diagnose.errors.lookup import OtherError

    yield Paragraph(f"{entry.name} ({entry.code})", is_bold=True)
    if isinstance(entry, OtherError):
        yield Paragraph("A transactional client does not meet this one.")
        yield Fields([("retriable", "yes" if entry.retriable else "no")])
        return
    yield Paragraph(entry.meaning)
    yield Fields(
        [
            ("whose doing", entry.who.value),
            ("effect", entry.effect.value),
            ("retriable", "yes" if entry.retriable else "no"),
            ("a transactional program", entry.then.value),
            ("answered by", ", ".join(entry.apis) or None),
            ("Java", f"{entry.java} ({entry.java_family})" if entry.java else None),
            ("librdkafka", entry.librdkafka),
        ]
    )
    yield Paragraph(f"What to do: {entry.what_to_do}")
