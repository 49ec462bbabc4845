"""The rows of a task on their way to the encoder."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fencepost.spark.task import run


def test_rows_are_gathered_so_that_record_batches_get_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "GATHER_BYTES", 1000)
    small = pa.RecordBatch.from_pydict({"value": ["x" * 300]})
    gathered = list(run._gather([small, small.slice(0, 0), small, small, small, small]))
    assert [table.num_rows for table in gathered] == [4, 1]
