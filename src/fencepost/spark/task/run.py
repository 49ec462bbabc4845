"""What runs in a Spark task: rows in, batches to the brokers, one row with the result out.

A task encodes its rows, asks the driver for the lease of each batch's partition, sends the batch straight to the
partition's leader, and gives the lease back once it is acknowledged. Several partitions of one broker go into one
request. What a broker's answer means is in `judge`: the same bytes again, the end of the transaction, or of the query.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from fencepost.client.client import KafkaClient, retry
from fencepost.client.connection import Connection
from fencepost.client.failures import BrokerError, ClientError, DeadlinePassed, Unreachable
from fencepost.client.transaction import ProducerIdentity
from fencepost.protocol import errors
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.encode.columns import BadRecord
from fencepost.spark.encode.record_batches import EncodedBatch, encode_rows, finish_batch, halve_batch
from fencepost.spark.lease.client import AlreadyWritten, LeaseAddress, LeaseClient
from fencepost.spark.lease.messages import Granted, TaskAttempt, TaskResult, Want
from fencepost.spark.task.worker import reused

RESULT_SCHEMA = (
    "write int, input int, attempt long, topics map<string,binary>, "
    "counts array<struct<topic:string,partition:int,records:long>>"
)
# Rows are gathered to about this much before they are encoded, so that batches get large.
GATHER_BYTES = 8 << 20
# A task names no more partitions at once when it asks for a lease: one of so many is free soon.
WANTS_AT_ONCE = 64
PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
METADATA_DEADLINE_S = 60.0
NEW_TOPIC_S = 3.0
T = TypeVar("T")


class PinnedTopic(NamedTuple):
    """A topic as it was when the attempt began: one that is created anew under the same name is another one."""

    topic_id: bytes
    partition_count: int


class WritePlan(NamedTuple):
    """Everything that a task needs to know; travels with the job."""

    settings: Mapping[str, object]
    identity: ProducerIdentity
    # 12: a first write adds its partition (TV2), and 13 names topics by id. 11: the driver has added it (TV1).
    produce_version: int
    address: LeaseAddress
    write_number: int
    topic: str | None
    topics: Mapping[str, PinnedTopic]  # Those that the driver knows of.
    compression: str
    max_batch_bytes: int


class Verdict(Enum):
    WRITTEN = "written"
    AGAIN = "the same bytes again"
    TOO_LARGE = "too large"
    BROKEN = "the transaction is over"
    FATAL = "no attempt will do better"


_AGAIN = frozenset(
    {
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.NOT_LEADER_OR_FOLLOWER,
        errors.LEADER_NOT_AVAILABLE,
        errors.REQUEST_TIMED_OUT,
        errors.NETWORK_EXCEPTION,
        errors.NOT_ENOUGH_REPLICAS,
        errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        errors.CONCURRENT_TRANSACTIONS,
        errors.KAFKA_STORAGE_ERROR,
        errors.FENCED_LEADER_EPOCH,
        errors.UNKNOWN_LEADER_EPOCH,
    }
)
_FATAL = frozenset(
    {
        errors.TOPIC_AUTHORIZATION_FAILED,
        errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        errors.CLUSTER_AUTHORIZATION_FAILED,
        errors.INVALID_RECORD,
        errors.CORRUPT_MESSAGE,
        errors.UNSUPPORTED_COMPRESSION_TYPE,
        errors.INVALID_TIMESTAMP,
        errors.INVALID_TOPIC_EXCEPTION,
    }
)


def judge(code: int) -> Verdict:
    """What a broker's answer to a batch means."""
    if code == errors.NONE:
        return Verdict.WRITTEN
    if code in _AGAIN:
        return Verdict.AGAIN
    if code in (errors.MESSAGE_TOO_LARGE, errors.RECORD_LIST_TOO_LARGE):
        return Verdict.TOO_LARGE
    return Verdict.FATAL if code in _FATAL else Verdict.BROKEN


class WriteFailed(Exception):
    """The task cannot go on. The driver was told, and knows whether another attempt makes sense."""


