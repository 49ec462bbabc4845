"""Compaction beside a running Apache Kafka: the same records in, and the same records left.

Segments are closed by the timestamps of the records, so both brokers have the same ones, and how far a broker has
cleaned is in its `cleaner-offset-checkpoint`. Once that is as far as it can be, rounds and timing make no difference
any more to what consumers get.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.protocol import errors
from fencepost.protocol.batch import TRANSACTIONAL
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
    ProduceResponse,
)
from fencepost.protocol.records import Record, encode_records
from fencepost.server.storage.checkpoints import CLEAN_OFFSETS_NAME, decode_offsets
from fencepost.testing import Broker
from tests.e2e.test_retention import read
from tests.engines.apache_kafka import ApacheKafka, apache_kafka
from tests.engines.java import why_no_java
from tests.readers.reading import TIMEOUT_S, connect
from tests.wire.raw_client import RawClient

pytestmark = [pytest.mark.java, pytest.mark.slow]

HOUR_MS = 3_600_000
SEGMENT_MS = HOUR_MS // 2
CLOSER = b"closer"
KEYS = [b"key-%d" % number for number in range(12)]
CODECS = [0, 0, 1, 2, 3, 4]
# A new topic, or a coordinator, is not there at once.
NOT_YET = {
    errors.UNKNOWN_TOPIC_OR_PARTITION,
    errors.NOT_LEADER_OR_FOLLOWER,
    errors.COORDINATOR_LOAD_IN_PROGRESS,
    errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_COORDINATOR,
    errors.CONCURRENT_TRANSACTIONS,
}
Kafka = Broker | ApacheKafka
Pair = tuple[bytes, bytes | None]


class Step(NamedTuple):
    """Send a batch, end a transaction, or go on in a new segment."""

    action: str
    who: str = "plain"
    pairs: tuple[Pair, ...] = ()
    codec: int = 0


def workload(seed: int, count: int) -> list[Step]:
    """Two transactional producers and a plain one take turns; many records have a later one with their key."""
    rng = random.Random(seed)
    steps = []
    is_open: set[str] = set()
    for number in range(count):
        who = rng.choice(["a", "b", "plain"])
        pairs = [(rng.choice(KEYS), None if rng.random() < 0.3 else b"%d.%d" % (number, n)) for n in range(4)]
        steps.append(Step("send", who, tuple(pairs[: rng.randint(1, 4)]), rng.choice(CODECS)))
        if who != "plain":
            is_open.add(who)
            if rng.random() < 0.5:
                steps.append(Step(rng.choice(["commit", "commit", "abort"]), who))
                is_open.remove(who)
        if rng.random() < 0.1:
            steps.append(Step("roll"))
    steps += [Step("abort" if who == "a" else "commit", who) for who in sorted(is_open)]
    return [*steps, *closed()]


def closed() -> list[Step]:
    """Nothing before this is in the segment that is written to, which is never cleaned."""
    return [Step("roll"), Step("send", "plain", ((CLOSER, b"x"),))]


class Writer:
    """Writes the same bytes to any Kafka, and waits for each marker, so that every offset is the same, too."""

    def __init__(self, client: RawClient, topic: str, at_ms: int) -> None:
        self._client, self._topic, self._at_ms = client, topic, at_ms
        self._producers: dict[str, tuple[int, int]] = {}
        self._sequences = {"a": 0, "b": 0}
        self._open: set[str] = set()
        self._is_rolling = True
        self.segments: list[int] = []  # Where each begins.
        self.sent = 0

    def play(self, steps: list[Step]) -> None:
        for step in steps:
            if step.action == "send":
                self._send(step)
            elif step.action == "roll":
                self._at_ms += HOUR_MS
                self._is_rolling = True
            else:
                self._end(step.who, step.action == "commit")

    def _send(self, step: Step) -> None:
        records = [Record(n, self._at_ms, key, value) for n, (key, value) in enumerate(step.pairs)]
        if step.who == "plain":
            batch = encode_records(records, step.codec)
        else:
            producer_id, epoch = self._producer(step.who)
            self._add(step.who)
            sequence = self._sequences[step.who]
            self._sequences[step.who] += len(records)
            batch = encode_records(records, step.codec, TRANSACTIONAL, producer_id, epoch, sequence)
        partition = ProduceRequest.PartitionProduceData(0, batch)
        topic = ProduceRequest.TopicProduceData(self._topic, partition_data=[partition])
        transactional_id = None if step.who == "plain" else self._id(step.who)
        request = ProduceRequest(transactional_id, -1, 30_000, [topic])
        result = self._retried(request, 11).responses[0].partition_responses[0]
        if self._is_rolling:
            self.segments.append(result.base_offset)
            self._is_rolling = False
        self.sent += len(records)

    def close(self) -> None:
        self._client.close()

    def _id(self, who: str) -> str:
        return f"{self._topic}-{who}"

    def _producer(self, who: str) -> tuple[int, int]:
        if who not in self._producers:
            # Apache Kafka makes its state topic when it is first asked for a coordinator.
            self._retried(FindCoordinatorRequest(self._id(who), 1), 2)
            reply = self._retried(InitProducerIdRequest(self._id(who), 600_000), 4)
            self._producers[who] = reply.producer_id, reply.producer_epoch
        return self._producers[who]

    def _add(self, who: str) -> None:
        if who in self._open:
            return
        self._open.add(who)
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(self._topic, [0])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id(who),
            v3_and_below_producer_id=self._producers[who][0],
            v3_and_below_producer_epoch=self._producers[who][1],
            v3_and_below_topics=[topic],
        )
        self._retried(request, 3)

    def _end(self, who: str, commit: bool) -> None:
        self._open.remove(who)
        self._retried(EndTxnRequest(self._id(who), *self._producers[who], commit), 3)
        # Apache Kafka answers before the markers are there.
        deadline = time.monotonic() + TIMEOUT_S
        while not self._state(who).startswith("Complete"):
            assert time.monotonic() < deadline, f"{self._id(who)} is never complete"
            time.sleep(0.002)

    def _state(self, who: str) -> str:
        reply = self._client.call(DescribeTransactionsRequest([self._id(who)]), 0)
        return str(reply.transaction_states[0].transaction_state)

    def _retried(self, request: Any, version: int) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            reply = self._client.call(request, version)
            if (code := code_of(reply)) not in NOT_YET:
                assert code == errors.NONE, reply
                return reply
            assert time.monotonic() < deadline, reply
            time.sleep(0.02)


def code_of(reply: Any) -> int:
    """The error of the one thing that was asked for."""
    if isinstance(reply, ProduceResponse):
        return int(reply.responses[0].partition_responses[0].error_code)
    if isinstance(reply, AddPartitionsToTxnResponse):
        return int(reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    return int(reply.error_code)


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, ApacheKafka]]:
    """Ours, and theirs."""
    if reason := why_no_java():
        pytest.skip(reason)
    settings = {"log.cleaner.backoff.ms": "50"}
    few = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    with ExitStack() as running:
        theirs = running.enter_context(apache_kafka(settings | few))
        ours = running.enter_context(Broker(data=tmp_path_factory.mktemp("data"), settings=settings))
        yield ours, theirs


def create(kafka: Kafka, topic: str, **config: str) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0", "segment.ms": str(SEGMENT_MS)}
    # The timestamps that close segments are in the future.
    settings["message.timestamp.after.max.ms"] = str(10_000 * HOUR_MS)
    settings |= {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=1, config=settings)])[topic].result(TIMEOUT_S)


def wait_until_clean(kafka: Kafka, topic: str, until: int) -> None:
    """Up to the segment that begins at `until`, which cannot be cleaned yet."""
    assert kafka.data is not None
    checkpoint = kafka.data / CLEAN_OFFSETS_NAME
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        offsets = decode_offsets(checkpoint.read_bytes() if checkpoint.exists() else None) or {}
        found = offsets.get(f"{topic}-0", 0)
        if found >= until:
            assert found == until
            return
        assert time.monotonic() < deadline, f"{kafka} cleaned up to {found}, not {until}"
        time.sleep(0.02)


class Comparison:
    """One topic on both, written to and cleaned side by side."""

    def __init__(self, kafkas: tuple[Broker, ApacheKafka], topic: str, **config: str) -> None:
        self.kafkas, self.topic = kafkas, topic
        at_ms = time.time_ns() // 1_000_000 + HOUR_MS
        self._writers = []
        for kafka in kafkas:
            create(kafka, topic, **config)
            self._writers.append(Writer(connect(kafka.bootstrap_servers), topic, at_ms))

    def play(self, steps: list[Step]) -> None:
        for writer in self._writers:
            writer.play(steps)
        ours, theirs = self._writers
        assert ours.segments == theirs.segments, "the same offsets, in the same segments"

    def clean(self, held_at: int | None = None) -> None:
        """Wait until all is clean that can be: below the last segment, or the one with an open transaction."""
        segments = self._writers[0].segments
        until = max(base for base in segments if held_at is None or base <= held_at)
        for kafka in self.kafkas:
            wait_until_clean(kafka, self.topic, until)

    def what_is_left(self) -> list[tuple[int, Any, Any]]:
        """What readers of committed data get, which is the same on both; so is what the others get."""
        for isolation_level in ("read_uncommitted", "read_committed"):
            ours, theirs = (read(kafka, self.topic, isolation_level) for kafka in self.kafkas)  # type: ignore[arg-type]
            assert ours == theirs, isolation_level
        return ours

    @property
    def sent(self) -> int:
        return self._writers[0].sent

    @property
    def last_segment(self) -> int:
        return self._writers[0].segments[-1]

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@pytest.fixture
def compared(kafkas: tuple[Broker, ApacheKafka]) -> Iterator[Callable[..., Comparison]]:
    with ExitStack() as opened:

        def compare(topic: str, **config: str) -> Comparison:
            comparison = Comparison(kafkas, topic, **config)
            opened.callback(comparison.close)
            return comparison

        yield compare


def test_the_same_records_are_left_of_commits_aborts_and_tombstones(compared: Callable[..., Comparison]) -> None:
    comparison = compared("kept")
    comparison.play(workload(1, 60))
    comparison.clean()
    left = comparison.what_is_left()
    keys = [key for offset, key, _ in left if offset < comparison.last_segment]
    assert len(keys) == len(set(keys)) < comparison.sent / 4, "a record for each key"
    assert set(keys) == set(KEYS)
    assert any(value is None for _, _, value in left), "tombstones stay for a day"


def test_the_same_tombstones_go_when_their_time_has_come(compared: Callable[..., Comparison]) -> None:
    comparison = compared("gone", delete_retention_ms="1")
    comparison.play(workload(16, 60))
    # A round gives a tombstone its time, and a later round takes it away: each needs something to clean.
    for _ in range(2):
        comparison.clean()
        comparison.play(closed())
    comparison.clean()
    left = comparison.what_is_left()
    assert all(value is not None for _, _, value in left)
    assert {key for _, key, _ in left} < {*KEYS, CLOSER}, "keys that had a tombstone are gone"


def test_nothing_behind_an_open_transaction_is_cleaned(compared: Callable[..., Comparison]) -> None:
    comparison = compared("held")
    comparison.play([step for step in workload(3, 30) if step.who != "a"])
    comparison.play([Step("send", "a", ((KEYS[0], b"open"),))])
    open_segment = comparison.last_segment
    comparison.play([step for step in workload(4, 30) if step.who != "a"])
    comparison.clean(held_at=open_segment)
    before = {record for record in comparison.what_is_left() if record[0] < open_segment}
    comparison.play([Step("abort", "a")])
    comparison.clean()
    left = comparison.what_is_left()
    assert {record for record in left if record[0] < open_segment} < before
    assert b"open" not in {value for _, _, value in left}
