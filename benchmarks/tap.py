"""What the tap costs: the same clients on one broker, directly and through `fencepost tap`, in turn.

    python -m benchmarks.tap [--repetitions N] [--seconds S] [--json]

Compare the ratios of one run; the absolute figures depend on the machine. The output shows medians, without the first
repetition. The tap prints its lines to /dev/null.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from benchmarks.cases import THREE_TOPICS
from benchmarks.client import run_client
from fencepost.child import child_environment, python_module
from fencepost.cli.streams import say
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import FetchRequest, HeartbeatRequest, ProduceRequest
from fencepost.testing import Broker
from tests.readers.reading import connect

TOPIC = "bench-tap"
PRODUCERS = (1, 8)
LARGE_BYTES = 900_000
Figures = dict[str, list[float]]


@contextmanager
def running_tap(bootstrap_servers: str) -> Iterator[tuple[str, int]]:
    """Its address, and its process id."""
    command = python_module("fencepost", "tap", "--bootstrap", bootstrap_servers, "--listen", "127.0.0.1:0")
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=child_environment()
    )
    try:
        assert process.stderr is not None
        ready = process.stderr.readline().strip()
        if not ready.startswith("ready "):
            raise SystemExit(f"error: the tap did not start: {ready}\n\nhint: {' '.join(command)}")
        yield ready.removeprefix("ready "), process.pid
    finally:
        process.terminate()
        process.communicate()


def round_trips(servers: str, seconds: float, figures: Figures) -> None:
    """One small request after the other, which the broker answers at once."""
    took: list[float] = []
    with connect(servers) as client:
        ends = time.perf_counter() + seconds
        while (began := time.perf_counter()) < ends:
            client.call(HeartbeatRequest("g", -1, "m"), 4)
            took.append((time.perf_counter() - began) * 1e6)
    took.sort()
    figures.setdefault("small request, p50, us", []).append(took[len(took) // 2])
    figures.setdefault("small request, p99, us", []).append(took[int(len(took) * 0.99)])


def large_requests(servers: str, seconds: float, figures: Figures) -> None:
    """Large Produce requests, then large Fetch replies, one after the other."""
    data = [ProduceRequest.PartitionProduceData(0, encode_batch([(b"k", os.urandom(LARGE_BYTES))], 1))]
    produce = ProduceRequest(None, -1, 30_000, [ProduceRequest.TopicProduceData(TOPIC, partition_data=data)])
    partition = FetchRequest.FetchPartition(0, -1, 0, partition_max_bytes=LARGE_BYTES)
    fetch = FetchRequest(max_wait_ms=0, topics=[FetchRequest.FetchTopic(TOPIC, partitions=[partition])])
    with connect(servers) as client:
        for name, request, version in (("produce", produce, 9), ("fetch", fetch, 12)):
            sent, began = 0, time.perf_counter()
            while time.perf_counter() - began < seconds:
                client.call(request, version)
                sent += LARGE_BYTES
            figures.setdefault(f"{name}, MB/s", []).append(sent / 1e6 / (time.perf_counter() - began))


def small_transactions(servers: str, seconds: float, figures: Figures) -> None:
    for producers in PRODUCERS:
        found = run_client("transactions", servers, None, seconds=seconds, producers=producers, topics=THREE_TOPICS)
        many = f"{producers} producer{'s' if producers > 1 else ''}"
        figures.setdefault(f"transactions/s, {many}", []).append(found["count"] / found["seconds"])
        figures.setdefault(f"  p50, ms, {many}", []).append(found["p50"])
        figures.setdefault(f"  p99, ms, {many}", []).append(found["p99"])


WORKLOADS: tuple[Callable[[str, float, Figures], None], ...] = (round_trips, large_requests, small_transactions)


def run(repetitions: int, seconds: float) -> dict[str, Figures]:
    found: dict[str, Figures] = {"direct": {}, "tap": {}}
    with (
        tempfile.TemporaryDirectory(prefix="fencepost-bench-") as data,
        Broker(data=data, topics={TOPIC: 1}) as broker,
        running_tap(broker.bootstrap_servers) as (address, pid),
    ):
        servers = {"direct": broker.bootstrap_servers, "tap": address}
        for repetition in range(repetitions + 1):
            for workload in WORKLOADS:
                for name, where in servers.items():
                    say(f"{name}: {workload.__name__}, repetition {repetition} of {repetitions}")
                    throw_away: Figures = {}
                    workload(where, seconds, found[name] if repetition else throw_away)
        found["tap"]["memory of the tap, MB"] = [psutil.Process(pid).memory_info().rss / 1e6]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tap", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = run(options.repetitions, options.seconds)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print("| | direct | through the tap | ratio |")
    print("|---|---|---|---|")
    for name, values in found["tap"].items():
        through, direct = statistics.median(values), found["direct"].get(name)
        if direct is None:
            print(f"| {name} | - | {through:,.2f} | - |")
        else:
            median = statistics.median(direct)
            print(f"| {name} | {median:,.2f} | {through:,.2f} | {through / median:.2f} |")


if __name__ == "__main__":
    main()
