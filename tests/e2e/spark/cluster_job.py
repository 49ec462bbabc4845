"""A driver on a Spark cluster that runs scenarios: `cluster_job.py MASTER`, scenarios in and outcomes out as JSON.

A line {"scenario": NAME, "plane": ..., "servers": ..., "topic": ..., "transactional_id": ..., "folder": ...} runs one
of the functions below on the rows "0", "1", ...; the answer is {"attempts": N} or {"error": TEXT}. Each of four tasks
writes to a partition of its own. The first rows of the last task are so large that it writes some of them before the
others come.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

Rows = Iterator[Any]
PARTITIONS = 4
ROWS = 40
# Two of them are more than a task gathers before it writes. Two more are on their way between two Python workers.
LARGE, HOW_MANY = 5 << 20, 4


def in_task(folder: str, slow: Callable[[int, int, Path, Rows], Rows]) -> Callable[[Rows], Rows]:
    """For mapInArrow; `slow` is called with the partition, the number of the attempt, a folder and the rows."""

    def run(batches: Rows) -> Rows:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from slow(context.partitionId(), context.attemptNumber(), Path(folder), batches)

    return run


def with_slow_tasks(partition: int, attempt: int, folder: Path, batches: Rows) -> Rows:
    """Partition 2 hangs before its first row, partition 3 after a write. Their copies do not hang."""
    import time

    (folder / f"{partition}.{attempt}").touch()
    if partition == 2 and attempt == 0:
        time.sleep(600)  # Spark takes the rows of the copy, and kills this attempt.
    yield from islice(batches, HOW_MANY)
    if partition == 3 and attempt == 0:
        while not (folder / "3.1").exists() or not (folder / "written").exists():
            time.sleep(0.02)
        time.sleep(1)  # Enough for the copy to ask for a lease. If it is late, it asks after this attempt is done.
    yield from batches


def killing_the_executor(after_a_write: bool) -> Callable[[int, int, Path, Rows], Rows]:
    def run(partition: int, attempt: int, folder: Path, batches: Rows) -> Rows:
        import os
        import signal
        import time

        import psutil

        # The first attempt that gets here, which need not be number 0: Spark may have sent that to a dead executor.
        if partition == 3 and not (folder / "killed").exists():
            if after_a_write:
                yield from islice(batches, HOW_MANY)
                while not (folder / "written").exists():
                    time.sleep(0.02)
            else:
                # A task in the same executor dies, too. The others are done a moment after they have read their rows.
                while not all((folder / f"read {other}").exists() for other in range(PARTITIONS - 1)):
                    time.sleep(0.02)
                time.sleep(1)
            (folder / "killed").touch()
            # The parent of a worker is a daemon, whose parent is the executor.
            executor = psutil.Process(os.getppid()).ppid()
            os.kill(executor, signal.SIGKILL)
            time.sleep(600)
        yield from batches
        (folder / f"read {partition}").touch()

    return run


SCENARIOS = {
    "speculation": with_slow_tasks,
    "killed before a write": killing_the_executor(after_a_write=False),
    "killed after a write": killing_the_executor(after_a_write=True),
}


def salted(batches: Rows) -> Rows:
    """The rows differ each time, which Spark does not know. The task holds on, so that every executor gets one."""
    import time
    import uuid

    import pyarrow as pa

    time.sleep(0.5)
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([uuid.uuid4().hex for _ in range(batch.num_rows)])], ["value"])


def kill_an_executor(batches: Rows) -> Rows:
    import os
    import signal

    import psutil

    os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)
    yield from batches


def two_outputs(spark: Any, sink: Any, order: dict[str, str]) -> None:
    """Two outputs from one cached frame. After the first of them an executor dies, once, with its part of the cache."""
    lines, killed = Path(order["folder"], "lines"), Path(order["folder"], "killed")
    lines.mkdir()
    for number in range(PARTITIONS):
        (lines / f"{number}.txt").write_text("".join(f"{n}\n" for n in range(ROWS // PARTITIONS)))

    @sink.batch  # type: ignore[untyped-decorator]
    def write(frame: Any, transaction: Any) -> None:
        rows = frame.repartition(PARTITIONS).mapInArrow(salted, "value string").persist()
        transaction.write(rows)
        if not killed.exists():
            killed.touch()
            try:
                spark.range(1).coalesce(1).mapInArrow(kill_an_executor, "id long").collect()
            except Exception as e:
                print(f"the job of the killed executor: {e}", file=sys.stderr)
        transaction.write(rows, topic=order["audit"])
        rows.unpersist()

    query = spark.readStream.format("text").load(str(lines)).writeStream.foreachBatch(write)
    query = query.option("checkpointLocation", order["folder"] + "/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()


def run_scenario(spark: Any, order: dict[str, str]) -> dict[str, object]:
    from fencepost.spark.sink import ExactlyOnceSink

    sink = ExactlyOnceSink(
        {
            "bootstrap.servers": order["servers"],
            "transactional.id": order["transactional_id"],
            "topic": order["topic"],
            "compression.type": "zstd",
            "fencepost.plane": order["plane"],
        }
    )
    # When this share of the tasks is done, Spark starts copies of the others.
    done = 0.5 if order["scenario"] == "speculation" else 1.0
    spark.sparkContext._jsc.sc().conf().set("spark.speculation.quantile", str(done))
    size, first = ROWS // PARTITIONS, ROWS - ROWS // PARTITIONS
    frame = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
        f"concat(id, ' ', repeat('x', if(id >= {first} AND id < {first + HOW_MANY}, {LARGE}, 0))) AS value",
        f"cast(id div {size} AS int) AS partition",
    )
    try:
        if order["scenario"] == "two outputs":
            two_outputs(spark, sink, order)
            return {"attempts": sink.recent_progress[-1].attempts}
        sink.write(frame.mapInArrow(in_task(order["folder"], SCENARIOS[order["scenario"]]), frame.schema))
        return {"attempts": sink.recent_progress[-1].attempts}
    except Exception as e:
        return {"error": str(e)}
    finally:
        sink.close()


def main(master: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from fencepost.spark import configure

    small = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", small)
        .config("spark.executor.memory", "640m")
        .config("spark.executor.extraJavaOptions", small)
        # Python workers pass on one row at a time.
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
        # As many production sessions have it: the results of tasks have to pass through it.
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "100ms")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.minTaskRuntime", "200ms")
    )
    spark = configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        print(json.dumps(run_scenario(spark, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