def patiently(ask: Callable[[], T], deadline_s: float = METADATA_DEADLINE_S) -> T:
    """Ask again while no broker can be reached. A refusal is an answer: an unknown topic is not waited for."""

    def attempt() -> tuple[list[T], BrokerError | None]:
        try:
            return [ask()], None
        except BrokerError as e:
            return [], e

    found, refusal = retry(attempt, deadline_s)
    if refusal is not None:
        raise refusal
    return found[0]


def pin(client: KafkaClient, topic: str) -> PinnedTopic:
    """The topic as it is now. One that was made a moment ago may not have reached every broker, so it is waited for."""
    deadline = time.monotonic() + NEW_TOPIC_S
    while True:
        try:
            # Clients live longer than topics: what they remember may be gone.
            info = patiently(lambda: client.topic(topic, fresh=True))
            return PinnedTopic(info.topic_id, len(info.leaders))
        except BrokerError as e:
            if e.code != errors.UNKNOWN_TOPIC_OR_PARTITION or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


# Python workers are used for many tasks; so are their connections.
_clients: dict[tuple[tuple[str, str], ...], KafkaClient] = {}


def _client(settings: Mapping[str, object]) -> KafkaClient:
    key = tuple(sorted((name, str(value)) for name, value in settings.items()))
    if key not in _clients:
        _clients[key] = KafkaClient(settings)
    return _clients[key]


def write_rows(
    plan: WritePlan, task: TaskAttempt, rows: Iterable[pa.RecordBatch], attempt_number: int | None = None
) -> tuple[TaskResult, Mapping[str, PinnedTopic]]:
    """Write all rows of one input partition; returns what was written, by this attempt or by another, and to where."""
    with LeaseClient(plan.address, task, attempt_number) as leases:
        writer = TaskWriter(plan, leases, task.partition_id)
        counted = _Counted(rows)
        try:
            for table in _gather(counted):
                writer.write(table)
            return leases.done(writer.counts), writer.topics
        except AlreadyWritten as e:
            counted.exhaust()
            written = sum(count for _, _, count in e.result.counts)
            if written != counted.rows:
                # When an executor dies its Python worker may outlive it for a moment. It takes the end of its socket
                # for the end of its rows, as Arrow does, and says that it is done.
                name = f"input partition {task.partition_id}"
                reason = f"an earlier attempt at {name} wrote {written} records of what are {counted.rows} rows"
                leases.dispute(reason)
                raise WriteFailed(reason) from None
            return e.result, writer.topics
        except BadRecord as e:
            leases.fail(str(e), is_fatal=True)
            raise WriteFailed(str(e)) from None
        except WriteFailed:
            raise
        except ClientError as e:
            leases.fail(str(e), is_fatal=not isinstance(e, (Unreachable, DeadlinePassed)))
            raise WriteFailed(str(e)) from e


