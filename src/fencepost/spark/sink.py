"""The exactly-once Kafka sink for PySpark Structured Streaming: one Kafka transaction per micro-batch.

    sink = ExactlyOnceSink({"bootstrap.servers": "...", "transactional.id": "refunds-1", "topic": "refunds"})
    frame.writeStream.foreachBatch(sink).option("checkpointLocation", "...").start()

Several outputs in one transaction:

    @sink.batch
    def write(frame, transaction):
        transaction.write(refunds_of(frame), topic="refunds-emitted")
        transaction.write(audit_of(frame), topic="refund-audit")

    frame.writeStream.foreachBatch(write)

A batch that is not part of a stream: `sink.write(frame)`.

The driver owns the transaction; tasks only produce, under leases (`leases.py`). Each transaction carries a marker that
says which batch it was, with a digest of the batch's source offsets; after a crash the marker decides (`decide.py`)
whether Spark's rerun of the batch is run or skipped. Nothing is acknowledged to Spark before the commit.

SinkError                      the query must stop: why, and what can be done
+-- BatchRefused               nobody can tell whether the batch is in Kafka already
+-- BatchBroken                the transaction was aborted, as often as it was tried
+-- SinkFenced                 another producer has the transactional.id now
QueryStopped                   not an error: the query was stopped in the middle of a batch, which was aborted
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from fencepost.client.client import TRANSACTION, KafkaClient
from fencepost.client.failures import BadClientSetting, ClientError, Fenced, OutcomeUnknown
from fencepost.client.failures import Broken as TransactionLost
from fencepost.client.transaction import OffsetToCommit, Transaction
from fencepost.protocol.batch import CODECS
from fencepost.protocol.messages import DescribeTransactionsRequest
from fencepost.spark import checkpoint, decide
from fencepost.spark.encode import DEFAULT_MAX_BATCH_BYTES
from fencepost.spark.frames import select_columns
from fencepost.spark.jobs import STOPPED, Jobs, TimeoutAlarm, is_lost_worker, sentence_of, was_stopped
from fencepost.spark.lease_server import LeaseServer, parse_ports
from fencepost.spark.leases import Broken, Finished, LeaseTable, TaskResult
from fencepost.spark.task import RESULT_SCHEMA, WritePlan, patiently, spark_task

log = logging.getLogger("fencepost.spark")

DEFAULT_TIMEOUT_MS = 300_000
DEFAULT_RETENTION_MS = 7 * 86_400_000
MARKER_GROUP = "fencepost-marker-"
PROGRESS_KEPT = 100
SINK_SETTINGS = {
    "transactional.id": "stable and yours alone: what fences an older run of the same pipeline",
    "transaction.timeout.ms": "longer than a batch ever takes; at most the broker's transaction.max.timeout.ms",
    "group.id": "a group that is to show how far the pipeline has read its sources",
    "topic": "where rows go; wins over a column of that name",
    "compression.type": "none, gzip, snappy, lz4 or zstd",
    "max.request.size": "the largest batch in bytes",
    "fencepost.lease.host": "a name of the driver that executors can resolve; spark.driver.host if absent",
    "fencepost.lease.port": "a port, or a range FROM-TO; any free one if absent",
    "fencepost.lease.bind": "the address of the driver to listen on; all if absent",
}
_LOOKS_RANDOM = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_in_use: set[tuple[str, str]] = set()


class SinkError(Exception):
    """The query must stop; the message says why, and what can be done."""


class BatchRefused(SinkError):
    """It cannot be told whether the batch is in Kafka already, or it must not be written."""


class BatchBroken(SinkError):
    """The transaction was aborted, and nothing of the batch was written. Running it again may succeed."""


class SinkFenced(SinkError):
    """Another producer has the transactional.id now. This sink does not take it back: a new one has to be made."""


class QueryStopped(Exception):
    """The query was stopped in the middle of a batch. The transaction was aborted; a restart runs the batch again."""


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """What one batch did."""

    batch_id: int
    outcome: str  # committed, skipped or empty
    records: int = 0
    requests: int = 0
    transaction_ms: int = 0
    timeout_share: float = 0.0
    producer_id: int = -1
    producer_epoch: int = -1
    attempts: int = 1


class BatchTransaction:
    """The open transaction of one batch, for functions that write several frames into it."""

    def __init__(self, sink: ExactlyOnceSink, batch_id: int, session: Any) -> None:
        self._sink = sink
        self._session = session
        self.batch_id = batch_id
        self._results: list[TaskResult] = []
        self._input_partitions: dict[int, int] = {}

    def write(self, frame: Any, topic: str | None = None) -> int:
        """Write a frame into the transaction; returns how many records that were. They show with the commit.

        Runs a Spark job. Call it from one thread, and let what it raises out: the batch is then aborted.
        """
        topic = topic or self._sink.topic
        rows = select_columns(frame, topic)
        number = len(self._input_partitions)
        plan = self._sink.plan(number, topic)
        results = [
            TaskResult(row["write"], row["input"], row["attempt"], tuple((c[0], c[1], c[2]) for c in row["counts"]))
            for row in rows.mapInArrow(spark_task(plan), RESULT_SCHEMA).collect()
        ]
        self._results += results
        self._input_partitions[number] = len(results)
        return sum(n for result in results for _, _, n in result.counts)


class ExactlyOnceSink:
    """Give it to `foreachBatch`. Settings: those of a Kafka client, and `SINK_SETTINGS`.

    adopt, run_batch, skip_batch: the user's answers to a refusal; see the message of BatchRefused.
    max_attempts: how often a batch is tried whose transaction was lost. A batch of a query with state is tried once,
    because the state store expects the query to restart.

    The first batch (or write) takes the transactional.id over from whoever had it; `close` gives it up.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        adopt: bool = False,
        run_batch: int | None = None,
        skip_batch: int | None = None,
        max_attempts: int = 3,
    ) -> None:
        own = {name: str(value) for name, value in settings.items() if name in SINK_SETTINGS and value is not None}
        self._client_settings = {name: value for name, value in settings.items() if name not in SINK_SETTINGS}
        self.transactional_id = own.get("transactional.id", "")
        if not self.transactional_id:
            raise BadClientSetting("transactional.id is missing\n\nhint: a name that this pipeline keeps over restarts")
        self.topic = own.get("topic")
        self.group_id = own.get("group.id")
        self.timeout_ms = _whole_number(own, "transaction.timeout.ms", DEFAULT_TIMEOUT_MS)
        self.compression = own.get("compression.type", "none")
        if self.compression not in CODECS:
            raise BadClientSetting(f"compression.type={self.compression} is none of {', '.join(CODECS)}")
        self._max_batch_bytes = _whole_number(own, "max.request.size", DEFAULT_MAX_BATCH_BYTES)
        self._lease_host = own.get("fencepost.lease.host")
        self._lease_bind = own.get("fencepost.lease.bind", "0.0.0.0")
        try:
            self._lease_ports = parse_ports(own.get("fencepost.lease.port", "0"))
        except ValueError as e:
            raise BadClientSetting(str(e)) from None
        self._adopt, self._run_batch, self._skip_batch = adopt, run_batch, skip_batch
        self._max_attempts = max_attempts
        if _LOOKS_RANDOM.search(self.transactional_id):
            log.warning(
                "transactional.id %s looks random: a restart with another one does not fence this one",
                self.transactional_id,
            )
        KafkaClient(self._client_settings)  # Bad settings are refused now, not in the first batch.
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._fenced: str | None = None
        self.recent_progress: deque[BatchProgress] = deque(maxlen=PROGRESS_KEPT)

    # --- what the user calls --------------------------------------------------------------------------------

    def __call__(self, frame: Any, batch_id: int) -> None:
        """One frame, one transaction: the function for foreachBatch."""
        self._run(frame, batch_id, lambda batch, transaction: transaction.write(batch))

    def batch(self, write: Callable[[Any, BatchTransaction], object]) -> Callable[[Any, int], None]:
        """A function for foreachBatch from one that writes any number of frames to the batch's transaction."""
        return lambda frame, batch_id: self._run(frame, batch_id, write)

    def write(self, frame: Any, topic: str | None = None) -> int:
        """A plain DataFrame, in one transaction. Not tied to a query: calling it twice writes twice.

        Raises OutcomeUnknown if the commit has no answer: there is no marker to look at afterwards.
        """
        with self._started(frame.sparkSession) as running:
            return running.write_once(frame, topic)

    def close(self) -> None:
        """Let go of the transactional.id and the lease port. Waits for a batch that is running."""
        with self._lock:
            if self._running is not None:
                self._running.close()
                self._running = None

    # --- batches --------------------------------------------------------------------------------------------

    def plan(self, write_number: int, topic: str | None) -> WritePlan:
        assert self._running is not None
        return self._running.plan(write_number, topic)

    @contextmanager
    def _started(self, session: Any) -> Iterator[_Running]:
        """The sink for one batch or write, started if it is not yet."""
        # Not blocking: whoever calls the sink inside a batch of its own would wait for ever.
        if not self._lock.acquire(blocking=False):
            raise SinkError(
                f"transactional.id {self.transactional_id} is in the middle of another batch: one query to a sink"
                "\n\nhint: inside a batch, write with @sink.batch and transaction.write"
            )
        try:
            if self._fenced is not None:
                raise SinkFenced(self._fenced)
            if self._running is None:
                self._running = _Running(self, self._client_settings, self._lease_host or _driver_host(session))
            yield self._running
        except Fenced as e:
            self._fenced = self._describe_fence(e)
            if self._running is not None:
                self._running.close()
                self._running = None
            raise SinkFenced(self._fenced) from e
        finally:
            self._lock.release()

    def _describe_fence(self, fence: Fenced) -> str:
        owner = self._running.current_owner() if self._running is not None else None
        return (
            f"{fence}; it belongs to {owner or 'another producer'} now"
            "\n\nhint: the same pipeline was started twice, or two pipelines have the same transactional.id. Stop one, "
            "or give it a transactional.id of its own. If this is the one to go on, start it again with a new sink"
        )

    def _run(self, frame: Any, batch_id: int, write: Callable[[Any, BatchTransaction], object]) -> None:
        with self._started(frame.sparkSession) as running:
            progress = running.run_batch(frame, batch_id, write)
            self.recent_progress.append(progress)
            log.info("batch %d: %s", batch_id, asdict(progress))


