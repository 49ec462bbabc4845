"""The refunds pipeline under crashes, from the first settlement to the verdict.

The demo kills the driver twice: between the refunds and the audit rows of a micro-batch, and after a micro-batch is
committed but before Spark has recorded it in the checkpoint. It kills the broker once, in a micro-batch, and restarts
it.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.demo.refunds.driver import Event
from fencepost.demo.refunds.job import BATCH_DONE, REFUNDS_WRITTEN
from fencepost.demo.refunds.pipeline import LOCAL_MASTER, Engines, Pipeline, new_suffix
from fencepost.demo.refunds.requirements import check_pyspark, find_java
from fencepost.demo.refunds.verdict import Verdict, judge
from fencepost.demo.refunds.watcher import Watcher
from fencepost.demo.report import Progress, Report, Section
from fencepost.demo.stage import COMMAND_LINE, Stage
from fencepost.testing import Broker

BATCHES = 5
# The job has more micro-batches than these, so some run after the last crash.
HALF_WRITTEN_BATCH, UNRECORDED_BATCH, BROKER_BATCH = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Options:
    settlements: int
    seed: int
    sink: str = "fencepost"
    bootstrap_servers: str | None = None  # None: the demo starts a broker, and kills it too.
    master: str = LOCAL_MASTER
    conf: dict[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    crashes: bool = True


Counted = Callable[[int, int], None]


def play_refunds(
    options: Options, progress: Progress, counted: Counted, stage: Stage = COMMAND_LINE
) -> tuple[Report, Verdict]:
    """`counted` is called often, with the number of refunds that a reader has received and the number that is due."""
    check_pyspark()
    java_home = find_java()
    began = time.monotonic()
    with ExitStack() as until_the_end:
        # A killed JVM may still write a file while the folder is being removed.
        made = tempfile.TemporaryDirectory(prefix="fencepost-refunds-", ignore_cleanup_errors=True)
        folder = Path(until_the_end.enter_context(made))
        broker = None
        if options.bootstrap_servers is None:
            broker = until_the_end.enter_context(Broker(data=folder / "broker"))
            stage.enter(broker)
        servers = broker.bootstrap_servers if broker is not None else str(options.bootstrap_servers)
        engines = Engines(servers, java_home, options.sink, options.master, options.conf, options.checkpoint)
        pipeline = Pipeline(engines, folder, "" if broker is not None else new_suffix())
        pipeline.create_topics()
        if broker is None:
            progress(f"new topics on {servers}: {', '.join(pipeline.topics)}")
        progress(f"writing {options.settlements:,} settlements; some are sent twice, some are in aborted transactions")
        pipeline.settle(options.settlements, random.Random(options.seed))
        watcher = until_the_end.enter_context(pipeline.watch())
        story = Story(pipeline, watcher, progress, counted)
        if options.crashes:
            story.with_crashes(broker)
        else:
            story.without_crashes()
        progress("checking the records that read_committed readers see, with confluent-kafka")
        verdict = judge(pipeline.found(watcher))
    facts: dict[str, Any] = {
        "exactly_once": verdict.is_exactly_once,
        "sink": options.sink,
        "bootstrap_servers": servers,
        "topics": list(pipeline.topics),
        "group_id": pipeline.group_id,
        "seed": options.seed,
        "settlements": options.settlements,
        "commits": verdict.commits,
        "duplicates": verdict.duplicates,
        "refunds_without_audit": verdict.refunds_without_audit,
        "crashes": story.crashes,
        "seconds": round(time.monotonic() - began, 1),
    }
    return Report("refunds", facts, [section_of(verdict, options.settlements, story.crashes)]), verdict


class Story:
    def __init__(self, pipeline: Pipeline, watcher: Watcher, progress: Progress, counted: Counted) -> None:
        self._pipeline, self._watcher = pipeline, watcher
        self._progress, self._counted = progress, counted
        self._offsets_per_batch = max(pipeline.offsets() // BATCHES, 1)
        self.crashes: list[str] = []

    def without_crashes(self) -> None:
        with self._start() as driver:
            driver.await_end()

    def with_crashes(self, broker: Broker | None) -> None:
        with self._start(HALF_WRITTEN_BATCH, REFUNDS_WRITTEN) as driver:
            driver.await_event("waiting")
            self._crash(f"the driver, in micro-batch {HALF_WRITTEN_BATCH}: {self._half_written()}")
            driver.kill()
        with self._start(UNRECORDED_BATCH, BATCH_DONE) as driver:
            driver.await_event("waiting")
            self._crash(f"the driver, after micro-batch {UNRECORDED_BATCH} was written and before Spark recorded it")
            driver.kill()
        if broker is None:
            return self.without_crashes()
        with self._start(BROKER_BATCH, REFUNDS_WRITTEN) as driver:
            driver.await_event("waiting")
            self._crash(f"the broker, in micro-batch {BROKER_BATCH}: {self._half_written()}")
            broker.kill()
            driver.go_on()
            broker.restart()
            driver.await_end()
        return None

    def _start(self, wait_in_batch: int | None = None, wait_at: str = "") -> Any:
        started = self._pipeline.start(
            self._offsets_per_batch, wait_in_batch=wait_in_batch, wait_at=wait_at, hear=self._hear, tick=self._tick
        )
        self._progress(f"run {self._pipeline.runs}: starting Spark")
        return started

    def _crash(self, line: str) -> None:
        line = f"kill -9 of {line}"
        self.crashes.append(line)
        self._progress(f"run {self._pipeline.runs}: {line}")

    def _half_written(self) -> str:
        waiting = self._pipeline.uncommitted()
        seen = f"{waiting:,} refunds are in the log, not committed" if waiting else "its refunds are readable"
        return f"{seen}, and no audit rows"

    def _hear(self, event: Event) -> None:
        run = f"run {event.get('run')}"
        if event["event"] == "batch" and event["outcome"] == "skipped":
            self._progress(f"{run}: micro-batch {event['batch']} is in Kafka already: skipped")
        elif event["event"] == "batch":
            self._progress(f"{run}: micro-batch {event['batch']} {event['outcome']}")
        elif event["event"] == "restarting":
            self._progress(f"{run}: the query restarts: {event['why']}")

    def _tick(self) -> None:
        self._counted(self._watcher.count(self._pipeline.refunds), len(self._pipeline.due))


def section_of(verdict: Verdict, settlements: int, crashes: list[str]) -> Section:
    return Section(
        "Refunds and audit rows that read_committed readers see",
        [f"{line}." for line in crashes] or ["Nothing was killed."],
        ("topic", "due", "found", "missing", "duplicates", "not due"),
        [
            (c.topic, settlements, c.records, len(c.missing), c.duplicates, len(c.not_due))
            for c in (verdict.refunds, verdict.audit)
        ],
        verdict.checks,
    )
