"""A started sink: decides whether a batch is run or skipped, and runs it until it is committed or cannot be."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fencepost.client.client import KafkaClient
from fencepost.client.failures import Fenced
from fencepost.spark.checkpoint.files import files_of, has_gateway
from fencepost.spark.checkpoint.offsets import MicroBatchOffsets, has_state, read_offsets
from fencepost.spark.checkpoint.query import RunningQuery, connect_query, running_query
from fencepost.spark.driver import decision as decide
from fencepost.spark.driver.batch_transaction import BatchTransaction
from fencepost.spark.driver.jobs import (
    STOPPED,
    Jobs,
    TimeoutAlarm,
    is_lost_worker,
    sentence_of,
    setup_problem,
    stopped_by_sigterm,
    was_stopped,
)
from fencepost.spark.driver.lag_group import LagGroup
from fencepost.spark.driver.owner import Owner
from fencepost.spark.driver.progress import COMMITTED, EMPTY, SKIPPED, BatchProgress, name_of
from fencepost.spark.failures import BatchBroken, BatchRefused, QueryStopped, SinkError
from fencepost.spark.lease.messages import MustAbort
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.settings import SinkSettings
from fencepost.spark.task.plan import WritePlan
from fencepost.spark.task.topics import patiently, pin

log = logging.getLogger("fencepost.spark")

DEFAULT_RETENTION_MS = 7 * 86_400_000
# Produce v13 names topics by id, v12 adds a partition with its first write, and up to v11 the driver has to add it.
PRODUCE_TV2, PRODUCE_TV1 = 13, 11
_in_use: set[tuple[str, str]] = set()

Write = Callable[[Any, BatchTransaction], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The user's answers to what the sink cannot know."""

    adopt: bool = False
    run_batch: int | None = None
    skip_batch: int | None = None
    max_attempts: int = 3


@dataclass(frozen=True, slots=True)
class Planned:
    """What Spark wrote down about a batch of a query."""

    query_id: str
    offsets: MicroBatchOffsets
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class Work:
    """What a transaction is for; the same at every attempt."""

    frame: Any
    batch_id: int
    write: Write
    consumed: Mapping[tuple[str, int], int]
    planned: Planned | None  # None: it belongs to no query, so there is no marker to leave or to find.


