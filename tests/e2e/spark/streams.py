"""Streams for the sink's tests: text files as a source with predictable micro-batches, and a reader of topics."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Assignment
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from fencepost.client.admin.offsets import all_committed_offsets
from fencepost.client.client import KafkaClient
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.sink import ExactlyOnceSink
from tests.readers.reading import IMPATIENT, READ_COMMITTED, READ_UNCOMMITTED, connect, end_offsets

TIMEOUT_S = 60.0
Rows = Callable[[Iterable[Any]], Iterator[Any]]  # For mapInArrow.
MakeSink = Callable[..., ExactlyOnceSink]
# Where the tasks of the sinks run that `settings` is for.
PLANE = ContextVar("PLANE", default="jvm")
FILES_PER_BATCH = 2  # Each becomes an input partition of its own.


class Read(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def create_topic(bootstrap_servers: str, topic: str, partitions: int = 3, **config: str) -> str:
    """`_` in a setting's name stands for `.`."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    for created in admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
        created.result(30)
    return topic


def create_anew(bootstrap_servers: str, topic: str) -> None:
    """Delete a topic and create it again, with one partition. Also for tasks."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)

    def is_created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False  # Apache Kafka deletes in the background.
        return True

    wait_for(is_created)


def grow(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Returns when the topic has so many partitions. Also for tasks."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    if partition_count(bootstrap_servers, topic) < partitions:
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
    wait_for(lambda: partition_count(bootstrap_servers, topic) == partitions)


def partition_count(bootstrap_servers: str, topic: str) -> int:
    with KafkaClient({"bootstrap.servers": bootstrap_servers}) as client:
        return len(client.topic(topic).leaders)


def read(bootstrap_servers: str, topic: str) -> list[Read]:
    """The committed records of the topic, partition by partition in order."""
    with connect(bootstrap_servers) as client:
        ends = end_offsets(client, [topic])
    settings = {
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 5,  # The client sees the end of a partition only after this wait.
    }
    consumer = Consumer(IMPATIENT | settings | {"bootstrap.servers": bootstrap_servers, "enable.partition.eof": True})
    found = []
    unread = {index for (_, index), end in ends.items() if end > 0}
    deadline = time.monotonic() + TIMEOUT_S
    try:
        # Not OFFSET_BEGINNING: the client takes half a second to look it up.
        consumer.assign([Assignment(topic, index, 0) for index in unread])
        while unread:
            assert time.monotonic() < deadline, f"partitions {unread} of {topic} cannot be read to their ends"
            for message in consumer.consume(1000, 0.05):
                if message.error() is not None:  # The end of a partition; more records may have come since.
                    if (message.offset() or 0) >= ends[topic, message.partition() or 0]:
                        unread.discard(message.partition() or 0)
                    continue
                headers: Any = message.headers() or ()
                index, (_, timestamp_ms) = message.partition() or 0, message.timestamp()
                found.append(Read(index, message.key(), message.value(), timestamp_ms, tuple(headers)))
    finally:
        consumer.close()
    return sorted(found, key=lambda record: record.partition)


def values(bootstrap_servers: str, topic: str) -> list[str]:
    """All committed values of a topic, sorted: equal to the input if each is there exactly once."""
    return sorted((record.value or b"").decode() for record in read(bootstrap_servers, topic))


def is_free(bootstrap_servers: str, topic: str) -> bool:
    """Is there no open transaction that readers would wait for?"""
    with connect(bootstrap_servers) as client:
        return end_offsets(client, [topic], READ_COMMITTED) == end_offsets(client, [topic], READ_UNCOMMITTED)


def is_soon_free(bootstrap_servers: str, topic: str) -> bool:
    """The same after EndTxn, with some patience: Apache Kafka answers EndTxn first and then writes the markers."""
    deadline = time.monotonic() + 10
    while not is_free(bootstrap_servers, topic):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def written(bootstrap_servers: str, topic: str) -> int:
    """The number of offsets in the topic, committed or not."""
    with connect(bootstrap_servers) as client:
        return sum(end_offsets(client, [topic]).values())


def commit_notes(bootstrap_servers: str, transactional_id: str) -> dict[TopicPartition, tuple[int, str]]:
    with KafkaClient({"bootstrap.servers": bootstrap_servers}) as client:
        return all_committed_offsets(client, f"fencepost-marker-{transactional_id}")


def wait_for(what: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, f"nothing came of it in {timeout_s:g} s"
        time.sleep(0.02)


def until_half_written(servers: str, topic: str) -> Callable[[], None]:
    """For a task: waits until another one has written to the topic, in a transaction that is open."""

    def wait() -> None:
        import time

        from fencepost.client.admin.partitions import end_offset
        from fencepost.client.client import KafkaClient

        deadline = time.monotonic() + 30
        with KafkaClient({"bootstrap.servers": servers}) as client:
            partitions = range(len(client.topic(topic).leaders))
            while all(end_offset(client, topic, p, True) == end_offset(client, topic, p, False) for p in partitions):
                assert time.monotonic() < deadline, "the other task has written nothing"
                time.sleep(0.02)

    return wait


def held_in_the_middle(folder: Path, batches_before: int = 0) -> Rows:
    """For mapInArrow: the second task waits after so many Arrow batches, from `hold` to `release`."""

    def wait(batches: Iterable[Any]) -> Iterator[Any]:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            while number == batches_before and context.partitionId() == 1 and (folder / "hold").exists():
                (folder / "held").touch()
                time.sleep(0.02)
            yield batch

    return wait


def hold(folder: Path) -> None:
    folder.mkdir()
    (folder / "hold").touch()


def await_held(folder: Path, bootstrap_servers: str, topic: str) -> None:
    """Wait until the second task waits, and records are in the topic that are not committed."""
    wait_for(lambda: (folder / "held").exists() and not is_free(bootstrap_servers, topic))


def release(folder: Path) -> None:
    (folder / "hold").unlink()


class Lines:
    """A folder of text files. Each micro-batch takes the next two, the oldest first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.all: list[str] = []
        self._files = 0

    def add_batch(self, count: int = 20) -> list[str]:
        added: list[str] = []
        for _ in range(FILES_PER_BATCH):
            self._files += 1
            lines = [f"file {self._files} line {n}" for n in range(count)]
            path = self.folder / f"{self._files:03}.txt"
            # Moved into place when it is complete: Spark may look at any time.
            unfinished = self.folder / f".{path.name}"
            unfinished.write_text("".join(line + "\n" for line in lines))
            unfinished.rename(path)
            # Spark takes files in the order of their times, which might otherwise be equal.
            os.utime(path, (self._files, self._files))
            added += lines
        self.all += added
        return added


