"""One attempt at a micro-batch: one transaction, committed or aborted.

The user's function writes under leases. Then the attempt checks that Spark accepted exactly the acknowledged records
and repeated nothing. It commits them with the commit note and the source offsets. Any exception aborts the transaction.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError, Fenced, OutcomeUnknown
from fencepost.client.transaction import ProducerIdentity
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV2
from fencepost.spark.checkpoint.files import has_gateway
from fencepost.spark.checkpoint.offsets import MicroBatchOffsets
from fencepost.spark.checkpoint.query import check_threads
from fencepost.spark.driver.access import Access
from fencepost.spark.driver.batch_transaction import BatchTransaction
from fencepost.spark.driver.cached_rows import CachedRows
from fencepost.spark.driver.commit_note import CommitNote, TokenNote
from fencepost.spark.driver.connect_shuffles import ConnectShuffles
from fencepost.spark.driver.job_failures import is_lost_worker, sentence_of, setup_problem
from fencepost.spark.driver.jobs import Jobs, MicroBatchJobs
from fencepost.spark.driver.lag_group import LagGroup
from fencepost.spark.driver.lease_place import start_lease_server
from fencepost.spark.driver.leftovers import START_AGAIN, forget_leftovers
from fencepost.spark.driver.owner import TransactionOwner
from fencepost.spark.driver.permissions import denied_topics, to_write
from fencepost.spark.driver.planes import Plane, choose_plane
from fencepost.spark.driver.progress import COMMITTED, EMPTY, BatchProgress
from fencepost.spark.driver.query_stop import stopped_by_sigterm, was_cancelled
from fencepost.spark.driver.spark_status import DroppedBefore, SparkStatus
from fencepost.spark.driver.time_used import TimeUsed
from fencepost.spark.driver.timeout_alarm import TimeoutAlarm
from fencepost.spark.driver.write_watch import WriteWatch
from fencepost.spark.failures import AccessDenied, BatchBroken, QueryStopped, SinkError
from fencepost.spark.lease.messages import MustAbort
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.settings import SinkSettings
from fencepost.spark.task.plan import WritePlan
from fencepost.spark.task.topics import PinnedTopic, pin

# The versions of Produce: see WritePlan.
PRODUCE_TV2, PRODUCE_TV1 = 13, 11

Write = Callable[[Any, BatchTransaction], object]


@dataclass(frozen=True, slots=True)
class Planned:
    """The checkpoint's record of a micro-batch."""

    query_id: str
    run_id: str
    offsets: MicroBatchOffsets
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class Work:
    """The purpose of a transaction, which is the same at every attempt."""

    frame: Any
    batch_id: int
    write: Write
    consumed: Mapping[TopicPartition, int]
    planned: Planned | None  # None: a plain frame belongs to no query, so there is no commit note.
    token: TokenNote | None = None  # For a plain frame that is written once.

    def jobs_before(self) -> MicroBatchJobs | None:
        planned = self.planned
        if planned is None:
            return None
        return MicroBatchJobs(planned.run_id, self.batch_id, planned.offsets.timestamp_ms)

    def connect_shuffles(self) -> ConnectShuffles:
        planned = self.planned
        return ConnectShuffles(
            self.frame.sparkSession,
            planned.query_id if planned is not None else None,
            is_stateful=planned is not None and planned.is_stateful,
        )


