"""The calls of a sink, by Spark or by the user's function: one to a micro-batch, and none after one that failed.

A function that catches the exception of the sink and returns makes Spark record the micro-batch as written. It may call
the sink again for the same micro-batch. It must not go on to the next one, neither in this run nor in a later one: the
checkpoint remembers (`remembered.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from fencepost.spark.checkpoint.query import RunningQuery
from fencepost.spark.driver.remembered import (
    FILE,
    OutputPlace,
    Remembered,
    decode_remembered,
    encode_remembered,
    rewind_hint,
)
from fencepost.spark.failures import SinkError

log = logging.getLogger("fencepost.spark")
_changing = threading.Lock()  # A function may call its sinks in several threads.


class Calls:
    """Of one sink. A new run of the query begins anew."""

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        self._query: RunningQuery | None = None  # None: the last call did not find out which run it belongs to.
        self._done: int | None = None  # The last micro-batch that was written or skipped.
        self._failed: int | None = None  # The first one of this run that was not.
        self._because = ""
        self._turned_away: tuple[int, str] | None = None  # A call that came during another one, and its error.
        self._has_begun = False
        self._has_tried = False  # Had the call that failed begun?
        self.remembered = Remembered()

    def begin(self, query: RunningQuery, batch_id: int) -> None:
        """A call for a micro-batch. Raises SinkError."""
        is_new_run = self._query is None or self._query.run_id != query.run_id
        if is_new_run:
            self.remembered = _read(query)
        if is_new_run and self._query is not None:
            self._done = self._failed = None
        self._query, self._has_begun = query, True
        turned_away, self._turned_away = self._turned_away, None
        if turned_away is not None and turned_away[0] == batch_id:
            self.remembered = _read(query)  # This call is another try.
        elif turned_away is not None and turned_away[0] < batch_id and self._failed is None:
            self._failed, self._because = turned_away
        if self._done == batch_id:
            raise SinkError(
                f"the sink was called for micro-batch {batch_id} before: a micro-batch is one transaction, and one "
                "call\n\nhint: write several frames inside one function, with @sink.batch and transaction.write"
            )
        if self._failed is not None and batch_id > self._failed:
            raise SinkError(
                f"micro-batch {batch_id} is not written, because micro-batch {self._failed} failed ({self._because}) "
                "and your function caught the exception, so Spark took it for written"
                f"{rewind_hint(self._failed, query.checkpoint)}"
            )

    def turn_away(self, batch_id: int, error: SinkError, find_query: Callable[[], RunningQuery]) -> None:
        """A call that comes while the sink is in use: by another thread, or by the very function that calls it."""
        self._turned_away = batch_id, _describe(error)
        self._tell_the_next_run(batch_id, find_query)

    def check_complete(self, batch_id: int) -> None:
        """When the user's function has ended as if all were well. Raises SinkError if a call in between was not."""
        if self._turned_away is not None and self._turned_away[0] == batch_id:
            raise SinkError(
                f"micro-batch {batch_id} is not complete: your function called the sink again while it was writing, "
                f"and caught the exception ({self._turned_away[1]})\n\nhint: write several frames inside one function, "
                "with @sink.batch and transaction.write"
            )

    def is_again(self, batch_id: int) -> bool:
        """Is it another try in this run, after a call that failed?"""
        return self._failed == batch_id and self._has_tried

    def run(self, place: OutputPlace) -> None:
        """Before a transaction: the checkpoint tells the next run where this one writes."""
        assert self._query is not None, "a call has begun"
        run_id = self._query.run_id
        if self.remembered.begin(place, run_id) != self.remembered:
            self._remember(lambda remembered: remembered.begin(place, run_id))

    def succeed(self, batch_id: int) -> None:
        self._done, self._failed, self._has_begun = batch_id, None, False
        if self.remembered.failed_for(self._transactional_id) is not None:
            self._remember(lambda remembered: remembered.succeed(self._transactional_id))

    def fail(self, batch_id: int, error: BaseException, *, settled: OutputPlace | None) -> None:
        """Also for a call that ended before `begin`.

        settled: where nothing of the micro-batch is committed, and no transaction is open. None: that is not known.
        """
        has_begun, self._has_begun = self._has_begun, False
        if self._failed is None and self._done != batch_id:
            self._failed, self._has_tried = batch_id, has_begun
            self._because = _describe(error)
        query = self._query
        if not has_begun:
            self._query = None
        elif self._failed is not None and query is not None:
            self.remembered = self._tell_the_next_run(self._failed, lambda: query, settled) or self.remembered

    def _tell_the_next_run(
        self, failed: int, find_query: Callable[[], RunningQuery], settled: OutputPlace | None = None
    ) -> Remembered | None:
        try:
            return _change(find_query(), lambda remembered: remembered.fail(self._transactional_id, failed), settled)
        except Exception as e:
            log.warning(
                "the checkpoint cannot remember that micro-batch %d failed, so the next run would not notice if your "
                "function caught the exception: %s",
                failed,
                e,
            )
            return None

    def _remember(self, change: Callable[[Remembered], Remembered]) -> None:
        assert self._query is not None, "a call has begun"
        self.remembered = _change(self._query, change)


def _change(
    query: RunningQuery, change: Callable[[Remembered], Remembered], settled: OutputPlace | None = None
) -> Remembered:
    with _changing:
        before = _read(query)  # Another sink of the function may have changed it.
        after = change(before) if settled is None else change(before).end(settled)
        if after != before:
            query.files.write(FILE, encode_remembered(after))
        return after


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _read(query: RunningQuery) -> Remembered:
    text = query.files.read(FILE)
    return decode_remembered(text) if text is not None else Remembered()
