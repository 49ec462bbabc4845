"""The exactly-once sink beside Spark's own Kafka sink: same frame, same broker, in turn.

    python -m benchmarks.spark_sink [--repetitions N] [--scale F] [--fencepost] [--memory] [--json]

Spark's own sink (acks=all, idempotent) runs with its default batch size and with a large one. Frames are cached, every
write has a topic of its own, the first rounds are a warm-up, and the results are medians. Then comes a stream of twenty
micro-batches, end to end. Each row of the table has a Spark of its own: how well Java's compiler knows the code of a
sink must not depend on the rows before. `--memory` instead measures a Python worker that writes five million records in
one task.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from fencepost.cli.streams import say
from fencepost.spark import configure
from fencepost.spark.connector import connector_jars
from fencepost.spark.sink import ExactlyOnceSink
from fencepost.testing import Broker
from tests.engines.apache_kafka import SERVER_JVM, apache_kafka
from tests.engines.java import java_home, why_no_java

PARTITIONS = 6


class Frame(NamedTuple):
    name: str
    records: int
    value_bytes: int


FRAMES = (Frame("1 M records of 100 B", 1_000_000, 100), Frame("200 k records of 1 KiB", 200_000, 1024))
STREAM_BATCHES, STREAM_RECORDS_A_BATCH = 20, 50_000
# Rounds that do not count, because Java's compiler has not seen the code yet. A stream has twenty writes in a round.
WARM_UP, STREAM_WARM_UP = 10, 1
# Apache Kafka keeps the files of a deleted topic for a minute, and the system would write them to disk during the next
# measurements.
DELETE_AT_ONCE = {"log.segment.delete.delay.ms": 0}
MEMORY_RECORDS = 5_000_000
TUNED = {"kafka.linger.ms": "5", "kafka.batch.size": "1000000", "kafka.buffer.memory": "67108864"}
OWN, OWN_TUNED = "Spark's own sink", "Spark's own sink, large batches"
# The planes of the exactly-once sink, by name.
OURS = {"exactly once": "jvm", "exactly once, Python tasks": "python"}
Found = dict[str, dict[str, list[float]]]


@contextmanager
def spark_session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.jars", ",".join(map(str, connector_jars() or ())))
    )
    session = configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def records(spark: Any, count: int, value_bytes: int, partitions: int = PARTITIONS) -> Any:
    """Distinct keys, and values that do not compress to almost nothing."""
    from pyspark.sql import functions as f

    text = f.repeat(f.md5(f.col("id").cast("string")), value_bytes // 32 + 1)
    return spark.range(0, count, 1, partitions).select(
        f.col("id").cast("string").cast("binary").alias("key"),
        f.substring(text, 1, value_bytes).cast("binary").alias("value"),
    )


@contextmanager
def topic(servers: str) -> Iterator[str]:
    """A topic for one write, deleted afterwards so that the benchmark does not fill the disk."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    # If the first of several batches comes before the partition is there and the others after, Java's producer sends it
    # again without end, until its delivery timeout of 120 s.
    latest = {TopicPartition(name, index): OffsetSpec.latest() for index in range(PARTITIONS)}
    while any(answer.exception(30) for answer in admin.list_offsets(latest).values()):
        time.sleep(0.01)
    yield name
    admin.delete_topics([name])[name].result(30)


def writers(servers: str, sinks: Mapping[str, ExactlyOnceSink]) -> dict[str, Callable[[Any, str], None]]:
    def own(options: dict[str, str]) -> Callable[[Any, str], None]:
        return lambda frame, topic: _own_sink(frame.write, servers, topic, options).save()

    def ours(sink: ExactlyOnceSink) -> Callable[[Any, str], None]:
        return lambda frame, topic: _check(sink.write(frame, topic))

    return {OWN: own({}), OWN_TUNED: own(TUNED), **{name: ours(sink) for name, sink in sinks.items()}}


def _own_sink(writer: Any, servers: str, topic: str, options: dict[str, str]) -> Any:
    settings = {"kafka.bootstrap.servers": servers, "kafka.acks": "all", "kafka.enable.idempotence": "true"}
    return writer.format("kafka").options(**settings, **options, topic=topic)


def _check(written: int) -> None:
    assert written > 0, "nothing was written"


def measure_frame(frame_of: Frame, servers: str, broker: str, repetitions: int, scale: float) -> Found:
    count = int(frame_of.records * scale)
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        spark = stack.enter_context(spark_session())
        sinks = {
            name: stack.enter_context(closing(ExactlyOnceSink(_settings(servers, f"bench-{plane}", plane))))
            for name, plane in OURS.items()
        }
        frame = records(spark, count, frame_of.value_bytes).cache()
        frame.count()
        for repetition in range(1 - WARM_UP, repetitions + 1):
            for contender, write in writers(servers, sinks).items():
                with topic(servers) as target:
                    began = time.perf_counter()
                    write(frame, target)
                    rate = count / (time.perf_counter() - began)
                note_rate(rates, f"{broker}: {frame_of.name}", contender, rate, repetition)
    return {f"{broker}: {frame_of.name}": rates}


def note_rate(rates: dict[str, list[float]], case: str, contender: str, rate: float, repetition: int) -> None:
    say(f"{case}, {contender}: {rate:,.0f} records/s" + ("" if repetition > 0 else " (warming up)"))
    if repetition > 0:
        rates.setdefault(contender, []).append(rate)


