"""The question that a command asks before it changes a cluster."""

from __future__ import annotations

import sys

import click

from fencepost.cli.errors import Failure, WrongUse
from fencepost.cli.streams import say
from fencepost.printable import printable


def confirm(what: str, yes: bool) -> None:
    """Return if the user agrees. Raises WrongUse without a terminal, unless `yes` answers the question."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise WrongUse(
            printable(what), "there is no terminal to ask for confirmation: add --yes if this is what you want"
        )
    say(printable(what))
    if not click.confirm("Continue?", err=True):
        raise Failure("not confirmed", "nothing was changed")
