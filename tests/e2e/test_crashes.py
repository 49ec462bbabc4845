"""kill -9, at random moments under load and at every named point: what was acknowledged is there, and nothing else.

    make crash ROUNDS=500 SEED=7

does more of all this, for as long as you like. The seed decides when the broker is killed and what the clients do; the
clock of the machine has its say too, so a seed makes a run alike, not the same.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeTransactionsRequest
from fencepost.testing import Broker
from tests.crash.killing import CHOICES, kill_while_it_starts
from tests.crash.power import DurableDisk, WatchedBroker
from tests.crash.workload import ALL_TOPICS, SETTINGS, TOPIC_SETTINGS, Lost, Workload, started
from tests.e2e.clients.confluent import initialise
from tests.readers.reading import IMPATIENT, TIMEOUT_S, committed_offsets, read_all
from tests.wire.raw_client import RawClient
from tests.wire.tv2_client import Tv2Client

FEW_ROUNDS, MANY_ROUNDS = 8, 40
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)

POWER_LOSSES = 6


def create_topics(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    new = [
        NewTopic(name, num_partitions=count, config=TOPIC_SETTINGS.get(name, {})) for name, count in ALL_TOPICS.items()
    ]
    for created in admin.create_topics(new).values():
        created.result(TIMEOUT_S)


def start_timed(broker: Broker) -> float:
    """Start it; return what that cost in CPU time, which does not depend on who else is at work."""
    broker.start()
    times = psutil.Process(broker.pid).cpu_times()
    return float(times.user + times.system)


@contextmanager
def under_load(broker: Broker, folder: Path) -> Iterator[Workload]:
    """The clients at work. At the end, all that they did is judged."""
    broker.start()
    try:
        workload = Workload(broker, folder, SEED)
        workload.create_topics()
        with started(workload):
            yield workload
            workload.rest()
        print(f"SEED={SEED}, transactions: {workload.counts()}")
        broker.stop()
    finally:
        broker.kill()
        print(broker.log)


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * MANY_ROUNDS)
@pytest.mark.parametrize("rounds", [FEW_ROUNDS, pytest.param(MANY_ROUNDS, marks=pytest.mark.engines)])
def test_nothing_acknowledged_is_lost_in_a_loop_of_kills(rounds: int, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    broker = Broker(data=tmp_path / "data", settings=SETTINGS)
    restarts_s: list[float] = []
    with under_load(broker, tmp_path) as workload:
        for _ in range(rounds):
            time.sleep(rng.uniform(0.05, 1.5))
            broker.kill()
            broker.settings |= {name: rng.choice(values) for name, values in CHOICES.items()}
            for _ in range(rng.choice([0, 0, 1, 2])):
                kill_while_it_starts(broker, rng.uniform(0.15, 0.4))
            restarts_s.append(start_timed(broker))
            workload.check()
    assert "missing" not in broker.log, "a kill damages no file"
    assert "damaged" not in broker.log, "a kill damages no file"
    median_s = statistics.median(restarts_s)
    print(f"{len(restarts_s)} restarts: {median_s:.2f} s of CPU each, {max(restarts_s):.2f} s at most")
    assert median_s < 2


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * POWER_LOSSES)
def test_what_was_committed_with_flush_outlives_every_power_loss(tmp_path: Path) -> None:
    """The clients are on other machines, and go on with what they think they have written."""
    rng = random.Random(SEED)
    data, syncs = tmp_path / "data", tmp_path / "syncs"
    data.mkdir()
    broker = WatchedBroker(data=data, syncs=syncs, settings=SETTINGS | {"fencepost.flush.on.commit": "true"})
    broker.is_watched = True
    disk = DurableDisk(data, syncs)
    with under_load(broker, tmp_path) as workload:
        for _ in range(POWER_LOSSES):
            broker.settings["fencepost.endtxn.reply"] = rng.choice(CHOICES["fencepost.endtxn.reply"])
            time.sleep(rng.uniform(0.3, 1.5))
            broker.kill()
            print(disk.lose_power(rng))
            workload.note_power_loss()
            disk = DurableDisk(data, syncs)
            broker.start()
            workload.check()


def test_records_that_are_gone_are_reported_with_the_names_of_the_verifier(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data", settings=SETTINGS) as broker:
        workload = Workload(broker, tmp_path, SEED)
        workload.create_topics()
        with started(workload):
            time.sleep(1)
            workload.rest()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for deleted in admin.delete_records([TopicPartition("payments", 0, -1)]).values():
            deleted.result(TIMEOUT_S)
        with pytest.raises(Lost, match=r"torn-transaction|lost-write"):
            workload.read_all()


# --- named points -------------------------------------------------------------------------------------------

DECIDED = [
    "txn.prepare.after",
    *(f"txn.marker.{side}{nth}" for nth in ("", ":2", ":3") for side in ("before", "after")),
    "txn.complete.before",
    "txn.complete.after",
]
GROUP = "group"
TXN_ID = "victim"


class Tv1Client:
    """confluent-kafka, which tries again by itself."""

    def __init__(self, broker: Broker) -> None:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        self._producer = Producer(IMPATIENT | servers | {"transactional.id": TXN_ID})
        self._consumer = Consumer(IMPATIENT | servers | {"group.id": GROUP})
        initialise(self._producer)

    def write(self, value: str, offset: int) -> None:
        """One record to each of two topics, and an offset: three partitions."""
        self._producer.begin_transaction()
        for topic in ("orders", "payments"):
            self._producer.produce(topic, value.encode(), partition=0)
        position = [TopicPartition("orders", 0, offset)]
        again_while_retriable(
            lambda: self._producer.send_offsets_to_transaction(
                position, self._consumer.consumer_group_metadata(), TIMEOUT_S
            )
        )
        assert self._producer.flush(TIMEOUT_S) == 0

    def end(self, commit: bool) -> bool:
        """Whether the broker says that it is so."""
        ask = self._producer.commit_transaction if commit else self._producer.abort_transaction
        try:
            again_while_retriable(lambda: ask(TIMEOUT_S))
        except KafkaException:
            return False
        return True

    def close(self) -> None:
        self._consumer.close()


def again_while_retriable(call: Callable[[], None]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return call()
        except KafkaException as e:
            if not e.args[0].retriable() or time.monotonic() > deadline:
                raise


class Tv2Victim:
    """The same with an epoch per transaction."""

    def __init__(self, broker: Broker) -> None:
        self._client = Tv2Client(broker.bootstrap_servers, TXN_ID)
        self._client.init()

    def write(self, value: str, offset: int) -> None:
        assert self._client.produce({("orders", 0): [value], ("payments", 0): [value]}) == errors.NONE
        assert self._client.send_offset(GROUP, "orders", 0, offset) == errors.NONE

    def end(self, commit: bool) -> bool:
        return self._client.end(commit) == errors.NONE

    def close(self) -> None:
        self._client.close()


Victim = Tv1Client | Tv2Victim


@contextmanager
def crashing_at(point: str, data: Path, **settings: str) -> Iterator[Broker]:
    """A broker with topics that will die at `point`; `_` in a setting's name stands for `.`."""
    broker = Broker(data=data, settings={name.replace("_", "."): value for name, value in settings.items()})
    is_reached_by_new_topics = point.startswith("metadata.save")
    if not is_reached_by_new_topics:
        broker.settings["fencepost.crash.at"] = point
    broker.start()
    try:
        create_topics(broker)
        if is_reached_by_new_topics:
            broker.stop()
            broker.settings["fencepost.crash.at"] = point
            broker.start()
        yield broker
    finally:
        broker.kill()


