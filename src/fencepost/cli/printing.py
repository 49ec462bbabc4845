"""Prints in a thread of its own, so that a slow terminal or pipe does not hold up what is printed about."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TextIO, TypeVar

T = TypeVar("T")
MOST_WAITING = 10_000
# How long the end waits for a reader that takes no lines.
END_S = 2.0


class PrintingThread(Generic[T]):
    """Lines of a stream, in order. If more of them wait than the limit, the next ones are left out and counted."""

    def __init__(
        self,
        stream: TextIO,
        line_of: Callable[[T], str],
        left_out_line: Callable[[int], str],
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._stream = stream
        self._line_of = line_of
        self._left_out_line = left_out_line
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._waiting: list[T] = []
        self._left_out = 0
        self._is_ended = False
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="fencepost-printing", daemon=True)
        self._thread.start()

    def add(self, item: T) -> None:
        """Print it soon. Raises OSError if the stream cannot be written any more, as when its reader has gone."""
        with self._changed:
            if self._has_failed:
                # Once more and in this thread, where the error ends the command.
                print(self._line_of(item), file=self._stream, flush=True)
            elif len(self._waiting) < self._most_waiting:
                self._waiting.append(item)
            else:
                self._left_out += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Print what waits, unless the reader is too slow even for that. Raises OSError as `add` does."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        self._thread.join(END_S)
        if self._has_failed:
            print(file=self._stream, flush=True)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._left_out or self._is_ended)
                items, self._waiting = self._waiting, []
                left_out, self._left_out = self._left_out, 0
            if not items and not left_out:
                return  # It has ended, and everything is printed.
            lines = [self._line_of(item) for item in items]
            if left_out:  # They came after all that waited.
                lines.append(self._left_out_line(left_out))
            try:
                self._write("".join(f"{line}\n" for line in lines))
            except OSError:
                with self._changed:
                    self._has_failed = True
                return

    def _write(self, text: str) -> None:
        """Not through the stream: a write that waits would keep its lock, and the process could not end."""
        left = memoryview(text.encode(self._stream.encoding, "backslashreplace"))
        while left:
            left = left[os.write(self._stream.fileno(), left) :]