class Attempts:
    """Makes attempts, one after another. They share the lease service, which the first attempt starts."""

    def __init__(
        self,
        settings: SinkSettings,
        client: KafkaClient,
        owner: TransactionOwner,
        group: LagGroup | None,
        access: Access,
    ) -> None:
        self._settings = settings
        self._client = client
        self._owner = owner
        self._group = group
        self._access = access
        self.leases: LeaseServer | None = None
        self._plane: Plane | None = None
        self._status: SparkStatus | None = None
        self.dropped_before = DroppedBefore(None, 0)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fencepost-offsets")

    def close(self) -> None:
        self._thread.shutdown()
        if self.leases is not None:
            self.leases.stop()

    def settle(self) -> None:
        """Before the first attempt at something: how did the last transaction end? See `TransactionOwner.settle`."""
        # In the thread: after a second Ctrl-C the abort of the last attempt may still be on its way there.
        self._thread.submit(self._owner.settle).result()

    def make(
        self, work: Work, identity: ProducerIdentity, note: CommitNote | TokenNote | None, number: int, used: TimeUsed
    ) -> BatchProgress:
        """Raises BatchBroken if the transaction was aborted and another attempt may succeed.

        used: counts the time of this attempt.
        """
        session = work.frame.sparkSession
        leases = self._lease_server(session)
        plane = self._plane_for(session)
        has_tv2 = self._owner.transaction_version >= TV2
        began_ms = used.took_ms
        table = LeaseTable(
            lease_timeout_ms=self._settings.lease_timeout_ms,
            first_touches_at_once=1 if has_tv2 else None,
            transaction_timeout_ms=self._settings.timeout_ms,
        )
        used.stalled_ms = lambda: table.stalls.total_ms
        status = self._spark_status(session)
        cached_rows = CachedRows(status)
        stream = work.jobs_before()
        jobs = Jobs(session, status, work.connect_shuffles(), stream)
        is_noted = note is not None

        def touch(partitions: Sequence[TopicPartition]) -> None:
            # The rows may name topics, so some are known only now: before the first record is written to them.
            with used.waiting():
                self._access.require(to_write({topic for topic, _ in partitions}, is_noted=is_noted))
                self._owner.add_partitions(partitions)

        def pin_allowed(topic: str) -> PinnedTopic:
            with used.waiting():
                self._access.require(to_write([topic], is_noted=is_noted))
                return pin(self._client, topic)

        tokens = self._client.tokens
        address = leases.open(table, touch, lambda must_abort: jobs.cancel_soon(), tokens)
        plan = WritePlan(
            self._settings.client,
            identity,
            PRODUCE_TV2 if has_tv2 else PRODUCE_TV1,
            address,
            write_number=0,
            topic=None,
            topics={},
            compression=self._settings.compression,
            max_record_batch_bytes=self._settings.max_record_batch_bytes,
            login_id=tokens.id if tokens is not None else "",
        )
        watch = WriteWatch(jobs, cached_rows)
        transaction = BatchTransaction(work.batch_id, self._settings.topic, plane, plan, pin_allowed, watch.around)
        try:
            with jobs, TimeoutAlarm(work.batch_id, self._settings.timeout_ms, used):
                _write(work, transaction, watch, leases, self._access)
                transaction.check()
                verdict = leases.finish(transaction.results, transaction.input_partitions)
                if isinstance(verdict, MustAbort):
                    raise BatchBroken(verdict.reason)
                topics = {topic for topic, _ in verdict.counts}
                if isinstance(note, TokenNote):
                    note = replace(note, records=sum(verdict.counts.values()))
                    topics |= {note.topic} if note.topic is not None else set()  # An empty frame is noted as well.
                has_something = bool(topics or work.consumed)
                if has_something:
                    # The cluster takes the offsets while Spark answers. If it answers that something was repeated, the
                    # offsets are aborted with the records.
                    with self._beside(lambda: self._add_offsets(work, note, topics, verdict.counts.keys(), used)):
                        watch.finish()
                    with used.waiting():
                        self._owner.commit(topics, note)
                else:
                    watch.finish()
                    self._owner.abort()  # A lost task may have added a partition without writing to it.
        except BaseException as e:
            leases.break_transaction("the micro-batch is being aborted")
            # An abort that fails must not hide that the commit may have succeeded.
            hidden = (ClientError,) if isinstance(e, OutcomeUnknown) else ()
            # In the thread: after Ctrl-C the offsets may still be on their way, and the abort must not overtake them.
            with used.waiting(), suppress(*hidden):
                self._thread.submit(self._owner.abort).result()
            raise
        finally:
            leases.close()
            transaction.free()
        took_ms = used.took_ms - began_ms
        return BatchProgress(
            work.batch_id,
            COMMITTED if has_something else EMPTY,
            records=sum(verdict.counts.values()),
            bytes=table.bytes,
            record_batches=table.record_batches,
            transaction_ms=took_ms,
            timeout_share=took_ms / self._settings.timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            attempts=number,
        )

    def _add_offsets(
        self,
        work: Work,
        note: CommitNote | TokenNote | None,
        topics: set[str],
        written: Collection[TopicPartition],
        used: TimeUsed,
    ) -> None:
        group = self._group if work.consumed else None
        with used.waiting():
            if group is not None:
                group.check()
            self._owner.add_offsets(topics, note, group.group_id if group else None, work.consumed, written)

    @contextmanager
    def _beside(self, work: Callable[[], None]) -> Iterator[None]:
        """Runs `work` in a thread while the block runs, and waits for both. An exception of the block comes first."""
        running = self._thread.submit(work)
        try:
            yield
        finally:
            wait([running])
        running.result()

    def forget(self, work: Work, broken: BatchBroken) -> None:
        """After a broken attempt: the next one computes all rows anew. Raises SinkError where Spark cannot do that."""
        status = self._spark_status(work.frame.sparkSession)
        if status is not None:
            forget_leftovers(status.context, work.frame, is_stream=work.planned is not None)
        elif work.connect_shuffles().are_in_stream:
            raise SinkError(
                f"the micro-batch is aborted, and cannot be run again in this run of the query: {broken}; the stream "
                "has a shuffle, and with Spark Connect its files of the broken attempt cannot be removed"
                f"\n\nhint: {START_AGAIN}"
            ) from broken

    def _spark_status(self, session: Any) -> SparkStatus | None:
        """None with Spark Connect."""
        if not has_gateway(session):
            return None
        if self._status is None or self._status.context is not session.sparkContext:
            check_threads(session)
            self._status = self._plane_for(session).spark_status(session)
            assert self._status is not None, "the session has a gateway"
            self._status.looked_dropped_events = self.dropped_before.of(session.sparkContext)
        return self._status

    def _plane_for(self, session: Any) -> Plane:
        if self._plane is None:
            self._plane = choose_plane(session, self._lease_server(session), self._settings.plane)
        return self._plane

    def _lease_server(self, session: Any) -> LeaseServer:
        if self.leases is None:
            self.leases = start_lease_server(self._settings, session)
        return self.leases


