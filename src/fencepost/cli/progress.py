"""How a long command tells what it does: lines on stderr, and on a terminal a bar below them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]
Count = Callable[[int, int], None]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(what: str) -> Iterator[tuple[Say, Count]]:
    """Something to say lines with, and something to tell how many of how many are done."""
    if not sys.stderr.isatty():
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

        yield lambda line: bar.console.print(Text(line)), count
