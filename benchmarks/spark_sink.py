"""The exactly-once sink beside Spark's own Kafka sink: same frame, same broker, in turn.

    python -m benchmarks.spark_sink [--repetitions N] [--scale F] [--fencepost] [--memory] [--lease-tls] [--json]

Spark's own sink (acks=all, idempotent) runs with its default batch size and with a large one. Frames are cached, every
write has a topic of its own, the first rounds are a warm-up, and the results are medians. Then comes a stream of twenty
micro-batches, end to end. Each sink has a Spark of its own in every row of the table, as in an application: how well
Java's compiler knows its code, and how much garbage there is to collect, must not depend on other sinks. `--memory`
instead measures a Python worker that writes five million records in one task, `--lease-tls` the stream with and without
TLS on the lease port.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
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
STREAM_BATCHES = 20
STREAM = Frame(f"{STREAM_BATCHES} micro-batches of 50,000 x 100 B", STREAM_BATCHES * 50_000, 100)
# Rounds that do not count, because Java's compiler has not seen the code yet. A stream has twenty writes in a round.
WARM_UP, STREAM_WARM_UP = 10, 1
# Apache Kafka keeps the files of a deleted topic for a minute, and the system would write them to disk during the next
# measurements.
DELETE_AT_ONCE = {"log.segment.delete.delay.ms": 0}
MEMORY_RECORDS = 5_000_000
TUNED = {"kafka.linger.ms": "5", "kafka.batch.size": "1000000", "kafka.buffer.memory": "67108864"}
OWN, OWN_TUNED = "Spark's own sink", "Spark's own sink, large batches"
OWN_SETTINGS: dict[str, dict[str, str]] = {OWN: {}, OWN_TUNED: TUNED}
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


def _own_sink(writer: Any, servers: str, topic: str, options: dict[str, str]) -> Any:
    settings = {"kafka.bootstrap.servers": servers, "kafka.acks": "all", "kafka.enable.idempotence": "true"}
    return writer.format("kafka").options(**settings, **options, topic=topic)


def _settings(servers: str, transactional_id: str, plane: str) -> dict[str, str]:
    return {"bootstrap.servers": servers, "transactional.id": transactional_id, "fencepost.plane": plane}


class FrameWriter:
    """Writes one cached frame with one sink."""

    def __init__(self, spark: Any, frame: Frame, contender: str, servers: str, scale: float) -> None:
        self._servers = servers
        self._contender = contender
        self.records = int(frame.records * scale)
        self._frame = records(spark, self.records, frame.value_bytes).cache()
        self._frame.count()
        plane = OURS.get(contender)
        self._sink = ExactlyOnceSink(_settings(servers, f"bench-{plane}", plane)) if plane else None

    def write(self, topic: str) -> float:
        began = time.perf_counter()
        if self._sink is not None:
            assert self._sink.write(self._frame, topic) == self.records
        else:
            _own_sink(self._frame.write, self._servers, topic, OWN_SETTINGS[self._contender]).save()
        return time.perf_counter() - began

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()


class StreamWriter:
    """Writes twenty files, one for each micro-batch, with one sink: timed from the start of the query to its end."""

    def __init__(self, spark: Any, frame: Frame, contender: str, servers: str, scale: float) -> None:
        self._spark = spark
        self._servers = servers
        self._contender = contender
        self._folder = Path(tempfile.mkdtemp(prefix="fencepost-bench-"))
        self.records = int(frame.records * scale)
        count = self.records // STREAM_BATCHES
        for number in range(STREAM_BATCHES):
            records(spark, count, frame.value_bytes).write.parquet(f"{self._folder}/all/{number:02}")
        self._schema = spark.read.parquet(f"{self._folder}/all/00").schema
        self._source = self._folder / "source"
        self._source.mkdir()
        for number in range(STREAM_BATCHES):
            for index, part in enumerate(sorted(Path(f"{self._folder}/all/{number:02}").glob("*.parquet"))):
                shutil.copy(part, moved := self._source / f"{number:02}-{index}.parquet")
                os.utime(moved, (1000 + number, 1000 + number))  # Spark takes them in this order.

    def write(self, topic: str, **more: str) -> float:
        """more: settings of our sink."""
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", PARTITIONS)
        writer = reader.parquet(str(self._source)).writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", f"{self._folder}/checkpoint-{uuid.uuid4().hex}")
        plane = OURS.get(self._contender)
        sink = ExactlyOnceSink({**_settings(self._servers, topic, plane), "topic": topic, **more}) if plane else None
        began = time.perf_counter()
        if sink is not None:
            query = writer.foreachBatch(sink).start()
        else:
            query = _own_sink(writer, self._servers, topic, OWN_SETTINGS[self._contender]).start()
        query.awaitTermination()
        took = time.perf_counter() - began
        if sink is not None:
            assert sum(p.records for p in sink.recent_progress) == self.records
            sink.close()
        return took

    def close(self) -> None:
        shutil.rmtree(self._folder)


class Contender:
    """One sink in a process of its own: Spark's JVM lives as long as the Python process that started it."""

    def __init__(self, *arguments: Any) -> None:
        self._process = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        self.records: int = self._process.submit(_in_process, _open, *arguments).result()

    def write(self, topic: str) -> float:
        took: float = self._process.submit(_in_process, _write, topic).result()
        return took

    def close(self) -> None:
        self._process.submit(_in_process, _close).result()
        self._process.shutdown()


