"""A driver in a process of its own, to be killed or put to sleep: `driver.py QUERIES`, a JSON list of `Held`.

Each query copies the lines of a folder to a topic. At its point it creates the file `reached`, and waits until the file
`go` exists. At its end it writes the file `ended`, which is empty or has the error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Where to wait. The first is in micro-batch 0, the others are in micro-batch 1, after one that was committed.
POINTS = {
    "start": "before the sink has connected to anything",
    "next": "before the batch, of which the sink knows nothing yet",
    "begun": "in the transaction, before the first write",
    "task": "in a task; another one has written",
    "written": "after the last write",
    "marked": "after the commit note is in the transaction, before EndTxn",
    "committed": "after EndTxn, before Spark's own note of the commit",
}


class Held(NamedTuple):
    """One query, and where it waits."""

    point: str
    servers: str
    transactional_id: str
    topic: str
    folder: str
    checkpoint: str
    reached: str
    go: str
    ended: str
    plane: str
    entry: str  # foreachBatch or format.

    def hold(self, point: str, batch_id: int) -> None:
        if point == self.point and batch_id == (0 if point == "start" else 1) and not Path(self.reached).exists():
            self.wait()

    def wait(self) -> None:
        import time
        from pathlib import Path

        Path(self.reached).touch()
        while not Path(self.go).exists():
            time.sleep(0.02)


def start(spark: Any, held: Held) -> Any:
    from fencepost.client.admin.partitions import end_offset
    from fencepost.client.client import KafkaClient
    from fencepost.spark.sink import BatchTransaction, ExactlyOnceSink

    servers, topic = held.servers, held.topic

    def hesitate(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            if "file 4 line 0" in batch.column(0).to_pylist():
                with KafkaClient({"bootstrap.servers": servers}) as client:
                    while not any(end_offset(client, topic, p, False) > end_offset(client, topic, p) for p in range(3)):
                        time.sleep(0.02)
                held.wait()
            yield batch

    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(held.folder)
    if held.point == "task":
        lines = lines.mapInArrow(hesitate, "value string")
    settings = {"bootstrap.servers": servers, "transactional.id": held.transactional_id, "fencepost.plane": held.plane}
    if held.entry == "format":
        helds[held.transactional_id] = held
        writer = lines.writeStream.format("fencepost").options(topic=topic, **settings)
    else:
        sink = ExactlyOnceSink(settings)

        @sink.batch
        def write(frame: Any, transaction: BatchTransaction) -> None:
            held.hold("begun", transaction.batch_id)
            transaction.write(frame, topic=topic)
            held.hold("written", transaction.batch_id)

        writer = lines.writeStream.foreachBatch(around(held, write))
    return writer.option("checkpointLocation", held.checkpoint).trigger(availableNow=True).start()


in_thread = threading.local()
helds: dict[str, Held] = {}  # Those of queries with `format("fencepost")`, by transactional.id.


def around(held: Held, write: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """The micro-batch, and the points before and after it."""

    def batch(frame: Any, batch_id: int) -> None:
        in_thread.held, in_thread.batch_id = held, batch_id
        held.hold("start", batch_id)
        held.hold("next", batch_id)
        write(frame, batch_id)
        held.hold("committed", batch_id)

    return batch


def end_with(parent: int) -> None:
    """End with the test, so that the process does not wait for ever."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def main(queries: str) -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from fencepost.client.transaction import Transaction
    from fencepost.spark import configure
    from fencepost.spark.sink import ExactlyOnceSink

    commit = Transaction.commit

    def commit_later(transaction: Transaction, *args: Any, **kwargs: Any) -> None:
        in_thread.held.hold("marked", in_thread.batch_id)
        commit(transaction, *args, **kwargs)

    call = ExactlyOnceSink.__call__

    def call_of_format(sink: ExactlyOnceSink, frame: Any, batch_id: int) -> None:
        around(helds[sink.transactional_id], lambda *given: call(sink, *given))(frame, batch_id)

    Transaction.commit = commit_later  # type: ignore[method-assign,assignment]
    ExactlyOnceSink.__call__ = call_of_format  # type: ignore[method-assign,assignment]
    builder = (
        SparkSession.builder.master("local[3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    )
    spark = configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    running = [(held, start(spark, held)) for held in (Held(*f) for f in json.loads(Path(queries).read_text()))]

    def report(held: Held, query: Any) -> None:
        try:
            query.awaitTermination()
            said = ""
        except Exception as e:
            said = str(e)
        unfinished = Path(f"{held.ended}.unfinished")
        unfinished.write_text(said)
        unfinished.rename(held.ended)

    reports = [threading.Thread(target=report, args=pair) for pair in running]
    for thread in reports:
        thread.start()
    for thread in reports:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
