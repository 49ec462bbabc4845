"""A Spark task of the sink: Arrow batches of rows in, record batches to the brokers, one row with the result out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from fencepost.client.failures import ClientError, DeadlinePassed, Unreachable
from fencepost.spark.encode.columns import BadRecord
from fencepost.spark.lease.client import AlreadyWritten, LeaseClient
from fencepost.spark.lease.messages import TaskAttempt, TaskResult
from fencepost.spark.task.login import remember_driver
from fencepost.spark.task.plan import WritePlan
from fencepost.spark.task.sender import WriteFailed
from fencepost.spark.task.worker import reused
from fencepost.spark.task.writer import TaskWriter

# The result of a task as Spark's SQL types and as Arrow's.
RESULT_SCHEMA = (
    "write int, input int, attempt long, counts array<struct<topic:string,partition:int,records:long>>, "
    "topics array<struct<topic:string,id:binary,partitions:int>>"
)
_COUNT = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("records", pa.int64())])
_TOPIC = pa.struct([("topic", pa.string()), ("id", pa.binary()), ("partitions", pa.int32())])
_RESULT = pa.schema(
    [
        ("write", pa.int32()),
        ("input", pa.int32()),
        ("attempt", pa.int64()),
        ("counts", pa.list_(_COUNT)),
        ("topics", pa.list_(_TOPIC)),
    ]
)
# The task gathers about this much before it encodes the rows, so that record batches get large.
GATHER_BYTES = 8 << 20


def spark_task(plan: WritePlan) -> Any:
    """The function for `mapInArrow`."""

    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = TaskAttempt(plan.write_number, context.partitionId(), context.taskAttemptId())
        with reused():
            result = write_rows(plan, task, rows, context.attemptNumber())
        yield encode_result(result)

    return run


def encode_result(result: TaskResult) -> pa.RecordBatch:
    row = {
        "write": result.write_number,
        "input": result.partition_id,
        "attempt": result.task_attempt_id,
        "counts": [{"topic": t, "partition": p, "records": n} for t, p, n in result.counts],
        "topics": [{"topic": t, "id": i, "partitions": n} for t, i, n in result.topics],
    }
    return pa.RecordBatch.from_pylist([row], schema=_RESULT)


def write_rows(
    plan: WritePlan, task: TaskAttempt, rows: Iterable[pa.RecordBatch], attempt_number: int | None = None
) -> TaskResult:
    """Write all rows of one input partition. Returns its result, of this or another attempt."""
    with LeaseClient(plan.address, task, attempt_number, wants_plan=not plan.settings) as leases:
        if leases.plan is not None:
            plan = plan._replace(settings=leases.plan["settings"])
            remember_driver(plan.login_id, plan.address)
        writer = TaskWriter(plan, leases, task.partition_id)
        counted = _Counted(rows)
        try:
            for table in _gather(counted):
                writer.write(table)
            return leases.done(writer.counts, ((name, *topic) for name, topic in writer.topics.items()))
        except AlreadyWritten as e:
            counted.exhaust()
            written = sum(count for _, _, count in e.result.counts)
            if written < counted.rows:
                # When an executor dies, its Python worker may live a moment longer. The worker takes the end of its
                # socket for the end of its rows, as Arrow does, and reports too early that it is done. If it is this
                # attempt that saw too few rows, the result of the other is sound.
                name = f"input partition {task.partition_id}"
                reason = f"an earlier attempt at {name} wrote {written} records, but there are {counted.rows} rows"
                leases.dispute(reason)
                raise WriteFailed(reason) from None
            return e.result
        except BadRecord as e:
            leases.fail(str(e), is_fatal=True)
            raise WriteFailed(str(e)) from None
        except WriteFailed:
            raise
        except ClientError as e:
            leases.fail(str(e), is_fatal=not isinstance(e, (Unreachable, DeadlinePassed)))
            raise WriteFailed(str(e)) from e


class _Counted:
    """Arrow batches, and the number of rows in those that were read."""

    def __init__(self, arrow_batches: Iterable[pa.RecordBatch]) -> None:
        self._arrow_batches = iter(arrow_batches)
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        arrow_batch = next(self._arrow_batches)
        self.rows += arrow_batch.num_rows
        return arrow_batch

    def exhaust(self) -> None:
        for _ in self:
            pass


def _gather(arrow_batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Tables of about GATHER_BYTES. Spark's Arrow batches have up to 10,000 rows, of whatever size."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for arrow_batch in (one for large in arrow_batches for one in _slices(large)):
        if arrow_batch.num_rows:
            gathered.append(arrow_batch)
            size += arrow_batch.nbytes
        if size >= GATHER_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _slices(arrow_batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows in Arrow batches of at most GATHER_BYTES, or of one row. Nothing is copied."""
    if arrow_batch.nbytes <= GATHER_BYTES or arrow_batch.num_rows < 2:
        yield arrow_batch
        return
    half = arrow_batch.num_rows // 2
    yield from _slices(arrow_batch.slice(0, half))
    yield from _slices(arrow_batch.slice(half))
