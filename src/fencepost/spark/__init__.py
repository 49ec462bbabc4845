"""An exactly-once sink for Spark Structured Streaming: each micro-batch is one Kafka transaction over all executors.

    from fencepost.spark import ExactlyOnceSink

The driver owns the transaction; tasks encode their rows and produce under its identity. It works with any Kafka.

sink.py       the classes for users; settings.py, failures.py and connector.py belong to it
driver/       the run of a micro-batch: skip or run it, own its transaction, start its jobs
preflight/    checks before the first run: ports, permissions, limits
jvm/          the jar whose tasks run in Spark's own JVM
format/       `format("fencepost")`, the sink as a data source
lease/        which task may write to which partition next
task/         the code of a Spark task, in a Python worker of an executor
encode/       rows as record batches
checkpoint/   reads the query's checkpoint
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.spark.driver.batch_transaction import BatchTransaction
    from fencepost.spark.driver.progress import BatchProgress
    from fencepost.spark.failures import AccessDenied, BatchBroken, BatchRefused, SinkError, SinkFenced
    from fencepost.spark.format.session import configure
    from fencepost.spark.preflight.run import check
    from fencepost.spark.sink import ExactlyOnceSink

__all__ = [
    "AccessDenied",
    "BatchBroken",
    "BatchProgress",
    "BatchRefused",
    "BatchTransaction",
    "ExactlyOnceSink",
    "SinkError",
    "SinkFenced",
    "check",
    "configure",
]

EXTRA = ("numpy", "pandas", "pyarrow", "pyspark")  # What `pip install fencepost` leaves out.


def __getattr__(name: str) -> Any:
    # Loaded on first use: a Python worker, or a job that needs only the connector's jars, does not load the sink.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "configure":
        from fencepost.spark.format.session import configure

        return configure
    try:
        if name == "check":
            from fencepost.spark.preflight.run import check

            return check
        from fencepost.spark import sink
    except ModuleNotFoundError as e:
        if e.name is None or e.name.split(".")[0] not in EXTRA:
            raise
        raise ModuleNotFoundError(
            f"fencepost.spark.{name} needs {e.name}, which is not installed\n\n"
            "hint: pip install 'fencepost[spark]' where there is a PySpark already, else 'fencepost[spark-local]'",
            name=e.name,
        ) from None
    return getattr(sink, name)
