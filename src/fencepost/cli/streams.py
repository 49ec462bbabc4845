"""What a command says and asks on standard output and standard error, and how it fails.

The streams may be closed or full, or their reader may have gone. A line that cannot be written to stderr is dropped:
the command does the same and ends with the same exit code. Output that cannot be written to stdout is a failure, except
for the `ready` line of a server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

import click

from fencepost.printable import printable, printable_lines


class Failure(click.ClickException):
    """The command could not do its work."""

    exit_code = 1

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem if hint is None else f"{problem}\n\nhint: {hint}")


class WrongUse(click.UsageError):
    """The command was called with arguments that make no sense."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(f"{problem}\n\nhint: {hint}")


def say(line: str) -> None:
    """Print a line, or several, to stderr, if it can be written."""
    # Without stderr, `print` would take stdout.
    if sys.stderr is None:
        return
    try:
        print(printable_lines(line), file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def announce(line: str) -> None:
    """Print the line that says that a server is ready. A server continues if the reader of its stdout has gone."""
    try:
        print(line, flush=True)
    except OSError:
        _discard(sys.stdout)


class Stdout:
    """Standard output that remembers why it could not be written. In everything else it is the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as e:
            self.error = e
            raise

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as e:
            self.error = e
            raise


@contextmanager
def watched_stdout() -> Iterator[Stdout]:
    """For the length of a block, `sys.stdout` remembers its errors. If it is closed, each write is an error."""
    before = sys.stdout
    watched = Stdout(before if before is not None else _closed_stream())
    sys.stdout = cast(TextIO, watched)
    try:
        yield watched
    finally:
        sys.stdout = before
        if watched.error is not None:
            _discard(cast(TextIO, watched))


def _closed_stream() -> TextIO:
    """A stream that refuses every write. It takes the place of stdout, which another file would get otherwise."""
    return os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")


def _discard(stream: TextIO) -> None:
    """Discard the buffer of a stream: Python would try to write it again at exit, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


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
