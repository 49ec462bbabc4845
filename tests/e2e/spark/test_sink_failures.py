"""The sink with real failures: readers find every row exactly once, and wait for no open transaction."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark.sink import ExactlyOnceSink, SinkError, SinkFenced
from fencepost.testing import Broker
from tests.e2e.conftest import StartBroker, Target
from tests.e2e.spark.streams import (
    Lines,
    create_topic,
    is_free,
    is_soon_free,
    outcomes,
    run,
    settings,
    start,
    stream,
    until_half_written,
    values,
    wait_for,
    written,
)

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("plane")]

Unique = Callable[[str], str]
Rows = Iterator[Any]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "lines")


@pytest.fixture
def reached(tmp_path: Path) -> Path:
    """A file that a task creates in the middle of a micro-batch."""
    return tmp_path / "reached"


def in_the_middle(frame: Any, reached: Path, wait: Callable[[], None], do: Callable[[], None]) -> Any:
    """The frame. The task of its second file waits until the first is written, creates `reached`, and calls `do`.

    It does so only the first time: later the rows just pass.
    """

    def at_line(batches: Rows) -> Rows:
        for batch in batches:
            if "file 2 line 0" in batch.column(0).to_pylist() and not reached.exists():
                wait()
                reached.touch()
                do()
            yield batch

    return frame.mapInArrow(at_line, "value string")


@pytest.mark.parametrize("transaction_version", ["2", "1"])
def test_a_task_that_throws_fails_the_query_with_its_message_and_blocks_no_partition(
    spark: Any, start_broker: StartBroker, lines: Lines, tmp_path: Path, transaction_version: str
) -> None:
    from pyspark.sql import functions

    servers = start_broker(transaction_version=transaction_version).bootstrap_servers
    topic = create_topic(servers, "out")
    wait = until_half_written(servers, topic)

    @functions.udf("string")
    def strict(value: str) -> str:
        if value == "file 2 line 7":
            wait()
            raise ValueError("line 7 is not to my liking")
        return value

    lines.add_batch()
    sink = ExactlyOnceSink(settings(servers, "throws", topic=topic), max_attempts=2)
    try:
        with pytest.raises(Exception, match="line 7 is not to my liking"):
            run(stream(spark, lines).select(strict("value").alias("value")), sink, tmp_path / "checkpoint")
        assert written(servers, topic) > 0, "something was written, and aborted"
        assert is_free(servers, topic)
        assert values(servers, topic) == []

        run(stream(spark, lines), sink, tmp_path / "checkpoint")
        assert values(servers, topic) == sorted(lines.all), "the sink goes on with a query that does better"
    finally:
        sink.close()


def test_a_record_that_the_topic_does_not_allow_is_named_with_its_size(
    spark: Any, target: Target, unique: Unique
) -> None:
    servers = target.servers
    topic = create_topic(servers, unique("small"), 1, max_message_bytes="2000")
    sink = ExactlyOnceSink(settings(servers, unique("small"), topic=topic))
    try:
        fits = spark.range(0, 100, 1, 1).selectExpr("repeat('x', 500) AS value")
        assert sink.write(fits) == 100, "batches are halved until the topic takes them"
        with pytest.raises(
            SinkError, match=rf"one record has 30\d\d bytes, more than max.message.bytes of topic {topic}"
        ):
            sink.write(spark.range(0, 100, 1, 1).selectExpr("repeat('x', if(id = 50, 3000, 5)) AS value"))
        assert is_soon_free(servers, topic)
        assert len(values(servers, topic)) == 100
    finally:
        sink.close()


def test_a_query_that_is_stopped_in_a_batch_has_not_failed_and_goes_on_later(
    spark: Any, broker: Broker, unique: Unique, lines: Lines, reached: Path, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("stopped"))
    sink = ExactlyOnceSink(settings(servers, unique("stopped"), topic=topic))
    lines.add_batch()
    try:
        slow = in_the_middle(stream(spark, lines), reached, until_half_written(servers, topic), lambda: time.sleep(60))
        query = start(slow, sink, tmp_path / "checkpoint")
        wait_for(reached.exists)
        query.stop()
        assert query.exception() is None
        assert written(servers, topic) > 0
        assert is_free(servers, topic)

        run(slow, sink, tmp_path / "checkpoint")
        assert values(servers, topic) == sorted(lines.all)
    finally:
        sink.close()


def test_a_python_worker_that_dies_in_a_batch_costs_an_attempt(
    spark: Any, broker: Broker, unique: Unique, lines: Lines, reached: Path, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("worker"))
    sink = ExactlyOnceSink(settings(servers, unique("worker"), topic=topic))
    lines.add_batch()
    lines.add_batch()
    try:
        deadly = in_the_middle(
            stream(spark, lines),
            reached,
            until_half_written(servers, topic),
            lambda: os.kill(os.getpid(), signal.SIGKILL),
        )
        run(deadly, sink, tmp_path / "checkpoint")
        assert outcomes(sink) == [(0, "committed", 40), (1, "committed", 40)]
        assert [p.attempts for p in sink.recent_progress] == [2, 1]
        assert values(servers, topic) == sorted(lines.all)
    finally:
        sink.close()


@pytest.mark.parametrize("transaction_version", ["2", pytest.param("1", marks=pytest.mark.engines)])
def test_a_broker_that_dies_in_a_batch_and_comes_back_costs_no_row_and_doubles_none(
    spark: Any,
    start_broker: StartBroker,
    lines: Lines,
    reached: Path,
    tmp_path: Path,
    transaction_version: str,
) -> None:
    broker = start_broker(transaction_version=transaction_version)
    servers = broker.bootstrap_servers
    topic = create_topic(servers, "out")
    sink = ExactlyOnceSink(settings(servers, "survivor", topic=topic))
    lines.add_batch()
    lines.add_batch()
    try:
        query = start(
            in_the_middle(stream(spark, lines), reached, until_half_written(servers, topic), lambda: time.sleep(1)),
            sink,
            tmp_path / "checkpoint",
        )
        wait_for(reached.exists)
        broker.kill()
        broker.restart()
        assert query.awaitTermination(60)
        query.stop()
        assert outcomes(sink) == [(0, "committed", 40), (1, "committed", 40)]
        assert values(servers, topic) == sorted(lines.all)
    finally:
        sink.close()


def test_a_sink_whose_id_was_taken_by_another_process_says_who_has_it_and_does_not_take_it_back(
    spark: Any, target: Target, unique: Unique, lines: Lines, reached: Path, tmp_path: Path
) -> None:
    servers = target.servers
    topic, id_ = create_topic(servers, unique("fenced")), unique("fenced")
    sink = ExactlyOnceSink(settings(servers, id_, topic=topic))
    lines.add_batch()
    # A sink first takes the id over from its previous owner.
    take_over = (
        "import sys; from fencepost.client.client import KafkaClient; "
        "from fencepost.client.transaction import Transaction; "
        "identity = Transaction(KafkaClient({'bootstrap.servers': sys.argv[1]}), sys.argv[2], 60000).init(); "
        "print(f'producer {identity.producer_id}, epoch {identity.producer_epoch}')"
    )
    try:
        query = start(
            in_the_middle(stream(spark, lines), reached, until_half_written(servers, topic), lambda: time.sleep(2)),
            sink,
            tmp_path / "checkpoint",
        )
        wait_for(reached.exists)
        taken = subprocess.run(
            [sys.executable, "-c", take_over, servers, id_], capture_output=True, text=True, check=True
        )
        with pytest.raises(Exception, match="SinkFenced") as failed:
            query.awaitTermination(60)
        said = str(failed.value)
        assert f"transaction `{id_}` is fenced" in said
        assert "this producer has id " in said
        assert f"it belongs to {taken.stdout.strip()} now" in said
        assert values(servers, topic) == []
        assert is_soon_free(servers, topic)
        with pytest.raises(SinkFenced, match="belongs to"):
            sink.write(spark.range(3).selectExpr("'x' AS value"))
    finally:
        sink.close()
