"""The Spark job: each settlement becomes a refund and an audit row, in two topics, in one transaction per micro-batch.

    python -m fencepost.demo.refunds.job JSON

It reads committed settlements, drops duplicates (which needs state), joins the merchants' fees, and ends when it has
read all settlements that existed at its start. It reports each step as a line of JSON on stdout. The plan may name a
step at which the job waits until it is killed or receives a line on stdin.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from fencepost.demo.refunds.settlements import MERCHANTS

REFUNDS_WRITTEN, BATCH_DONE = POINTS = ("refunds written", "micro-batch done")
MAX_RESTARTS = 5
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms512m -XX:-UsePerfData"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The parameters of the job, which it receives as JSON."""

    bootstrap_servers: str
    settlements: str
    refunds: str
    audit: str
    group_id: str
    transactional_id: str
    checkpoint: str
    scratch: str  # For Spark's own files.
    offsets_per_batch: int
    run: int = 1  # Counts the starts of the job. Each row contains this number.
    sink: str = "fencepost"  # Or "spark": Spark's own sink.
    plane: str = "auto"  # Where the tasks of our sink run.
    master: str = "local[2]"
    conf: dict[str, str] = field(default_factory=dict)
    wait_in_batch: int | None = None
    wait_at: str = ""  # One of POINTS.

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> JobPlan:
        return JobPlan(**json.loads(text))


# --- what a user would write ------------------------------------------------------------------------------------


def refunds_due(spark: Any, plan: JobPlan) -> Any:
    """A stream with one row for each settlement: the refund, and how it is computed."""
    settlements = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", plan.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", plan.settlements)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", plan.offsets_per_batch)
        .load()
        .selectExpr(
            "timestamp",
            "from_json(CAST(value AS STRING), 'settlement_id STRING, merchant STRING, amount_cents BIGINT') AS s",
        )
        .select("timestamp", "s.*")
    )
    rows = ", ".join(f"('{name}', {fee})" for name, fee in MERCHANTS)
    merchants = spark.sql(f"SELECT * FROM VALUES {rows} AS merchants(merchant, fee_basis_points)")
    once = settlements.withWatermark("timestamp", "1 hour").dropDuplicatesWithinWatermark(["settlement_id"])
    return (
        once.join(merchants.hint("broadcast"), "merchant")
        .selectExpr("*", "amount_cents * fee_basis_points DIV 10000 AS fee_cents")
        .selectExpr("*", "amount_cents - fee_cents AS refund_cents", "'r-' || settlement_id AS refund_id")
    )


def refund_records(frame: Any) -> Any:
    return frame.selectExpr(
        "settlement_id AS key", "to_json(struct(refund_id, settlement_id, merchant, refund_cents, batch, run)) AS value"
    )


def audit_records(frame: Any) -> Any:
    return frame.selectExpr(
        "settlement_id AS key",
        "to_json(struct(settlement_id, refund_id, amount_cents, fee_cents, refund_cents, batch, run)) AS value",
    )


def exactly_once(plan: JobPlan, cues: Cues) -> Callable[[Any, int], None]:
    """Refunds, audit rows and the group's offsets in one transaction per micro-batch."""
    from fencepost.spark.sink import ExactlyOnceSink

    sink = ExactlyOnceSink(
        {
            "bootstrap.servers": plan.bootstrap_servers,
            "transactional.id": plan.transactional_id,
            "group.id": plan.group_id,
            "fencepost.plane": plan.plane,
        }
    )

    @sink.batch
    def write(frame: Any, transaction: Any) -> None:
        frame = transaction.compute_once(frame)  # For both writes.
        transaction.write(refund_records(frame), topic=plan.refunds)
        cues.reached(REFUNDS_WRITTEN, transaction.batch_id)
        transaction.write(audit_records(frame), topic=plan.audit)

    def write_and_tell(frame: Any, batch_id: int) -> None:
        write(frame, batch_id)
        done = sink.recent_progress[-1]
        cues.tell("batch", batch=batch_id, outcome=done.outcome, records=done.records)

    return write_and_tell