class _Counted:
    """Batches of rows, and how many rows they were so far."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.rows += batch.num_rows
        return batch

    def exhaust(self) -> None:
        for _ in self:
            pass


def _gather(rows: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        if batch.num_rows:
            gathered.append(batch)
            size += batch.nbytes
        if size >= GATHER_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def first_turn(*task: int) -> int:
    """Rows without a key take turns on the partitions. Every task of every batch begins elsewhere, or small tasks would
    all write to the first few."""
    return hash(task) & 0x7FFFFFFF


def in_turn(batches: Iterable[EncodedBatch], turn: int) -> dict[TopicPartition, deque[EncodedBatch]]:
    """The batches of each partition, and the partitions in the order in which they are named.

    Every task has an order of its own where not all can be named at once: otherwise all tasks would wait for the same
    few, while nobody writes to the others.
    """
    queues: dict[TopicPartition, deque[EncodedBatch]] = {}
    for batch in batches:
        queues.setdefault((batch.topic, batch.partition), deque()).append(batch)
    if len(queues) <= WANTS_AT_ONCE:
        return queues
    return {where: queues[where] for where in random.Random(turn).sample(list(queues), len(queues))}


class _Sending(NamedTuple):
    batch: EncodedBatch
    lease: Granted


class TaskWriter:
    """Sends a task's batches, each under its lease."""

    def __init__(self, plan: WritePlan, leases: LeaseClient, partition_id: int) -> None:
        self._plan = plan
        self._leases = leases
        self._client = _client(plan.settings)
        self.topics = dict(plan.topics)
        self._turn = first_turn(plan.identity.producer_epoch, plan.write_number, partition_id)
        self.counts: dict[TopicPartition, int] = {}

    def write(self, table: Any) -> None:
        batches = encode_rows(
            table,
            topic=self._plan.topic,
            partition_count=self._partition_count,
            now_ms=time.time_ns() // 1_000_000,
            null_start=self._turn,
            compression=self._plan.compression,
            max_batch_bytes=self._plan.max_batch_bytes,
        )
        self._turn += table.num_rows
        waiting = in_turn(batches, self._turn)
        while waiting:
            self._send_some(waiting)

    def _partition_count(self, topic: str) -> int:
        if topic not in self.topics:
            self.topics[topic] = pin(self._client, topic)
        return self.topics[topic].partition_count

    def _send_some(self, waiting: dict[TopicPartition, deque[EncodedBatch]]) -> None:
        """Take the leases that are free for the next batches, send those, give the leases back.

        Partitions are named a few at a time, so that what a task asks grows with its batches and not with their square.
        """
        sending: list[_Sending] = []
        held: dict[TopicPartition, deque[EncodedBatch]] = {}
        asked_in_vain = 0
        while waiting:
            named = list(islice(waiting, WANTS_AT_ONCE))
            lease = self._leases.acquire([Want(*where, waiting[where][0].record_count) for where in named])
            if lease is not None:
                where = (lease.topic, lease.partition)
                held[where] = waiting.pop(where)
                sending.append(_Sending(held[where].popleft(), lease))
                continue
            for where in named:  # To the back: others are named before these again.
                waiting[where] = waiting.pop(where)
            asked_in_vain += 1
            if asked_in_vain >= len(sending) or asked_in_vain * WANTS_AT_ONCE >= len(waiting):
                break
        self._send(sending)
        for batch, lease in sending:
            where = (lease.topic, lease.partition)
            self._leases.release(lease, batch.size_bytes)
            self.counts[where] = self.counts.get(where, 0) + batch.record_count
            if held[where]:
                waiting[where] = held[where]

    def _send(self, sending: list[_Sending]) -> None:
        """Until every batch is acknowledged. What was sent once is only ever sent again as the same bytes."""
        identity = self._plan.identity
        left = {
            (s.lease.topic, s.lease.partition): finish_batch(s.batch, identity, s.lease.base_sequence) for s in sending
        }
        unsent = set(left)  # Their fate was never in doubt.
        deadline = time.monotonic() + min(s.lease.within_ms for s in sending) / 1000
        pause_s = PAUSE_S
        while left:
            answers = self._produce(left)
            again = ""
            for where, (code, message) in answers.items():
                verdict = judge(code)
                if verdict is Verdict.WRITTEN:
                    del left[where]
                elif verdict is Verdict.AGAIN:
                    again = f"{where[0]}-{where[1]}: {message}"
                    unsent.discard(where)
                elif verdict is Verdict.TOO_LARGE and where in unsent:
                    self._send_halves(next(s for s in sending if (s.lease.topic, s.lease.partition) == where))
                    del left[where]
                else:
                    self._give_up(where, len(left[where]), code, message, verdict)
            if left:
                if time.monotonic() + pause_s > deadline:
                    reason = f"no acknowledgement in time; the last answer was: {again}"
                    self._leases.fail(reason, is_fatal=False)
                    raise WriteFailed(reason)
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _send_halves(self, too_large: _Sending) -> None:
        """The topic allows less than we thought: the lease's sequences are filled with two smaller batches."""
        batch, lease = too_large
        if batch.record_count == 1:
            self._give_up(
                (lease.topic, lease.partition),
                batch.size_bytes,
                errors.MESSAGE_TOO_LARGE,
                f"one record has {batch.size_bytes} bytes, more than max.message.bytes of topic {batch.topic} allows",
                Verdict.FATAL,
            )
        first, second = halve_batch(batch)
        self._send([_Sending(first, lease._replace(record_count=first.record_count))])
        rest = lease._replace(
            base_sequence=(lease.base_sequence + first.record_count) & 0x7FFFFFFF, record_count=second.record_count
        )
        self._send([_Sending(second, rest)])

    def _give_up(self, where: TopicPartition, size_bytes: int, code: int, message: str, verdict: Verdict) -> None:
        id_, producer_id, epoch = self._plan.identity
        reason = (
            f"{where[0]}-{where[1]} refused {size_bytes} bytes of transaction `{id_}` "
            f"(producer {producer_id}, epoch {epoch}) with {errors.name_of(code)} ({code})"
            + (f": {message}" if message else "")
        )
        # Too large but in doubt is not fatal: another attempt hears of it before the batch was sent.
        self._leases.fail(reason, is_fatal=verdict is Verdict.FATAL)
        raise WriteFailed(reason)

    def _produce(self, batches: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, tuple[int, str]]:
        """One request to each leader; the code and message for each partition. No answer is an answer too."""
        answers: dict[TopicPartition, tuple[int, str]] = {}
        by_leader: dict[Connection, dict[str, list[int]]] = {}
        for topic, partition in batches:
            try:
                leader = self._client.leader(topic, partition)
            except (BrokerError, Unreachable) as e:
                answers[topic, partition] = self._lost(topic, e)
                continue
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(partition)
        for leader, topics in by_leader.items():
            try:
                response = self._client.send(leader, self._request(batches, topics), self._plan.produce_version)
            except Unreachable as e:
                for topic, partitions in topics.items():
                    answers |= {(topic, partition): self._lost(topic, e) for partition in partitions}
                continue
            names = {self.topics[topic].topic_id: topic for topic in topics}
            for t in response.responses:
                name = t.name or names[t.topic_id]
                for p in t.partition_responses:
                    answers[name, p.index] = self._answer(name, p.error_code, p.error_message)
        return answers

    def _answer(self, topic: str, code: int, message: str | None) -> tuple[int, str]:
        if code == errors.UNKNOWN_TOPIC_ID:
            # A broker may not have heard of a new topic yet. Is there still the one that we mean?
            self._refresh(topic)
            with suppress(ClientError):
                if self._client.topic(topic).topic_id == self.topics[topic].topic_id:
                    code = errors.UNKNOWN_TOPIC_OR_PARTITION
        elif code and judge(code) is Verdict.AGAIN:
            self._refresh(topic)
        return code, message or errors.name_of(code)

    def _request(self, batches: Mapping[TopicPartition, bytes], topics: Mapping[str, list[int]]) -> ProduceRequest:
        data, entry = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
        return ProduceRequest(
            self._plan.identity.transactional_id,
            -1,
            30_000,
            [
                data(t, self.topics[t].topic_id, [entry(p, batches[t, p]) for p in partitions])
                for t, partitions in topics.items()
            ],
        )

    def _lost(self, topic: str, problem: ClientError) -> tuple[int, str]:
        self._refresh(topic)
        code = problem.code if isinstance(problem, BrokerError) else errors.NETWORK_EXCEPTION
        return code, str(problem)

    def _refresh(self, topic: str) -> None:
        with suppress(ClientError):  # The next try will say what is wrong.
            self._client.refresh([topic])


def spark_task(plan: WritePlan) -> Any:
    """The function for `mapInArrow`."""

    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = TaskAttempt(plan.write_number, context.partitionId(), context.taskAttemptId())
        with reused():
            result, topics = write_rows(plan, task, rows, context.attemptNumber())
        counts = [{"topic": t, "partition": p, "records": n} for t, p, n in result.counts]
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "write": result.write_number,
                    "input": result.partition_id,
                    "attempt": result.task_attempt_id,
                    "topics": [(name, topic.topic_id) for name, topic in topics.items()],
                    "counts": counts,
                }
            ],
            schema=pa.schema(
                [
                    ("write", pa.int32()),
                    ("input", pa.int32()),
                    ("attempt", pa.int64()),
                    ("topics", pa.map_(pa.string(), pa.binary())),
                    (
                        "counts",
                        pa.list_(
                            pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("records", pa.int64())])
                        ),
                    ),
                ]
            ),
        )

    return run