def _settings(servers: str, transactional_id: str, plane: str) -> dict[str, str]:
    return {"bootstrap.servers": servers, "transactional.id": transactional_id, "fencepost.plane": plane}


def measure_stream(servers: str, broker: str, repetitions: int, scale: float) -> Found:
    """Twenty files, one for each micro-batch, timed from the start of the query to its end."""
    name = f"{broker}: {STREAM_BATCHES} micro-batches of {STREAM_RECORDS_A_BATCH} x 100 B"
    rates: dict[str, list[float]] = {}
    count = int(STREAM_RECORDS_A_BATCH * scale)
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as folder, spark_session() as spark:
        for number in range(STREAM_BATCHES):
            records(spark, count, 100).write.parquet(f"{folder}/all/{number:02}")
        schema = spark.read.parquet(f"{folder}/all/00").schema
        source = Path(folder) / "source"
        source.mkdir()
        for number in range(STREAM_BATCHES):
            for index, part in enumerate(sorted(Path(f"{folder}/all/{number:02}").glob("*.parquet"))):
                shutil.copy(part, moved := source / f"{number:02}-{index}.parquet")
                os.utime(moved, (1000 + number, 1000 + number))  # Spark takes them in this order.
        for repetition in range(1 - STREAM_WARM_UP, repetitions + 1):
            for contender in (OWN, OWN_TUNED, *OURS):
                with topic(servers) as target:
                    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", PARTITIONS)
                    writer = reader.parquet(str(source)).writeStream.trigger(availableNow=True)
                    writer = writer.option("checkpointLocation", f"{folder}/checkpoint-{uuid.uuid4().hex}")
                    plane = OURS.get(contender)
                    sink = ExactlyOnceSink({**_settings(servers, target, plane), "topic": target}) if plane else None
                    began = time.perf_counter()
                    if sink is not None:
                        query = writer.foreachBatch(sink).start()
                    else:
                        query = _own_sink(writer, servers, target, TUNED if contender == OWN_TUNED else {}).start()
                    query.awaitTermination()
                    rate = count * STREAM_BATCHES / (time.perf_counter() - began)
                    if sink is not None:
                        assert sum(p.records for p in sink.recent_progress) == count * STREAM_BATCHES
                        sink.close()
                note_rate(rates, name, contender, rate, repetition)
    return {name: rates}


def in_new_process(measure: Callable[..., Found], *arguments: Any) -> Found:
    """Spark's JVM lives as long as the Python process that started it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_with_traceback, measure, *arguments).result()


def _with_traceback(measure: Callable[..., Found], *arguments: Any) -> Found:
    try:
        return measure(*arguments)
    except Exception:
        # Exceptions of Spark belong to their process.
        raise RuntimeError(traceback.format_exc()) from None


class PeakMemory(threading.Thread):
    """The largest memory of any Python worker below this process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                try:
                    if "pyspark" in " ".join(process.cmdline()) and "java" not in process.name():
                        self.peak_bytes = max(self.peak_bytes, process.memory_info().rss)
                except psutil.Error:
                    continue

    def end(self) -> int:
        self._ended.set()
        self.join()
        return self.peak_bytes


def measure_memory(spark: Any, servers: str) -> dict[str, float]:
    watch = PeakMemory()
    watch.start()
    with topic(servers) as target:
        sink = ExactlyOnceSink({"bootstrap.servers": servers, "transactional.id": "bench-memory"})
        written = sink.write(records(spark, MEMORY_RECORDS, 100, partitions=1), target)
        sink.close()
    return {"records": written, "peak of a Python worker, MB": watch.end() / 1e6}


def show(found: Found) -> None:
    print(f"| records/s | {' | '.join((OWN, OWN_TUNED, *OURS))} |")
    print("|---" * (3 + len(OURS)) + "|")
    for name, rates in found.items():
        medians = {contender: statistics.median(measured) for contender, measured in rates.items()}
        best = max(medians[OWN], medians[OWN_TUNED])
        ours = [f"{medians[contender]:,.0f} ({medians[contender] / best:.2f})" for contender in OURS]
        print(f"| {name} | {medians[OWN]:,.0f} | {medians[OWN_TUNED]:,.0f} | {' | '.join(ours)} |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_sink", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the records, for a quick look")
    parser.add_argument("--memory", action="store_true", help="only the memory of a worker")
    parser.add_argument("--fencepost", action="store_true", help="only on Fencepost, not on Apache Kafka")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    problem = why_no_java()
    if problem or connector_jars() is None:
        raise SystemExit(f"error: {problem or 'the jars of the Kafka connector are missing'}\n\nhint: make setup")
    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-bench-"))
        ours = stack.enter_context(Broker(data=data))
        if options.memory:
            with spark_session() as spark:
                print(json.dumps(measure_memory(spark, ours.bootstrap_servers)))
            return
        targets = [("Fencepost", ours.bootstrap_servers)]
        if not options.fencepost:
            kafka = stack.enter_context(apache_kafka(DELETE_AT_ONCE, jvm=SERVER_JVM))
            targets.insert(0, ("Apache Kafka", kafka.bootstrap_servers))
        found: Found = {}
        for broker, servers in targets:
            for frame in FRAMES:
                found |= in_new_process(measure_frame, frame, servers, broker, options.repetitions, options.scale)
            found |= in_new_process(measure_stream, servers, broker, options.repetitions, options.scale)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)


if __name__ == "__main__":
    main()
