"""The transcripts, on a real Apache Kafka: what it answers is what we have to answer.

Transcripts with the same settings share a broker, and each has names of its own there. `~ REPLY` in a transcript is
where we differ on purpose. `make test` plays those that need no broker of their own, `make test-engines` the others:
run it after a change to one of those.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fencepost.machines.txn.records import encode_key, encode_value, partition_for
from fencepost.machines.txn.states import Txn
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    FindCoordinatorRequest,
    ListTransactionsRequest,
    MetadataRequest,
    ProduceRequest,
)
from fencepost.protocol.schema import Message
from fencepost.protocol.transaction_version import TV2
from tests.conformance.records import COORDINATOR_PARTITIONS, LogReader
from tests.engines.apache_kafka import ApacheKafka, apache_kafka
from tests.pure_broker import PureBroker
from tests.transcripts.parsing import Transcript, parse
from tests.transcripts.running import run
from tests.wire.raw_client import CLIENT_ID, Closed, RawClient

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

FOLDER = Path(__file__).resolve().parents[1] / "transcripts"
QUICK = {
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    # A fenced broker (one that was killed) may come back as soon as this has passed.
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "100",
}
# Apache Kafka takes writes to its own topics from this client only.
INSIDER = "__admin_client"


class ApacheTarget:
    """Apache Kafka as a stage for transcripts."""

    is_independent = True
    is_apache = True

    def __init__(self, kafka: ApacheKafka) -> None:
        self.kafka = kafka
        self._client: RawClient | None = None
        self.wait_until_ready()

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call(self, request: Message, version: int, client_id: str | None = CLIENT_ID) -> Any:
        if self._client is None:
            self._client = RawClient("127.0.0.1", self.kafka.port)
        try:
            return self._client.call(request, version, client_id)
        except (Closed, AssertionError):
            self._client.close()
            self._client = None
            raise

    def advance(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def restart(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        # Not kill -9: Apache Kafka 4.3.1 would start as the leader that it was and lose that for a moment when it
        # registers. A coordinator that sends markers in this moment takes the partitions for deleted and skips them.
        self.kafka.stop()
        self.kafka.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Both coordinators are there, and everything they keep is loaded."""
        deadline = time.monotonic() + 60
        while not self._is_ready():
            assert time.monotonic() < deadline, f"the coordinators do not come up\n{self.kafka.log_tail()}"
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        for key_type in (0, 1):
            if self.call(FindCoordinatorRequest("x", key_type), 1).error_code:
                return False
        if self.call(ListTransactionsRequest(), 0).error_code:
            return False
        reply = self.call(MetadataRequest(None), 4)
        return all(p.error_code == 0 for t in reply.topics for p in t.partitions)

    def write_state(self, txn: Txn) -> None:
        batch = encode_batch([(encode_key(txn.transactional_id), encode_value(txn, TV2))], self.now_ms)
        index = partition_for(txn.transactional_id, COORDINATOR_PARTITIONS)
        partition = ProduceRequest.PartitionProduceData(index, batch)
        topic = ProduceRequest.TopicProduceData("__transaction_state", partition_data=[partition])
        reply = self.call(ProduceRequest(None, -1, 10_000, [topic]), 11, client_id=INSIDER)
        result = reply.responses[0].partition_responses[0]
        assert result.error_code == 0, result


def transcripts() -> list[Transcript]:
    found = [parse(path) for path in sorted(FOLDER.glob("*.txt"))]
    return sorted((t for t in found if t.only_fencepost is None), key=lambda t: sorted(kafka_settings(t).items()))


def kafka_settings(transcript: Transcript) -> dict[str, str]:
    ours = {name: value for name, value in transcript.settings.items() if not name.startswith("fencepost.")}
    return QUICK | ours


class Oracles:
    """One Apache Kafka at a time, kept while the next transcript wants the same settings."""

    def __init__(self) -> None:
        self._settings: dict[str, str] | None = None
        self._target: ApacheTarget | None = None
        self._stack = ExitStack()

    def target(self, settings: dict[str, str]) -> ApacheTarget:
        if self._target is None or settings != self._settings:
            self.close()
            given = dict(settings)
            version = given.pop("transaction.version", "2")
            kafka = self._stack.enter_context(apache_kafka(given))
            if version != "2":
                kafka.use_transaction_version(int(version))
            self._settings, self._target = settings, ApacheTarget(kafka)
        return self._target

    def close(self) -> None:
        self._target = self._settings = None
        self._stack.close()


@pytest.fixture(scope="module")
def oracles() -> Iterator[Oracles]:
    found = Oracles()
    yield found
    found.close()


def is_quick(transcript: Transcript) -> bool:
    """Whether it fits into `make test`: on the broker of the others, and with a restart only where it is the point."""
    has_restart = any(step.command == "restart" for step in transcript.steps)
    return kafka_settings(transcript) == QUICK and (not has_restart or transcript.name == "restart_prepared")


@pytest.mark.parametrize(
    "transcript",
    [pytest.param(t, id=t.name, marks=() if is_quick(t) else pytest.mark.engines) for t in transcripts()],
)
def test_apache_kafka_answers_and_writes_as_we_do(transcript: Transcript, oracles: Oracles) -> None:
    prefix = f"{transcript.name}."
    theirs = run(transcript, oracles.target(kafka_settings(transcript)), prefix)
    ours = run(transcript, PureBroker(transcript.settings), prefix)
    assert LogReader(ours).states() == LogReader(theirs).states()
    assert LogReader(ours).batches() == LogReader(theirs).batches()
    assert LogReader(ours).groups() == LogReader(theirs).groups()
