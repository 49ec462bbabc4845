"""`fencepost.spark.check` on a running session: it finds what a pipeline would trip over, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from fencepost.client.admin.offsets import all_committed_offsets
from fencepost.client.client import KafkaClient
from fencepost.spark import check
from fencepost.spark.driver.commit_note import note_group
from fencepost.spark.preflight.report import CheckReport
from fencepost.testing import Broker
from tests.e2e.spark.streams import Lines, MakeSink, create_topic, settings, start, stream, written
from tests.readers.reading import TIMEOUT_S

pytestmark = [pytest.mark.java]
Unique = Callable[[str], str]


def by_subject(report: CheckReport) -> dict[str, tuple[str, str]]:
    return {finding.subject: (finding.status, finding.text) for finding in report.findings}


@pytest.mark.usefixtures("plane")
def test_a_pipeline_that_would_run_passes_and_one_that_runs_is_not_fenced(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, plane: str
) -> None:
    servers, id_ = broker.bootstrap_servers, unique("checked")
    topic = create_topic(servers, unique("checked"))
    sink = sinks(servers, id_, topic=topic)
    frame = spark.range(5).selectExpr("'x' AS value")
    assert sink.write(frame) == 5
    before = written(servers, topic)
    report = check(spark, settings(servers, id_, topic=topic, group_id=unique("lag")), source_topics=[topic])
    assert report.is_ok, str(report)
    found = by_subject(report)
    assert found["tasks of the sink"][1].startswith(
        "2 ran in Spark's JVM" if plane == "jvm" else "2 ran in Python workers"
    )
    assert found["brokers and driver from the executors"][0] == "ok"
    assert written(servers, topic) == before
    with KafkaClient({"bootstrap.servers": servers}) as client:
        assert all_committed_offsets(client, note_group(id_)) == {}
    assert sink.write(frame) == 5


def test_what_would_stop_a_pipeline_is_a_problem_with_a_hint(spark: Any, broker: Broker, unique: Unique) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("small"), max_message_bytes="1000")
    wrong = {
        "transaction.timeout.ms": 10**9,
        # Executors look for the driver where it does not listen.
        "fencepost.lease.host": "127.0.0.2",
        "fencepost.lease.bind": "127.0.0.1",
    }
    report = check(spark, {**settings(servers, unique("wrong")), **wrong}, topics=[topic, "nosuch"], tasks=1)
    found = by_subject(report)
    assert not report.is_ok
    assert found["transaction.timeout.ms"][0] == "problem"
    assert found["topic nosuch"][0] == "problem"
    assert found[f"record batches to {topic}"][0] == "warning"
    assert "cannot reach the driver's lease port 127.0.0.2:" in found["brokers and driver from the executors"][1]
    assert "cannot reach the driver's lease service at 127.0.0.2:" in found["tasks of the sink"][1]
    assert all(finding.hint for finding in report.findings if finding.status == "problem")


def test_the_id_is_looked_up_before_the_job_starts_and_not_taken_over(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, tmp_path: Path
) -> None:
    servers, id_ = broker.bootstrap_servers, unique("refunds")
    topic = create_topic(servers, unique("out"))

    def found() -> tuple[str, str]:
        return by_subject(check(None, settings(servers, id_), topics=[topic]))[f"transactional.id {id_}"]

    assert found() == ("ok", "no producer has registered it; Kafka has no commit note of it")
    lines = Lines(tmp_path / "lines")
    lines.add_batch()
    query = start(stream(spark, lines), sinks(servers, id_, topic=topic), tmp_path / "checkpoint")
    query.processAllAvailable()
    query.stop()
    status, text = found()
    assert (status, text.partition(",")[0]) == ("ok", "CompleteCommit")
    assert text.endswith(f"micro-batch 0 of query {query.id}")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": id_})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"half")
    assert producer.flush(TIMEOUT_S) == 0
    status, text = found()
    assert (status, text.partition(" ")[0]) == ("warning", "Ongoing")
    producer.commit_transaction(TIMEOUT_S)


def test_a_cluster_that_cannot_be_reached_is_the_only_finding() -> None:
    report = check(None, {"bootstrap.servers": "127.0.0.1:1", "transactional.id": "x-1"})
    assert [(finding.subject, finding.status) for finding in report.findings] == [
        ("brokers from the driver", "problem")
    ]
