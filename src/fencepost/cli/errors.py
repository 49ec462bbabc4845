"""How a command fails: it prints `error:` with what happened, an empty line, and `hint:` with what to do."""

from __future__ import annotations

import click


class Failure(click.ClickException):
    """The command could not do its work."""

    exit_code = 1

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem if hint is None else f"{problem}\n\nhint: {hint}")


class WrongUse(click.UsageError):
    """The command was called with arguments that make no sense."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(f"{problem}\n\nhint: {hint}")
