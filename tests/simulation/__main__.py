"""Runs seed after seed until the time is up or a check fails: `make sim`.

python -m tests.simulation                    a minute, beginning at a random seed
python -m tests.simulation --seed 7 -v        one seed again, with its whole trace
python -m tests.simulation --bug no-epoch-check --seconds 60
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import queue
import random
import sys
import time
import traceback
from collections.abc import Iterator
from itertools import count
from typing import Any

from tests.simulation.bugs import BUGS, planted
from tests.simulation.history import Violation
from tests.simulation.world import World

LAST_EVENTS = 60
SEEDS_BETWEEN_COLLECTIONS = 25
DONE = -1  # In place of a seed: this process has finished.


def run(seed: int) -> tuple[World, Exception | None]:
    """Run one seed. An exception in the simulation itself counts as a failure too."""
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        return world, error
    return world, None


def run_many(seeds: Iterator[int], until: float, results: Any) -> None:
    """Put a result into the queue for each seed: (1, None) if it passed, (0, seed) if not; at the end (0, DONE)."""
    gc.freeze()
    gc.disable()  # A seed makes much garbage, and none of it outlives the seed.
    try:
        for number, seed in enumerate(seeds, 1):
            if time.monotonic() > until:
                break
            if run(seed)[1] is not None:
                results.put((0, seed))
                return
            results.put((1, None))
            if number % SEEDS_BETWEEN_COLLECTIONS == 0:
                gc.collect()
    except KeyboardInterrupt:
        pass
    results.put((0, DONE))


def watch(results: Any, workers: list[Any], until: float) -> tuple[int, int | None]:
    """How many seeds passed, and the first that failed, if any. Ctrl-C ends it early."""
    held, ended = 0, 0
    began = time.monotonic()
    try:
        while ended < len(workers):
            try:
                more, seed = results.get(timeout=5)
            except queue.Empty:
                if not any(worker.is_alive() for worker in workers):
                    raise RuntimeError("the processes that run the seeds died") from None
                continue
            held += more
            if seed == DONE:
                ended += 1
            elif seed is not None:
                return held, seed
            if sys.stderr.isatty():
                left = max(0, until - time.monotonic())
                rate = held / max(time.monotonic() - began, 0.001)
                print(f"\r{held:,} seeds, {rate:.0f} a second, {left:.0f} s left ", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        pass
    return held, None


def report(seed: int, world: World, error: Exception, verbose: bool, bug: str | None) -> None:
    for line in world.lines(None if verbose else LAST_EVENTS):
        print(line)
    print()
    if isinstance(error, Violation) and error.__cause__ is None:
        print(f"seed {seed}: {error}")
    else:
        traceback.print_exception(error, file=sys.stdout)
        print(f"seed {seed}: {error}")
    again = f"{sys.executable} -m tests.simulation --bug {bug} --seed {seed}" if bug else f"make sim SEED={seed}"
    print(f"\nhint: `{again}` repeats it; VERBOSE=1 shows the whole trace")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Seeded simulations of the broker among faults.",
        epilog="example: python -m tests.simulation --seconds 600",
    )
    parser.add_argument("--seed", type=int, help="run this seed and no other")
    parser.add_argument("--start", type=int, help="the first seed; a random one if it is not given")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seeds", type=int, help="stop after this many seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the seeds")
    parser.add_argument("--bug", choices=BUGS, help="plant this bug, which the checks must find")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the whole trace of the seed")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    with planted(arguments.bug):
        if arguments.seed is not None:
            world, error = run(arguments.seed)
            if error is not None:
                report(arguments.seed, world, error, arguments.verbose, arguments.bug)
                return 1
            if arguments.verbose:
                print("\n".join(world.lines()))
            print(f"seed {arguments.seed}: no violation ({len(world.trace)} events, digest {world.digest()[:16]})")
            return 0
        return run_for_a_while(arguments)


def run_for_a_while(arguments: argparse.Namespace) -> int:
    start = random.SystemRandom().randrange(1, 10_000_000) if arguments.start is None else arguments.start
    began = time.monotonic()
    until = began + arguments.seconds
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = []
    for number in range(arguments.jobs):
        first = start + number
        all_of_them = range(first, start + arguments.seeds, arguments.jobs) if arguments.seeds else None
        seeds = iter(all_of_them) if all_of_them is not None else count(first, arguments.jobs)
        workers.append(context.Process(target=run_many, args=(seeds, until, results), daemon=True))
        workers[-1].start()
    held, seed = watch(results, workers, until)
    for worker in workers:
        worker.terminate()
    if sys.stderr.isatty():
        print("\r" + " " * 60, end="\r", file=sys.stderr)
    if seed is None:
        print(f"{held:,} seeds in {time.monotonic() - began:.0f} s, from {start}: no violation")
        return 0
    world, error = run(seed)
    if error is None:
        print(f"seed {seed} failed once and passed when it was repeated: the simulation is not deterministic")
        return 1
    report(seed, world, error, arguments.verbose, arguments.bug)
    print(f"found after {held + 1:,} seeds, from {start}")
    return 1


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set must be the same in every run of a seed.
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": "0"})
    sys.exit(main())
