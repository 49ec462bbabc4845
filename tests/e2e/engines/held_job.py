"""The refunds pipeline with tasks that wait in the middle of a write: `held_job.py`, a `JobPlan` as JSON.

In micro-batch B, the task for partition P of the last write waits as long as there is a file `hold B.P` in the folder
`spark.held.folder`. Before that it passes on so many rows that the sink writes some of them, and creates `held B.P.ID`,
with the id of the task attempt. The first attempt waits, its copies do not. In the file is the process id of the
executor. If there are two writes, the files for the first one have `first B` in place of B.

When task ID asks the driver for leases, the driver creates `asked ID`, and when it has no more rows, `done ID`.

`spark.held.keep` is how the two outputs come from one frame: `compute_once`, `persist`, or `nothing`, with one write
and a column `topic`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fencepost.demo.refunds import job
from fencepost.demo.refunds.job import REFUNDS_WRITTEN, Cues, JobPlan, audit_records, refund_records
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.driver import attempt
from fencepost.spark.lease.messages import Effect, TaskAttempt, Ticket, Topics
from fencepost.spark.lease.rules import LeaseTable

KEEP, FOLDER = "spark.held.keep", "spark.held.folder"
# One row in a batch of Arrow, so that rows do not wait for others on their way.
ONE_BY_ONE = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
# More than a task gathers before it writes, also for two topics, and some that are on their way between two processes.
LARGE, HOW_MANY = 3 << 20, 10

Rows = Iterator[Any]


def waiting_in(folder: str, write: str) -> Callable[[Rows], Rows]:
    """For mapInArrow."""
    large, how_many = LARGE, HOW_MANY

    def padded(batch: Any) -> Any:
        import pyarrow as pa

        values = [f'{value[:-1]},"padding":"{"x" * large}"}}' for value in batch.column("value").to_pylist()]
        return batch.set_column(batch.schema.get_field_index("value"), "value", pa.array(values))

    def run(batches: Rows) -> Rows:
        import os
        import time
        from itertools import islice
        from pathlib import Path

        import psutil
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        where = f"{write}.{context.partitionId()}"
        hold = Path(folder, f"hold {where}")
        if hold.exists():
            for batch in islice(batches, how_many):
                yield padded(batch)
            # The parent of a Python worker is a daemon, whose parent is the executor.
            executor = psutil.Process(os.getppid()).ppid()
            Path(folder, f"held {where}.{context.taskAttemptId()}").write_text(str(executor))
            while context.attemptNumber() == 0 and hold.exists():
                time.sleep(0.02)
        yield from batches

    return run


def telling_table(folder: Path) -> type[LeaseTable]:
    class TellingTable(LeaseTable):
        def acquire(
            self, ticket: Ticket, task: TaskAttempt, wants: Mapping[TopicPartition, int], now_ms: int
        ) -> list[Effect]:
            (folder / f"asked {task.task_attempt_id}").touch()
            return super().acquire(ticket, task, wants, now_ms)

        def done(
            self,
            ticket: Ticket,
            task: TaskAttempt,
            counts: Mapping[TopicPartition, int],
            now_ms: int,
            topics: Topics = (),
        ) -> list[Effect]:
            (folder / f"done {task.task_attempt_id}").touch()
            return super().done(ticket, task, counts, now_ms, topics)

    return TellingTable


def exactly_once(plan: JobPlan, cues: Cues) -> Callable[[Any, int], None]:
    from fencepost.spark.sink import ExactlyOnceSink

    sink = ExactlyOnceSink(
        {
            "bootstrap.servers": plan.bootstrap_servers,
            "transactional.id": plan.transactional_id,
            "group.id": plan.group_id,
            "fencepost.plane": plan.plane,
            "compression.type": "zstd",
        }
    )

    @sink.batch
    def write(frame: Any, transaction: Any) -> None:
        def waiting(records: Any, which: str = "") -> Any:
            return records.mapInArrow(waiting_in(plan.conf[FOLDER], f"{which}{transaction.batch_id}"), records.schema)

        if plan.conf[KEEP] == "nothing":
            topics = f"explode(array('{plan.refunds}', '{plan.audit}')) AS topic"
            transaction.write(waiting(audit_records(frame).selectExpr("*", topics)))
            return
        kept = transaction.compute_once(frame) if plan.conf[KEEP] == "compute_once" else frame.persist()
        transaction.write(waiting(refund_records(kept), "first "), topic=plan.refunds)
        cues.reached(REFUNDS_WRITTEN, transaction.batch_id)
        transaction.write(waiting(audit_records(kept)), topic=plan.audit)

    def write_and_tell(frame: Any, batch_id: int) -> None:
        write(frame, batch_id)
        frame.unpersist()
        done = sink.recent_progress[-1]
        cues.tell("batch", batch=batch_id, outcome=done.outcome, records=done.records)

    return write_and_tell


if __name__ == "__main__":
    folder = Path(JobPlan.decode(sys.argv[1]).conf[FOLDER])
    attempt.LeaseTable = telling_table(folder)  # type: ignore[attr-defined]
    job.exactly_once = exactly_once
    job.main(sys.argv[1:])
