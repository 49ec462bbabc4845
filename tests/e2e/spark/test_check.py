"""`fencepost.spark.check` on a running session: it finds what a pipeline would trip over, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.client.admin.offsets import all_committed_offsets
from fencepost.client.client import KafkaClient
from fencepost.spark import check
from fencepost.spark.driver.commit_note import note_group
from fencepost.spark.preflight.report import CheckReport
from fencepost.testing import Broker
from tests.e2e.spark.streams import MakeSink, create_topic, settings, written

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


def test_a_cluster_that_cannot_be_reached_is_the_only_finding() -> None:
    report = check(None, {"bootstrap.servers": "127.0.0.1:1", "transactional.id": "x-1"})
    assert [(finding.subject, finding.status) for finding in report.findings] == [
        ("brokers from the driver", "problem")
    ]
