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


def test_an_arrow_batch_of_large_rows_is_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "GATHER_BYTES", 1000)
    values = [str(n) * 300 for n in range(9)]
    gathered = list(run._gather([pa.RecordBatch.from_pydict({"value": values})]))
    assert [value for table in gathered for value in table.column("value").to_pylist()] == values
    assert max(table.nbytes for table in gathered) < 2 * 1000
