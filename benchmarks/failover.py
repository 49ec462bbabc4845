"""Failovers: how long a new coordinator takes until it answers, and how long clients wait for their commits.

    python -m benchmarks.failover coordinators [--count N]
    python -m benchmarks.failover commits [--seconds S] [--producers N]

The first command writes a data folder with open transactions, all of one partition of `__transaction_state`, after a
history of transactions that are over. Then the coordinator goes to and fro between two nodes: by `move-coordinator`,
and when the coordinator's node is paused, which moves all its group coordinators too. Each failover is timed from the
order to the new coordinator's first answer about a transaction. It does so again with a history ten times as long.

The second command runs librdkafka producers on three nodes, and once a second a failover of one kind. It prints how
long their commits took.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import KafkaException, Producer

from benchmarks.recovery import size_of, write_history
from fencepost.client.admin.transactions import describe_transaction
from fencepost.client.client import KafkaClient
from fencepost.testing import Broker

OPEN = (100, 1_000, 10_000)
HISTORIES = (30_000, 300_000)  # Records of transactions that are over.
IDS = 100  # Whose transactions they are.
ONE_SHARD = {"transaction.state.log.num.partitions": "1"}
STATE_TOPIC = "__transaction_state"

PARTITIONS = 6
# A client of a paused node waits that long for an answer.
SOCKET_TIMEOUT_MS = 500
OnceASecond = Callable[[Broker, int], None]
Failover = Callable[[Broker, str, int], None]


# --- coordinators -----------------------------------------------------------------------------------------


class Timed(NamedTuple):
    """How long each failover took, and the CPU time of the broker for one of them."""

    took_ms: list[float]
    cpu_ms: float


def time_failovers(data: Path, open_count: int, count: int, fail_over: Failover) -> Timed:
    """Let the coordinator of all transactions go to and fro, each time until it answers."""
    took_ms: list[float] = []
    last = f"open-{open_count - 1}"
    with Broker(brokers=2, data=data, settings=ONE_SHARD) as broker:

        def time_one(node_id: int) -> None:
            """To this node."""
            with KafkaClient({"bootstrap.servers": broker.bootstrap_servers.split(",")[node_id - 1]}) as client:
                client.brokers()
                began = time.perf_counter()
                fail_over(broker, last, node_id)
                coordinator, txn = describe_transaction(client, last)
                took_ms.append((time.perf_counter() - began) * 1000)
            assert coordinator == node_id, f"node {coordinator} coordinates, expected {node_id}"
            assert txn is not None
            assert txn.state == "Ongoing", txn
            if fail_over is pause_the_other:
                broker.nodes.resume(3 - node_id)

        for node_id in (1, 2):  # One of them finds the coordinator at home.
            time_one(node_id)
        took_ms.clear()
        before_s = cpu_s(broker.pid)
        for number in range(count):
            time_one(number % 2 + 1)
        return Timed(took_ms, (cpu_s(broker.pid) - before_s) * 1000 / count)


def move_coordinator(broker: Broker, transactional_id: str, node_id: int) -> None:
    broker.nodes.move_coordinator(transactional_id, node_id)


def pause_the_other(broker: Broker, _transactional_id: str, node_id: int) -> None:
    broker.nodes.pause(3 - node_id)


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def measure_coordinators(count: int) -> None:
    kinds = {"move-coordinator": move_coordinator, "pause-node": pause_the_other}
    heads = [f"{kind}: {figure}" for kind in kinds for figure in ("median, ms", "longest, ms", "broker CPU, ms")]
    print(f"| open transactions | records before them | state, MB | {' | '.join(heads)} |")
    print("|---" * (3 + len(heads)) + "|")
    for open_count, records in itertools.product(OPEN, HISTORIES):
        with tempfile.TemporaryDirectory(prefix="fencepost-failover-") as scratch:
            data = Path(scratch, "data")
            write_history(str(data), records, IDS, open_count, cleans=True, settings=ONE_SHARD).stop()
            figures = [f"{open_count:,}", f"{records:,}", f"{size_of(data, STATE_TOPIC):.1f}"]
            for fail_over in kinds.values():
                took_ms, cpu_ms = time_failovers(data, open_count, count, fail_over)
                figures += [f"{statistics.median(took_ms):.0f}", f"{max(took_ms):.0f}", f"{cpu_ms:.0f}"]
        print(f"| {' | '.join(figures)} |", flush=True)


# --- commits ----------------------------------------------------------------------------------------------


class Client(threading.Thread):
    """Commits transactions of one record for each partition, and notes how long each commit took."""

    def __init__(self, broker: Broker, number: int, is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": f"t{number}",
            "linger.ms": 0,
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            "log_level": 0,
        }
        self._is_over = is_over
        self.commits_ms: list[float] = []
        self.aborted = 0

    def run(self) -> None:
        producer = Producer(self._settings)
        producer.init_transactions(60)
        while not self._is_over.is_set():
            producer.begin_transaction()
            for index in range(PARTITIONS):
                producer.produce("orders", b"x" * 100, partition=index)
            began = time.perf_counter()
            try:
                producer.commit_transaction(60)
            except KafkaException as e:
                if not e.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(60)
                self.aborted += 1
            else:
                self.commits_ms.append((time.perf_counter() - began) * 1000)


def _stop_and_start(broker: Broker, node_id: int) -> None:
    broker.nodes.stop(node_id)
    broker.nodes.start(node_id)


def _pause_and_resume(broker: Broker, node_id: int) -> None:
    broker.nodes.pause(node_id)
    # As long as clients need to notice it.
    time.sleep(SOCKET_TIMEOUT_MS / 1000)
    broker.nodes.resume(node_id)


def _move_leader(broker: Broker, node_id: int) -> None:
    broker.nodes.move_leader("orders", node_id, node_id)


def _move_coordinator(broker: Broker, node_id: int) -> None:
    broker.nodes.move_coordinator("t0", node_id)


FAILOVERS: dict[str, OnceASecond | None] = {
    "none": None,
    "move-leader": _move_leader,
    "move-coordinator": _move_coordinator,
    "stop-node, and start-node": _stop_and_start,
    f"pause-node for {SOCKET_TIMEOUT_MS} ms": _pause_and_resume,
}


def ticks(seconds: float) -> Iterator[int]:
    """The nodes in turn, one a second."""
    began = time.monotonic()
    for number in range(int(seconds)):
        time.sleep(max(0.0, began + number - time.monotonic()))
        yield number % 3 + 1


def measure_commits(seconds: float, producers: int) -> None:
    print("| once a second | commits | aborted | median, ms | p99, ms | longest, ms |")
    print("|---|---|---|---|---|---|")
    for name, failover in FAILOVERS.items():
        with (
            tempfile.TemporaryDirectory(prefix="fencepost-failover-") as data,
            Broker(brokers=3, data=data, topics={"orders": PARTITIONS}) as broker,
        ):
            is_over = threading.Event()
            clients = [Client(broker, number, is_over) for number in range(producers)]
            for client in clients:
                client.start()
            for node_id in ticks(seconds):
                if failover is not None:
                    failover(broker, node_id)
            is_over.set()
            for client in clients:
                client.join()
        took_ms = sorted(ms for client in clients for ms in client.commits_ms)
        p99 = took_ms[int(len(took_ms) * 0.99)]
        figures = [name, f"{len(took_ms):,}", str(sum(client.aborted for client in clients))]
        figures += [f"{ms:,.1f}" for ms in (statistics.median(took_ms), p99, took_ms[-1])]
        print(f"| {' | '.join(figures)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["coordinators", "commits"])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--producers", type=int, default=4)
    options = parser.parse_args()
    if options.what == "coordinators":
        measure_coordinators(options.count)
    else:
        measure_commits(options.seconds, options.producers)


if __name__ == "__main__":
    main()
