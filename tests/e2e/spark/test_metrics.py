"""The sink's progress of each micro-batch: in the log, beside Spark's progress, and for Prometheus."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark.sink import ExactlyOnceSink
from fencepost.testing import Broker
from tests.e2e.spark.streams import Lines, MakeSink, create_topic, run, start, stream, written

pytestmark = [pytest.mark.java]

Unique = Callable[[str], str]


def scrape(sink: ExactlyOnceSink) -> dict[str, float]:
    """The series of one sink, by name and labels."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{sink.metrics_port}/metrics", timeout=30).read().decode()
    id_ = f'transactional_id="{sink.transactional_id}"'
    found = {}
    for line in text.splitlines():
        if id_ in line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            found[series.replace(id_, "").replace("{,", "{").replace(",}", "}").replace("{}", "")] = float(value)
    return found


def test_a_batch_reports_itself_everywhere(
    spark: Any,
    broker: Broker,
    unique: Unique,
    sinks: MakeSink,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fencepost.spark")
    servers, id_ = broker.bootstrap_servers, unique("report")
    topic, lines = create_topic(servers, unique("report"), 1), Lines(tmp_path / "lines")
    more = {"fencepost_metrics_port": 0, "fencepost_metrics_bind": "127.0.0.1"}
    sink = sinks(servers, id_, topic=topic, transaction_timeout_ms=60_000, **more)
    lines.add_batch()
    query = start(stream(spark, lines), sink, tmp_path / "checkpoint")
    assert query.awaitTermination(60)

    (batch,) = sink.recent_progress
    assert (batch.batch_id, batch.outcome, batch.records, batch.attempts) == (0, "committed", 40, 1)
    assert batch.bytes > sum(map(len, lines.all))
    assert batch.record_batches == 2, "one of each input partition"
    assert 0 < batch.transaction_ms < 60_000
    assert batch.timeout_share == pytest.approx(batch.transaction_ms / 60_000)

    assert f"{id_}: micro-batch 0: committed 40 records, {batch.bytes:,} bytes in 2 record batches" in caplog.text

    document = sink.progress_of(query)
    assert document is not None
    assert (document["numInputRows"], document["fencepost"]) == (40, batch.as_json())

    with pytest.raises(Exception, match="BatchRefused"):
        run(stream(spark, lines), sink, tmp_path / "another checkpoint")
    lines.add_batch(5)
    run(stream(spark, lines), sink, tmp_path / "checkpoint")
    second = sink.recent_progress[-1]
    found = scrape(sink)
    assert {name: found[f"fencepost_sink_{name}"] for name in ("records_total", "bytes_total", "last_batch_id")} == {
        "records_total": 50,
        "bytes_total": batch.bytes + second.bytes,
        "last_batch_id": 1,
    }
    assert found['fencepost_sink_batches_total{outcome="committed"}'] == 2
    assert found['fencepost_sink_batches_total{outcome="failed"}'] == 1
    assert found["fencepost_sink_transaction_seconds_count"] == 2
    assert found["fencepost_sink_timeout_share"] == pytest.approx(second.timeout_share)


def test_a_port_that_is_taken_costs_the_metrics_and_not_the_batch(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, caplog: pytest.LogCaptureFixture
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("taken"), 1)
    taken = int(servers.rpartition(":")[2])
    more = {"fencepost_metrics_port": taken, "fencepost_metrics_bind": "127.0.0.1"}
    sink = sinks(servers, unique("taken"), topic=topic, **more)
    assert sink.write(spark.range(5).selectExpr("'x' AS value")) == 5
    assert written(servers, topic) > 5
    assert f"no metrics on fencepost.metrics.port={taken}" in caplog.text
    assert sink.metrics_port is None
