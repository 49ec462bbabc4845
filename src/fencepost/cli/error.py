"""`fencepost error`: explains one of Kafka's errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fencepost.cli.options import as_json_option
from fencepost.cli.streams import Failure, WrongUse

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.diagnose.errors.entry import ErrorEntry
    from fencepost.diagnose.errors.table import OtherError


# `-1` is a code, not an option.
@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("error", metavar="CODE|NAME|MESSAGE", required=False)
@click.option("--list", "lists", is_flag=True, help="List all errors that a transactional client can receive.")
@as_json_option
def error(error: str | None, lists: bool, as_json: bool) -> None:
    """Explain an error of Kafka, and what to do about it

    Finds the error by its number, by its name in Kafka, in the Java client or in librdkafka, by a part of a name, or by
    the message of a client, in quotes. The exit code is 1 if there is no such error.

    \b
    Example:
        fencepost error 47
        fencepost error ProducerFencedException
        fencepost error 'Local: This instance has been fenced by a newer instance'
        fencepost error concurrent --json
    """
    from fencepost.cli.output import write
    from fencepost.diagnose.errors.table import NotFound, look_up

    if lists:
        if error is not None:
            raise WrongUse(f"both --list and {error}", "choose one of them")
        write(_all(), list_text, as_json)
        return
    if error is None:
        raise WrongUse("which error?", "give its number or its name, or list all errors with --list")
    if error.startswith("--"):
        raise WrongUse(f"No such option: {error}", "`fencepost error --help` shows its arguments and an example")
    found = look_up(error)
    if isinstance(found, NotFound):
        several = ", ".join(found.similar)
        raise Failure(
            f"Kafka has no error {error}" if not several else f"{error} is not the name of an error",
            f"did you mean {several}?"
            if several
            else "`fencepost error --list` lists those that transactional clients can receive",
        )
    write(found, _fields, as_json)


def _all() -> tuple[ErrorEntry, ...]:
    from fencepost.diagnose.errors.table import TABLE

    return tuple(TABLE.values())


def list_text(entries: tuple[ErrorEntry, ...]) -> Iterator[Block]:
    from fencepost.cli.output import Table

    yield Table(
        ("CODE", "NAME", "RETRIABLE", "WHAT HAPPENED"),
        [(e.code, e.name, "yes" if e.retriable else "no", e.meaning) for e in entries],
        prose=["WHAT HAPPENED"],
        optional=["RETRIABLE"],
    )


def _fields(entry: ErrorEntry | OtherError) -> Iterator[Block]:
    from fencepost.cli.output import Fields, Paragraph
    from fencepost.diagnose.errors.table import OtherError

    yield Paragraph(f"{entry.name} ({entry.code})", is_bold=True)
    if isinstance(entry, OtherError):
        yield Paragraph("A transactional client does not receive this error.")
        yield Fields([("retriable", "yes" if entry.retriable else "no")])
        return
    yield Fields(
        [
            ("what happened", entry.meaning),
            ("caused by", entry.who.value),
            ("effect", entry.effect.value),
            ("retriable", "yes" if entry.retriable else "no"),
            ("what to do", entry.what_to_do),
            ("in a transaction", entry.then.value),
            ("returned by", ", ".join(entry.apis) or None),
            ("Java", f"{entry.java} ({entry.java_family})" if entry.java else None),
            ("librdkafka", entry.librdkafka),
        ]
    )
