"""The refunds pipeline on Apache Kafka 3.9, the last release line before 4.0, which has TV1 only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.client.client import KafkaClient
from tests.e2e.engines.moves import coordinator
from tests.e2e.engines.runs import refunds
from tests.engines.apache_kafka import ApacheKafkaCluster, apache_kafka_cluster

pytestmark = pytest.mark.timeout(1200)

VERSION = "3.9.1"


@pytest.fixture(scope="module")
def kafka(needs_spark: None) -> Iterator[ApacheKafkaCluster]:
    with apache_kafka_cluster(version=VERSION) as cluster:
        yield cluster


def test_driver_and_coordinator_die_in_a_batch_and_nothing_is_lost_or_doubled(
    kafka: ApacheKafkaCluster, tmp_path: Path
) -> None:
    with KafkaClient({"bootstrap.servers": kafka.bootstrap_servers}) as client:
        assert client.transaction_version < 2
    with refunds(kafka.bootstrap_servers, tmp_path) as run:
        with run.start_and_hold() as driver:
            run.await_half_written(driver)
            driver.kill()
        with run.start_and_hold() as driver:
            run.await_half_written(driver)
            kafka.kill(coordinator(kafka.bootstrap_servers, run.pipeline.transactional_id))
            driver.go_on()
            driver.await_end()
        run.assert_exactly_once()
