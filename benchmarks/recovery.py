"""How long a restart takes after a long history: with and without the cleaner, after kill -9 and after a clean stop.

    python -m benchmarks.recovery [--records N] [--ids N] [--open N]

A broker's coordinators write N records to `__transaction_state`, for transactions of `--ids` producers that also commit
offsets, and leave `--open` transactions open. That broker has a simulated clock, so its cleaner runs as often as in a
real one. Then a new process starts with the data folder.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from fencepost.broker.cluster import BrokerAddress, Cluster
from fencepost.broker.config import parse
from fencepost.broker.topics import OFFSETS_TOPIC
from fencepost.machines.group.commits import CommitDecision, Committer, OffsetToCommit
from fencepost.protocol.transaction_version import TV0
from fencepost.server.storage import DataFolder
from fencepost.testing import Broker

TIMEOUT_MS = 900_000
TXN_MS = 2  # Five hundred transactions a second.


def write_history(
    path: str, records: int, ids: int, open_count: int, cleans: bool, settings: Mapping[str, str] | None = None
) -> Cluster:
    given = {"log.cleaner.enable": str(cleans).lower(), **(settings or {})}
    cluster = Cluster(DataFolder(path), parse(given), random.Random(1))
    cluster.brokers = [BrokerAddress(1, "127.0.0.1", 9092)]
    now_ms = time.time_ns() // 1_000_000 - records // 3 * TXN_MS
    cluster.start(now_ms)
    orders = cluster.create_topic("orders", 1, {}, now_ms)
    producers: dict[str, tuple[int, int]] = {}

    def init(transactional_id: str) -> None:
        def reply(error: int, producer_id: int, epoch: int) -> None:
            assert not error
            producers[transactional_id] = producer_id, epoch

        cluster.txns.init_producer_id(transactional_id, -1, -1, TIMEOUT_MS, now_ms, reply)

    def work(transactional_id: str, number: int) -> None:
        """A transaction without its end: it commits one offset. With its end it takes three records of state."""
        producer_id, epoch = producers[transactional_id]
        group = f"group-of-{transactional_id}"
        where = (OFFSETS_TOPIC, cluster.groups.partition_of(group, now_ms))
        assert not cluster.txns.add_partitions(transactional_id, producer_id, epoch, {where}, TV0, now_ms)
        offsets = [OffsetToCommit("orders", 0, number)]
        decisions: list[CommitDecision] = []
        who = (Committer(), offsets, producer_id, epoch)
        cluster.groups.commit_txn_offsets(group, *who, lambda then: then(0, now_ms), now_ms, decisions.append)
        assert not decisions[0].error_code

    names = [f"producer-{n}" for n in range(ids)]
    for name in names:
        init(name)
    for number in range(records // 3):
        name = names[number % ids]
        work(name, number)
        cluster.txns.end_txn(name, *producers[name], True, TV0, now_ms, lambda error, *_: _check(error))
        now_ms += TXN_MS
        cluster.timers.advance(now_ms)
    for n in range(open_count):
        init(f"open-{n}")
        work(f"open-{n}", n)
    assert orders.partitions
    return cluster


def _check(error: int) -> None:
    assert not error, error


def start(path: Path) -> float:
    began = time.perf_counter()
    with Broker(data=path):
        return time.perf_counter() - began


def size_of(path: Path, topic: str) -> float:
    return sum(file.stat().st_size for file in path.glob(f"{topic}-*/*.log")) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--ids", type=int, default=100)
    parser.add_argument("--open", type=int, default=100)
    arguments = parser.parse_args()
    print("cleaner  writing, s  state, MB  offsets, MB  start after kill -9, s  after a clean stop, s")
    for cleans in (True, False):
        with tempfile.TemporaryDirectory(prefix="fencepost-recovery-") as scratch:
            data, killed = Path(scratch, "data"), Path(scratch, "killed")
            began = time.perf_counter()
            cluster = write_history(str(data), arguments.records, arguments.ids, arguments.open, cleans)
            writing_s = time.perf_counter() - began
            shutil.copytree(data, killed)
            cluster.stop()
            sizes = [size_of(killed, topic) for topic in ("__transaction_state", "__consumer_offsets")]
            figures = [f"{writing_s:10.1f}", f"{sizes[0]:9.1f}", f"{sizes[1]:11.1f}"]
            figures += [f"{start(killed):22.2f}", f"{start(data):21.2f}"]
            print("  ".join(["on     " if cleans else "off    ", *figures]), flush=True)


if __name__ == "__main__":
    main()