def stream(spark: Any, lines: Lines) -> Any:
    """The lines as a stream with the one column `value`."""
    return spark.readStream.format("text").option("maxFilesPerTrigger", FILES_PER_BATCH).load(str(lines.folder))


def start(frame: Any, sink: Any, checkpoint: Path) -> Any:
    """A query that ends when it has read everything that is there at its start."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def run(frame: Any, sink: Any, checkpoint: Path) -> None:
    """Raises StreamingQueryException if the query fails."""
    query = start(frame, sink, checkpoint)
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"
    finally:
        query.stop()


def outcomes(sink: ExactlyOnceSink) -> list[tuple[int, str, int]]:
    return [(p.batch_id, p.outcome, p.records) for p in sink.recent_progress]


def settings(bootstrap_servers: str, transactional_id: str, **more: object) -> Mapping[str, object]:
    given: Iterable[tuple[str, object]] = ((name.replace("_", "."), value) for name, value in more.items())
    ours = {
        "bootstrap.servers": bootstrap_servers,
        "transactional.id": transactional_id,
        "fencepost.plane": PLANE.get(),
    }
    return {**ours, **dict(given)}


def forget_stage(spark: Any, stage_id: int) -> None:
    """As if Spark had too many stages to keep them all (`spark.ui.retainedStages`)."""
    stages = spark._jvm.java.lang.Class.forName("org.apache.spark.status.StageDataWrapper")
    key = spark.sparkContext._gateway.new_array(spark._jvm.int, 2)
    key[0], key[1] = stage_id, 0
    spark.sparkContext._jsc.sc().statusStore().store().delete(stages, key)
