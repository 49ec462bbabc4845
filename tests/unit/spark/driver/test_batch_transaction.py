"""The transaction as the user's function sees it, where no Spark is needed."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.spark.driver.batch_transaction import BatchTransaction
from fencepost.spark.failures import SinkError


def frame_with(speculation: str) -> Any:
    """A frame of Spark Connect."""
    conf = SimpleNamespace(get=lambda name, default: {"spark.speculation": speculation}.get(name, default))
    return SimpleNamespace(sparkSession=SimpleNamespace(conf=conf), localCheckpoint=lambda: "computed")


def test_with_spark_connect_rows_are_not_computed_once_where_copies_of_tasks_may_compute_them_too() -> None:
    nothing: Any = None
    transaction = BatchTransaction(0, None, nothing, nothing, nothing, lambda frame: nullcontext())
    with pytest.raises(SinkError, match=r"needs spark\.speculation=false, but it is true"):
        transaction.compute_once(frame_with("true"))
    assert transaction.compute_once(frame_with("false")) == "computed"


def test_a_transaction_that_was_kept_until_after_its_end_takes_nothing_more() -> None:
    nothing: Any = None
    transaction = BatchTransaction(7, "orders", nothing, nothing, nothing, lambda frame: nullcontext())
    transaction.free()
    for use in (transaction.write, transaction.compute_once):
        with pytest.raises(SinkError, match="the transaction of micro-batch 7 has ended"):
            use(frame_with("false"))
