"""An exactly-once sink for Spark Structured Streaming: each micro-batch is one Kafka transaction over all executors.

    from fencepost.spark import ExactlyOnceSink

The driver owns the transaction; tasks encode their rows and produce under its identity. Nothing here knows which
Kafka it talks to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.spark.driver.batch_transaction import BatchTransaction
    from fencepost.spark.driver.progress import BatchProgress
    from fencepost.spark.failures import BatchBroken, BatchRefused, SinkError, SinkFenced
    from fencepost.spark.sink import ExactlyOnceSink

__all__ = [
    "BatchBroken",
    "BatchProgress",
    "BatchRefused",
    "BatchTransaction",
    "ExactlyOnceSink",
    "SinkError",
    "SinkFenced",
]


def __getattr__(name: str) -> Any:
    # When it is asked for: a worker, or who only wants the connector's jars, need not load all of it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fencepost.spark import sink

    return getattr(sink, name)
