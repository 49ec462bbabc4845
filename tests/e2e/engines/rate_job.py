"""Rows of a rate source to a topic, with any version of PySpark: `rate_job.py PLAN`, a `Plan` as JSON.

The source makes the same rows for a micro-batch every time, so the expected content of the topic is known. The job
reports its events on stdout, one JSON document on each line. Where the plan says so, it waits until a line comes on
stdin or it is killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

WRITTEN, COMMITTED = "written, not committed", "committed, not noted by Spark"


@dataclass(frozen=True)
class Plan:
    servers: str
    topic: str
    folder: str  # For the checkpoint and Spark's own files.
    batches: int
    rows: int
    wait_in_batch: int = -1
    wait_at: str = ""
    plane: str = "jvm"
    more: dict[str, str] = field(default_factory=dict)  # Settings of the sink.
    checkpoint: str = ""  # Without it, in the folder.
    conf: dict[str, str] = field(default_factory=dict)  # Of Spark.


def main(plan: Plan) -> None:
    stdout = os.dup(1)
    os.dup2(2, 1)  # Spark may print to stdout as well.

    def tell(event: str, **facts: object) -> None:
        os.write(stdout, json.dumps({"event": event, **facts}).encode() + b"\n")

    may_go_on = threading.Event()

    def listen() -> None:
        while os.read(0, 1):
            may_go_on.set()
        os._exit(1)  # The test is gone.

    threading.Thread(target=listen, daemon=True).start()

    def reached(point: str, batch_id: int) -> None:
        if (batch_id, point) == (plan.wait_in_batch, plan.wait_at):
            tell("waiting")
            may_go_on.wait()

    os.environ["PYSPARK_PYTHON"] = sys.executable
    import pyspark
    from pyspark.sql import SparkSession

    from fencepost.spark import ExactlyOnceSink, configure

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={plan.folder}")
        .config("spark.local.dir", plan.folder)
        .config("spark.sql.warehouse.dir", f"{plan.folder}/warehouse")
    )
    for name, value in plan.conf.items():
        builder = builder.config(name, value)
    spark = configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    tell("started", pyspark=pyspark.__version__)
    settings = {"bootstrap.servers": plan.servers, "transactional.id": plan.topic, "fencepost.plane": plan.plane}
    sink = ExactlyOnceSink(settings | plan.more)
    is_over = threading.Event()

    @sink.batch
    def write(frame: Any, transaction: Any) -> None:
        transaction.write(frame.selectExpr("CAST(value AS STRING) AS value"), topic=plan.topic)
        reached(WRITTEN, transaction.batch_id)

    def batch(frame: Any, batch_id: int) -> None:
        if batch_id >= plan.batches:  # The source never ends.
            return is_over.set()
        write(frame, batch_id)
        done = sink.recent_progress[-1]
        tell("batch", batch=batch_id, outcome=done.outcome, attempts=done.attempts, records=done.records)
        return reached(COMMITTED, batch_id)

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", plan.rows).option("numPartitions", 2)
    writer = rows.load().writeStream.foreachBatch(batch)
    query = writer.option("checkpointLocation", plan.checkpoint or f"{plan.folder}/checkpoint").start()
    while not is_over.wait(0.1):
        if not query.isActive:
            query.awaitTermination()  # Raises the error of the query.
    query.stop()
    tell("finished")
    spark.stop()


if __name__ == "__main__":
    main(Plan(**json.loads(sys.argv[1])))