def _write(work: Work, transaction: BatchTransaction, watch: WriteWatch, leases: LeaseServer, access: Access) -> None:
    try:
        with stopped_by_sigterm(work.frame.sparkSession):
            _refuse_unfinished(work.write(work.frame, transaction))
        watch.raise_hidden()
    except QueryStopped:
        raise
    except Exception as e:
        cause = _cause_of(e, leases, access)
        if cause is e:
            raise
        raise cause from e


def refuse_deferred(write: Write) -> None:
    """Raises SinkError for a function whose call runs none of its lines."""
    called = write if inspect.isroutine(write) or isinstance(write, partial) else type(write).__call__
    for is_kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        if is_kind(called):
            raise SinkError(_DEFERRED.format(getattr(write, "__name__", write)))


def _refuse_unfinished(result: object) -> None:
    """The same for a function that returns what it should have awaited, or gone through."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if isinstance(result, Coroutine | Generator):
            result.close()  # Otherwise Python warns of a coroutine that was never awaited.
        raise SinkError(_DEFERRED.format(getattr(result, "__name__", result)))


_DEFERRED = (
    "{} is asynchronous, or a generator: its call returns before it has written anything, and the micro-batch would be "
    "committed without its rows\n\nhint: write it as a plain function (def, without await or yield)"
)


def _cause_of(error: Exception, leases: LeaseServer, access: Access) -> Exception:
    """The cause of an exception from the user's function, which is mostly the exception of a Spark job."""
    if was_cancelled(error):
        return error
    broken = leases.broken
    if broken is None:
        if problem := setup_problem(error):
            return SinkError(problem)
        return BatchBroken(sentence_of(error)) if is_lost_worker(error) else error
    if isinstance(leases.failure, (Fenced, AccessDenied)):
        return leases.failure
    said = sentence_of(error)
    reason = broken.reason if not said or "fencepost." in said else f"{broken.reason} ({said})"
    if topics := denied_topics(reason):
        try:
            access.explain(to_write(topics, is_noted=False))
        except AccessDenied as e:
            return e
    return SinkError(reason) if broken.is_fatal else BatchBroken(reason)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
