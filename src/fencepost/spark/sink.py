"""The exactly-once Kafka sink for PySpark Structured Streaming: one Kafka transaction per micro-batch.

    sink = ExactlyOnceSink({"bootstrap.servers": "...", "transactional.id": "refunds-1", "topic": "refunds"})
    frame.writeStream.foreachBatch(sink).option("checkpointLocation", "...").start()

Several outputs in one transaction:

    @sink.batch
    def write(frame, transaction):
        frame = transaction.compute_once(frame)
        transaction.write(refunds_of(frame), topic="refunds-emitted")
        transaction.write(audit_of(frame), topic="refund-audit")

    frame.writeStream.foreachBatch(write)

A DataFrame that is not part of a stream: `sink.write(frame)`, or `sink.write(frame, token="2026-11-16")` in a job that
a scheduler may start again.

The driver owns the transaction; tasks only produce, under leases (`lease/rules.py`). Each transaction carries a commit
note: which micro-batch it was, with a digest of its source offsets. After a crash the note decides
(`driver/decision.py`) whether Spark's rerun of the micro-batch is run or skipped. The sink returns to Spark only after
the commit.

Spark Connect (tested with 4.0.5): the server runs foreachBatch functions in a process beside it. The sink is sent
there, and that process owns the transaction and serves the leases. It has no SparkContext, with these consequences:
- The sink needs the query's checkpointLocation as fencepost.checkpoint.location, and refuses to work without it.
- The sink cannot see whether Spark ran a stage twice, so it refuses rows behind a shuffle, unless the server runs with
  spark.stage.maxConsecutiveAttempts=1. It does not run a micro-batch again whose stream has a shuffle.
- Progress is in the log of that process (the server's), and at fencepost.metrics.port.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from fencepost.client.failures import BadClientSetting, Fenced
from fencepost.spark.checkpoint.query import RunningQuery, calling_micro_batch
from fencepost.spark.driver.attempt import Write, now_ms, refuse_deferred
from fencepost.spark.driver.batch_transaction import BatchTransaction
from fencepost.spark.driver.calls import Calls
from fencepost.spark.driver.holders import hold, release
from fencepost.spark.driver.metrics import Metrics, metrics_at
from fencepost.spark.driver.progress import BatchProgress
from fencepost.spark.driver.query_stop import stop_recognized
from fencepost.spark.driver.runner import (
    Choices,
    MicroBatchRunner,
    describe_unnamed_adoption,
    preview_starting_offsets,
    query_of,
)
from fencepost.spark.driver.spark_status import dropped_before_now
from fencepost.spark.failures import AccessDenied, BatchBroken, BatchRefused, QueryStopped, SinkError, SinkFenced
from fencepost.spark.settings import SINK_SETTINGS, parse_sink_settings

__all__ = [
    "SINK_SETTINGS",
    "AccessDenied",
    "BatchBroken",
    "BatchProgress",
    "BatchRefused",
    "BatchTransaction",
    "ExactlyOnceSink",
    "QueryStopped",
    "SinkError",
    "SinkFenced",
]
log = logging.getLogger("fencepost.spark")

PROGRESS_KEPT = 100
MAX_TOKEN_CHARS = 200


class ExactlyOnceSink:
    """Give it to `foreachBatch`. Settings: those of a Kafka client, and `SINK_SETTINGS`.

    adopt, run_batch, skip_batch: the user's answers to a refusal; see the message of BatchRefused. `adopt` is the id of
    the query whose work a query with a new checkpoint continues.
    max_attempts: how often the sink tries a micro-batch that loses its transaction. With state in the query it tries
    once, because the state store expects the query to restart.

    The first micro-batch (or write) takes the transactional.id over from its previous owner. `close` gives it up, and
    so does a sink whose query or write has ended, when another sink of the process needs the id. It takes the id over
    again when it is used again.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        adopt: str | None = None,
        run_batch: int | None = None,
        skip_batch: int | None = None,
        max_attempts: int = 3,
    ) -> None:
        self._given = dict(settings)
        self._created_ms = now_ms()
        self._dropped_before = dropped_before_now()
        self.settings = parse_sink_settings(settings)  # Refuses bad settings now, and not in the first micro-batch.
        if max_attempts < 1:
            raise BadClientSetting(f"max_attempts={max_attempts} is not a whole number above 0")
        self._choices = Choices(adopt=adopt, run_batch=run_batch, skip_batch=skip_batch, max_attempts=max_attempts)
        if self.settings.looks_random:
            log.warning(
                "transactional.id %s looks random: a restart with another id does not fence this sink",
                self.transactional_id,
            )
        self._lock = threading.Lock()
        self._key = (self.settings.bootstrap_servers, self.settings.transactional_id)
        self._runner: MicroBatchRunner | None = None
        self._calls = Calls(self.settings.transactional_id)
        self._query: RunningQuery | None = None
        self._fenced: str | None = None
        self._metrics: Metrics | None = None
        self.recent_progress: deque[BatchProgress] = deque(maxlen=PROGRESS_KEPT)

    @property
    def transactional_id(self) -> str:
        return self.settings.transactional_id

    # --- public ---------------------------------------------------------------------------------------------

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Write a micro-batch in one transaction: the function for foreachBatch."""
        self._run(frame, batch_id, lambda batch, transaction: transaction.write(batch))

    def batch(self, write: Write) -> Callable[[Any, int], None]:
        """Make a function for foreachBatch from one that writes any number of frames to a transaction."""
        refuse_deferred(write)
        return lambda frame, batch_id: self._run(frame, batch_id, write)

    def write(self, frame: Any, topic: str | None = None, *, token: str | None = None) -> int:
        """Write a plain DataFrame in one transaction; returns the number of records.

        token: a name for this write, such as the day that a scheduler runs the job for. What was written with a token
        is not written again, by this process or by a later one with the same transactional.id: the call then returns
        the number of records of the first time. The transaction leaves a note about the token in Kafka, which brokers
        keep for offsets.retention.minutes, a week by default.

        Without a token, calling it twice writes twice, so it is refused inside foreachBatch. Without a token it also
        raises OutcomeUnknown if the commit has no answer: there is no note that would tell.
        """
        if token is not None and not (isinstance(token, str) and 0 < len(token) <= MAX_TOKEN_CHARS):
            raise BadClientSetting(f"token={token!r} is not a text of 1 to {MAX_TOKEN_CHARS} characters")
        with stop_recognized():
            micro_batch = calling_micro_batch(frame.sparkSession)
            if token is None and micro_batch is not None:
                raise SinkError(
                    "a plain DataFrame without a token is not written exactly once inside foreachBatch: Spark may call "
                    'the function again for the same micro-batch\n\nhint: use writeStream.format("fencepost") instead '
                    "of foreachBatch, or foreachBatch with the sink itself, or with @sink.batch and transaction.write "
                    "for several outputs"
                )
            with self._alone(), self._running(token=token) as runner:
                return self._report(runner.write_frame(frame, topic, token, micro_batch)).records

    def starting_offsets(self, topics: Iterable[str], otherwise: str | None = None) -> str:
        """The offsets of group.id, as `startingOffsets` for Spark's Kafka source: for a job whose checkpoint was lost.

            spark.readStream.format("kafka").option("startingOffsets", sink.starting_offsets(["orders"]))

        Spark uses it only while there is no checkpoint, so the line may stay. The new query also needs
        `adopt`, with the id of the old one, and a checkpoint that no run has used: the sink refuses a first micro-batch
        that starts at other offsets than the group's.
        otherwise: where to start in a partition for which the group has no offset, earliest (as a new pipeline does)
        or latest. It is required if the group of a pipeline to adopt has no offsets at all.
        If `adopt` names the query of the last transaction, it takes the transactional.id over first, so that an older
        driver cannot move the group any more. In a program that does not adopt that query, it fences no driver.
        """
        topics = list(topics)
        if self.settings.group_id is None:
            raise SinkError("starting_offsets needs a group\n\nhint: set group.id to the pipeline's group")
        if self._choices.adopt is True:
            raise SinkError(describe_unnamed_adoption(self.settings))  # Before it takes the id over.
        if self._runner is None and self._fenced is None:
            offsets = preview_starting_offsets(self.settings, self._choices.adopt, topics, otherwise)
            if offsets is not None:
                return offsets
        with self._alone(), self._running() as runner:
            assert runner.group is not None, "group.id is set"
            return runner.group.starting_offsets(
                topics, otherwise, ended=runner.adopted_ends(), had_a_predecessor=bool(self._choices.adopt)
            )

    def progress_of(self, query: Any) -> dict[str, Any] | None:
        """Spark's `query.lastProgress`, with the sink's progress of the same micro-batch under "fencepost".

        A foreachBatch function cannot add to Spark's own progress: Spark takes a sink's numbers from sinks in its JVM,
        and observed metrics from the plan of the query. With Spark Connect the sink runs in another process, so its
        progress is None here: use its log or its metrics.
        """
        last = query.lastProgress
        if last is None:
            return None
        document = json.loads(last.json) if hasattr(last, "json") else dict(last)
        ours = [progress for progress in self.recent_progress if progress.batch_id == document["batchId"]]
        return {**document, "fencepost": ours[-1].as_json() if ours else None}

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics, also if `fencepost.metrics.port=0` left the choice to the system. None: not open."""
        return self._metrics.port if self._metrics is not None else None

    def close(self) -> None:
        """Give up the transactional.id and the lease port. Waits for a running micro-batch."""
        with self._lock:
            self._close_runner()

    def give_up(self) -> bool:
        """For another sink of this process: give up the transactional.id if the query or write has ended. Has it?"""
        runner = self._runner
        # If the query has ended, the thread with the lock is about to release it.
        if not self._lock.acquire(blocking=runner is not None and runner.has_ended_query() is True):
            return False
        try:
            if self._runner is not None and self._runner.has_ended_query() is False:
                return False
            self._close_runner()
            self._created_ms = now_ms()  # The other sink may commit micro-batches from now on.
            return True
        finally:
            self._lock.release()

    def _close_runner(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        release(self._key, self)

    # --- one micro-batch ------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self, turn_away: Callable[[SinkError], None] = lambda error: None) -> Iterator[None]:
        # Not blocking: a function that calls the sink inside its own micro-batch would wait for ever.
        if not self._lock.acquire(blocking=False):
            busy = SinkError(
                f"transactional.id {self.transactional_id} is in the middle of another micro-batch: one query to a sink"
                "\n\nhint: inside a micro-batch, write with @sink.batch and transaction.write"
            )
            turn_away(busy)
            raise busy
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _running(self, query: RunningQuery | None = None, token: str | None = None) -> Iterator[MicroBatchRunner]:
        """The runner for one micro-batch or write, created at the first one."""
        try:
            if self._fenced is not None:
                raise SinkFenced(self._fenced)
            if self._metrics is None and self.settings.metrics_port is not None:
                self._metrics = metrics_at(self.settings.metrics_bind, self.settings.metrics_port)
            if self._runner is None:
                hold(self._key, self)
                self._runner = MicroBatchRunner(
                    self.settings, self._choices, self._created_ms, self._calls, query, token
                )
                self._runner.attempts.dropped_before = self._dropped_before
            yield self._runner
        except Fenced as e:
            self._fenced = self._describe_fence(e)
            self._close_runner()
            raise SinkFenced(self._fenced) from e
        finally:
            if self._runner is None:
                release(self._key, self)

    def _describe_fence(self, fence: Fenced) -> str:
        owner = self._runner.owner.current() if self._runner is not None else None
        return (
            f"{fence}; it belongs to {owner or 'another producer'} now"
            "\n\nhint: the same pipeline was started twice, or two pipelines have the same transactional.id. Stop one, "
            "or give it a transactional.id of its own. To continue with this one, start it again with a new sink"
        )

    def _run(self, frame: Any, batch_id: int, write: Write) -> None:
        def turn_away(error: SinkError) -> None:
            self._calls.turn_away(batch_id, error, lambda: query_of(frame.sparkSession, batch_id, self.settings))

        def write_all(batch: Any, transaction: BatchTransaction) -> object:
            result = write(batch, transaction)
            self._calls.check_complete(batch_id)
            return result

        try:
            with stop_recognized(), self._alone(turn_away), self._called_for(batch_id):
                query = self._query = query_of(frame.sparkSession, batch_id, self.settings, self._query)
                self._calls.begin(query, batch_id)
                with self._running(query) as runner:
                    self._report(runner.run_batch(query, frame, batch_id, write_all))
        except BaseException as e:
            if self._metrics is not None and isinstance(e, Exception) and not isinstance(e, QueryStopped):
                self._metrics.observe_failure(self.transactional_id)
            if isinstance(e, SinkError) and e.__cause__ is not None:
                # The message says it all. Spark prints every exception of the chain, twice, and the message last.
                log.debug("%s: the cause of the error that follows", self.transactional_id, exc_info=e.__cause__)
                e.__cause__ = None
            raise

    @contextmanager
    def _called_for(self, batch_id: int) -> Iterator[None]:
        """Remembers how the call ends."""
        try:
            yield
        except BaseException as e:
            settled = self._runner.place if self._runner is not None and self._runner.has_left_nothing else None
            self._calls.fail(batch_id, e, settled=settled)
            raise
        self._calls.succeed(batch_id)

    def __reduce__(self) -> tuple[Any, ...]:
        """Spark Connect sends the function for foreachBatch to the server. Only its settings travel."""
        return _make, (self._given, asdict(self._choices))

    def _report(self, progress: BatchProgress) -> BatchProgress:
        self.recent_progress.append(progress)
        log.info("%s: %s", self.transactional_id, progress)
        if self._metrics is not None:
            self._metrics.observe(self.transactional_id, progress)
        return progress


def _make(settings: Mapping[str, object], choices: Mapping[str, Any]) -> ExactlyOnceSink:
    return ExactlyOnceSink(settings, **choices)
