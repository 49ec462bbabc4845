"""The refunds pipeline on the clusters of a test: started, disturbed at a known moment, and judged."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fencepost.demo.refunds.driver import JOB, Driver, Event
from fencepost.demo.refunds.job import REFUNDS_WRITTEN
from fencepost.demo.refunds.pipeline import LOCAL_MASTER, Engines, Pipeline, new_suffix
from fencepost.demo.refunds.verdict import judge
from fencepost.demo.refunds.watcher import Watcher
from tests.e2e.engines.moves import transaction_state
from tests.engines.java import java_home
from tests.engines.spark_cluster import SMALL

SETTLEMENTS = 6000
BATCHES = 6
# The micro-batch that is disturbed. Some are committed before it, and some come after it.
BATCH = 2
SEED = 7
# Spark's settings for a job on a cluster on this machine: two tasks for each of two small workers.
ON_A_CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "640m",
    "spark.executor.extraJavaOptions": SMALL,
    "spark.sql.shuffle.partitions": "4",
}


class Run:
    """One pipeline with its settlements, and a reader that watches its outputs."""

    def __init__(self, pipeline: Pipeline, watcher: Watcher, plane: str) -> None:
        self.pipeline = pipeline
        self._plane = plane
        self.outcomes: dict[int, str] = {}
        # The reasons for restarts of the query, each of which is a lost transaction.
        self.restarts: list[str] = []
        self._watcher = watcher

    def start(self, **where: Any) -> Driver:
        """The job, which waits inside micro-batch `wait_in_batch` at `wait_at`."""
        offsets_per_batch = max(self.pipeline.offsets() // BATCHES, 1)
        return self.pipeline.start(offsets_per_batch, hear=self._hear, plane=self._plane, **where)

    def start_and_hold(self) -> Driver:
        """The job, which waits between the two writes of a micro-batch."""
        return self.start(wait_in_batch=BATCH, wait_at=REFUNDS_WRITTEN)

    def await_half_written(self, driver: Driver) -> None:
        """Wait until refunds are in the log and not committed, without audit rows, and the driver waits."""
        assert driver.await_event("waiting")["batch"] == BATCH
        assert self.pipeline.uncommitted() > 0
        assert self.state == "Ongoing"

    def freeze_in_a_batch(self, driver: Driver) -> None:
        """Stop the driver in the middle of a transaction that has written something.

        Its tasks stop as well, because they get no leases from a stopped driver.
        """
        while BATCH - 1 not in self.outcomes:
            driver.await_event("batch")
        while True:
            event = driver.next_event(0.001)
            assert event is None or event["event"] != "ended", "the job is over"
            if self.pipeline.uncommitted():
                os.killpg(driver.pid, signal.SIGSTOP)
                if self.state == "Ongoing" and self.pipeline.uncommitted():
                    return
                os.killpg(driver.pid, signal.SIGCONT)

    def thaw(self, driver: Driver) -> None:
        os.killpg(driver.pid, signal.SIGCONT)

    @property
    def state(self) -> str:
        return transaction_state(self.pipeline.engines.bootstrap_servers, self.pipeline.transactional_id)

    def assert_exactly_once(self) -> None:
        """Judge by the records of read_committed readers (confluent-kafka) and the offsets of the group."""
        verdict = judge(self.pipeline.found(self._watcher))
        assert verdict.is_exactly_once, [check for check in verdict.checks if not check.holds]
        assert verdict.refunds.records == verdict.audit.records == len(self.pipeline.due)
        assert verdict.commits >= BATCHES

    def _hear(self, event: Event) -> None:
        print(f"{time.strftime('%H:%M:%S')} {dict(event)}")
        if event["event"] == "batch":
            self.outcomes[event["batch"]] = event["outcome"]
        elif event["event"] == "restarting":
            self.restarts.append(event["why"])


@contextmanager
def refunds(
    bootstrap_servers: str,
    folder: Path,
    master: str = LOCAL_MASTER,
    conf: Mapping[str, str] | None = None,
    settlements: int = SETTLEMENTS,
    plane: str = "auto",
    job: str = JOB,
) -> Iterator[Run]:
    """A pipeline with topics and settlements of its own. `folder` is empty. plane: where the tasks of the sink run."""
    java = java_home()
    assert java is not None
    engines = Engines(bootstrap_servers, java, master=master, conf=dict(conf or {}), job=job)
    pipeline = Pipeline(engines, folder, new_suffix())
    pipeline.create_topics()
    pipeline.settle(settlements, random.Random(SEED))
    with pipeline.watch() as watcher:
        yield Run(pipeline, watcher, plane)
