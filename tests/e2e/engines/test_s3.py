"""A checkpoint on a store that speaks S3, through Hadoop's S3A: the driver is killed, and a copy is restored."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing import Broker
from tests.e2e.engines.rate_job import COMMITTED, WRITTEN, Plan
from tests.e2e.engines.rate_run import Job
from tests.e2e.spark.streams import create_topic, is_free, values
from tests.engines.s3 import S3Store, s3_store

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("needs_spark")]

BATCHES, ROWS = 5, 50
PYTHON = Path(sys.executable)


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    with s3_store() as store:
        yield store


@pytest.fixture
def plan(store: S3Store, broker: Broker, unique: Callable[[str], str], tmp_path: Path) -> Plan:
    topic = create_topic(broker.bootstrap_servers, unique("rate"))
    checkpoint = f"{store.root}/{topic}"
    servers, conf = broker.bootstrap_servers, store.spark_settings
    return Plan(servers, topic, str(tmp_path), BATCHES, ROWS, checkpoint=checkpoint, conf=conf)


def written(told: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(event["batch"], event["outcome"]) for event in told if event["event"] == "batch"]


def numbers(batches: int) -> list[str]:
    return sorted(map(str, range(batches * ROWS)))


def test_rows_are_written_once_with_a_checkpoint_on_s3_although_the_driver_is_killed(
    broker: Broker, store: S3Store, plan: Plan
) -> None:
    with Job(PYTHON, replace(plan, wait_in_batch=1, wait_at=WRITTEN)) as job:
        job.await_event("waiting")
        assert not is_free(broker.bootstrap_servers, plan.topic), "the driver is killed in an open transaction"
    remembered = json.loads(store.read_all(plan.topic)["fencepost"])
    assert [place["transactional.id"] for place in remembered["places"]] == [plan.topic]
    with Job(PYTHON, replace(plan, more={"transactional.id": f"{plan.topic}-2"})) as job:
        log = job.await_failure()
        assert f"micro-batch 1 was begun by an earlier run with transactional.id {plan.topic}, but" in log
    with Job(PYTHON, replace(plan, wait_in_batch=2, wait_at=COMMITTED)) as job:
        assert written(job.await_event("waiting")) == [(1, "committed"), (2, "committed")]
    assert "commits/2" not in store.read_all(plan.topic), "Spark has not recorded the commit"
    with Job(PYTHON, plan) as job:
        assert written(job.await_event("finished")) == [(2, "skipped"), (3, "committed"), (4, "committed")]
    assert values(broker.bootstrap_servers, plan.topic) == numbers(BATCHES)
    assert is_free(broker.bootstrap_servers, plan.topic)


def test_a_restored_copy_of_a_checkpoint_on_s3_is_refused(broker: Broker, store: S3Store, plan: Plan) -> None:
    with Job(PYTHON, replace(plan, wait_in_batch=1, wait_at=COMMITTED)) as job:
        job.await_event("waiting")
    copied = store.read_all(plan.topic)
    with Job(PYTHON, replace(plan, batches=3)) as job:
        assert written(job.await_event("finished")) == [(1, "skipped"), (2, "committed")]
    store.replace_all(plan.topic, copied)
    with Job(PYTHON, plan) as job:
        assert "the checkpoint was set back, by a restore or by deleted files" in job.await_failure()
    assert values(broker.bootstrap_servers, plan.topic) == numbers(3)
