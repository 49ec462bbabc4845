"""`format("fencepost")`: the same sink as a data source, with the options of Spark's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark import ExactlyOnceSink, configure
from fencepost.testing import Broker
from tests.e2e.conftest import Target
from tests.e2e.spark.streams import (
    TIMEOUT_S,
    Lines,
    create_topic,
    is_free,
    is_soon_free,
    settings,
    stream,
    values,
    wait_for,
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
