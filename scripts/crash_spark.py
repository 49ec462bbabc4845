"""Kill the driver of the refunds pipeline with kill -9, again and again, at moments that a seed decides.

Usage: crash_spark.py [--rounds N] [--seed N] [--settlements N]

Each round brings new settlements, starts the driver and kills it while it works through them. The last start is left
alone. Then a reader that has nothing to do with the pipeline has to find every settlement once in each output topic,
and the group's offset at the end.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from fencepost.demo.refunds.driver import Driver
from fencepost.demo.refunds.pipeline import Engines, Pipeline
from fencepost.demo.refunds.requirements import check_pyspark, find_java
from fencepost.demo.refunds.verdict import Verdict, judge
from fencepost.demo.refunds.watcher import Watcher
from fencepost.demo.report import DemoFailed
from fencepost.testing import Broker

BATCHES_PER_ROUND = 6
# A moment is so many whole batches after the start, and some time into the next; the first takes longer than others.
MOST_BATCHES = 4
FIRST_BATCH_S, BATCH_S = 8.0, 1.5


def main() -> int:
    options = parse_arguments()
    try:
        check_pyspark()
        verdict = crash(options.rounds, options.seed, options.settlements)
    except DemoFailed as error:
        print(f"error: {error}\n\nhint: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if verdict.is_exactly_once:
        print("nothing lost, nothing doubled")
        return 0
    for check in verdict.checks:
        if not check.holds:
            print(f"FAIL {check.claim}: expected {check.expected}, found {check.found}")
            print("".join(f"     {line}\n" for line in check.evidence), end="")
    print(f"{verdict}; the same moments again: --seed {options.seed}")
    return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--settlements", type=int, default=2000, help="new ones in each round")
    return parser.parse_args()


def crash(rounds: int, seed: int, settlements: int) -> Verdict:
    rng = random.Random(seed)
    say(f"seed {seed}: {rounds} rounds of {settlements:,} settlements")
    with (
        tempfile.TemporaryDirectory(prefix="fencepost-crash-", ignore_cleanup_errors=True) as folder,
        Broker(data=Path(folder) / "broker") as broker,
    ):
        pipeline = Pipeline(Engines(broker.bootstrap_servers, find_java()), Path(folder))
        pipeline.create_topics()
        with pipeline.watch() as watcher:
            for number in range(1, rounds + 1):
                before = pipeline.offsets()
                pipeline.settle(settlements, rng, prefix=f"r{number}")
                per_batch = (pipeline.offsets() - before) // BATCHES_PER_ROUND
                batches = rng.randint(0, MOST_BATCHES)
                with pipeline.start(per_batch) as driver:
                    how = kill_after(driver, batches, rng.uniform(0, BATCH_S if batches else FIRST_BATCH_S))
                say(f"round {number}/{rounds}: {how}; {progress(pipeline, watcher)}")
            with pipeline.start(pipeline.offsets() // BATCHES_PER_ROUND) as driver:
                driver.await_end()
            found = pipeline.found(watcher)
            say(f"the last start was left alone; {progress(pipeline, watcher)}")
    return judge(found)


def kill_after(driver: Driver, batches: int, more_s: float) -> str:
    """Let the driver finish some batches, work on for a while, and kill it."""
    for _ in range(batches):
        driver.await_event("batch")
    batch, state = driver.await_event("begun")["batch"], "begun"
    deadline = time.monotonic() + more_s
    while (left_s := deadline - time.monotonic()) > 0:
        event = driver.next_event(left_s)
        if event is not None and event["event"] == "ended":
            return f"the driver had read everything before it could be killed, up to batch {batch}"
        if event is not None and "batch" in event:
            batch, state = event["batch"], event.get("outcome", "begun")
    driver.kill()
    return f"kill -9 after {batches} batches and {more_s:.2f} s, batch {batch} {state}"


def progress(pipeline: Pipeline, watcher: Watcher) -> str:
    return f"{watcher.count(pipeline.refunds):,} of {len(pipeline.due):,} refunds are committed"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
