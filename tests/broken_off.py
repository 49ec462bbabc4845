"""Breaks code off at any of its lines, as a bug there or a lack of memory would.

    for number in count(1):
        # Runs `work()` up to its line `number`, and raises BrokenOff there.
        broken_off = break_off(work, number)
        if broken_off is None:
            break  # It has fewer lines.

Only lines of CHANGING count: the code that changes state. Elsewhere a line may leave a descriptor open.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import fencepost

_SOURCES = Path(fencepost.__file__).parent
CHANGING = tuple(str(_SOURCES / name) for name in ("broker", "machines", "server/storage/file_log.py"))


class BrokenOff(Exception):
    """No code expects this exception."""


class Trap:
    """Raises BrokenOff before the line `number` that this thread runs in the sources, and only once."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.place = ""  # Where it was raised.

    def __enter__(self) -> Trap:
        sys.settrace(self._enter)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._at_line if frame.f_code.co_filename.startswith(CHANGING) else None

    def _at_line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise BrokenOff(self.place)
        return self._at_line


def break_off(work: Callable[[], object], number: int) -> tuple[str, Exception | None] | None:
    """Where `work` was broken off, and what it raised; None if it has fewer lines than `number`."""
    trap = Trap(number)
    try:
        with trap:
            work()
    except Exception as error:
        if not trap.place:
            raise
        return trap.place, error
    return (trap.place, None) if trap.place else None