class _Running:
    """A started sink: its transaction, its lease service, and what it knows of the last commit."""

    def __init__(self, sink: ExactlyOnceSink, client_settings: Mapping[str, object], lease_host: str) -> None:
        self.sink = sink
        self._client_settings = dict(client_settings)
        self._key = (str(client_settings["bootstrap.servers"]), sink.transactional_id)
        if self._key in _in_use:
            raise SinkError(
                f"transactional.id {sink.transactional_id} is in use by another sink of this process: one sink to a "
                "transactional.id\n\nhint: close() the other one first, or use that"
            )
        self._client = KafkaClient(client_settings)
        self._transaction = Transaction(self._client, sink.transactional_id, sink.timeout_ms)
        # The one time that nobody is expected: whoever had the id is fenced now.
        self._transaction.init()
        self._marker = self._read_marker()
        self._leases = LeaseServer(lease_host, bind_host=sink._lease_bind, ports=sink._lease_ports).start()
        self._address: Any = None
        self._is_settled = True  # How the last transaction ended is known, and nothing of it is open.
        self._last_run: tuple[str, int] | None = None
        self._last_records = 0
        _in_use.add(self._key)

    def close(self) -> None:
        _in_use.discard(self._key)
        self._leases.stop()
        self._client.close()

    def current_owner(self) -> str | None:
        """Who has the transactional id, if the cluster tells."""
        id_ = self.sink.transactional_id
        try:
            response = self._client.ask_coordinator(
                id_,
                TRANSACTION,
                DescribeTransactionsRequest([id_]),
                lambda r: int(r.transaction_states[0].error_code),
                deadline_s=5.0,
            )
        except ClientError:
            return None
        found = response.transaction_states[0]
        return None if found.error_code else f"producer {found.producer_id}, epoch {found.producer_epoch}"

    # --- the marker -----------------------------------------------------------------------------------------

    @property
    def _marker_group(self) -> str:
        return MARKER_GROUP + self.sink.transactional_id

    def _read_marker(self) -> decide.Marker | decide.Unreadable | None:
        """After every init, never before it: an older owner may commit until it is fenced."""
        found = self._client.all_committed(self._marker_group)
        return decide.newest(decide.decode_marker(metadata) for _, metadata in found.values())

    def _settle(self) -> None:
        """If the last batch ended in the dark: be the owner again, end what is open, and see what was committed."""
        if not self._is_settled:
            self._renew()
            self._is_settled = True

    def _renew(self) -> None:
        self._transaction.renew()  # Raises Fenced if somebody else owns the id now.
        self._marker = self._read_marker()

    def _next_number(self) -> int:
        return self._marker.number + 1 if isinstance(self._marker, decide.Marker) else 1

    # --- one batch ------------------------------------------------------------------------------------------

    def run_batch(self, frame: Any, batch_id: int, write: Callable[[Any, BatchTransaction], object]) -> BatchProgress:
        session = frame.sparkSession
        query = checkpoint.running_query(session)
        if query is None:
            raise SinkError("foreachBatch was called outside a streaming query: use sink.write(frame) there")
        if self._last_run == (query.run_id, batch_id):
            raise SinkError(
                f"the sink was called for batch {batch_id} before: a batch is one transaction, and one call"
                "\n\nhint: write several frames inside one function, with @sink.batch and transaction.write"
            )
        self._settle()
        files = checkpoint.files_of(session, query.checkpoint)
        offsets = checkpoint.read_batch(files, batch_id, query.sources)
        age_ms = None if offsets.timestamp_ms is None else _now_ms() - offsets.timestamp_ms
        decision = decide.decide(
            self._marker,
            query.query_id,
            batch_id,
            offsets.digest,
            offsets_age_ms=age_ms,
            retention_ms=self._retention_ms(),
            adopt=self.sink._adopt,
            run_batch=self.sink._run_batch,
            skip_batch=self.sink._skip_batch,
        )
        if isinstance(decision, decide.Refuse):
            raise BatchRefused(decision.reason)
        is_stateful = checkpoint.has_state(files)
        self._last_run = (query.run_id, batch_id)
        if decision is decide.SKIP:
            if is_stateful:
                frame.write.format("noop").mode("overwrite").save()  # The state store expects every batch to run.
            return BatchProgress(batch_id, "skipped")
        marker = decide.Marker(query.query_id, batch_id, offsets.digest, self._next_number())
        consumed = offsets.consumed if self.sink.group_id else {}
        max_attempts = 1 if is_stateful else self.sink._max_attempts
        return self._try(session, frame, batch_id, write, marker, consumed, max_attempts)

    def _try(
        self,
        session: Any,
        frame: Any,
        batch_id: int,
        write: Callable[[Any, BatchTransaction], object],
        marker: decide.Marker | None,
        consumed: Mapping[tuple[str, int], int],
        max_attempts: int,
    ) -> BatchProgress:
        """Attempt it until it is committed, fails for good, or has broken too often."""
        timeout_ms = self.sink.timeout_ms
        timeouts_in_a_row = 0
        for attempt in range(1, max_attempts + 1):
            began_ms = _now_ms()
            try:
                return self._attempt(session, frame, batch_id, write, marker, consumed, attempt)
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
                log.warning("batch %d is run again (attempt %d): %s", batch_id, attempt + 1, e)
        raise AssertionError("max_attempts is at least 1")

    def _retention_ms(self) -> int | None:
        """How long the broker keeps offsets; asked only where it matters."""
        if self._marker is not None:
            return None
        minutes = patiently(lambda: self._client.broker_setting("offsets.retention.minutes"))
        return int(minutes) * 60_000 if minutes else DEFAULT_RETENTION_MS

    def write_once(self, frame: Any, topic: str | None) -> int:
        """A transaction without a query: no marker, no offsets."""
        self._settle()

        def write(frame: Any, transaction: BatchTransaction) -> object:
            return transaction.write(frame, topic)

        return self._try(frame.sparkSession, frame, -1, write, None, {}, self.sink._max_attempts).records

    def plan(self, write_number: int, topic: str | None) -> WritePlan:
        counts = {}
        if topic is not None:
            counts[topic] = len(patiently(lambda: self._client.topic(topic, fresh=True)).leaders)
        return WritePlan(
            self._client_settings,
            self._transaction.identity,
            12 if self._transaction.version >= 2 else 11,
            self._address,
            write_number,
            topic,
            counts,
            self.sink.compression,
            self.sink._max_batch_bytes,
        )

    def _attempt(
        self,
        session: Any,
        frame: Any,
        batch_id: int,
        write: Callable[[Any, BatchTransaction], object],
        marker: decide.Marker | None,
        consumed: Mapping[tuple[str, int], int],
        attempt: int,
    ) -> BatchProgress:
        identity = self._transaction.begin()
        began_ms = _now_ms()
        table = LeaseTable(
            lease_timeout_ms=max(self.sink.timeout_ms * 8 // 10, 1000),
            first_touches_at_once=1 if self._transaction.version >= 2 else None,
        )
        jobs = Jobs(session)
        self._address = self._leases.open(table, self._transaction.add_partitions, lambda broken: jobs.cancel_soon())
        batch = BatchTransaction(self.sink, batch_id, session)
        alarm = TimeoutAlarm(batch_id, self.sink.timeout_ms)
        try:
            with jobs, alarm:
                try:
                    write(frame, batch)
                except Exception as e:
                    behind = self._behind(e)
                    if behind is e:
                        raise
                    # Of a query that was stopped, Spark can read no more than a few lines.
                    raise behind from (None if isinstance(behind, QueryStopped) else e)
                if jobs.was_a_stage_repeated():
                    raise BatchBroken(
                        "Spark ran a stage of the batch again, which may give other rows than the first time"
                    )
                verdict = self._leases.finish(batch._results, batch._input_partitions)
                if isinstance(verdict, Broken):
                    raise BatchBroken(verdict.reason)
                self._last_records = sum(verdict.counts.values())
                self._commit(verdict, marker, consumed, batch_id)
        except BaseException:
            self._abort()
            raise
        finally:
            self._leases.close()
        took_ms = _now_ms() - began_ms
        return BatchProgress(
            batch_id,
            "committed" if verdict.counts or consumed else "empty",
            self._last_records,
            table.batches,
            took_ms,
            took_ms / self.sink.timeout_ms,
            identity.producer_id,
            identity.producer_epoch,
            attempt,
        )

    def _behind(self, error: Exception) -> Exception:
        """What is behind an exception out of the user's function, which is mostly that of a Spark job."""
        if was_stopped(error):
            return QueryStopped(f"the query was stopped in the middle of a batch, which is aborted ({STOPPED})")
        broken = self._leases.broken
        if broken is None:
            return BatchBroken(sentence_of(error)) if is_lost_worker(error) else error
        if isinstance(self._leases.failure, Fenced):
            return self._leases.failure
        said = sentence_of(error)
        reason = broken.reason if not said or "fencepost." in said else f"{broken.reason} ({said})"
        return SinkError(reason) if broken.is_fatal else BatchBroken(reason)

    def _commit(
        self,
        finished: Finished,
        marker: decide.Marker | None,
        consumed: Mapping[tuple[str, int], int],
        batch_id: int,
    ) -> None:
        transaction = self._transaction
        topics = sorted({topic for topic, _ in finished.counts})
        if not topics and not consumed:
            return  # Nothing was written, and nobody is to be told: there is no transaction to end.
        if consumed and self.sink.group_id:
            self._check_group(self.sink.group_id)
        try:
            if marker is not None and topics:
                text = decide.encode_marker(marker)
                transaction.commit_offsets(
                    self._marker_group, [OffsetToCommit(topic, 0, batch_id, text) for topic in topics]
                )
            if consumed and self.sink.group_id:
                transaction.commit_offsets(
                    self.sink.group_id, [OffsetToCommit(t, p, offset) for (t, p), offset in sorted(consumed.items())]
                )
        except (TransactionLost, Fenced) as e:
            # With version 2 a transaction that timed out looks like one that was fenced, until we ask for an epoch.
            self._renew()
            raise BatchBroken(str(e)) from e
        try:
            transaction.commit()
        except OutcomeUnknown as e:
            self._resolve(e, marker)
        if marker is not None and topics:
            self._marker = marker

    def _check_group(self, group_id: str) -> None:
        members = self._client.group_members(group_id)
        if members:
            raise SinkError(
                f"group.id {group_id} has {members} members: committing for them would move their position"
                "\n\nhint: give the pipeline a group of its own"
            )

    def _resolve(self, problem: OutcomeUnknown, marker: decide.Marker | None) -> None:
        """The commit has no clear answer. Take a new epoch, which ends what is open, and look at the marker."""
        self._renew()
        if marker is None:
            raise problem
        if self._marker != marker:
            raise BatchBroken(str(problem))

    def _abort(self) -> None:
        """Whatever went wrong: nothing of the batch is to be seen, and readers are not to wait for it."""
        self._leases.break_transaction("the batch is being aborted")
        self._is_settled = False
        try:
            self._transaction.abort()
        except OutcomeUnknown as e:
            log.warning("%s; taking a new epoch", e)
            self._renew()
        self._is_settled = True


def _driver_host(session: Any) -> str:
    return str(session.conf.get("spark.driver.host", "127.0.0.1"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _whole_number(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name, str(default))
    if not text.isdigit() or int(text) == 0:
        raise BadClientSetting(f"{name}={text} is not a whole number above 0")
    return int(text)
