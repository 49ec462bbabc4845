"""Fencepost beside Apache Kafka, in one run on one machine: start, memory, small transactions.

    python -m benchmarks [--repetitions N] [--seconds S] [--flush] [--json]

Compare the ratios of one run; the absolute figures depend on the machine. The brokers take turns, so that noise affects
both. The output shows medians without the first repetition, which warms up the JVM. Without Java, Fencepost runs alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

import psutil

from fencepost.cli.streams import say
from fencepost.testing import Broker
from tests.engines.apache_kafka import SERVER_JVM, ApacheKafka, apache_kafka, gives_metadata
from tests.engines.java import why_no_java

PRODUCERS = (1, 8)
Figures = dict[str, list[float]]


class Running(Protocol):
    port: int

    @property
    def pid(self) -> int: ...

    @property
    def bootstrap_servers(self) -> str: ...


@contextmanager
def fencepost(flush: bool, figures: Figures) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as data:
        began = time.perf_counter()
        with Broker(data=data, settings={"fencepost.flush.on.commit": str(flush).lower()}) as broker:
            while not gives_metadata(broker.port):
                time.sleep(0.005)
            figures.setdefault("start, s", []).append(time.perf_counter() - began)
            yield broker


@contextmanager
def kafka(flush: bool, figures: Figures) -> Iterator[ApacheKafka]:
    settings = {"log.flush.interval.messages": 1} if flush else {}
    with apache_kafka(settings, jvm=SERVER_JVM) as broker:
        # Formatting the folder is done once in its life; only the start is compared.
        broker.stop()
        began = time.perf_counter()
        broker.start()
        figures.setdefault("start, s", []).append(time.perf_counter() - began)
        yield broker


def memory_mb(broker: Running) -> float:
    return float(psutil.Process(broker.pid).memory_info().rss) / 1e6


def cpu_s(broker: Running) -> float:
    times = psutil.Process(broker.pid).cpu_times()
    return float(times.user + times.system)


def run_small_transactions(broker: Running, producers: int, seconds: float, figures: Figures) -> None:
    before = cpu_s(broker)
    command = [sys.executable, "-m", "benchmarks.small_transactions"]
    arguments = [broker.bootstrap_servers, str(producers), str(seconds)]
    result = json.loads(subprocess.check_output([*command, *arguments]))
    name = f"small transactions/s, {producers} producer{'s' if producers > 1 else ''}"
    figures.setdefault(name, []).append(result["transactions_per_s"])
    figures.setdefault(f"  p99, ms, {producers}", []).append(result["p99_ms"])
    # The broker also works during the second in which the client warms up.
    done = result["transactions_per_s"] * (seconds + 1)
    cpu_us = (cpu_s(broker) - before) / done * 1e6
    figures.setdefault(f"  broker CPU per transaction, us, {producers}", []).append(cpu_us)


def run(repetitions: int, seconds: float, flush: bool) -> dict[str, Figures]:
    found: dict[str, Figures] = {"Fencepost": {}}
    with ExitStack() as stack:
        brokers: dict[str, Running] = {"Fencepost": stack.enter_context(fencepost(flush, found["Fencepost"]))}
        problem = why_no_java()
        if problem:
            say(f"Apache Kafka is left out: {problem}")
        else:
            found["Apache Kafka"] = {}
            brokers["Apache Kafka"] = stack.enter_context(kafka(flush, found["Apache Kafka"]))
        for name, broker in brokers.items():
            found[name]["memory idle, MB"] = [memory_mb(broker)]
        for repetition in range(repetitions + 1):
            for producers in PRODUCERS:
                for name, broker in brokers.items():
                    say(f"{name}: {producers} producer(s), repetition {repetition} of {repetitions}")
                    throw_away: Figures = {}
                    figures = found[name] if repetition else throw_away
                    run_small_transactions(broker, producers, seconds, figures)
        for name, broker in brokers.items():
            found[name]["memory after load, MB"] = [memory_mb(broker)]
    return found


def show(found: dict[str, Figures]) -> None:
    ours, theirs = found["Fencepost"], found.get("Apache Kafka")
    print("| | Fencepost | Apache Kafka | ratio |")
    print("|---|---|---|---|")
    for name, values in ours.items():
        own = statistics.median(values)
        if theirs is None:
            print(f"| {name} | {own:,.2f} | - | - |")
        else:
            other = statistics.median(theirs[name])
            print(f"| {name} | {own:,.2f} | {other:,.2f} | {own / other:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--flush", action="store_true", help="sync every commit to disk (fsync), on both brokers")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = run(options.repetitions, options.seconds, options.flush)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)


if __name__ == "__main__":
    main()
