"""Executors and brokers come and go while tasks write: the refunds pipeline on three brokers and a Spark cluster.

The tasks are known to be in the middle of a write, because they wait there (`held_job.py`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.demo.refunds.job import BATCH_DONE
from tests.e2e.engines.holds import TASKS, TIMEOUT_S, Held, held_refunds
from tests.e2e.engines.moves import coordinator, leaders
from tests.e2e.engines.runs import BATCH
from tests.e2e.spark.streams import wait_for
from tests.engines.apache_kafka import ApacheKafkaCluster
from tests.engines.spark_cluster import HOSTS, SparkCluster

pytestmark = pytest.mark.timeout(900)  # A minute on an idle machine.

DECOMMISSION = {
    "decommission.enabled": "true",
    "storage.decommission.enabled": "true",
    "storage.decommission.rddBlocks.enabled": "true",
    "storage.decommission.shuffleBlocks.enabled": "true",
}
DYNAMIC = {
    "executor.cores": "1",
    "executor.memory": "480m",  # Two of them are in a worker.
    "dynamicAllocation.enabled": "true",
    # An executor that goes gives its shuffle files to another one. Spark would keep it as long as a job may read them.
    "decommission.enabled": "true",
    "storage.decommission.enabled": "true",
    "storage.decommission.shuffleBlocks.enabled": "true",
    "dynamicAllocation.shuffleTracking.enabled": "false",
    "dynamicAllocation.minExecutors": "0",
    "dynamicAllocation.maxExecutors": str(TASKS),
    "dynamicAllocation.executorIdleTimeout": "1s",
    "dynamicAllocation.schedulerBacklogTimeout": "1s",
    "dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
}
SPECULATION = {
    "speculation": "true",
    "speculation.interval": "100ms",
    "speculation.multiplier": "1.1",
    "speculation.minTaskRuntime": "200ms",
    "speculation.quantile": "0.5",
}


PLANES = ["jvm", "python"]
# Where tasks run, and how two outputs come from one frame.
KEPT = [("jvm", "nothing"), ("python", "nothing"), ("jvm", "compute_once"), ("python", "persist")]


@pytest.fixture(params=PLANES)
def held(
    kafka: ApacheKafkaCluster, spark: SparkCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Held]:
    with held_refunds(kafka.bootstrap_servers, tmp_path, spark.master, request.param) as held:
        yield held


# --- Spark --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("plane", "keep"), KEPT)
def test_executors_that_are_decommissioned_while_they_write_lose_and_double_nothing(
    kafka: ApacheKafkaCluster, spark: SparkCluster, tmp_path: Path, plane: str, keep: str
) -> None:
    with held_refunds(kafka.bootstrap_servers, tmp_path, spark.master, plane, keep, DECOMMISSION) as held:
        held.hold()
        with held.run.start() as driver:
            writing = held.await_held(driver)
            spark.decommission_worker(HOSTS[1])
            held.release()
            driver.await_end()
        # Spark lets its tasks end, and moves its cached rows to the other executor. To the sink, cached rows that have
        # moved look like rows that were computed again.
        tasks = held.tasks(writing)
        assert {task["Host"] for task in tasks} == set(HOSTS)
        assert {task["Task End Reason"]["Reason"] for task in tasks} == {"Success"}
        assert len(held.run.restarts) == (0 if keep == "nothing" else 1)
        held.run.assert_exactly_once()


@pytest.mark.parametrize(("plane", "keep"), KEPT)
def test_executors_that_come_and_go_in_a_batch_and_between_batches_lose_and_double_nothing(
    kafka: ApacheKafkaCluster, spark: SparkCluster, tmp_path: Path, plane: str, keep: str
) -> None:
    # With this timeout, Spark takes away executors that hold cached rows as well.
    cached = {"dynamicAllocation.cachedExecutorIdleTimeout": "1s"}
    with held_refunds(kafka.bootstrap_servers, tmp_path, spark.master, plane, keep, DYNAMIC | cached) as held:
        held.hold(0)
        held.hold(write=BATCH + 1)
        with held.run.start(wait_in_batch=BATCH + 2, wait_at=BATCH_DONE) as driver:
            held.await_held(driver, tasks=1)
            # All executors go that have no task.
            wait_for(lambda: spark_executors(spark) == 1, TIMEOUT_S)
            held.release()
            # All tasks write at the same time, which one executor cannot do: others come while it writes.
            held.await_held(driver, write=BATCH + 1)
            assert spark_executors(spark) == TASKS
            held.release(BATCH + 1)
            driver.await_event("waiting")
            wait_for(lambda: spark_executors(spark) == 0, TIMEOUT_S)
            driver.go_on()
            driver.await_end()
        held.run.assert_exactly_once()


def spark_executors(spark: SparkCluster) -> int:
    return sum(len(spark.executors(host)) for host in HOSTS)


@pytest.mark.parametrize("plane", PLANES)
def test_an_executor_that_dies_with_cached_rows_breaks_the_batch_though_spark_forgets_it_at_once(
    kafka: ApacheKafkaCluster, spark: SparkCluster, tmp_path: Path, plane: str
) -> None:
    """As Spark does with some, and maybe the newest, when more than a hundred are gone."""
    forget = {"ui.retainedDeadExecutors": "0"}
    write = f"first {BATCH}"
    with held_refunds(kafka.bootstrap_servers, tmp_path, spark.master, plane, "persist", forget) as held:
        held.hold(0, write=write)
        with held.run.start() as driver:
            held.await_held(driver, write=write, tasks=1)
            # All tasks of the two writes of each micro-batch before, and all but one of this write.
            wait_for(lambda: held.done() >= BATCH * 2 * TASKS + TASKS - 1, TIMEOUT_S)
            [other] = (e for host in HOSTS for e in spark.executors(host) if e.pid != held.executor_pid(write))
            host = next(host for host in HOSTS if other in spark.executors(host))
            other.kill()
            wait_for(lambda: any(e != other for e in spark.executors(host)), TIMEOUT_S)
            held.release(write)
            driver.await_end()
        [why] = held.run.restarts
        # With the executor, Spark has lost its shuffle files: the sink names what it notices first.
        assert "Spark does not show executor" in why or "Spark lost shuffle files" in why
        held.run.assert_exactly_once()


@pytest.mark.parametrize("plane", PLANES)
def test_two_copies_of_a_task_that_write_at_the_same_time_lose_and_double_nothing(
    kafka: ApacheKafkaCluster, spark: SparkCluster, tmp_path: Path, plane: str
) -> None:
    with held_refunds(kafka.bootstrap_servers, tmp_path, spark.master, plane, more=SPECULATION) as held:
        held.hold(0)
        with held.run.start() as driver:
            held.await_held(driver, tasks=1)
            # The task has written, and waits. Its copy has rows to write, too, and has asked for leases.
            wait_for(lambda: len(held.task_ids()) == 2 and all(map(held.has_asked, held.task_ids())), TIMEOUT_S)
            held.release()
            driver.await_end()
        task, copy = held.tasks(held.task_ids())
        assert (task["Speculative"], copy["Speculative"]) == (False, True)
        assert {task["Host"], copy["Host"]} == set(HOSTS)
        assert (task["Stage ID"], task["Index"]) == (copy["Stage ID"], copy["Index"])
        assert copy["Launch Time"] < task["Finish Time"]
        assert held.run.restarts == []
        held.run.assert_exactly_once()


# --- Kafka --------------------------------------------------------------------------------------------------


def test_a_leader_that_stops_cleanly_while_tasks_write_costs_no_transaction(
    held: Held, kafka: ApacheKafkaCluster
) -> None:
    held.hold()
    with held.run.start() as driver:
        held.await_held(driver)
        victim = leaders(kafka.bootstrap_servers, held.outputs)[held.run.pipeline.audit, 0]
        kafka.nodes[victim].stop()
        assert victim not in leaders(kafka.bootstrap_servers, held.outputs).values()
        held.release()
        driver.await_end()
    assert held.run.restarts == []
    held.run.assert_exactly_once()


def test_a_leader_that_freezes_while_tasks_send_to_it_and_wakes_up_deposed_costs_no_transaction(
    held: Held, kafka: ApacheKafkaCluster
) -> None:
    pipeline = held.run.pipeline
    held.hold()
    with held.run.start() as driver:
        sending = held.await_held(driver)
        spared = coordinator(kafka.bootstrap_servers, pipeline.transactional_id)
        led = leaders(kafka.bootstrap_servers, [pipeline.audit])
        victim = next(node for node in led.values() if node != spared)
        os.kill(kafka.nodes[victim].pid, signal.SIGSTOP)
        try:
            held.release()
            # Every task has rows for every partition, so all of them send to the frozen broker, too.
            wait_for(lambda: victim not in leaders(kafka.bootstrap_servers, held.outputs).values(), TIMEOUT_S)
        finally:
            woken_ms = time.time() * 1000
            os.kill(kafka.nodes[victim].pid, signal.SIGCONT)
        driver.await_end()
    assert all(task["Finish Time"] > woken_ms for task in held.tasks(sending))
    assert held.run.restarts == []
    held.run.assert_exactly_once()