def start_again(broker: Broker) -> None:
    """The broker has killed itself, or will now; the next process has no such orders."""
    assert broker.wait_for_exit(TIMEOUT_S) == -signal.SIGKILL
    del broker.settings["fencepost.crash.at"]
    broker.start()


def read_values(broker: Broker) -> list[tuple[str, str]]:
    """What a reader of committed data gets. It reads to the high watermark, so it also says that the LSO is there."""
    return sorted((record.topic, record.value) for record in read_all(broker.bootstrap_servers, ["orders", "payments"]))


def both(*values: str) -> list[tuple[str, str]]:
    return sorted((topic, value) for topic in ("orders", "payments") for value in values)


def committed_offset(broker: Broker) -> int:
    return committed_offsets(broker.bootstrap_servers, GROUP, "orders").get(0, 0)


def txn_state(broker: Broker) -> str:
    with RawClient(broker.host, broker.port) as client:
        described = client.call(DescribeTransactionsRequest([TXN_ID]), version=0).transaction_states[0]
        assert described.error_code == errors.NONE
        return str(described.transaction_state)


def check_after_the_decision(broker: Broker, victim: Victim, commit: bool) -> None:
    victim.write("first", 5)
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(victim.end, commit)
        start_again(broker)
        # When the broker is ready, every client sees the outcome.
        assert read_values(broker) == (both("first") if commit else [])
        assert committed_offset(broker) == (5 if commit else 0)
        assert told.result(TIMEOUT_S), "the client did not receive the outcome"
        # The client is answered when the transaction is complete, which may have to wait for the disk.
        assert txn_state(broker) == ("CompleteCommit" if commit else "CompleteAbort")
    victim.write("second", 6)
    assert victim.end(True)
    assert read_values(broker) == (both("first", "second") if commit else both("second"))
    assert committed_offset(broker) == 6
    victim.close()
    broker.stop()


# One client for each point in `make test`, and both in `make test-engines`.
@pytest.mark.parametrize(
    ("point", "client", "reply"),
    [
        pytest.param(point, client, reply, marks=[pytest.mark.engines] if (nth + second) % 2 else [])
        for nth, point in enumerate(DECIDED)
        for second, (client, reply) in enumerate([(Tv1Client, "complete"), (Tv2Victim, "prepare")])
    ],
)
def test_a_decided_commit_is_finished_by_the_next_process(
    point: str, client: type[Victim], reply: str, tmp_path: Path
) -> None:
    with crashing_at(point, tmp_path, fencepost_endtxn_reply=reply) as broker:
        check_after_the_decision(broker, client(broker), commit=True)


@pytest.mark.parametrize("client", [Tv1Client, Tv2Victim])
@pytest.mark.parametrize("reply", ["complete", "prepare"])
def test_before_the_decision_the_client_goes_on_and_commits(client: type[Victim], reply: str, tmp_path: Path) -> None:
    with crashing_at("txn.prepare.before", tmp_path, fencepost_endtxn_reply=reply) as broker:
        check_after_the_decision(broker, client(broker), commit=True)