def at_least_once(plan: JobPlan, cues: Cues) -> Callable[[Any, int], None]:
    """The same writes with Spark's own sink, for comparison."""

    def send(frame: Any, topic: str) -> None:
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", plan.bootstrap_servers)
        writer.option("topic", topic).save()

    def write(frame: Any, batch_id: int) -> None:
        frame = frame.persist()
        try:
            send(refund_records(frame), plan.refunds)
            cues.reached(REFUNDS_WRITTEN, batch_id)
            send(audit_records(frame), plan.audit)
        finally:
            frame.unpersist()
        cues.tell("batch", batch=batch_id, outcome="written", records=0)

    return write


# --- the demo's part --------------------------------------------------------------------------------------------


class Cues:
    """Reports the job's steps on stdout, and waits at the step that the plan names."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._stdout = os.dup(1)
        os.dup2(2, 1)  # Spark's own output goes to stderr, so that stdout contains only events.
        self._lock = threading.Lock()
        self._may_go_on = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def tell(self, event: str, **facts: object) -> None:
        with self._lock:
            os.write(self._stdout, json.dumps({"event": event, "run": self._plan.run, **facts}).encode() + b"\n")

    def reached(self, point: str, batch_id: int) -> None:
        if (batch_id, point) == (self._plan.wait_in_batch, self._plan.wait_at):
            self.tell("waiting", batch=batch_id, point=point)
            self._may_go_on.wait()

    def _listen(self) -> None:
        while os.read(0, 4096):
            self._may_go_on.set()
        os._exit(1)  # The demo has ended.


def start_spark(plan: JobPlan) -> Any:
    from pyspark.sql import SparkSession

    from fencepost.spark import configure
    from fencepost.spark.connector import connector_conf

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = {
        "spark.master": plan.master,
        "spark.app.name": "fencepost-refunds",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{plan.scratch}/warehouse",
        # Options for a JVM that runs for seconds. The demo deletes the scratch folder with its temporary files.
        "spark.driver.extraJavaOptions": f"{SHORT_LIVED} -Djava.io.tmpdir={plan.scratch}",
        **connector_conf(),
    }
    if plan.master.startswith("local"):
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": plan.scratch,
        }
    builder = SparkSession.builder
    for name, value in (conf | plan.conf).items():
        builder = builder.config(name, value)
    return configure(builder).getOrCreate()


def run_job(plan: JobPlan, cues: Cues) -> None:
    from pyspark.errors import StreamingQueryException

    spark = start_spark(plan)
    spark.sparkContext.setLogLevel("WARN")
    due = refunds_due(spark, plan)
    write = exactly_once(plan, cues) if plan.sink == "fencepost" else at_least_once(plan, cues)

    def write_batch(frame: Any, batch_id: int) -> None:
        cues.tell("begun", batch=batch_id)
        # Each row contains the number of its micro-batch and of the start of the job.
        write(frame.selectExpr("*", f"{batch_id} AS batch", f"{plan.run} AS run"), batch_id)
        cues.reached(BATCH_DONE, batch_id)

    cues.tell("started")
    for restarts in range(MAX_RESTARTS + 1):
        query = (
            due.writeStream.foreachBatch(write_batch)
            .option("checkpointLocation", plan.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
            break
        except StreamingQueryException as error:
            # The transaction of the micro-batch was lost. A query with state must restart to run the micro-batch again.
            if "BatchBroken" not in str(error) or restarts == MAX_RESTARTS:
                raise
            cues.tell("restarting", why=_last_sentence(str(error)))
    cues.tell("finished")
    spark.stop()


def _last_sentence(text: str) -> str:
    found = [line for line in text.splitlines() if "BatchBroken: " in line]
    return found[-1].partition("BatchBroken: ")[2] if found else text[:200]


def main(arguments: list[str]) -> None:
    plan = JobPlan.decode(arguments[0])
    run_job(plan, Cues(plan))


if __name__ == "__main__":
    main(sys.argv[1:])