class StartedSink:
    """Making one takes the transactional.id over; `close` lets go of it."""

    def __init__(self, settings: SinkSettings, choices: Choices) -> None:
        self._settings = settings
        self._choices = choices
        self._key = (settings.bootstrap_servers, settings.transactional_id)
        if self._key in _in_use:
            raise SinkError(
                f"transactional.id {settings.transactional_id} is in use by another sink of this process: one sink to "
                "a transactional.id\n\nhint: close() the other one first, or use that"
            )
        self._client = KafkaClient(settings.client)
        self._owner = Owner(self._client, settings.transactional_id, settings.timeout_ms)
        self._source_client = KafkaClient(settings.source_client) if settings.source_client else self._client
        self.group = (
            LagGroup(
                settings.group_id,
                self._source_client,
                settings.source_client or settings.client,
                is_elsewhere=settings.source_client is not None,
            )
            if settings.group_id
            else None
        )
        self._leases: LeaseServer | None = None
        self._last_run: tuple[str, int] | None = None
        _in_use.add(self._key)

    def close(self) -> None:
        _in_use.discard(self._key)
        if self._leases is not None:
            self._leases.stop()
        self._client.close()
        self._source_client.close()

    def current_owner(self) -> str | None:
        return self._owner.current()

    # --- what to do -----------------------------------------------------------------------------------------

    def run_batch(self, frame: Any, batch_id: int, write: Write) -> BatchProgress:
        session = frame.sparkSession
        query = self._query(session)
        if self._last_run == (query.run_id, batch_id):
            raise SinkError(
                f"the sink was called for batch {batch_id} before: a batch is one transaction, and one call"
                "\n\nhint: write several frames inside one function, with @sink.batch and transaction.write"
            )
        self._owner.settle()
        if self.group is not None:
            self.group.check_sources(query.kafka_servers)
        files = files_of(session, query.checkpoint)
        offsets = read_offsets(files, batch_id, query.sources)
        consumed = offsets.consumed if self.group and not self.group.is_elsewhere else {}
        planned = Planned(query.query_id, offsets, has_state(files))
        work = Work(frame, batch_id, write, consumed, planned)
        is_skipped = self._is_committed(batch_id, planned)
        self._last_run = (query.run_id, batch_id)
        if is_skipped:
            progress = self._skip(work)
        else:
            progress = self._try(work, 1 if planned.is_stateful else self._choices.max_attempts)
        if self.group and self.group.is_elsewhere:
            self.group.commit_afterwards(offsets.consumed, batch_id)
        return progress

    def _query(self, session: Any) -> RunningQuery:
        if not has_gateway(session):
            return connect_query(session, self._settings.checkpoint_location)
        query = running_query(session)
        if query is None:
            raise SinkError("foreachBatch was called outside a streaming query: use sink.write(frame) there")
        return query

    def _is_committed(self, batch_id: int, planned: Planned) -> bool:
        """By the marker, as it is now. Raises BatchRefused where it does not tell."""
        planned_ms = planned.offsets.timestamp_ms
        decision = decide.decide(
            self._owner.marker,
            planned.query_id,
            batch_id,
            planned.offsets.digest,
            offsets_age_ms=None if planned_ms is None else _now_ms() - planned_ms,
            retention_ms=self._retention_ms(),
            adopt=self._choices.adopt,
            run_batch=self._choices.run_batch,
            skip_batch=self._choices.skip_batch,
        )
        if isinstance(decision, decide.Refuse):
            raise BatchRefused(decision.reason)
        return decision is decide.SKIP

    def _skip(self, work: Work) -> BatchProgress:
        if work.planned is not None and work.planned.is_stateful:
            work.frame.write.format("noop").mode("overwrite").save()  # The state store expects every batch to run.
        return BatchProgress(work.batch_id, SKIPPED)

    def _retention_ms(self) -> int | None:
        """How long the broker keeps offsets; asked only where it matters."""
        if self._owner.marker is not None:
            return None
        minutes = patiently(lambda: self._client.broker_setting("offsets.retention.minutes"))
        return int(minutes) * 60_000 if minutes else DEFAULT_RETENTION_MS

    def write_once(self, frame: Any, topic: str | None) -> BatchProgress:
        """A transaction without a query: no marker, no offsets."""
        self._owner.settle()

        def write(frame: Any, transaction: BatchTransaction) -> object:
            return transaction.write(frame, topic)

        return self._try(Work(frame, -1, write, {}, None), self._choices.max_attempts)

    # --- doing it -------------------------------------------------------------------------------------------

    def _try(self, work: Work, max_attempts: int) -> BatchProgress:
        """Attempt it until it is committed, fails for good, or has broken too often."""
        timeout_ms = self._settings.timeout_ms
        timeouts_in_a_row = 0
        for attempt in range(1, max_attempts + 1):
            began_ms = _now_ms()
            try:
                return self._attempt(work, attempt)
            except BatchBroken as e:
                took_ms = _now_ms() - began_ms
                timeouts_in_a_row = timeouts_in_a_row + 1 if took_ms >= timeout_ms else 0
                if timeouts_in_a_row >= 2:
                    raise SinkError(
                        f"the transaction was lost twice in a row, the last time after {took_ms} ms: {e}\n\n"
                        f"hint: batches take longer than transaction.timeout.ms={timeout_ms}; raise it (up to the "
                        "broker's transaction.max.timeout.ms), or make batches smaller"
                    ) from e
                if attempt == max_attempts:
                    raise
                log.warning("%s is run again (attempt %d): %s", name_of(work.batch_id), attempt + 1, e)
        raise AssertionError("max_attempts is at least 1")

    def _attempt(self, work: Work, attempt: int) -> BatchProgress:
        """One transaction: the user's function under leases, a check of what it wrote, the commit. Else the abort."""
        leases = self._lease_server(work.frame.sparkSession)
        identity = self._owner.begin()
        marker = None
        if work.planned is not None:
            # What was decided before may have been by an older marker: somebody else may have had the id since.
            if self._is_committed(work.batch_id, work.planned):
                return self._skip(work)
            marker = self._owner.next_marker(work.planned.query_id, work.batch_id, work.planned.offsets.digest)
        began_ms = _now_ms()
        table = LeaseTable(
            lease_timeout_ms=self._settings.lease_timeout_ms,
            first_touches_at_once=1 if self._owner.transaction_version >= 2 else None,
            transaction_timeout_ms=self._settings.timeout_ms,
        )
        jobs = Jobs(work.frame.sparkSession)
        address = leases.open(table, self._owner.add_partitions, lambda broken: jobs.cancel_soon())
        plan = WritePlan(
            self._settings.client,
            identity,
            PRODUCE_TV2 if self._owner.transaction_version >= 2 else PRODUCE_TV1,
            address,
            write_number=0,
            topic=None,
            topics={},
            compression=self._settings.compression,
            max_record_batch_bytes=self._settings.max_record_batch_bytes,
        )
        batch = BatchTransaction(work.batch_id, self._settings.topic, plan, partial(pin, self._client))
        try:
            with jobs, TimeoutAlarm(work.batch_id, self._settings.timeout_ms):
                self._write(work, batch, leases)
                batch.check()
                if jobs.was_a_stage_repeated():
                    raise BatchBroken(
                        "Spark ran a stage of the batch again, which may give other rows than the first time"
                    )
                verdict = leases.finish(batch.results, batch.input_partitions)
                if isinstance(verdict, MustAbort):
                    raise BatchBroken(verdict.reason)
                has_something = bool(verdict.counts or work.consumed)
                if has_something:
                    self._commit(work, marker, {topic for topic, _ in verdict.counts})
                else:
                    self._owner.abort()  # A task that is gone may have announced a partition, and nobody wrote to it.
        except BaseException:
            leases.break_transaction("the batch is being aborted")
            self._owner.abort()
            raise
        finally:
            leases.close()
        took_ms = _now_ms() - began_ms
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
            attempts=attempt,
        )

    def _commit(self, work: Work, marker: decide.Marker | None, topics: set[str]) -> None:
        group = self.group if work.consumed else None
        if group is not None:
            group.check()
        self._owner.commit(topics, marker, group.group_id if group else None, work.consumed)

    def _write(self, work: Work, batch: BatchTransaction, leases: LeaseServer) -> None:
        try:
            with stopped_by_sigterm(work.frame.sparkSession):
                work.write(work.frame, batch)
        except QueryStopped:
            raise
        except Exception as e:
            behind = _behind(e, leases)
            if behind is e:
                raise
            # Of a query that was stopped, Spark can read no more than a few lines.
            raise behind from (None if isinstance(behind, QueryStopped) else e)

    def _lease_server(self, session: Any) -> LeaseServer:
        if self._leases is None:
            host = self._settings.lease_host or str(session.conf.get("spark.driver.host", "127.0.0.1"))
            self._leases = LeaseServer(host, bind_host=self._settings.lease_bind, ports=self._settings.lease_ports)
            self._leases.start()
        return self._leases


def _behind(error: Exception, leases: LeaseServer) -> Exception:
    """What is behind an exception out of the user's function, which is mostly that of a Spark job."""
    if was_stopped(error):
        return QueryStopped(f"the query was stopped in the middle of a batch, which is aborted ({STOPPED})")
    broken = leases.broken
    if broken is None:
        if problem := setup_problem(error):
            return SinkError(problem)
        return BatchBroken(sentence_of(error)) if is_lost_worker(error) else error
    if isinstance(leases.failure, Fenced):
        return leases.failure
    said = sentence_of(error)
    reason = broken.reason if not said or "fencepost." in said else f"{broken.reason} ({said})"
    return SinkError(reason) if broken.is_fatal else BatchBroken(reason)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
