"""The refunds pipeline on three brokers of Apache Kafka and a Spark cluster: parts die in the middle of a micro-batch.

After each failure, read_committed readers (confluent-kafka) find one refund and one audit row for every settlement,
both of the same commit, and the group's offset is at the end. Advice of `fencepost doctor` that needs three brokers is
tried here too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.client.client import KafkaClient
from fencepost.commands import alter_config
from fencepost.diagnose.doctor.cluster import STATE_TOPIC
from tests.command_line import run_fencepost
from tests.e2e.engines.moves import INTERNAL, coordinator, leaders, leaders_that_move
from tests.e2e.engines.runs import BATCH, ON_A_CLUSTER, Run, refunds
from tests.e2e.spark.streams import wait_for
from tests.engines.apache_kafka import ApacheKafka, ApacheKafkaCluster, run_line
from tests.engines.spark_cluster import HOSTS, SparkCluster
from tests.txn_tools import producer_of

pytestmark = pytest.mark.timeout(1200)  # One to three minutes on an idle machine.


@pytest.fixture(params=["jvm", "python"])
def run(
    kafka: ApacheKafkaCluster, spark: SparkCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Run]:
    """With the tasks of the sink in Spark's JVM, and with tasks in Python workers."""
    with refunds(kafka.bootstrap_servers, tmp_path, spark.master, ON_A_CLUSTER, plane=request.param) as run:
        yield run


def test_a_broker_that_dies_in_a_batch_costs_no_transaction(run: Run, kafka: ApacheKafkaCluster) -> None:
    with run.start_and_hold() as driver:
        run.await_half_written(driver)
        # A leader of data, some of it uncommitted. The coordinator has a test of its own.
        spared = coordinator(kafka.bootstrap_servers, run.pipeline.transactional_id)
        led = leaders(kafka.bootstrap_servers, [run.pipeline.refunds, run.pipeline.audit])
        victim = next(node for node in led.values() if node != spared)
        kafka.kill(victim)
        driver.go_on()
        driver.await_end()
    assert run.restarts == []
    assert victim not in leaders(kafka.bootstrap_servers, [run.pipeline.refunds, run.pipeline.audit]).values()
    run.assert_exactly_once()


def test_a_worker_that_dies_between_the_writes_of_a_batch_loses_and_doubles_nothing(
    run: Run, spark: SparkCluster
) -> None:
    with run.start_and_hold() as driver:
        run.await_half_written(driver)
        assert spark.executors(HOSTS[1]), "the job has an executor on each worker"
        spark.kill_worker(HOSTS[1])
        driver.go_on()
        driver.await_end()
    assert run.outcomes[BATCH] == "committed"
    run.assert_exactly_once()


@pytest.mark.parametrize("host", HOSTS)
def test_a_worker_that_dies_while_tasks_write_loses_and_doubles_nothing(
    run: Run, spark: SparkCluster, host: str
) -> None:
    with run.start() as driver:
        run.freeze_in_a_batch(driver)
        assert spark.executors(host), "the job has an executor on each worker"
        spark.kill_worker(host)
        run.thaw(driver)
        driver.await_end()
    run.assert_exactly_once()


def test_leaders_and_coordinators_that_move_all_the_time_lose_and_double_nothing(
    run: Run, kafka: ApacheKafkaCluster
) -> None:
    with run.start() as driver:
        # The internal topics exist by now.
        driver.await_event("batch")
        topics = [run.pipeline.settlements, run.pipeline.refunds, run.pipeline.audit, *INTERNAL]
        with leaders_that_move(kafka.bootstrap_servers, topics) as moves:
            driver.await_end()
    print(f"{len(moves)} times every leader, {sum(moves)} moves in all")
    assert sum(moves) > 0
    run.assert_exactly_once()


def test_the_demo_itself_kills_its_driver_there_and_is_exactly_once(
    kafka: ApacheKafkaCluster, spark: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    conf = [word for name, value in ON_A_CLUSTER.items() for word in ("--conf", f"{name}={value}")]
    where = ("--bootstrap", kafka.bootstrap_servers, "--master", spark.master)
    done = run_fencepost("demo", "refunds", *where, *conf, "--settlements", "4000", "--seed", "7", timeout_s=1000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "exactly once: yes"
    assert done.stderr.count("kill -9 of the driver") == 2
    assert "is in Kafka already: skipped" in done.stderr


@pytest.mark.timeout(240)
def test_the_line_of_doctor_that_wants_two_copies_in_sync_is_accepted_and_its_finding_goes(
    kafka: ApacheKafkaCluster,
) -> None:
    def printed() -> list[str]:
        report = json.loads(run_fencepost("doctor", "--json", bootstrap_servers=kafka.bootstrap_servers).stdout)
        return [found["command"] for found in report["findings"] if found["check"] == "min-isr"]

    # This creates __transaction_state.
    producer_of(kafka.bootstrap_servers, "doctor")
    assert printed() == []
    run_line(alter_config(STATE_TOPIC, "min.insync.replicas=1"), kafka.bootstrap_servers)
    while not (lines := printed()):
        pass
    run_line(lines[0], kafka.bootstrap_servers)
    while printed():
        pass


def transaction_version(node: ApacheKafka) -> int:
    with KafkaClient({"bootstrap.servers": node.bootstrap_servers}) as client:
        return client.transaction_version


class TestTransactionVersion1:
    """The same brokers with TV1: the driver adds partitions and asks for epochs."""

    @pytest.fixture(autouse=True)
    def version(self, kafka: ApacheKafkaCluster) -> Iterator[None]:
        kafka.use_transaction_version(1)
        wait_for(lambda: all(transaction_version(node) == 1 for node in kafka.nodes.values()))
        yield
        kafka.use_transaction_version(2)

    def test_a_transaction_coordinator_that_dies_in_a_batch_loses_and_doubles_nothing(
        self, version: None, run: Run, kafka: ApacheKafkaCluster
    ) -> None:
        with run.start_and_hold() as driver:
            run.await_half_written(driver)
            kafka.kill(coordinator(kafka.bootstrap_servers, run.pipeline.transactional_id))
            driver.go_on()
            driver.await_end()
        run.assert_exactly_once()
