"""`format("fencepost")`: the same sink as a data source, with the options of Spark's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.admin.transactions import describe_transaction
from fencepost.client.client import KafkaClient
from fencepost.spark import ExactlyOnceSink, SinkError, configure
from fencepost.testing import Broker
from tests.e2e.conftest import Target
from tests.e2e.spark.streams import (
    TIMEOUT_S,
    Lines,
    create_topic,
    is_free,
    is_soon_free,
    read,
    settings,
    start,
    stream,
    values,
    wait_for,
    written,
)
from tests.e2e.spark.streams import run as run_sink

pytestmark = pytest.mark.java

Unique = Callable[[str], str]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "lines")


def writer(frame: Any, servers: str, id_: str, topic: str, checkpoint: Path, **options: str) -> Any:
    made = frame.writeStream.format("fencepost").option("kafka.bootstrap.servers", servers).option("topic", topic)
    made = made.option("transactional.id", id_).option("checkpointLocation", str(checkpoint))
    return made.options(**options).trigger(availableNow=True)


def run(frame: Any, servers: str, id_: str, topic: str, checkpoint: Path, **options: str) -> list[tuple[int, str, int]]:
    """Number, outcome and records of each micro-batch, as Spark shows them. Raises StreamingQueryException."""
    query = writer(frame, servers, id_, topic, checkpoint, **options).start()
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"
        return [outcome(progress) for progress in query.recentProgress]
    finally:
        query.stop()


def outcome(progress: Any) -> tuple[int, str, int]:
    metrics = progress.sink.metrics
    return progress.batchId, metrics["outcome"], int(metrics["records"])


def forget_commit(checkpoint: Path, batch_id: int) -> None:
    """As if the driver had died after the commit and before Spark noted it."""
    for name in (f"{batch_id}", f".{batch_id}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def test_a_stream_is_written_once_over_restarts_and_reruns(
    spark: Any, target: Target, unique: Unique, lines: Lines, tmp_path: Path
) -> None:
    servers, id_ = target.servers, unique("format")
    topic, checkpoint = create_topic(servers, unique("format")), tmp_path / "checkpoint"
    lines.add_batch()
    lines.add_batch()
    query = stream(spark, lines), servers, id_, topic, checkpoint

    assert run(*query) == [(0, "committed", 40), (1, "committed", 40)]
    assert values(servers, topic) == sorted(lines.all)

    lines.add_batch()
    assert run(*query) == [(2, "committed", 40)], "a new query of this process gets the id of the one that has ended"

    forget_commit(checkpoint, 2)
    lines.add_batch()
    assert run(*query) == [(2, "skipped", 0), (3, "committed", 40)]
    assert values(servers, topic) == sorted(lines.all)
    assert is_soon_free(servers, topic)


def test_a_query_with_state_computes_a_micro_batch_that_kafka_has(
    spark: Any, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic, checkpoint = create_topic(servers, unique("state")), tmp_path / "checkpoint"
    lines.add_batch()
    query = stream(spark, lines).dropDuplicates(["value"]), servers, unique("state"), topic, checkpoint
    run(*query)

    forget_commit(checkpoint, 0)
    lines.folder.joinpath("003.txt").write_text((lines.folder / "001.txt").read_text())  # The state knows these lines.

    assert run(*query)[0] == (0, "skipped", 0)
    assert values(servers, topic) == sorted(lines.all)


def test_a_query_that_is_stopped_in_the_middle_of_a_micro_batch_aborts_it_and_has_not_failed(
    spark: Any, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic, id_ = create_topic(servers, unique("stop"), 1), unique("stop")
    flag = tmp_path / "go"

    def hesitate(batches: Any) -> Any:
        import time

        for batch in batches:
            if "file 2 line 0" in batch.column(0).to_pylist():
                while not flag.exists():
                    time.sleep(0.02)
            yield batch

    lines.add_batch()
    frame = stream(spark, lines)
    query = writer(frame.mapInArrow(hesitate, "value string"), servers, id_, topic, tmp_path / "checkpoint").start()
    wait_for(lambda: not is_free(servers, topic))
    query.stop()

    assert query.exception() is None
    wait_for(lambda: is_free(servers, topic))
    assert values(servers, topic) == []
    flag.touch()
    assert run(frame, servers, id_, topic, tmp_path / "checkpoint") == [(0, "committed", 40)]
    assert values(servers, topic) == sorted(lines.all)


@pytest.mark.parametrize(("way", "said"), [("sink", "QueryStopped"), ("format", "ClosedByInterruptException")])
def test_a_query_that_is_stopped_while_its_function_writes_a_plain_frame_has_not_failed(
    spark: Any, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path, way: str, said: str
) -> None:
    servers = broker.bootstrap_servers
    topic, id_ = create_topic(servers, unique("plain"), 1), unique("plain")
    started = tmp_path / "started"
    raised: list[str] = []

    def hang(batches: Any) -> Any:
        import time

        for batch in batches:
            started.touch()
            time.sleep(600)
            yield batch

    def write(frame: Any, batch_id: int) -> None:
        try:
            write_plain(frame, batch_id)
        except Exception as e:
            raised.append(f"{type(e).__name__}: {e}".partition("\n\t")[0])  # Without the Java stack trace.
            raise

    def write_plain(frame: Any, batch_id: int) -> None:
        slow = frame.mapInArrow(hang, "value string")
        if way == "sink":
            sink = ExactlyOnceSink(settings(servers, id_, topic=topic))
            try:
                sink.write(slow, token=str(batch_id))
            finally:
                sink.close()
        else:
            options = {"kafka.bootstrap.servers": servers, "transactional.id": id_, "topic": topic}
            slow.write.format("fencepost").options(**options, token=str(batch_id)).mode("append").save()

    lines.add_batch()
    query = start(stream(spark, lines), write, tmp_path / "checkpoint")
    wait_for(started.exists)
    query.stop()
    assert query.exception() is None
    assert len(raised) == 1
    assert said in raised[0]
    assert values(servers, topic) == []


@pytest.mark.engines
@pytest.mark.timeout(300)
def test_a_program_that_ends_with_its_query_leaves_no_error_behind(
    spark: Any, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path
) -> None:
    """Spark reports the end of the query to a Python process that may be gone."""
    topic, program = create_topic(broker.bootstrap_servers, unique("ending")), Path(__file__).with_name("ending_job.py")
    lines.add_batch()
    job = (sys.executable, program, broker.bootstrap_servers, topic, lines.folder, tmp_path / "checkpoint")
    done = subprocess.run([str(part) for part in job], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Exception" not in done.stderr
    assert values(broker.bootstrap_servers, topic) == sorted(lines.all)


def test_two_running_queries_cannot_have_one_transactional_id_unless_one_takes_over_the_others_checkpoint(
    spark: Any, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic, id_ = create_topic(servers, unique("two")), unique("two")
    lines.add_batch()
    frame = stream(spark, lines)
    first = writer(frame, servers, id_, topic, tmp_path / "first").trigger(processingTime="0 seconds").start()
    try:
        with pytest.raises(Exception, match=f"{id_} is in use by query {first.id}, which runs in this process"):
            writer(frame, servers, id_, topic, tmp_path / "second").start()
        first.processAllAvailable()
        sink = ExactlyOnceSink(settings(servers, id_, topic=topic))
        with pytest.raises(Exception, match="is in use by another sink of this process"):
            run_sink(frame, sink, tmp_path / "second")
        lines.add_batch()
        first.processAllAvailable()
        lines.add_batch()
        assert run(frame, servers, id_, topic, tmp_path / "first") == [(2, "committed", 40)], "Spark stops the first"
        assert not first.isActive
    finally:
        first.stop()
    assert values(servers, topic) == sorted(lines.all)


def test_a_missing_topic_is_found_before_the_id_is_taken_over(
    spark: Any, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path
) -> None:
    servers, id_, topic = broker.bootstrap_servers, unique("missing"), unique("no-such-topic")
    lines.add_batch()
    frame = stream(spark, lines)
    said = rf"{topic}: UNKNOWN_TOPIC_OR_PARTITION \(3\): it does not exist\n\nhint: create it"
    with pytest.raises(Exception, match=said):
        writer(frame, servers, id_, topic, tmp_path / "format").start()
    sink = ExactlyOnceSink(settings(servers, id_, topic=topic))
    with pytest.raises(Exception, match=said):
        run_sink(frame, sink, tmp_path / "sink")
    with KafkaClient({"bootstrap.servers": servers}) as client:
        assert describe_transaction(client, id_)[1] is None
    create_topic(servers, topic)
    assert run(frame, servers, id_, topic, tmp_path / "format") == [(0, "committed", 40)]


def test_a_frame_is_written_with_sparks_own_option_names_and_columns(
    spark: Any, broker: Broker, unique: Unique
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("frame"), 2)
    frame = spark.range(100).selectExpr(
        "cast(id AS string) AS key", "'x' AS value", "1 AS partition", f"'{topic}' AS topic"
    )
    write = frame.write.format("fencepost").mode("append").option("kafka.bootstrap.servers", servers)

    write.option("kafka.transactional.id", unique("frame")).option("kafka.compression.type", "lz4").save()

    assert sorted(int(r.key or b"") for r in read(servers, topic)) == list(range(100))
    assert {r.partition for r in read(servers, topic)} == {1}
    assert written(servers, topic) == 101, "one transaction"


def test_a_frame_with_a_token_is_written_once(spark: Any, broker: Broker, unique: Unique) -> None:
    servers = broker.bootstrap_servers
    topic, id_ = create_topic(servers, unique("token")), unique("token")
    frame = spark.createDataFrame([("x",)], "value string")
    write = frame.write.format("fencepost").mode("append").option("kafka.bootstrap.servers", servers)

    for _ in range(2):
        write.option("transactional.id", id_).option("topic", topic).option("token", "2026-11-16").save()

    assert values(servers, topic) == ["x"]


def test_what_would_not_be_exactly_once_is_refused_with_the_line_to_use(
    spark: Any, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic, id_ = create_topic(servers, unique("refused")), unique("refused")
    lines.add_batch()

    def write(frame: Any, batch_id: int) -> None:
        save = frame.write.format("fencepost").option("kafka.bootstrap.servers", servers).option("topic", topic)
        save.option("transactional.id", id_).mode("append").save()

    query = stream(spark, lines).writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "inside"))
    query = query.trigger(availableNow=True).start()
    with pytest.raises(Exception, match=r'use writeStream.format\("fencepost"\) instead of foreachBatch'):
        query.awaitTermination(TIMEOUT_S)
    frame = stream(spark, lines)
    for options, message in (
        ({"kafka.acks": "1"}, r"kafka.acks=1, expected all"),
        ({"kafka.partitioner.class": "mine"}, "the key decides, as with Kafka's own clients, or a column `partition`"),
        ({"kafka.botstrap.servers": "x"}, "did you mean bootstrap.servers"),
        ({"token": "today"}, "a streaming query writes each micro-batch once without it"),
        ({"run_batch": "one"}, "run_batch=one is not a whole number"),
    ):
        with pytest.raises(Exception, match=message):
            writer(frame, servers, id_, topic, tmp_path / "options", **options).start()
    with pytest.raises(Exception, match=r"partitionBy\(value\) has no meaning for Kafka"):
        writer(frame, servers, id_, topic, tmp_path / "by").partitionBy("value").start()
    with pytest.raises(Exception, match="Kafka topics only grow"):
        spark.range(1).selectExpr("'x' AS value").write.format("fencepost").mode("overwrite").save()
    assert values(servers, topic) == []


def test_a_session_that_no_python_process_is_connected_with_says_which_line_is_missing(spark: Any) -> None:
    session = spark.newSession()
    session.conf.set("spark.fencepost.driver", "another")
    frame = session.createDataFrame([("x",)], "value string")
    save = frame.write.format("fencepost").option("kafka.bootstrap.servers", "localhost:1").mode("append")

    with pytest.raises(Exception, match=r"hint: start the session with fencepost.spark.configure"):
        save.save()

    assert configure(session) is session
    with pytest.raises(Exception, match=r"transactional\.id is missing"):
        save.save()


def test_sessions_of_spark_connect_are_told_what_to_use() -> None:
    class ConnectSession:
        pass

    with pytest.raises(SinkError, match=r"use foreachBatch\(ExactlyOnceSink"):
        configure(ConnectSession())
