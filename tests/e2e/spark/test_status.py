"""What Spark says about its jobs and caches: the same with and without the jar, and in few calls of its JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark.driver.jar_status import JarStatus
from fencepost.spark.driver.jobs import is_settled, when_settled
from fencepost.spark.driver.spark_facts import SKIPPED, JobsSeen
from fencepost.spark.driver.spark_status import DROPPED_EVENTS, SparkStatus, dropped_before_now
from fencepost.spark.jvm.jar import FACTS_CLASS, load_from_jar
from fencepost.spark.sink import ExactlyOnceSink
from fencepost.testing import Broker
from tests.e2e.spark.streams import Lines, create_topic, forget_stage, run, settings, stream

pytestmark = pytest.mark.java

Unique = Callable[[str], str]
TAG = "fencepost-test"


def sources(spark: Any) -> list[SparkStatus]:
    java_facts = load_from_jar(spark, FACTS_CLASS)
    assert java_facts is not None
    return [SparkStatus(spark.sparkContext), JarStatus(spark.sparkContext, java_facts)]


def settled_jobs(source: SparkStatus, first: int) -> JobsSeen:
    def look() -> JobsSeen:
        return source.jobs_since(first, TAG)

    return when_settled(look(), look, lambda seen: is_settled(seen, range(first, seen.so_far)))


@contextlib.contextmanager
def cached_frames(spark: Any, *sizes: int) -> Iterator[list[Any]]:
    from pyspark import StorageLevel

    levels = (StorageLevel.MEMORY_AND_DISK, StorageLevel.MEMORY_ONLY)
    frames = [spark.range(0, size, 1, 2).persist(levels[n % 2]) for n, size in enumerate(sizes)]
    try:
        for frame in frames:
            frame.count()
        yield frames
    finally:
        for frame in frames:
            frame.unpersist(blocking=True)


def test_both_sources_show_the_same_jobs_and_stages(spark: Any) -> None:
    context = spark.sparkContext
    plain, jar = sources(spark)
    first = plain.tag_jobs(TAG).jobs
    try:
        spark.range(10).repartition(2).count()
        assert jar.tag_jobs(TAG).jobs > first
    finally:
        context.removeJobTag(TAG)
    ours_until = plain.jobs_since(first, TAG).so_far
    spark.range(5).count()  # Without the tag.
    looks = [settled_jobs(source, first) for source in (plain, jar)]
    assert looks[0] == looks[1]
    assert looks[0].so_far > ours_until
    assert looks[0].shown == set(range(first, looks[0].so_far))
    assert sorted(looks[0].ours) == list(range(first, ours_until))
    assert all(set(job.attempts.values()) <= {0, None} and job.attempts for job in looks[0].ours.values())
    wanted = [*range(first, ours_until), 1_000_000]
    assert plain.jobs(wanted) == jar.jobs(wanted) == looks[0].ours
    assert plain.jobs([]) == jar.jobs([]) == {}
    assert jar.jobs_since(looks[0].so_far, TAG) == plain.jobs_since(looks[0].so_far, TAG)


def test_both_sources_tell_a_forgotten_stage_that_was_skipped_from_one_that_may_have_run(spark: Any) -> None:
    context = spark.sparkContext
    plain, jar = sources(spark)
    shuffled = context.parallelize([(1, 1)], 1).groupByKey(1)
    first = plain.tag_jobs(TAG).jobs
    try:
        shuffled.count()
        shuffled.count()
    finally:
        context.removeJobTag(TAG)
    job, again = settled_jobs(plain, first).ours.values()
    (wrote, read), (skipped, read_again) = sorted(job.attempts), sorted(again.attempts)

    def look() -> list[dict[int, int | None]]:
        looks = [[dict(job.attempts) for job in source.jobs([first, first + 1]).values()] for source in (plain, jar)]
        assert looks[0] == looks[1]
        return looks[0]

    forget_stage(spark, skipped)
    assert look() == [{wrote: 0, read: 0}, {skipped: SKIPPED, read_again: 0}]
    forget_stage(spark, wrote)
    forget_stage(spark, read_again)
    assert look() == [{wrote: None, read: 0}, {skipped: None, read_again: None}]


def test_both_sources_count_the_events_that_sparks_status_has_missed(spark: Any) -> None:
    metrics = spark.sparkContext._jsc.sc().listenerBus().metrics().metricRegistry()
    context = spark.sparkContext
    before = dropped_before_now().of(context)
    metrics.counter(DROPPED_EVENTS).inc(2)
    for source in sources(spark):
        so_far = source.tag_jobs(TAG)
        context.removeJobTag(TAG)
        looks = [source.jobs_since(first, TAG) for first in (0, so_far.jobs)]
        assert {so_far.dropped_events, *(seen.dropped_events for seen in looks)} == {before + 2}


def test_both_sources_show_the_same_caches_and_executors(spark: Any) -> None:
    plain, jar = sources(spark)
    assert plain.caches() == jar.caches()
    with cached_frames(spark, 10, 20):
        assert plain.caches() == jar.caches()
        levels = jar.caches().levels
        assert sorted(levels.values())[-2:] == [(1, False), (1, True)]
        [(_, blocks)] = jar.caches().blocks
        assert all(f"rdd_{rdd_id}_{partition}" in blocks for rdd_id in levels for partition in (0, 1))
    assert plain.executors() == jar.executors()
    assert [executor.is_gone for executor in jar.executors()] == [False]


def test_both_sources_find_the_same_caches_behind_a_frame(spark: Any) -> None:
    """Behind others, in a broadcast, in a subquery, and in the lineage of an RDD."""
    from pyspark.sql.functions import broadcast

    plain, jar = sources(spark)
    numbers = spark.range(7)
    with cached_frames(spark, 10, 20) as (stored, in_memory):
        rdd = numbers.rdd.map(lambda row: (row.id,)).cache()
        made, behind = spark.createDataFrame(rdd, "id long"), in_memory.selectExpr("id + 1 AS id").persist()
        joined = numbers.join(broadcast(in_memory), "id").groupBy("id").count().persist()
        in_memory.createOrReplaceTempView("in_memory")
        disk, memory = {True}, {False}
        expected = [
            (numbers, set()),
            (stored.join(numbers, "id"), disk),
            (stored.join(in_memory, "id"), disk | memory),
            (made.groupBy("id").count(), memory),
            (behind.repartition(3), disk | memory),
            (joined, disk | memory),
            (numbers.where("id IN (SELECT id FROM in_memory)"), memory),
            (made.localCheckpoint(), disk),
        ]
        try:
            for frame, have_disk in expected:
                levels = plain.caches_behind(frame)
                assert levels == jar.caches_behind(frame)
                assert {level.has_disk for level in levels} == have_disk
        finally:
            spark.catalog.dropTempView("in_memory")
            for cached in (rdd, behind, joined):
                cached.unpersist()


@pytest.fixture
def calls(spark: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of Spark's JVM, without those in which Python's garbage collector gives objects back."""
    made: list[str] = []
    kind = type(spark.sparkContext._gateway._gateway_client)

    def counted(client: Any, command: str, *more: Any, _send: Any = kind.send_command, **named: Any) -> Any:
        if not command.startswith("m\n"):
            made.append(command)
        return _send(client, command, *more, **named)

    monkeypatch.setattr(kind, "send_command", counted)
    return made


