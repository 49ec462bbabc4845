"""Kill the refunds pipeline with kill -9, its driver and its Python workers, at moments that a seed decides.

Usage: crash_spark.py [--rounds N] [--seed N] [--settlements N]

Each round brings new settlements, starts the driver and kills it while it works through them. In every second round
the tasks run in Spark's JVM, in the others in Python workers, one of which may be killed before the driver. The last
start is left alone. Then a reader that has nothing to do with the pipeline (confluent-kafka, read_committed) reads
settlements and outputs, and the checkers of `fencepost verify pipeline` judge them. The amounts have to be right, and a
reader that ran throughout has to have seen the same.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from fencepost.cli.output import as_text
from fencepost.cli.streams import say
from fencepost.cli.verify.check import blocks_of
from fencepost.demo.refunds.driver import SILENCE_S, Driver, processes_of_session
from fencepost.demo.refunds.driver import Event as JobEvent
from fencepost.demo.refunds.pipeline import PARTITIONS, Engines, Pipeline
from fencepost.demo.refunds.requirements import check_pyspark, find_java
from fencepost.demo.refunds.verdict import Found, commits_of, differences, wrong_amounts
from fencepost.demo.refunds.watcher import Watcher
from fencepost.demo.report import DemoFailed
from fencepost.testing import Broker
from fencepost.verify.checkers.pipeline import INPUTS, OUTPUTS, PIPELINE
from fencepost.verify.history import Committed, Event, Header, Poll, Rest, Send
from fencepost.verify.report.document import judge

BATCHES_PER_ROUND = 6
# A moment is a number of micro-batches after the start, and a time into the next. The first takes longer than others.
MOST_BATCHES = 4
FIRST_BATCH_S, BATCH_S = 8.0, 1.5
PLANES = ("python", "jvm")  # Where tasks run, in turn.
SHARE_WITH_WORKERS = 0.8  # Of the rounds in which there are any.
TICK_S = 0.1
SHOWN = 10


def main() -> int:
    options = parse_arguments()
    try:
        check_pyspark()
        wrong = crash(options.rounds, options.seed, options.settlements)
    except DemoFailed as error:
        print(f"error: {error}\n\nhint: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if not wrong:
        print("nothing lost, nothing doubled")
        return 0
    print("\n\n".join(wrong))
    print(f"\nhint: the same moments again: --seed {options.seed}")
    return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--settlements", type=int, default=2000, help="new ones in each round")
    return parser.parse_args()


class Moment(NamedTuple):
    """After a number of micro-batches, and a time into the next."""

    batches: int
    more_s: float

    def __str__(self) -> str:
        return f"after {self.batches} batches and {self.more_s:.2f} s"


class Round(NamedTuple):
    """When to kill a Python worker, if at all, and when to kill the driver, counted from there."""

    plane: str
    worker: Moment | None
    driver: Moment
    which_worker: float = 0.0  # From 0 to 1, because the number of workers is not known beforehand.


def plan_round(rng: random.Random, plane: str) -> Round:
    batches = rng.randint(0, MOST_BATCHES)
    with_worker = plane == "python" and rng.random() < SHARE_WITH_WORKERS
    before = rng.randint(0, batches)
    if not with_worker:
        return Round(plane, None, Moment(batches, rng.uniform(0, BATCH_S if batches else FIRST_BATCH_S)))
    worker = Moment(before, rng.uniform(0, BATCH_S if before else FIRST_BATCH_S))
    return Round(plane, worker, Moment(batches - before, rng.uniform(0, BATCH_S)), rng.random())


class Crash:
    """One pipeline over all rounds, and the number of kills."""

    def __init__(self, pipeline: Pipeline, watcher: Watcher) -> None:
        self._pipeline, self._watcher = pipeline, watcher
        self.drivers = self.workers = self.restarts = 0

    def play(self, plan: Round, offsets_per_batch: int) -> str:
        """One round; returns what happened."""
        said: list[str] = []
        where: str | None = None
        with self._pipeline.start(offsets_per_batch, hear=self._hear, plane=plan.plane) as driver:
            if plan.worker is not None:
                where = follow(driver, plan.worker)
                if where is None or not kill_worker(driver, plan.which_worker):
                    return "the job had read everything before a worker could be killed"
                self.workers += 1
                said.append(f"kill -9 of a Python worker {plan.worker}, {where}")
            where = follow(driver, plan.driver, since=where)
            if where is None:
                said.append("the job had read everything before its driver could be killed")
            else:
                driver.kill()
                self.drivers += 1
                said.append(f"kill -9 of the driver {plan.driver}, {where}")
        return "; ".join(said)

    def finish(self, offsets_per_batch: int) -> Found:
        with self._pipeline.start(offsets_per_batch, hear=self._hear) as driver:
            driver.await_end()
        return self._pipeline.found(self._watcher)

    def __str__(self) -> str:
        committed, due = self._watcher.count(self._pipeline.refunds), len(self._pipeline.due)
        return f"{committed:,} of {due:,} refunds are committed"

    def _hear(self, event: JobEvent) -> None:
        self.restarts += event["event"] == "restarting"


def history_of(pipeline: Pipeline, found: Found, seed: int) -> tuple[Header, list[Event]]:
    """The history of a run of `fencepost verify pipeline`. A settlement is known by its key."""
    topics = dict.fromkeys(pipeline.topics, PARTITIONS)
    what = {"verify": PIPELINE, "input": pipeline.settlements}
    assert found.committed is not None, "this sink commits offsets"
    offsets = [(*where, offset) for where, offset in found.committed.items()]
    events: list[Event] = [
        *(Send(0, "settlements", None, key, pipeline.settlements) for key in found.due),
        *(Poll(1, INPUTS, seen.topic, seen.partition, [(seen.offset, seen.key)]) for seen in pipeline.inputs()),
        *(Poll(2, OUTPUTS, seen.topic, seen.partition, [(seen.offset, seen.key)]) for seen in found.final),
        Committed(3, "crash", pipeline.group_id, offsets),
        Rest(4, "crash"),
    ]
    return Header(seed, what, topics), events


def find_wrong(pipeline: Pipeline, found: Found, seed: int) -> list[str]:
    """What is wrong with the outputs, in paragraphs."""
    report = judge(*history_of(pipeline, found, seed))
    wrong = [as_text(blocks_of(report))] if report.anomalies else []
    return wrong + [*wrong_amounts(found), *differences(found)][:SHOWN]


def crash(rounds: int, seed: int, settlements: int) -> list[str]:
    """Returns what is wrong in the end, in paragraphs."""
    rng = random.Random(seed)
    say(f"seed {seed}: {rounds} rounds of {settlements:,} settlements")
    with (
        tempfile.TemporaryDirectory(prefix="fencepost-crash-", ignore_cleanup_errors=True) as folder,
        Broker(data=Path(folder) / "broker") as broker,
    ):
        pipeline = Pipeline(Engines(broker.bootstrap_servers, find_java()), Path(folder))
        pipeline.create_topics()
        with pipeline.watch() as watcher:
            crash = Crash(pipeline, watcher)
            for number in range(1, rounds + 1):
                before = pipeline.offsets()
                pipeline.settle(settlements, rng, prefix=f"r{number}")
                per_batch = (pipeline.offsets() - before) // BATCHES_PER_ROUND
                what = crash.play(plan_round(rng, PLANES[number % 2]), per_batch)
                say(f"round {number}/{rounds}, {PLANES[number % 2]}: {what}; {crash}")
            if not crash.drivers:
                raise DemoFailed("every job was done before its driver could be killed", "give more --settlements")
            found = crash.finish(pipeline.offsets() // BATCHES_PER_ROUND)
            say(f"the last start was left alone; {crash}")
            say(
                f"{crash.drivers} drivers and {crash.workers} Python workers were killed; queries started again "
                f"{crash.restarts} times by themselves; {len(commits_of(found.watched, pipeline.refunds))} commits"
            )
            return find_wrong(pipeline, found, seed)


def follow(driver: Driver, moment: Moment, since: str | None = None) -> str | None:
    """Let the job work on until this moment; returns what it was doing then. None: it has read everything.

    since: what it was doing at an earlier moment, if this one is counted from there and not from the start.
    """
    batches, where = 0, since or "before its first batch"
    quiet_since, until = time.monotonic(), float("inf")
    if since is not None and not moment.batches:
        until = time.monotonic() + moment.more_s
    while time.monotonic() < until:
        event = driver.next_event(min(TICK_S, max(until - time.monotonic(), 0)))
        if event is None:
            if time.monotonic() > quiet_since + SILENCE_S:
                raise DemoFailed(f"the Spark job has said nothing for {SILENCE_S:g} s", f"it was {where}")
            continue
        quiet_since = time.monotonic()
        if event["event"] == "ended":
            if event["exit_code"]:
                raise driver.failed(event)
            return None
        if "batch" in event:
            where = f"batch {event['batch']} {event.get('outcome', 'begun')}"
        batches += event["event"] == "batch"
        if until == float("inf") and batches >= moment.batches and event["event"] == "begun":
            until = time.monotonic() + moment.more_s
    return where


def kill_worker(driver: Driver, which: float) -> bool:
    """Kill a running worker, or the first to come. False if the job ended before there was one."""
    while driver.is_running:
        workers = python_workers(driver)
        if workers:
            with suppress(psutil.NoSuchProcess):
                workers[int(which * len(workers))].kill()
            return True
        time.sleep(0.01)
    return False


def python_workers(driver: Driver) -> list[psutil.Process]:
    """Python workers are forks of a daemon that Java started."""
    found = []
    for pid in sorted(processes_of_session(driver.pid)):
        with suppress(psutil.NoSuchProcess):  # It or its parent may just have ended.
            process = psutil.Process(pid)
            parent = process.parent()
            if parent and "pyspark.daemon" in process.cmdline() and "pyspark.daemon" in parent.cmdline():
                found.append(process)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
