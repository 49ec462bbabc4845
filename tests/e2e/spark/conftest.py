"""One Spark for all tests of the sink: starting it takes longer than any of them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark import configure
from fencepost.spark.connector import connector_jars
from fencepost.spark.sink import ExactlyOnceSink
from tests.e2e.spark.streams import PLANE, MakeSink, settings
from tests.engines.java import OLDEST_JAVA, java_home

HERE = Path(__file__).resolve().parent

# What is tried on Apache Kafka too in `make test`, and the first also with version 1. The others are tried on this
# broker there, and on every Kafka in `make test-engines`.
ON_EVERY_KAFKA = "test_a_stream_is_written_once_over_restarts_and_reruns"
ON_APACHE_KAFKA = {
    ON_EVERY_KAFKA,
    "test_several_outputs_are_in_one_transaction",
    "test_the_group_moves_with_every_batch_and_only_with_it",
    "test_a_commit_of_unclear_outcome_is_looked_up_and_neither_repeated_nor_lost",
}

# What is tried on both planes in `make test`, on this broker. The others are tried there with tasks in Spark's JVM, and
# with tasks in Python workers in `make test-engines`.
ON_BOTH_PLANES = {
    "test_a_frame_goes_in_one_transaction_to_the_partitions_that_java_would_choose",
    "test_every_column_of_sparks_own_kafka_sink_is_understood",
    "test_a_row_that_cannot_be_a_record_is_refused_in_the_same_words",
    "test_a_stream_is_written_once_over_restarts_and_reruns",
    "test_a_python_worker_that_dies_in_a_batch_costs_an_attempt",
    "test_tasks_talk_to_the_driver_over_tls_if_the_user_wants_it",
    "test_tasks_log_in_with_tokens_that_the_driver_fetches",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # pytest hands over the tests of all folders.
    for item in (item for item in items if HERE in item.path.parents):
        given = item.callspec.params if hasattr(item, "callspec") else {}
        target = given.get("target")
        name = getattr(item, "originalname", item.name)
        is_apache = target is not None and target.startswith("apache")
        if given.get("plane") == "python" and (is_apache or name not in ON_BOTH_PLANES):
            item.add_marker(pytest.mark.engines)
        is_tried = name == ON_EVERY_KAFKA or (name in ON_APACHE_KAFKA and target == "apache TV2")
        if target not in (None, "fencepost TV2") and not (is_apache and is_tried):
            item.add_marker(pytest.mark.engines)


class Sparks:
    """Spark in one JVM, which is started by the first test that needs it."""

    def __init__(self) -> None:
        self._session: Any = None

    def running(self) -> Any:
        """The session; a new one where there is none, or where a test broke the one before."""
        if self._session is None:
            self._session = _start_session()
        return self._session

    def is_whole(self) -> bool:
        """Whether the driver still knows its own block manager.

        Spark forgets it where it thinks that an executor has lost files, and with `local` it is never registered again:
        every heartbeat fails from then on, and after sixty of them, ten minutes, the JVM ends itself with 56.
        """
        environment = self._session._jvm.org.apache.spark.SparkEnv.get()
        return int(environment.blockManager().master().getMemoryStatus().size()) == 1

    def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            java = session.sparkContext._gateway.proc
            assert java.poll() is None, f"Spark's JVM ended by itself, with {java.returncode}"
            session.stop()


def _start_session() -> Any:
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", ",".join(map(str, connector_jars() or ())))
    )
    session = configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="session")
def sparks() -> Iterator[Sparks]:
    pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    if java_home() is None:
        pytest.skip(f"no Java {OLDEST_JAVA} or newer; `make setup` says how to get one")
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Py4J logs whatever a foreachBatch function raises; the tests look at the query instead.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    found = Sparks()
    yield found
    found.stop()


@pytest.fixture
def spark(sparks: Sparks) -> Iterator[Any]:
    yield sparks.running()
    assert sparks.is_whole(), "use `spark_to_break`: Spark's heartbeats fail after this test"


@pytest.fixture
def spark_to_break(sparks: Sparks) -> Iterator[Any]:
    """For a test after which Spark is not as it was: the next test gets another."""
    yield sparks.running()
    sparks.stop()


@pytest.fixture
def kafka_source(spark: Any) -> Any:
    """A Spark session that knows `format("kafka")`."""
    if connector_jars() is None:
        pytest.skip("no jars of Spark's Kafka connector; `make setup` fetches them")
    return spark


@pytest.fixture(params=["jvm", "python"])
def plane(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the tasks of the test's sinks run."""
    before = PLANE.set(request.param)
    yield request.param
    PLANE.reset(before)


@pytest.fixture
def sinks() -> Iterator[MakeSink]:
    """Makes sinks that are closed at the end of the test."""
    made = []

    def make(bootstrap_servers: str, transactional_id: str, **more: object) -> ExactlyOnceSink:
        choices = ("adopt", "run_batch", "skip_batch", "max_attempts")
        options: dict[str, Any] = {k: more.pop(k) for k in choices if k in more}
        made.append(ExactlyOnceSink(settings(bootstrap_servers, transactional_id, **more), **options))
        return made[-1]

    yield make
    for sink in made:
        sink.close()
