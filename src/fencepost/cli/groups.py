"""Groups of commands: they show their help, with exit code 0, if they are called without a command."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from fencepost.interrupts import EndsAtOnce


class CommandsOnDemand(UserDict[str, Any]):
    """Commands by their names. Each is given as `module:name`, and imported when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        module, _, attribute = super().__getitem__(name).partition(":")
        with EndsAtOnce():
            command: click.Command = getattr(import_module(module), attribute)
        return command


class HelpfulGroup(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])


class ReaderGone(click.ClickException):
    """The reader of our output has closed the pipe, as `head` does."""

    exit_code = 141


class RootGroup(HelpfulGroup):
    """The group of all commands. It raises ReaderGone, where click would end the process with another exit code."""

    def make_context(self, *args: Any, **given: Any) -> click.Context:
        with _closed_pipes():
            return super().make_context(*args, **given)

    def invoke(self, ctx: click.Context) -> Any:
        with _closed_pipes():
            return super().invoke(ctx)


@contextmanager
def _closed_pipes() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as e:
        raise ReaderGone(str(e)) from None
