"""The cases: what is measured of every contender, by name.

A case prepares each contender once. Then the contenders take turns with its run, which answers with figures. The order
matters: starting comes first, and what leaves many partitions and ids behind comes last.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.client import run_client
from benchmarks.contenders import AGAINST, FENCEPOST, KAFKA, MOCK, Contender
from benchmarks.figures import Figures, derived
from benchmarks.pipeline import Pipeline, begin_all, init_all, nothing_is_open
from fencepost.protocol.messages import ApiVersionsRequest
from tests.wire.raw_client import RawClient

BROKERS = (KAFKA, FENCEPOST, AGAINST)
ALL = (*BROKERS, MOCK)
THREE_TOPICS = ["bench-orders", "bench-payments", "bench-shipments"]
PARTITIONS = 4  # As many as the mock gives to every topic.
CORES = os.cpu_count() or 1
TRANSACTION_SIZES = (10, 100, 1_000, 10_000)
OPEN_TRANSACTIONS = 2_000
IDLE_CONNECTIONS = 1_000
IDLE_S = 3.0
WARM_UP_S = 12.0
# By what grows: how the names of the cases begin, and the points.
GROWTH = {
    "partitions in the transaction": ("growth-txn-partitions", (1, 3, 10, 30, 100)),
    "idle connections": ("growth-connections", (0, 500, 2_000)),
    "other transactional ids": ("growth-ids", (0, 2_000, 20_000)),
    "other partitions in the broker": ("growth-partitions", (0, 1_000, 4_000)),
}
# The cases that are compared by what they do in a second.
THROUGHPUT = (
    "transactions-1",
    "transactions-8",
    "batches",
    "consume-process-produce",
    "produce-100B",
    "produce-1KiB",
    "fetch-100B",
    "fetch-1KiB",
    "fetch-aborted",
)
GROWTH_PRODUCERS = 4


class Case(NamedTuple):
    name: str
    title: str
    counted: str  # What `per_s` and the CPU times are of.
    run: Callable[[Contender, float], Figures]
    prepare: Callable[[Contender], None] = lambda _: None
    clean_up: Callable[[Contender], None] = lambda _: None
    contenders: Sequence[str] = ALL
    most_repetitions: int = 99
    warms_up: bool = True  # The first repetition is dropped.
    record_bytes: int = 0


def client(contender: Contender, workload: str, **options: Any) -> Figures:
    return derived(run_client(workload, contender.bootstrap_servers, contender.pid, **options), CORES)


# --- the life of a broker ---------------------------------------------------------------------------------


def start(contender: Contender, _seconds: float) -> Figures:
    contender.server.stop()
    began = time.perf_counter()
    contender.server.start()
    contender.await_metadata()
    return {"seconds": time.perf_counter() - began}


def memory(contender: Contender, _seconds: float) -> Figures:
    time.sleep(0.5)
    return {"memory_mb": contender.memory_mb()}


def restart_with_open_transactions(contender: Contender, _seconds: float) -> Figures:
    """From the start after kill -9 until every id is initialised again and no record waits for the end of one."""
    topic = "bench-open"
    names = [f"open-{n}" for n in range(OPEN_TRANSACTIONS)]
    # Apache Kafka waits for the session of the killed broker to end: nine seconds with its default.
    settings = {"broker.session.timeout.ms": 2000} if contender.kind == KAFKA else {}
    with contender.another(settings) as broker:
        broker.create_topics([topic], PARTITIONS)
        with Pipeline(broker.port) as line:
            begin_all(line, init_all(line, names), topic, PARTITIONS)
            assert not nothing_is_open(line, topic, PARTITIONS)
        broker.server.kill()
        began = time.perf_counter()
        broker.server.start()
        with Pipeline(broker.port) as line:
            init_all(line, names)
            while not nothing_is_open(line, topic, PARTITIONS):
                time.sleep(0.005)
        return {"seconds": time.perf_counter() - began}


def idle_connections(contender: Contender, _seconds: float) -> Figures:
    """Of a new broker, which has no memory to spare from earlier work."""
    with contender.another({}) as broker:
        time.sleep(0.5)
        before_mb = broker.memory_mb()
        connections = connect(broker, IDLE_CONNECTIONS)
        before_s = broker.cpu_s()
        time.sleep(IDLE_S)
        used_s, after_mb = broker.cpu_s() - before_s, broker.memory_mb()
        for connection in connections:
            connection.close()
    return {"memory_mb": after_mb - before_mb, "core_share": used_s / IDLE_S}


def connect(contender: Contender, count: int) -> list[RawClient]:
    """Connections that have asked for the versions, as every client does, and now do nothing."""
    made = [RawClient("127.0.0.1", contender.port) for _ in range(count)]
    for connection in made:
        connection.call(ApiVersionsRequest("bench", "1"), 3)
    return made


# --- work -------------------------------------------------------------------------------------------------


def create(contender: Contender, topics: Sequence[str], partitions: int) -> None:
    """Topics that several cases share."""
    if new := [topic for topic in topics if topic not in contender.topics]:
        contender.create_topics(new, partitions)


def small_transactions(name: str, producers: int) -> Case:
    def run(contender: Contender, seconds: float) -> Figures:
        return client(contender, "transactions", seconds=seconds, producers=producers, topics=THREE_TOPICS)

    return Case(
        name,
        f"small transactions, {producers} producer{'s' if producers > 1 else ''}",
        "transaction",
        run,
        lambda contender: create(contender, THREE_TOPICS, 1),
    )


def bulk(name: str, title: str, workload: str, size: int, **options: Any) -> Case:
    """A case that writes to a topic of its own, which is deleted after each run: the disk stays small."""

    def run(contender: Contender, seconds: float) -> Figures:
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        contender.create_topics([topic], PARTITIONS)
        found = client(contender, workload, seconds=seconds, topic=topic, size=size, **options)
        contender.delete_topics([topic])
        return found

    return Case(name, title, "record", run, record_bytes=size)


class Input(NamedTuple):
    """Records that a case reads: so many, in topics of four partitions."""

    name: str
    records: int
    size: int
    aborted: float = 0.0

    def shape(self, contender: Contender) -> dict[str, Any]:
        """The mock keeps 5 MB of a partition; with more topics it has more to read."""
        topics, records = 1, self.records
        if contender.kind == MOCK:
            topics = 16 if self.size > 100 else 2
            records = topics * PARTITIONS * (4_000_000 // self.size // 1000 * 1000)
        return {
            "topics": [f"bench-{self.name}-{n}" for n in range(topics)],
            "partitions": PARTITIONS,
            "records": records,
        }

    def write(self, contender: Contender) -> None:
        shape = self.shape(contender)
        if shape["topics"][0] not in contender.topics:
            contender.create_topics(shape["topics"], PARTITIONS)
            client(contender, "load", size=self.size, aborted=self.aborted, **shape)


SMALL_INPUT = Input("input-100B", 1_000_000, 100)
LARGE_INPUT = Input("input-1KiB", 400_000, 1024)
ABORTED_INPUT = Input("input-aborted", 700_000, 100, aborted=0.3)


def fetch(name: str, title: str, source: Input, contenders: Sequence[str] = ALL) -> Case:
    def run(contender: Contender, seconds: float) -> Figures:
        return client(contender, "fetch", seconds=seconds, **source.shape(contender))

    return Case(name, title, "record", run, source.write, contenders=contenders, record_bytes=source.size)


def consume_process_produce(contender: Contender, seconds: float) -> Figures:
    to = f"bench-{uuid.uuid4().hex[:8]}"
    contender.create_topics([to], PARTITIONS)
    found = client(contender, "consume_process_produce", seconds=seconds, to=to, **SMALL_INPUT.shape(contender))
    contender.delete_topics([to])
    return found


def commit_to_consumer(contender: Contender, seconds: float) -> Figures:
    return client(contender, "commit_to_consumer", seconds=seconds, topic="bench-latency")


def warm_up(contender: Contender) -> None:
    """Let Java compile what every case needs."""
    if not contender.is_warm:
        contender.is_warm = True
        create(contender, THREE_TOPICS, 1)
        client(contender, "transactions", seconds=WARM_UP_S, producers=8, topics=THREE_TOPICS)


# --- growth -----------------------------------------------------------------------------------------------


def growing(name: str, title: str, prepare: Callable[[Contender], None], **options: Any) -> Case:
    given = {"producers": GROWTH_PRODUCERS, "topics": THREE_TOPICS, **options}

    def run(contender: Contender, seconds: float) -> Figures:
        return client(contender, "transactions", seconds=seconds, **given)

    def prepare_all(contender: Contender) -> None:
        create(contender, THREE_TOPICS, 1)
        prepare(contender)

    return Case(name, title, "transaction", run, prepare_all, close_held, BROKERS, 2, warms_up=False)


def close_held(contender: Contender) -> None:
    for connection in contender.held:
        connection.close()
    contender.held.clear()


def hold(count: int) -> Callable[[Contender], None]:
    return lambda contender: contender.held.extend(connect(contender, count))


def know(count: int) -> Callable[[Contender], None]:
    def prepare(contender: Contender) -> None:
        if count:
            with Pipeline(contender.port) as line:
                init_all(line, [f"known-{n}" for n in range(count)])

    return prepare


def widen(count: int) -> Callable[[Contender], None]:
    """More partitions, of topics that nobody writes to."""

    def prepare(contender: Contender) -> None:
        there = sum(name.startswith("bench-wide-") for name in contender.topics) * 100
        create(contender, [f"bench-wide-{n}" for n in range(there // 100, count // 100)], 100)

    return prepare


def spread_over(count: int) -> Callable[[Contender], None]:
    return lambda contender: create(contender, [f"bench-txn-{count}"], count)


def growth() -> Iterator[Case]:
    ways = {"txn-partitions": spread_over, "connections": hold, "ids": know, "partitions": widen}
    for what, (name, points) in GROWTH.items():
        way = ways[name.removeprefix("growth-")]
        for point in points:
            inside = {"topics": [f"bench-txn-{point}"], "partitions": point} if way is spread_over else {}
            yield growing(f"{name}-{point}", f"small transactions: {point:,} {what}", way(point), **inside)


# --- all of them ------------------------------------------------------------------------------------------


def size_cases() -> list[Case]:
    """What a transaction costs: the same records in transactions, and with a flush instead of the commit."""
    found = []
    for records in TRANSACTION_SIZES:
        transactional = bulk(f"size-{records}", f"transactions of {records:,} x 100 B", "batches", 100, records=records)
        plain = bulk(
            f"size-{records}-plain",
            f"a flush after {records:,} x 100 B, idempotent",
            "produce",
            100,
            flush_every=records,
        )
        found += [
            each._replace(contenders=BROKERS, most_repetitions=2, warms_up=False) for each in (transactional, plain)
        ]
    return found


CASES: Mapping[str, Case] = {
    case.name: case
    for case in [
        Case("start", "start until a client gets metadata", "start", start, contenders=BROKERS, most_repetitions=3),
        Case("memory-idle", "memory, idle", "broker", memory, most_repetitions=1, warms_up=False),
        small_transactions("transactions-1", 1),
        small_transactions("transactions-8", 8),
        bulk("batches", "transactions of 1,000 x 100 B", "batches", 100, records=1000),
        Case(
            "consume-process-produce",
            "consume-process-produce, 1,000 a transaction",
            "record",
            consume_process_produce,
            SMALL_INPUT.write,
        ),
        bulk("produce-100B", "idempotent produce, 100 B", "produce", 100),
        bulk("produce-1KiB", "idempotent produce, 1 KiB", "produce", 1024),
        fetch("fetch-100B", "read_committed fetch, 100 B", SMALL_INPUT),
        fetch("fetch-1KiB", "read_committed fetch, 1 KiB", LARGE_INPUT),
        fetch("fetch-aborted", "read_committed fetch, 30 % aborted", ABORTED_INPUT, BROKERS),
        Case(
            "commit-to-consumer",
            "commit to read_committed consumer",
            "transaction",
            commit_to_consumer,
            lambda contender: create(contender, ["bench-latency"], 1),
            contenders=BROKERS,
        ),
        *size_cases(),
        Case("memory-after-load", "memory after load", "broker", memory, most_repetitions=1, warms_up=False),
        Case(
            "idle-connections",
            f"{IDLE_CONNECTIONS:,} idle connections",
            "connection",
            idle_connections,
            contenders=BROKERS,
            most_repetitions=1,
            warms_up=False,
        ),
        Case(
            "restart",
            f"restart after kill -9 with {OPEN_TRANSACTIONS:,} open transactions",
            "start",
            restart_with_open_transactions,
            contenders=BROKERS,
            most_repetitions=1,
            warms_up=False,
        ),
        *growth(),
    ]
}


def raise_file_limit() -> None:
    """So many connections need as many files."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def chosen(only: str | None) -> list[Case]:
    """The cases with these names, or whose names begin with these words and a hyphen."""
    if only is None:
        return list(CASES.values())
    words = only.split(",")
    if unknown := [word for word in words if not any(_is_called(name, word) for name in CASES)]:
        raise SystemExit(f"error: no case {', '.join(unknown)}\n\nhint: the cases are {', '.join(CASES)}")
    return [case for name, case in CASES.items() if any(_is_called(name, word) for word in words)]


def _is_called(name: str, word: str) -> bool:
    return name == word or name.startswith(f"{word}-")
