"""Many transactional ids and partitions: their first transactions, the idle broker, and its start.

    python -m benchmarks.ids [--ids 80000] [--state-partitions 50,200] [--partitions 1000] [--contenders NAMES]

For each number of partitions of `__transaction_state`, a new broker creates the partitions, initialises every id and
commits one transaction for each: over one connection, with requests sent ahead. Then it is measured idle, and started
after a clean stop and after kill -9: until a client has metadata, and until the coordinators of all ids answer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.contenders import FENCEPOST, KAFKA, Contender, contender, end_tidily
from benchmarks.figures import Figures
from benchmarks.pipeline import Pipeline, begin_all, end_all, init_all
from benchmarks.report import comparison
from benchmarks.results import CaseResult, Results, commit_of, keep, machine, now
from fencepost.cli.streams import say

IDLE_S = 10.0
TOPIC_PARTITIONS = 100
# A client that asks for one of so many ids has waited for almost every coordinator.
ASKED = 500


def measure(ids: int, state_partitions: int, partitions: int, kind: str) -> Figures:
    with contender(kind, settings={"transaction.state.log.num.partitions": state_partitions}) as broker:
        topics = [f"wide-{n}" for n in range(partitions // TOPIC_PARTITIONS)]
        broker.create_topics(topics, TOPIC_PARTITIONS)
        found: Figures = {"memory_before_mb": broker.memory_mb()}
        names = [f"id-{n}" for n in range(ids)]
        with Pipeline(broker.port) as line:
            began = time.perf_counter()
            producers = init_all(line, names)
            found["init_per_s"] = ids / (time.perf_counter() - began)
            before_s, began = broker.cpu_s(), time.perf_counter()
            begin_all(line, producers, topics[0], TOPIC_PARTITIONS)
            end_all(line, producers)
            found["commit_per_s"] = ids / (time.perf_counter() - began)
            found["commit_cpu_us"] = (broker.cpu_s() - before_s) / ids * 1e6
        before_s = broker.cpu_s()
        time.sleep(IDLE_S)
        found["core_share"] = (broker.cpu_s() - before_s) / IDLE_S
        found["memory_mb"] = broker.memory_mb()
        for name, end in (("clean_s", broker.server.stop), ("killed_s", broker.server.kill)):
            found[name] = restart(broker, end, names)
        found["memory_after_start_mb"] = broker.memory_mb()
        return found


def restart(broker: Contender, end: Callable[[], None], names: list[str]) -> float:
    end()
    began = time.perf_counter()
    broker.server.start()
    broker.await_metadata()
    with Pipeline(broker.port) as line:
        init_all(line, names[:: max(1, len(names) // ASKED)])
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=80_000)
    parser.add_argument("--state-partitions", default="50,200", help="one or more numbers, with commas")
    parser.add_argument("--partitions", type=int, default=1000, help="in hundreds")
    parser.add_argument("--contenders", default=FENCEPOST, help=f"{FENCEPOST}, {KAFKA} or both, with a comma")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep the figures in this file")
    given = parser.parse_args()
    end_tidily()
    results = Results(machine(), {})
    for state_partitions in map(int, given.state_partitions.split(",")):
        began = time.perf_counter()
        figures = {}
        for kind in given.contenders.split(","):
            say(f"{kind}: {given.ids:,} ids in {state_partitions} partitions of __transaction_state")
            found = measure(given.ids, state_partitions, given.partitions, kind)
            figures[kind] = {name: [value] for name, value in found.items()}
        took_s = time.perf_counter() - began
        results.cases[f"ids-{given.ids}-{state_partitions}"] = CaseResult(commit_of(), now(), took_s, figures)
    if given.results:
        keep(given.results, results)
    print("\n".join(comparison(results)))


if __name__ == "__main__":
    main()
