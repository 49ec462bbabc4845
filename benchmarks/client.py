"""The client process: one workload against one broker, with librdkafka. Prints one JSON line.

    python -m benchmarks.client '{"workload": "produce", "bootstrap": "127.0.0.1:9092", "broker_pid": 1, "seconds": 2}'

Every answer says how much was done in which time, and the CPU time that the broker, this process and everybody else
used meanwhile. Warming up is not counted. Bulk workloads use the calls of confluent-kafka that take the least CPU time
per record: `produce_batch`, `consume` of many records, and no delivery reports but for errors.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.figures import spread

Answer = dict[str, float]
WARM_UP_S = 0.7
SMALL = b"x" * 100
PATIENCE_S = 60.0
BATCH = 1_000  # Records handed to librdkafka at a time.
FETCH_BATCH = 10_000
# So many records wait in the client: enough to keep a broker busy, and no more memory than that.
MOST_QUEUED = 50_000
QUIET = {"log_level": 0}
DEFAULTS = {"client.id": "bench", **QUIET}
NO_REPORTS = {"delivery.report.only.error": True, "queue.buffering.max.messages": 1_000_000}


class Meter:
    """The time that passes, and the CPU time that the broker, this process and the others use.

    Others are also the neighbours of a virtual machine: what they take is called stolen.
    """

    def __init__(self, broker_pid: int | None) -> None:
        self._broker = psutil.Process(broker_pid) if broker_pid else None
        self._before = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        broker_s = 0.0
        if self._broker is not None:
            times = self._broker.cpu_times()
            broker_s = times.user + times.system
        machine = psutil.cpu_times()
        busy = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0)
        # Time of guests is counted as the user's too.
        busy -= getattr(machine, "guest", 0.0) + getattr(machine, "guest_nice", 0.0)
        return time.perf_counter(), broker_s, time.process_time(), busy

    def start(self) -> None:
        self._before = self._now()

    def stop(self, count: int) -> Answer:
        wall, broker, client, busy = (now - then for now, then in zip(self._now(), self._before))
        if not count:
            raise SystemExit(f"error: nothing was done within {wall:.1f} s")
        return {
            "count": count,
            "seconds": wall,
            "broker_cpu_s": broker,
            "client_cpu_s": client,
            "other_cpu_s": max(0.0, busy - broker - client),
        }


class Failed(Exception):
    """A record was not delivered."""


def _raise(error: object, _message: Message) -> None:
    if error is not None:
        raise Failed(str(error))


# --- small transactions -----------------------------------------------------------------------------------


class Window:
    """The measured time: it begins when all producers are ready and have warmed up."""

    def __init__(self, producers: int, seconds: float) -> None:
        self.seconds = seconds
        self.begins = self.ends = 0.0
        self.everybody = threading.Barrier(producers + 1, self._open)

    def _open(self) -> None:
        self.begins = time.perf_counter() + WARM_UP_S
        self.ends = self.begins + self.seconds


def _run_producer(
    bootstrap: str, name: str, places: list[tuple[str, int]], window: Window, took: list[float], failures: list[str]
) -> None:
    try:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, **QUIET})
        producer.init_transactions(PATIENCE_S)
        window.everybody.wait(120)
        while (began := time.perf_counter()) < window.ends:
            producer.begin_transaction()
            for topic, partition in places:
                producer.produce(topic, SMALL, key=b"k", partition=partition)
            producer.commit_transaction(PATIENCE_S)
            if began >= window.begins:
                took.append(time.perf_counter() - began)
    except Exception as e:
        window.everybody.abort()
        failures.append(f"{name}: {type(e).__name__} {e}")


def transactions(
    bootstrap: str, meter: Meter, seconds: float, producers: int, topics: list[str], partitions: int = 1
) -> Answer:
    """N producers, each with one record to each partition of each topic per transaction."""
    run = uuid.uuid4().hex[:8]
    window = Window(producers, seconds)
    took: list[list[float]] = [[] for _ in range(producers)]
    failures: list[str] = []
    places = list(itertools.product(topics, range(partitions)))
    threads = [
        threading.Thread(target=_run_producer, args=(bootstrap, f"bench-{run}-{i}", places, window, took[i], failures))
        for i in range(producers)
    ]
    for thread in threads:
        thread.start()
    try:
        window.everybody.wait(120)
        time.sleep(max(0.0, window.begins - time.perf_counter()))
        meter.start()
        time.sleep(max(0.0, window.ends - time.perf_counter()))
        answer = meter.stop(sum(len(own) for own in took))
    except threading.BrokenBarrierError:
        answer = {}
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit("error: " + "; ".join(failures))
    return answer | spread([s * 1000 for own in took for s in own])


# --- bulk -------------------------------------------------------------------------------------------------


def _bulk_producer(bootstrap: str, transactional: bool) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "on_delivery": _raise}
    if transactional:
        settings["transactional.id"] = f"bench-{uuid.uuid4().hex[:8]}"
    producer = Producer(settings | DEFAULTS | NO_REPORTS)
    if transactional:
        producer.init_transactions(PATIENCE_S)
    return producer


def _send(producer: Producer, topic: str, records: list[dict[str, bytes | None]], partition: int = -1) -> None:
    while len(producer) > MOST_QUEUED:
        producer.poll(0.002)
    taken = producer.produce_batch(topic, records, partition)
    assert taken == len(records), f"the client took {taken} of {len(records)} records"


def _records(size: int, count: int) -> list[dict[str, bytes | None]]:
    return [{"value": b"x" * size}] * count


def _flush(producer: Producer) -> None:
    left = producer.flush(PATIENCE_S)
    assert not left, f"{left} records were not delivered within {PATIENCE_S} s"


def _until(ends: float) -> Iterator[int]:
    return itertools.takewhile(lambda _: time.perf_counter() < ends, itertools.count())


def _repeat(meter: Meter, seconds: float, work: Callable[[], int]) -> Answer:
    """Do it again and again: to warm up, then for so many seconds. `work` says how much it did."""
    for _ in _until(time.perf_counter() + WARM_UP_S):
        work()
    meter.start()
    return meter.stop(sum(work() for _ in _until(time.perf_counter() + seconds)))


def produce(bootstrap: str, meter: Meter, seconds: float, topic: str, size: int, flush_every: int = 0) -> Answer:
    """Idempotent, acks=all: a stream of records, or with a flush after every so many."""
    producer = _bulk_producer(bootstrap, transactional=False)
    batch = _records(size, flush_every or BATCH)

    def send_for(seconds: float) -> int:
        sent = 0
        for _ in _until(time.perf_counter() + seconds):
            _send(producer, topic, batch)
            sent += len(batch)
            if flush_every:
                _flush(producer)
        _flush(producer)
        return sent

    send_for(WARM_UP_S)
    meter.start()
    return meter.stop(send_for(seconds))


def batches(bootstrap: str, meter: Meter, seconds: float, topic: str, size: int, records: int) -> Answer:
    """One producer, transactions of so many records, one after the other."""
    producer = _bulk_producer(bootstrap, transactional=True)
    batch = _records(size, records)

    def one_transaction() -> int:
        producer.begin_transaction()
        _send(producer, topic, batch)
        producer.commit_transaction(PATIENCE_S)
        return records

    return _repeat(meter, seconds, one_transaction)


def load(
    bootstrap: str, meter: Meter, topics: list[str], partitions: int, records: int, size: int, aborted: float
) -> Answer:
    """Write what the readers read: so many committed records in all, in transactions of a thousand."""
    producer = _bulk_producer(bootstrap, transactional=True)
    batch = _records(size, BATCH)
    places = itertools.cycle(itertools.product(topics, range(partitions)))
    committed = attempts = 0
    meter.start()
    while committed < records:
        topic, partition = next(places)
        producer.begin_transaction()
        _send(producer, topic, batch, partition)
        attempts += 1
        if attempts * aborted > (attempts * BATCH - committed) / BATCH:
            _flush(producer)  # What is not sent cannot be aborted by a marker.
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
            committed += BATCH
    return meter.stop(committed)


# With its defaults librdkafka pauses for a second when its queue is full, and for half a second at the end of a topic.
NO_PAUSES = {"fetch.queue.backoff.ms": 1, "fetch.wait.max.ms": 5}


def _reader(
    bootstrap: str, topics: list[str], partitions: int, more: Mapping[str, int]
) -> tuple[Consumer, Callable[[], None]]:
    """A read_committed consumer of everything, and how to let it begin again."""
    group = f"bench-{uuid.uuid4().hex[:8]}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            **more,
        }
        | DEFAULTS
    )
    places = [TopicPartition(t, p, 0) for t in topics for p in range(partitions)]
    return consumer, lambda: consumer.assign(places)


def _read(consumer: Consumer, most: int) -> list[Message]:
    messages = consumer.consume(most, PATIENCE_S)
    if not messages:
        raise SystemExit(f"error: no record came within {PATIENCE_S} s")
    if (error := messages[0].error()) is not None:
        raise SystemExit(f"error: {error}")
    return messages


def fetch(bootstrap: str, meter: Meter, seconds: float, topics: list[str], partitions: int, records: int) -> Answer:
    """A read_committed consumer reads all the records that `load` wrote, again and again."""
    consumer, begin_again = _reader(bootstrap, topics, partitions, NO_PAUSES)

    def read_all() -> int:
        begin_again()
        found = 0
        while found < records:
            found += len(_read(consumer, min(FETCH_BATCH, records - found)))
        return found

    answer = _repeat(meter, seconds, read_all)
    consumer.close()
    return answer


def consume_process_produce(
    bootstrap: str, meter: Meter, seconds: float, topics: list[str], partitions: int, records: int, to: str
) -> Answer:
    """Transactions of a thousand records that were read, and the offsets of those."""
    consumer, begin_again = _reader(bootstrap, topics, partitions, NO_PAUSES)
    producer = _bulk_producer(bootstrap, transactional=True)
    left = 0

    def one_transaction() -> int:
        nonlocal left
        if left < BATCH:
            begin_again()
            left = records
        read: list[Message] = []
        while len(read) < BATCH:
            read += _read(consumer, BATCH - len(read))
        left -= BATCH
        producer.begin_transaction()
        _send(producer, to, [{"value": message.value()} for message in read])
        # Only partitions that something was read from have a position.
        positions = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        return BATCH

    answer = _repeat(meter, seconds, one_transaction)
    consumer.close()
    return answer


# --- from a commit to a consumer --------------------------------------------------------------------------


def commit_to_consumer(bootstrap: str, meter: Meter, seconds: float, topic: str) -> Answer:
    """The time from the call of commit_transaction, with the record delivered, until a waiting consumer has it."""
    consumer, _ = _reader(bootstrap, [topic], 1, {})
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"bench-{uuid.uuid4().hex[:8]}", "linger.ms": 0, **QUIET}
    )
    producer.init_transactions(PATIENCE_S)
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)[1]
    consumer.assign([TopicPartition(topic, 0, end)])
    arrived: dict[bytes, float] = {}
    has_arrived = threading.Event()
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                arrived[message.value() or b""] = time.perf_counter()
                has_arrived.set()

    thread = threading.Thread(target=read)
    thread.start()

    def one(number: int) -> float:
        value = b"%d" % number
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        _flush(producer)
        # The consumer waits at the broker again, with the record behind the last stable offset.
        time.sleep(0.002)
        has_arrived.clear()
        began = time.perf_counter()
        producer.commit_transaction(PATIENCE_S)
        assert has_arrived.wait(PATIENCE_S), "the record did not arrive"
        return arrived.pop(value) - began

    for number in _until(time.perf_counter() + WARM_UP_S):
        one(number)
    meter.start()
    took = [one(number) for number in _until(time.perf_counter() + seconds)]
    answer = meter.stop(len(took)) | spread([s * 1000 for s in took])
    is_over.set()
    thread.join()
    consumer.close()
    return answer


WORKLOADS: dict[str, Callable[..., Answer]] = {
    each.__name__: each
    for each in (transactions, produce, batches, load, fetch, consume_process_produce, commit_to_consumer)
}


def run_client(workload: str, bootstrap: str, broker_pid: int | None, **options: Any) -> Answer:
    """Run a workload in a process of its own."""
    order = {"workload": workload, "bootstrap": bootstrap, "broker_pid": broker_pid, **options}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.client", json.dumps(order)], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"error: the client failed: {json.dumps(order)}")
    answer: Answer = json.loads(done.stdout)
    return answer


def main() -> None:
    order = json.loads(sys.argv[1])
    workload = WORKLOADS[order.pop("workload")]
    meter = Meter(order.pop("broker_pid"))
    print(json.dumps(workload(order.pop("bootstrap"), meter, **order)))


if __name__ == "__main__":
    main()
