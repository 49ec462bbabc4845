"""The calls of a sink, by Spark or by the user's function: one to a micro-batch, and none after one that failed.

A function that catches the exception of the sink and returns makes Spark record the micro-batch as written. It may call
the sink again for the same micro-batch. It must not go on to the next one.
"""

from __future__ import annotations

from fencepost.spark.failures import SinkError


class Calls:
    """Of one sink. A new run of the query begins anew."""

    def __init__(self) -> None:
        self._run_id: str | None = None  # None: no call has found out yet which run it belongs to.
        self._done: int | None = None  # The last micro-batch that was written or skipped.
        self._failed: int | None = None  # The first one that was not.
        self._because = ""
        self._has_begun = False

    def begin(self, run_id: str, batch_id: int, checkpoint: str) -> bool:
        """A call for a micro-batch. True: it is another try, after a call that failed. Raises SinkError."""
        if self._run_id not in (None, run_id):
            self._done = self._failed = None
        self._run_id, self._has_begun = run_id, True
        if self._done == batch_id:
            raise SinkError(
                f"the sink was called for micro-batch {batch_id} before: a micro-batch is one transaction, and one "
                "call\n\nhint: write several frames inside one function, with @sink.batch and transaction.write"
            )
        if self._failed is not None and batch_id > self._failed:
            failed = self._failed
            raise SinkError(
                f"micro-batch {batch_id} is not written, because micro-batch {failed} failed ({self._because}) and "
                "your function caught the exception, so Spark took it for written\n\nhint: let exceptions leave the "
                f"function that you give to foreachBatch. To write micro-batch {failed}: stop the query, delete the "
                f"files {failed} and .{failed}.crc and those of later numbers in {checkpoint}/commits, and "
                f"{failed + 1} and .{failed + 1}.crc and those of later numbers in {checkpoint}/offsets, and start it "
                "again"
            )
        return self._failed == batch_id

    def succeed(self, batch_id: int) -> None:
        self._done, self._failed, self._has_begun = batch_id, None, False

    def fail(self, batch_id: int, error: BaseException) -> None:
        """Also for a call that ended before `begin`."""
        if not self._has_begun:
            self._run_id = None
        self._has_begun = False
        if self._failed is None and self._done != batch_id:
            self._failed = batch_id
            self._because = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
