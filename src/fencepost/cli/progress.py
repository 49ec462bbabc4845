"""How a long command reports its progress: lines on stderr, with a bar below them if stderr is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from fencepost.cli.streams import say
from fencepost.printable import printable_lines

Say = Callable[[str], None]
Count = Callable[[int, int], None]
PATIENCE_S = 2.0


@contextmanager
def progress_bar(what: str) -> Iterator[tuple[Say, Count]]:
    """A function that prints a line, and a function that moves the bar: how much is done, of how much."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield say, lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    columns = SpinnerColumn(), TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)

        def count(done: int, total: int) -> None:
            bar.update(task, completed=min(done, total), total=total)

        yield lambda line: bar.console.print(Text(printable_lines(line))), count


@contextmanager
def patient_bar(what: str) -> Iterator[Count]:
    """A bar that appears only after some seconds of work."""
    began = time.monotonic()
    show: Count | None = None
    with ExitStack() as bar:

        def count(done: int, total: int) -> None:
            nonlocal show
            if show is None and time.monotonic() - began > PATIENCE_S:
                _, show = bar.enter_context(progress_bar(what))
            if show is not None:
                show(done, total)

        yield count