# Of the process of a contender: its Spark, and its writer.
_opened: list[tuple[ExitStack, FrameWriter | StreamWriter]] = []


def _open(frame: Frame, contender: str, servers: str, scale: float) -> int:
    stack = ExitStack()
    spark = stack.enter_context(spark_session())
    kind = StreamWriter if frame == STREAM else FrameWriter
    writer = stack.enter_context(closing(kind(spark, frame, contender, servers, scale)))
    _opened.append((stack, writer))
    return writer.records


def _write(topic: str) -> float:
    return _opened[0][1].write(topic)


def _close() -> None:
    _opened.pop()[0].close()


def _in_process(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception:
        # Exceptions of Spark belong to their process.
        raise RuntimeError(traceback.format_exc()) from None


def measure(frame: Frame, servers: str, broker: str, repetitions: int, scale: float) -> Found:
    case = f"{broker}: {frame.name}"
    rates: dict[str, list[float]] = {}
    warm_up = STREAM_WARM_UP if frame == STREAM else WARM_UP
    with ExitStack() as stack:
        contenders = {
            name: stack.enter_context(closing(Contender(frame, name, servers, scale)))
            for name in (*OWN_SETTINGS, *OURS)
        }
        for repetition in range(1 - warm_up, repetitions + 1):
            for name, contender in contenders.items():
                with topic(servers) as target:
                    rate = contender.records / contender.write(target)
                say(f"{case}, {name}: {rate:,.0f} records/s" + ("" if repetition > 0 else " (warming up)"))
                if repetition > 0:
                    rates.setdefault(name, []).append(rate)
    return {case: rates}


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


def cpu_s() -> float:
    """Of this process and all below it (Spark, Python workers, the broker), with their children that have ended."""
    found = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            found += sum(process.cpu_times()[:4])
    return found


def measure_lease_tls(servers: str, repetitions: int, scale: float) -> dict[str, dict[str, float]]:
    """The stream with a lease port that is encrypted, against one that is not, by turns in the same session."""
    found: dict[str, dict[str, float]] = {}
    for contender in OURS:
        took: dict[str, list[float]] = {"false": [], "true": []}
        busy: dict[str, list[float]] = {"false": [], "true": []}
        with spark_session() as spark, closing(StreamWriter(spark, STREAM, contender, servers, scale)) as writer:
            for repetition in range(1 - STREAM_WARM_UP, repetitions + 1):
                for tls in took:
                    with topic(servers) as target:
                        before = cpu_s()
                        seconds = writer.write(target, **{"fencepost.lease.tls": tls})
                        cpu = cpu_s() - before
                    say(f"{contender}, fencepost.lease.tls={tls}: {seconds:.2f} s, CPU {cpu:.2f} s")
                    if repetition > 0:
                        took[tls].append(seconds)
                        busy[tls].append(cpu)
        for kind, values in (("ms", took), ("CPU ms", busy)):
            clear, encrypted = (statistics.median(values[tls]) * 1000 / STREAM_BATCHES for tls in values)
            pairs = zip(values["true"], values["false"], strict=True)
            ratio = statistics.median(one / other for one, other in pairs)
            found[f"{contender}, {kind} of a micro-batch"] = {"clear": clear, "TLS": encrypted, "ratio": ratio}
    return found


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
    parser.add_argument("--lease-tls", action="store_true", help="only what TLS on the lease port costs a micro-batch")
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
        if options.lease_tls:
            print(json.dumps(measure_lease_tls(ours.bootstrap_servers, options.repetitions, options.scale), indent=1))
            return
        targets = [("Fencepost", ours.bootstrap_servers)]
        if not options.fencepost:
            kafka = stack.enter_context(apache_kafka(DELETE_AT_ONCE, jvm=SERVER_JVM))
            targets.insert(0, ("Apache Kafka", kafka.bootstrap_servers))
        found: Found = {}
        for broker, servers in targets:
            for frame in (*FRAMES, STREAM):
                found |= measure(frame, servers, broker, options.repetitions, options.scale)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)


if __name__ == "__main__":
    main()
