"""Micro-batches that break half way: their records are aborted, and the sink runs them again or refuses, never both."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fencepost.protocol import errors
from fencepost.protocol.messages import ProduceRequest, ProduceResponse
from fencepost.spark.sink import BatchTransaction, ExactlyOnceSink
from fencepost.testing import Broker
from tests.e2e.conftest import StartBroker, Target
from tests.e2e.spark.streams import (
    TIMEOUT_S,
    Lines,
    MakeSink,
    create_topic,
    grow,
    is_free,
    is_soon_free,
    partition_count,
    read,
    run,
    settings,
    start,
    stream,
    until_half_written,
    values,
    wait_for,
    written,
)
from tests.wire.proxy import Proxy

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("plane")]

Unique = Callable[[str], str]
Rows = Iterator[Any]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "lines")


def numbers(count: int) -> list[str]:
    return sorted(str(n) for n in range(count))


# --- tasks that wake up too late ----------------------------------------------------------------------------


def frozen_worker(spark: Any, port: int) -> psutil.Process:
    """The Python worker with a connection from this port; it stops where it is."""
    java = psutil.Process(spark.sparkContext._gateway.proc.pid)
    for process in java.children(recursive=True):
        if any(c.laddr.port == port for c in process.net_connections("tcp")):
            process.suspend()
            return process
    raise AssertionError(f"no worker has a connection from port {port}")


def test_a_worker_that_freezes_costs_an_attempt_and_what_it_sent_is_refused_when_it_arrives_late(
    spark: Any, target: Target, unique: Unique, sinks: MakeSink, plane: str
) -> None:
    topic = create_topic(target.servers, unique("frozen"), 1)
    with Proxy(target.servers) as proxy:
        sink = sinks(proxy.bootstrap_servers, unique("frozen"), topic=topic, delivery_timeout_ms=1500)
        assert sink.write(spark.range(0, 10, 1, 1).selectExpr("cast(id AS string) AS value")) == 10
        held = proxy.hold_request(ProduceRequest)
        rest = spark.range(10, 50, 1, 2).selectExpr("cast(id AS string) AS value")
        writes = threading.Thread(target=lambda: sink.write(rest))
        writes.start()
        held.wait_until_arrived()
        # A task in the JVM cannot be stopped alone. It waits for the answer, which does not come.
        worker = frozen_worker(spark, held.sender_port) if plane == "python" else None
        try:
            writes.join(TIMEOUT_S)
            assert not writes.is_alive()
            assert sink.recent_progress[-1].attempts == 2
            assert values(target.servers, topic) == numbers(50)
            before = written(target.servers, topic)  # Now: Apache Kafka answers EndTxn before it writes the markers.
            held.let_go()
            version = 13 if target.version == 2 else 11
            reply: Any = ProduceResponse.decode(held.reply(), 5, version)[0]
            assert reply.responses[0].partition_responses[0].error_code in (
                errors.INVALID_PRODUCER_EPOCH,
                errors.PRODUCER_FENCED,
                errors.INVALID_TXN_STATE,
                errors.TRANSACTION_ABORTABLE,
            )
        finally:
            if worker is not None and worker.is_running():
                worker.resume()
        assert written(target.servers, topic) == before
        assert values(target.servers, topic) == numbers(50)
        assert is_soon_free(target.servers, topic)


# --- time ---------------------------------------------------------------------------------------------------


def write_after_the_timeout(
    spark: Any, target: Target, topic: str, sink: ExactlyOnceSink, lines: Lines, checkpoint: Path
) -> None:
    """A micro-batch whose first attempt writes everything, and then waits until the broker aborts its transaction."""
    attempts = []

    @sink.batch
    def write(frame: Any, transaction: BatchTransaction) -> None:
        transaction.write(frame)
        attempts.append(transaction)
        if len(attempts) == 1:
            assert not is_free(target.servers, topic)
            wait_for(lambda: is_free(target.servers, topic))

    run(stream(spark, lines), write, checkpoint)


def test_a_batch_that_outlives_its_transaction_is_run_again_where_the_broker_tells_a_timeout_from_a_fence(
    spark: Any, target: Target, unique: Unique, lines: Lines, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(target.servers, unique("late"))
    lines.add_batch()
    caplog.set_level(logging.WARNING, "fencepost.spark")

    def sink_with(timeout_ms: int) -> ExactlyOnceSink:
        more = {"topic": topic, "transaction_timeout_ms": timeout_ms}
        return ExactlyOnceSink(settings(target.servers, f"{topic}-{timeout_ms}", **more))

    # A busy machine may need more than three seconds to run the micro-batch again.
    for timeout_ms in (3000, 15_000):
        sink = sink_with(timeout_ms)
        checkpoint = tmp_path / str(timeout_ms)
        try:
            write_after_the_timeout(spark, target, topic, sink, lines, checkpoint)
            failure = None
            break
        except Exception as e:
            failure = str(e)
            if "twice in a row" not in failure:
                break
        finally:
            sink.close()
    for share in (50, 80):
        assert f"micro-batch 0 has used {share} % of transaction.timeout.ms={timeout_ms}" in caplog.text
    assert "hint: raise transaction.timeout.ms" in caplog.text
    if target.version == 2:
        assert failure is None
        assert [(p.outcome, p.attempts) for p in sink.recent_progress] == [("committed", 2)]
    else:
        assert failure is not None
        assert "SinkFenced" in failure
        assert f"or its transaction outlived transaction.timeout.ms={timeout_ms}: with transaction.version 1" in failure
        assert is_soon_free(target.servers, topic)
        assert values(target.servers, topic) == []
        restarted = sink_with(timeout_ms)
        try:
            run(stream(spark, lines), restarted, checkpoint)
        finally:
            restarted.close()
    assert values(target.servers, topic) == sorted(lines.all)
    assert is_soon_free(target.servers, topic)


# --- stages that Spark runs again ---------------------------------------------------------------------------


def test_a_stage_that_spark_runs_again_after_a_lost_shuffle_breaks_the_batch(
    spark_to_break: Any,
    broker: Broker,
    unique: Unique,
    sinks: MakeSink,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "fencepost.spark")
    spark, servers = spark_to_break, broker.bootstrap_servers
    topic, reached = create_topic(servers, unique("shuffle")), tmp_path / "reached"
    sink = sinks(servers, unique("shuffle"), topic=topic)
    folders = list(spark._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirsString())

    def saboteur(batches: Rows) -> Rows:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        if context is not None and context.partitionId() == 0 and not reached.exists():
            for folder in folders:
                for path in Path(folder).glob("*/shuffle_*"):
                    path.unlink()
            reached.touch()
        deadline = time.monotonic() + 60
        while not reached.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    rows = spark.range(0, 300, 1, 3).selectExpr("cast(id AS string) AS value")
    # Three tasks for two slots: the third reads its rows after one of the others is done.
    assert sink.write(shuffled(rows, 3).mapInArrow(saboteur, "value string")) == 300

    assert reached.exists()
    broken = [line for line in caplog.messages if "is run again" in line]
    assert "again, which may give other rows than before" in broken[0]
    # One is enough for the sink. Spark itself may fail a task of the next attempt: once it chose a Python worker whose
    # connection it had closed with a cancelled task.
    assert sink.recent_progress[-1].attempts == len(broken) + 1
    assert values(servers, topic) == numbers(300)
    assert is_free(servers, topic)


# --- shuffle files of two computations ------------------------------------------------------------------------


def spread(batches: Rows) -> Rows:
    """Adds a column `salt` that differs each time, which Spark does not know."""
    import pyarrow as pa

    for batch in batches:
        salt = pa.array([random.random() for _ in range(batch.num_rows)])
        yield pa.RecordBatch.from_arrays([batch.column(0), salt], ["value", "salt"])


def shuffled(frame: Any, partitions: int) -> Any:
    """The rows behind a shuffle. A row goes another way each time."""
    return frame.mapInArrow(spread, "value string, salt double").repartition(partitions, "salt").select("value")


def shuffled_twice(frame: Any) -> Any:
    """The second shuffle has four map tasks."""
    return shuffled(shuffled(frame, 4), 3)


class Shuffles:
    """Those that Spark has made since this was created."""

    def __init__(self, spark: Any) -> None:
        self._environment = spark._jvm.org.apache.spark.SparkEnv.get()
        self._tracker = self._environment.mapOutputTracker()
        self._before = self._ids()

    def _ids(self) -> set[str]:
        return set(filter(None, self._tracker.shuffleStatuses().keys().mkString(",").split(",")))

    def whole(self) -> dict[int, int]:
        """The shuffles whose map tasks have all run, and how many they are."""
        found = {}
        for shuffle_id in map(int, self._ids() - self._before):
            maps = len(self._tracker.shuffleStatuses().apply(shuffle_id).mapStatuses())
            if self._tracker.getNumAvailableOutputs(shuffle_id) == maps:
                found[shuffle_id] = maps
        return found

    def lose_some(self, count: int = 2) -> None:
        """As with an executor that dies: the files of the first map task of each shuffle are gone."""
        whole = self.whole()
        assert len(whole) >= count, "all are there"
        for shuffle_id in whole:
            self._tracker.unregisterMapOutput(shuffle_id, 0, self._environment.blockManager().blockManagerId())


def die_once(died: Path) -> Callable[[Rows], Rows]:
    def run(batches: Rows) -> Rows:
        for batch in batches:
            if not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return run


@pytest.mark.parametrize("is_cached", [pytest.param(False, marks=pytest.mark.engines), True])
def test_a_batch_that_is_run_again_reads_no_shuffle_files_and_no_cached_rows_of_the_broken_attempt(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path, is_cached: bool
) -> None:
    servers, died = broker.bootstrap_servers, tmp_path / "died"
    topic = create_topic(servers, unique("leftovers"))
    sink = sinks(servers, unique("leftovers"), topic=topic)
    shuffles = Shuffles(spark)

    @sink.batch
    def write(frame: Any, transaction: BatchTransaction) -> None:
        if is_cached:
            frame.persist().count()
        try:
            transaction.write(frame.mapInArrow(die_once(died), "value string"))
        except Exception:
            shuffles.lose_some()
            if is_cached:
                lose_cached_rows(spark)
            raise

    lines.add_batch(100)
    try:
        run(shuffled_twice(stream(spark, lines)), write, tmp_path / "checkpoint")
    finally:
        spark.catalog.clearCache()
    assert [(p.outcome, p.attempts) for p in sink.recent_progress] == [("committed", 2)]
    assert values(servers, topic) == sorted(lines.all)


def test_shuffles_that_are_jobs_of_their_own_are_not_mixed_with_what_the_write_computes_again(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, tmp_path: Path
) -> None:
    """With adaptive execution. Files are lost after the second shuffle and before the write."""
    servers, lost = broker.bootstrap_servers, tmp_path / "lost"
    topic = create_topic(servers, unique("adaptive"))
    sink = sinks(servers, unique("adaptive"), topic=topic)
    shuffles = Shuffles(spark)

    def hold_on(batches: Rows) -> Rows:
        deadline = time.monotonic() + TIMEOUT_S
        while not lost.exists():
            assert time.monotonic() < deadline, "the shuffle files were not lost in time"
            time.sleep(0.01)
        yield from batches

    def lose_some() -> None:
        wait_for(lambda: 4 in shuffles.whole().values())
        shuffles.lose_some()
        lost.touch()

    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    rows = shuffled_twice(spark.range(0, 299, 1, 3).selectExpr("cast(id AS string) AS value"))
    # The write waits for this shuffle too, whose only map task waits until the others are lost.
    late = spark.range(299, 300, 1, 1).selectExpr("cast(id AS string) AS value").mapInArrow(hold_on, "value string")
    executor = threading.Thread(target=lose_some)
    executor.start()
    assert sink.write(rows.union(late.repartition(1, "value"))) == 300
    executor.join(TIMEOUT_S)
    assert sink.recent_progress[-1].attempts == 2
    assert values(servers, topic) == numbers(300)


# --- two outputs, one computation -----------------------------------------------------------------------------


def salted(batches: Rows) -> Rows:
    """The rows differ each time, which Spark does not know."""
    import uuid

    import pyarrow as pa

    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([uuid.uuid4().hex for _ in range(batch.num_rows)])], ["value"])


def lose_cached_rows(spark: Any) -> None:
    """As with an executor that dies: the first partition of the last cached frame is gone."""
    java = spark._jvm.org.apache.spark
    rdd_id = max(spark.sparkContext._jsc.getPersistentRDDs())
    java.SparkEnv.get().blockManager().removeBlock(java.storage.RDDBlockId(rdd_id, 0), True)


@pytest.mark.parametrize("way", ["persist", "compute_once"])
def test_two_outputs_come_from_one_computation_though_cached_rows_are_lost_between_them(
    spark: Any, target: Target, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path, way: str
) -> None:
    servers = target.servers
    refunds, audit = create_topic(servers, unique("refunds")), create_topic(servers, unique("audit"))
    sink = sinks(servers, unique("two"))
    losses: list[BatchTransaction] = []

    @sink.batch
    def write(frame: Any, transaction: BatchTransaction) -> None:
        random_rows = frame.mapInArrow(salted, "value string")
        rows = random_rows.persist() if way == "persist" else transaction.compute_once(random_rows)
        transaction.write(rows, topic=refunds)
        if not losses:
            lose_cached_rows(spark)
            losses.append(transaction)
        transaction.write(rows, topic=audit)
        if way == "persist":
            rows.unpersist()

    lines.add_batch()
    try:
        run(stream(spark, lines), write, tmp_path / "checkpoint")
    finally:
        spark.catalog.clearCache()
    assert [(p.outcome, p.records, p.attempts) for p in sink.recent_progress] == [("committed", 80, 2)]
    assert len(values(servers, refunds)) == 40
    assert values(servers, refunds) == values(servers, audit)
    assert not spark.sparkContext._jsc.getPersistentRDDs(), "nothing stays on the executors"


def two_reads_of_a_frame(spark: Any, frame: Any) -> tuple[Any, Any]:
    from pyspark import StorageLevel

    rows = frame.persist(StorageLevel.MEMORY_ONLY)
    return rows, rows


def two_reads_of_a_frame_that_was_planned_before(spark: Any, frame: Any) -> tuple[Any, Any]:
    rows = frame.selectExpr("value || '!' AS value")
    rows.collect()  # Spark keeps the plan, which has no cache.
    return two_reads_of_a_frame(spark, rows)


def two_reads_of_an_rdd(spark: Any, frame: Any) -> tuple[Any, Any]:
    rows = frame.rdd.map(lambda row: (row.value,)).cache()  # In memory only: the default of an RDD.
    made = spark.createDataFrame(rows, "value string")
    return made, made


def two_caches_behind_one(spark: Any, frame: Any) -> tuple[Any, Any]:
    rows, _ = two_reads_of_a_frame(spark, frame)
    return rows.selectExpr("'b' AS value").persist(), rows.selectExpr("'c' AS value").persist()


def two_broadcasts(spark: Any, frame: Any) -> tuple[Any, Any]:
    """The rows of a broadcast are in no lineage of RDDs."""
    from pyspark.sql.functions import broadcast

    rows, _ = two_reads_of_a_frame(spark, frame)
    joined = frame.selectExpr("value || '' AS value").join(broadcast(rows), "value")
    return joined.selectExpr("'b' AS value").persist(), joined.selectExpr("'c' AS value").persist()


@pytest.mark.parametrize(
    "two_reads",
    [
        two_reads_of_a_frame,
        two_reads_of_a_frame_that_was_planned_before,
        two_reads_of_an_rdd,
        two_caches_behind_one,
        two_broadcasts,
    ],
)
def test_rows_that_are_cached_in_memory_only_are_refused_for_a_second_output(
    spark: Any,
    broker: Broker,
    unique: Unique,
    sinks: MakeSink,
    lines: Lines,
    tmp_path: Path,
    two_reads: Callable[[Any, Any], tuple[Any, Any]],
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("memory"))
    sink = sinks(servers, unique("memory"), topic=topic)

    @sink.batch
    def write(frame: Any, transaction: BatchTransaction) -> None:
        first, second = two_reads(spark, frame)
        transaction.write(first)
        with contextlib.suppress(Exception):  # Hiding it does not help.
            transaction.write(second)

    lines.add_batch()
    try:
        with pytest.raises(Exception, match="write 2 of the micro-batch reads rows that are cached with") as refused:
            run(stream(spark, lines), write, tmp_path / "checkpoint")
    finally:
        give_up_caches(spark)
    assert "hint: transaction.compute_once(frame)" in str(refused.value)
    assert values(servers, topic) == []


def give_up_caches(spark: Any) -> None:
    spark.catalog.clearCache()
    for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
        rdd.unpersist(True)


# --- the user's function ------------------------------------------------------------------------------------


def test_a_function_that_hides_the_failure_of_a_write_does_not_get_half_of_it_committed(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic, fallback = create_topic(servers, unique("hidden")), create_topic(servers, unique("hidden"))
    sink = sinks(servers, unique("hidden"))
    wait = until_half_written(servers, topic)

    def strict(batches: Rows) -> Rows:
        for batch in batches:
            if "file 2 line 0" in batch.column(0).to_pylist():
                wait()
                raise ValueError("not to my liking")
            yield batch

    @sink.batch
    def write(frame: Any, transaction: BatchTransaction) -> None:
        try:
            transaction.write(frame.mapInArrow(strict, "value string"), topic=topic)
        except Exception:
            transaction.write(frame, topic=fallback)

    lines.add_batch()
    with pytest.raises(Exception, match="not to my liking"):
        run(stream(spark, lines), write, tmp_path / "checkpoint")
    for name in (topic, fallback):
        assert values(servers, name) == []
        assert is_free(servers, name)


# --- topics and brokers -------------------------------------------------------------------------------------


def test_a_topic_that_grows_between_the_tasks_of_a_write_breaks_the_batch_so_that_a_key_keeps_its_partition(
    spark: Any, target: Target, unique: Unique, sinks: MakeSink
) -> None:
    servers = target.servers
    topic = create_topic(servers, unique("grows"), 2)
    sink = sinks(servers, unique("grows"))
    wait = until_half_written(servers, topic)

    def growing(batches: Rows) -> Rows:
        """The second task makes the topic larger when the first has written to it, and finds it larger."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.partitionId() == 1 and partition_count(servers, topic) == 2:
            wait()
            grow(servers, topic, 5)
        yield from batches

    # Both tasks have the same keys. The rows name the topic, so each task looks it up.
    rows = spark.range(0, 80, 1, 2).selectExpr("cast(id % 40 AS string) AS value")
    named = rows.mapInArrow(growing, "value string").selectExpr(f"'{topic}' AS topic", "value AS key", "value")
    assert sink.write(named) == 80

    assert sink.recent_progress[-1].attempts == 2
    places: dict[bytes | None, list[int]] = {}
    for record in read(servers, topic):
        places.setdefault(record.key, []).append(record.partition)
    assert len(places) == 40
    assert all(len(where) == 2 and len(set(where)) == 1 for where in places.values()), "a key keeps its partition"
    assert is_soon_free(servers, topic)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("txn.prepare.before", marks=pytest.mark.engines),
        "txn.prepare.after",
        pytest.param("txn.marker.after:2", marks=pytest.mark.engines),
    ],
)
def test_a_broker_that_dies_while_it_commits_has_committed_once_when_it_is_back(
    spark: Any, start_broker: StartBroker, sinks: MakeSink, lines: Lines, tmp_path: Path, point: str
) -> None:
    broker = start_broker(fencepost_crash_at=point)
    servers = broker.bootstrap_servers
    topic = create_topic(servers, "out")
    sink = sinks(servers, "commits", topic=topic)
    lines.add_batch()
    query = start(stream(spark, lines), sink, tmp_path / "checkpoint")
    assert broker.wait_for_exit(TIMEOUT_S) == -signal.SIGKILL
    del broker.settings["fencepost.crash.at"]
    broker.restart()
    assert query.awaitTermination(TIMEOUT_S)
    assert [(p.outcome, p.attempts) for p in sink.recent_progress] == [("committed", 1)]
    assert values(servers, topic) == sorted(lines.all)
    assert is_free(servers, topic)
