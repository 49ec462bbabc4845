"""A foreachBatch function finds its query, and reads the query's checkpoint as Spark wrote it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark.checkpoint.files import HadoopFiles, LocalFiles, SessionFiles, files_of
from fencepost.spark.checkpoint.offsets import has_state, read_offsets, read_query_id
from fencepost.spark.checkpoint.query import RunningQuery, running_query


@pytest.mark.java
@pytest.mark.parametrize(("name", "reader"), [("check point", LocalFiles), ("check point%20", HadoopFiles)])
def test_a_function_for_foreach_batch_finds_its_query_and_reads_its_checkpoint(
    spark: Any, tmp_path: Path, name: str, reader: type
) -> None:
    checkpoint = tmp_path / name  # Must not be escaped or unescaped on the way.
    found: list[RunningQuery | None] = []
    read: list[object] = []
    enough = threading.Event()

    def look(frame, batch_id: int) -> None:  # type: ignore[no-untyped-def]
        try:
            session = frame.sparkSession
            query = running_query(session)
            found.append(query)
            assert query is not None
            assert running_query(session, found[0]) is found[0], "a run of a query is looked up once"
            assert running_query(session, replace(query, run_id="of an earlier run")) == query
            assert type(files_of(session, query.checkpoint)) is reader
            for files in (files_of(session, query.checkpoint), SessionFiles(session, query.checkpoint)):
                read.append(read_offsets(files, batch_id, query.sources))
                read.append((read_query_id(files), files.read("offsets/99"), has_state(files)))
                read.append(files.exists(f"commits/{batch_id - 1}"))
        finally:
            if batch_id == 1:
                enough.set()

    rate = spark.readStream.format("rate").load()
    query = rate.writeStream.foreachBatch(look).option("checkpointLocation", str(checkpoint)).start()
    assert enough.wait(90), query.exception()
    query.stop()
    assert running_query(spark) is None
    local = LocalFiles(checkpoint)
    for batch_id in (0, 1):
        running = found[batch_id]
        assert running is not None
        assert running.query_id == read_query_id(local)
        assert (running.query_id, running.run_id) == (query.id, query.runId)
        assert running.sources[0].startswith("RateStream")
        offsets = read_offsets(local, batch_id)
        said = [offsets, (query.id, None, False), batch_id == 1]
        assert read[6 * batch_id : 6 * batch_id + 6] == said * 2
        assert offsets.kafka_ends == []
        assert offsets.timestamp_ms
