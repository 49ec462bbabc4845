"""Many partitions: the start of a broker after a clean stop and after kill -9, first empty, then with a record in each.

    python -m benchmarks.partitions [--partitions 100,1000,10000,50000] [--contenders NAMES] [--results FILE]

A new broker gets topics of 100 partitions. It is ready when a client has got the end offset of a partition of each
topic, and fails if that takes more than a minute. Apache Kafka keeps a file open for each partition and maps two, so
the limits of the machine bound its number.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.cases import raise_file_limit
from benchmarks.contenders import FENCEPOST, KAFKA, PATIENCE_S, Contender, contender, end_tidily, why_not
from benchmarks.figures import Figures
from benchmarks.report import comparison
from benchmarks.results import CaseResult, Results, commit_of, keep, machine, now
from fencepost.cli.streams import say
from fencepost.protocol import errors
from fencepost.protocol.messages import ListOffsetsRequest
from fencepost.testing.process import BrokerFailed
from tests.wire.raw_client import Closed, RawClient

TOPIC_PARTITIONS = 100
TOPICS_A_REQUEST = 20
MAPS_OF_A_PARTITION = 2
LATEST = -1


def why_not_so_many(kind: str, partitions: int) -> str | None:
    """Why a contender cannot have so many partitions on this machine."""
    if kind != KAFKA:
        return None
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    maps = int(Path("/proc/sys/vm/max_map_count").read_text())
    if partitions < files and MAPS_OF_A_PARTITION * partitions < maps:
        return None
    return f"it opens a file and maps two for each partition; a process may open {files} and map {maps} here"


def measure(partitions: int, kind: str) -> Figures:
    with contender(kind) as broker:
        topics = [f"wide-{n}" for n in range(partitions // TOPIC_PARTITIONS)]
        for first in range(0, len(topics), TOPICS_A_REQUEST):
            broker.create_topics(topics[first : first + TOPICS_A_REQUEST], TOPIC_PARTITIONS)
        found: Figures = {}
        for prefix in ("empty_", ""):
            if not prefix:
                write_to_each(broker, topics)
            for name, end in (("clean", broker.server.stop), ("killed", broker.server.kill)):
                try:
                    found[f"{prefix}{name}_s"], found[f"{prefix}{name}_cpu_s"] = restart(broker, end, topics)
                except (RuntimeError, BrokerFailed) as e:
                    say(f"{kind} with {partitions:,} partitions: {str(e).splitlines()[0]}")
                    return found
        found["memory_after_start_mb"] = broker.memory_mb()
        return found


def write_to_each(broker: Contender, topics: Sequence[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "log_level": 0})
    for topic in topics:
        for partition in range(TOPIC_PARTITIONS):
            producer.produce(topic, b"value", partition=partition)
        if producer.flush(PATIENCE_S):
            raise SystemExit(f"error: {broker.kind} did not take a record for each partition of {topic}")


def restart(broker: Contender, end: Callable[[], None], topics: Sequence[str]) -> tuple[float, float]:
    """Seconds until it is ready, and of CPU time."""
    end()
    began = time.perf_counter()
    broker.server.start()
    while not has_all(broker.port, topics):
        if time.perf_counter() - began > PATIENCE_S:
            raise RuntimeError(f"not all partitions are there {PATIENCE_S:.0f} s after the start")
    return time.perf_counter() - began, broker.cpu_s()


def has_all(port: int, topics: Sequence[str]) -> bool:
    wanted = [ListOffsetsRequest.ListOffsetsPartition(TOPIC_PARTITIONS - 1, timestamp=LATEST)]
    request = ListOffsetsRequest(-1, topics=[ListOffsetsRequest.ListOffsetsTopic(topic, wanted) for topic in topics])
    try:
        with RawClient("127.0.0.1", port) as client:
            found = client.call(request, 1).topics
    except (OSError, Closed):
        return False
    return all(partition.error_code == errors.NONE for topic in found for partition in topic.partitions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="100,1000,10000,50000", help="in hundreds, with commas")
    parser.add_argument("--contenders", default=f"{FENCEPOST},{KAFKA}", help="with a comma")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep the figures in this file")
    given = parser.parse_args()
    end_tidily()
    raise_file_limit()
    results = Results(machine(), {})
    for partitions in map(int, given.partitions.split(",")):
        began = time.perf_counter()
        figures = {}
        for kind in given.contenders.split(","):
            if problem := why_not(kind) or why_not_so_many(kind, partitions):
                say(f"{kind} is left out with {partitions:,} partitions: {problem}")
                continue
            say(f"{kind}: {partitions:,} partitions")
            figures[kind] = {name: [value] for name, value in measure(partitions, kind).items()}
        took_s = time.perf_counter() - began
        results.cases[f"partitions-{partitions}"] = CaseResult(commit_of(), now(), took_s, figures)
        if given.results:
            keep(given.results, results)
    print("\n".join(comparison(results)))


if __name__ == "__main__":
    main()
