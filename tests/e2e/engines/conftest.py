"""Clusters of Kafka and Spark for tests of the pipeline. A test starts with all brokers in sync and all workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.spark.connector import connector_jars
from tests.engines.apache_kafka import ApacheKafkaCluster, apache_kafka_cluster
from tests.engines.java import OLDEST_JAVA, java_home
from tests.engines.spark_cluster import SparkCluster, standalone_cluster

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            for mark in (pytest.mark.engines, pytest.mark.java, pytest.mark.slow):
                item.add_marker(mark)


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """Needs PySpark, Java and Spark's Kafka source."""
    pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    if java_home() is None:
        pytest.skip(f"no Java {OLDEST_JAVA} or newer; `make setup` says how to get one")
    if connector_jars() is None:
        pytest.skip("no jars of Spark's Kafka connector; `make setup` fetches them")


@pytest.fixture(scope="module")
def kafka_of_module() -> Iterator[ApacheKafkaCluster]:
    with apache_kafka_cluster() as cluster:
        yield cluster


@pytest.fixture
def kafka(needs_spark: None, kafka_of_module: ApacheKafkaCluster) -> ApacheKafkaCluster:
    """Three running brokers of Apache Kafka. A test may kill any number of them."""
    kafka_of_module.start()
    return kafka_of_module


@pytest.fixture(scope="module")
def spark_of_module(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture
def spark(spark_of_module: SparkCluster) -> SparkCluster:
    """A Spark standalone cluster with both workers running. A test may kill any number of them."""
    spark_of_module.start_workers()
    spark_of_module.await_workers()
    return spark_of_module
