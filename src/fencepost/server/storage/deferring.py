"""Slow work, such as fsync and the removal of files, is done in another thread.

`defer(work, done)` calls `work()` there, and then `done(error)` in the thread of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.machines.log.interface import LogTailUnknown

Done = Callable[[BaseException | None], None]
Defer = Callable[[Callable[[], None], Done], None]
# Called when a sync failed; it must end the process.
Stop = Callable[[LogTailUnknown], None]


def run_at_once(work: Callable[[], None], done: Done) -> None:
    """A `Defer` for programs without an event loop."""
    try:
        work()
    except Exception as error:
        done(error)
    else:
        done(None)