# With tasks in Python workers, a look has a call for each small question, and PySpark sets mapInArrow up.
@pytest.mark.parametrize(("plane", "most"), [("jvm", 11), ("python", 200)])
def test_a_write_of_a_cached_frame_takes_few_calls_of_sparks_jvm(
    spark: Any, broker: Broker, unique: Unique, calls: list[str], plane: str, most: int
) -> None:
    topic = create_topic(broker.bootstrap_servers, unique("calls"))
    sink = ExactlyOnceSink(settings(broker.bootstrap_servers, unique("calls"), topic=topic, fencepost_plane=plane))
    with cached_frames(spark, 10, 20) as frames, contextlib.closing(sink):
        rows = frames[0].selectExpr("cast(id AS string) AS value")
        assert sink.write(rows) == 10
        calls.clear()
        assert sink.write(rows) == 10
        made = len(calls)
    assert made <= most


@pytest.mark.parametrize(("plane", "most"), [("jvm", 18), ("python", 135)])
def test_a_micro_batch_takes_few_calls_of_sparks_jvm(
    spark: Any, broker: Broker, unique: Unique, calls: list[str], tmp_path: Path, plane: str, most: int
) -> None:
    topic, lines = create_topic(broker.bootstrap_servers, unique("calls")), Lines(tmp_path / "lines")
    sink = ExactlyOnceSink(settings(broker.bootstrap_servers, unique("calls"), topic=topic, fencepost_plane=plane))
    counts = []

    def counting(frame: Any, batch_id: int) -> None:
        calls.clear()
        sink(frame, batch_id)
        counts.append(len(calls))

    for _ in range(3):
        lines.add_batch()
    with contextlib.closing(sink):
        run(stream(spark, lines), counting, tmp_path / "checkpoint")
    assert len(counts) == 3
    # Other threads of this process may call Spark's JVM meanwhile, so the smaller count is that of the sink.
    assert min(counts[1:]) <= most
