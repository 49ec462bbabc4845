"""Tasks of `held_job.py` that a test lets wait in the middle of a write, and Spark's own record of the tasks."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.demo.refunds.driver import Driver
from tests.e2e.engines.held_job import FOLDER, KEEP, ONE_BY_ONE
from tests.e2e.engines.runs import BATCH, ON_A_CLUSTER, Run, refunds
from tests.e2e.spark.streams import wait_for
from tests.engines.java import ROOT

# The tasks of a write, as many as there are partitions after the shuffle of the pipeline.
TASKS = int(ON_A_CLUSTER["spark.sql.shuffle.partitions"])
TIMEOUT_S = 180.0

Event = Mapping[str, Any]


class Held:
    """A pipeline whose tasks wait."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run = run
        self.folder = folder

    def hold(self, *partitions: int, write: object = BATCH) -> None:
        """To be called before the write. No partitions: the tasks of all of them.

        write: the number of a micro-batch, for its last write; `first 2` for the first write of micro-batch 2.
        """
        for partition in partitions or range(TASKS):
            (self.folder / f"hold {write}.{partition}").touch()

    def await_held(self, driver: Driver, *, write: object = BATCH, tasks: int = TASKS) -> list[int]:
        """Wait until so many tasks wait, and rows are in the log and not committed. Returns the ids of the tasks."""
        while driver.await_event("begun")["batch"] != int(str(write).removeprefix("first ")):
            pass
        topic = self.run.pipeline.refunds if str(write).startswith("first") else self.run.pipeline.audit
        wait_for(lambda: len(self.task_ids(write)) >= tasks, TIMEOUT_S)
        wait_for(lambda: self.run.pipeline.uncommitted(topic) > 0, TIMEOUT_S)
        assert self.run.state == "Ongoing"
        return self.task_ids(write)

    def task_ids(self, write: object = BATCH) -> list[int]:
        """Of the tasks that wait, and of their copies, which do not."""
        return sorted(int(file.name.split(".")[-1]) for file in self.folder.glob(f"held {write}.*"))

    def executor_pid(self, write: object) -> int:
        """Of the executor whose task waits."""
        [file] = self.folder.glob(f"held {write}.*")
        return int(file.read_text())

    def release(self, write: object = BATCH) -> None:
        for hold in self.folder.glob(f"hold {write}.*"):
            hold.unlink()

    def has_asked(self, task_id: int) -> bool:
        """Has this task asked the driver for leases?"""
        return (self.folder / f"asked {task_id}").exists()

    def done(self) -> int:
        """How many tasks of sinks have written all their rows, in all micro-batches so far."""
        return len(list(self.folder.glob("done *")))

    @property
    def outputs(self) -> list[str]:
        return [self.run.pipeline.refunds, self.run.pipeline.audit]

    def tasks(self, task_ids: Collection[int]) -> list[Event]:
        """What Spark's log of events says of these tasks and their ends. To be called after the job."""
        [log] = (self.folder / "events").glob("app-*")
        events = map(json.loads, log.read_text().splitlines())
        ends = [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
        by_id = {end["Task Info"]["Task ID"]: {**end["Task Info"], **end} for end in ends}
        return [by_id[task_id] for task_id in task_ids]


@contextmanager
def held_refunds(
    bootstrap_servers: str,
    folder: Path,
    master: str,
    plane: str,
    keep: str = "compute_once",
    more: Mapping[str, str] | None = None,
) -> Iterator[Held]:
    """more: settings of Spark, without `spark.`."""
    held = folder / "held"
    (held / "events").mkdir(parents=True)
    settings = {
        **ON_A_CLUSTER,
        **ONE_BY_ONE,
        KEEP: keep,
        FOLDER: str(held),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (held / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        **{f"spark.{name}": value for name, value in (more or {}).items()},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        with refunds(bootstrap_servers, folder, master, settings, plane=plane, job="tests.e2e.engines.held_job") as run:
            yield Held(run, held)
