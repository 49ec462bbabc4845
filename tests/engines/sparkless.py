"""The exactly-once sink without Spark, for tests that have to interrupt it between two lines.

The session looks like one of Spark Connect, the checkpoint is on disk, and one task in this process writes a frame. The
sink, its leases and its transactions are real.

    query = Query(folder)
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    query.run(sink, 0, ["a", "b"])
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from fencepost.client.client import KafkaClient
from fencepost.protocol.messages import UpdateFeaturesRequest
from fencepost.spark.driver.batch_transaction import BatchTransaction
from fencepost.spark.lease.messages import TaskAttempt
from fencepost.spark.sink import ExactlyOnceSink
from fencepost.spark.task.run import write_rows
from fencepost.spark.task.sender import WriteFailed
from fencepost.testing import Broker
from tests.e2e.spark.streams import wait_for

OUTPUT = "out"
TRANSACTIONAL_ID = "sparkless-1"


class Session:
    def __init__(self, query_id: str) -> None:
        plan = "== Physical Plan ==\nFileScan text [value#1]"
        query = SimpleNamespace(id=query_id, runId=str(uuid.uuid4()), explain=lambda: print(plan))
        self.streams = SimpleNamespace(active=[query])
        self.conf = SimpleNamespace(get=lambda name, default=None: default)

        self.addTag = self.removeTag = self.interruptTag = lambda tag: None


class Query:
    """A query with one Kafka source, topic `in`, read from offset `start`. Each micro-batch takes one offset.

    reads_files: its source is a folder instead, whose offsets count the micro-batches.
    """

    def __init__(
        self,
        checkpoint: Path,
        query_id: str | None = None,
        topic: str = OUTPUT,
        start: int = 0,
        *,
        reads_files: bool = False,
    ) -> None:
        self.checkpoint = checkpoint
        self.reads_files = reads_files
        self.topic = topic
        self.start = start
        self.query_id = query_id or str(uuid.uuid4())
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": self.query_id}))
        self.restart()

    def restart(self) -> None:
        self._session = Session(self.query_id)

    def elsewhere(self) -> Query:
        """The same query in another driver."""
        return Query(self.checkpoint, self.query_id, self.topic, self.start, reads_files=self.reads_files)

    def frame(self, values: list[str]) -> Any:
        """A frame as `write_values` takes it."""
        return SimpleNamespace(sparkSession=self._session, values=values, topic=self.topic)

    def age(self, batch_id: int, by_ms: int) -> None:
        """As if Spark had planned the micro-batch that long ago."""
        self._plan(batch_id, time.time_ns() // 1_000_000 - by_ms)

    def _plan(self, batch_id: int, planned_ms: int) -> None:
        metadata = {"batchTimestampMs": planned_ms}
        offsets = self.checkpoint / "offsets" / str(batch_id)
        end = {"logOffset": batch_id} if self.reads_files else {"in": {"0": self.start + batch_id + 1}}
        offsets.write_text(f"v1\n{json.dumps(metadata)}\n{json.dumps(end)}")
        initial = self.checkpoint / "sources" / "0" / "0"
        if not initial.exists():
            initial.parent.mkdir(parents=True, exist_ok=True)
            initial.write_text(f"\0v1\n{json.dumps({'in': {'0': self.start}})}")  # As Spark's Kafka source does.

    def run(
        self,
        sink: ExactlyOnceSink,
        batch_id: int,
        values: list[str],
        write: Callable[[Any, BatchTransaction], object] | None = None,
    ) -> str:
        """Do as Spark does: write the offsets of the micro-batch, then call the sink. Returns the outcome."""
        if not (self.checkpoint / "offsets" / str(batch_id)).exists():
            self._plan(batch_id, time.time_ns() // 1_000_000)

        def write_as_spark_does(frame: Any, transaction: BatchTransaction) -> object:
            try:
                return (write or write_values)(frame, transaction)
            except WriteFailed:
                # With Spark, the driver gets the error of the task later than that of its lease.
                leases: Any = sink._runner and sink._runner.attempts.leases
                deadline = time.monotonic() + 30
                while leases.broken is None and time.monotonic() < deadline:
                    time.sleep(0.001)
                raise

        sink.batch(write_as_spark_does)(self.frame(values), batch_id)
        return sink.recent_progress[-1].outcome


def write_values(frame: Any, transaction: BatchTransaction) -> None:
    """The same as `BatchTransaction.write`, with one task and without a Spark job."""
    number, transaction._writes = transaction._writes, transaction._writes + 1
    topics = {frame.topic: transaction._pin_once(frame.topic)}
    plan = transaction._plan._replace(write_number=number, topic=frame.topic, topics=topics)
    rows = [pa.RecordBatch.from_pydict({"value": pa.array([value.encode() for value in frame.values])})]
    result = write_rows(plan, TaskAttempt(number, 0, uuid.uuid4().int >> 70), rows, 0)
    transaction.results.append(result)
    transaction.input_partitions[number] = 1


def sink_of(
    servers: str,
    checkpoint: Path,
    *,
    adopt: str | None = None,
    run_batch: int | None = None,
    skip_batch: int | None = None,
    max_attempts: int = 3,
    **settings: object,
) -> ExactlyOnceSink:
    """`_` in a setting's name stands for `.`."""
    given = {
        "bootstrap.servers": servers,
        "transactional.id": TRANSACTIONAL_ID,
        "fencepost.lease.host": "127.0.0.1",
        "fencepost.lease.bind": "127.0.0.1",
        "fencepost.checkpoint.location": f"file:{checkpoint}",
    }
    given |= {name.replace("_", "."): str(value) for name, value in settings.items()}
    return ExactlyOnceSink(given, adopt=adopt, run_batch=run_batch, skip_batch=skip_batch, max_attempts=max_attempts)


def use_transaction_version(servers: str, version: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        "transaction.version", version, allow_downgrade=True, upgrade_type=1 if version == 2 else 2
    )
    with KafkaClient({"bootstrap.servers": servers}) as client:
        client.send(client.any_broker(), UpdateFeaturesRequest(60_000, [update]))
    wait_for(lambda: has_transaction_version(servers, version))


def has_transaction_version(servers: str, version: int) -> bool:
    with KafkaClient({"bootstrap.servers": servers}) as client:
        return client.transaction_version == version


def use_transaction_version_1(broker: Broker) -> None:
    use_transaction_version(broker.bootstrap_servers, 1)
