"""Lines of the log that any peer may cause, any number of times: the first is written, the others are counted."""

from __future__ import annotations

import logging
from collections.abc import Callable

INTERVAL_MS = 60_000


class CountedWarnings:
    """At most one line a minute for each text: the first warning, and then how many have followed."""

    def __init__(self, log: logging.Logger, clock_ms: Callable[[], int]) -> None:
        self._log = log
        self._clock_ms = clock_ms
        self._texts: dict[str, _Repeats] = {}

    def warn(self, text: str, *values: object) -> None:
        repeats = self._texts.get(text)
        if repeats is None:
            self._log.warning(text, *values)
            without_hint = (text % values).partition("\n\n")[0]
            self._texts[text] = _Repeats(without_hint, self._clock_ms())
        else:
            repeats.more += 1

    def report(self) -> None:
        """Write the counts whose minute is over."""
        now_ms = self._clock_ms()
        for text, repeats in list(self._texts.items()):
            if now_ms - repeats.since_ms >= INTERVAL_MS:
                self._write(text, repeats)
                repeats.since_ms = now_ms

    def close(self) -> None:
        for text, repeats in list(self._texts.items()):
            self._write(text, repeats)

    def _write(self, text: str, repeats: _Repeats) -> None:
        """The next warning is written again if there was none to count."""
        if repeats.more:
            self._log.warning("%d more times: %s", repeats.more, repeats.first)
            repeats.more = 0
        else:
            del self._texts[text]


class _Repeats:
    """first: the line that was written. more: those since the last line."""

    def __init__(self, first: str, since_ms: int) -> None:
        self.first = first
        self.since_ms = since_ms
        self.more = 0
