"""Long requests in slices, so that other clients are served in between.

All clients share one thread. A handler whose work grows with the names in its request is a generator: it yields after
each item, with about how much work that was, and returns the response. `Slices` runs a slice of it, then lets the shell
serve others, and goes on. A request with few names is answered in its first slice, before `Node.handle` returns.

A handler must be right whatever other requests change between two slices: each item is an answer of its own, as if it
had come in a request of its own. If the client leaves, the items that are done stay done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.machines.timers import Timers

if TYPE_CHECKING:
    from fencepost.broker.node import Context

# The unit of work is a name that is looked up, which takes some microseconds.
WORK_A_SLICE = 2000
DESCRIBED_SETTINGS = 50
READ_BATCH = 50
WRITTEN_FILE = 50
# Partitions that are created or deleted with one save of the cluster's document. A save syncs, so they are many.
PARTITIONS_A_SAVE = 500
# The next millisecond: the shell serves its connections first.
PAUSE_MS = 1

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Sliced = Generator[int, None, Answer]


def each(items: Iterable[Item], answer: Callable[[Item], Answer], work: int = 1) -> Sliced[list[Answer]]:
    """The answers to the items of a request, each of which is about this much work."""
    answers = []
    for item in items:
        answers.append(answer(item))
        yield work
    return answers


def in_saves(items: Iterable[Item], partitions: Callable[[Item], int]) -> Iterator[list[Item]]:
    """The items of a request that changes topics, in parts that a handler saves one by one, with a pause in between.

    `partitions`: how many of them an item creates, changes or deletes. An item is never split.
    """
    part: list[Item] = []
    room = PARTITIONS_A_SAVE
    for item in items:
        count = max(1, partitions(item))
        if part and count > room:
            yield part
            part, room = [], PARTITIONS_A_SAVE
        part.append(item)
        room -= count
    if part:
        yield part


class Slices:
    """The requests of one node that take more than one slice. They take turns, so that many delay others no longer."""

    def __init__(self, timers: Timers, failed: Callable[[Context, Exception], None]) -> None:
        """`failed` answers a request whose handler raised; it raises again what it has no answer to."""
        self._timers = timers
        self._failed = failed
        self._waiting: deque[tuple[Context, Sliced[Any]]] = deque()

    def begin(self, ctx: Context, work: Sliced[Any]) -> None:
        if self._run(ctx, work):
            return
        ctx.connection.on_close(work.close)
        self._waiting.append((ctx, work))
        if len(self._waiting) == 1:
            self._timers.at(ctx.now_ms + PAUSE_MS, self._go_on)

    def _go_on(self, now_ms: int) -> None:
        ctx, work = self._waiting.popleft()
        ctx.now_ms = now_ms
        try:
            if not self._run(ctx, work):
                self._waiting.append((ctx, work))
        except Exception as e:
            ctx.close_connection(f"the request could not be served: {type(e).__name__}: {e}")
            raise
        finally:
            if self._waiting:
                self._timers.at(now_ms + PAUSE_MS, self._go_on)

    def _run(self, ctx: Context, work: Sliced[Any]) -> bool:
        """Run one slice; whether that was the last one. Then the request is answered."""
        done = 0
        try:
            while done < WORK_A_SLICE:
                done += next(work)
        except StopIteration as end:
            if end.value is not None:  # Else the client has left.
                ctx.reply(end.value)
            return True
        except Exception as e:
            self._failed(ctx, e)
            return True
        return False
