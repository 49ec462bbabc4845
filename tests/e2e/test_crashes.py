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
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeTransactionsRequest, EndTxnRequest
from fencepost.testing import Broker, BrokerFailed
from tests.crash.killing import CHOICES, kill_while_it_starts
from tests.crash.power import DurableDisk, WatchedBroker
from tests.crash.workload import ALL_TOPICS, SETTINGS, TOPIC_SETTINGS, Lost, Workload, started
from tests.e2e.clients.confluent import initialise, text_of
from tests.readers.reading import IMPATIENT, TIMEOUT_S, committed_offsets, read_all
from tests.wire.raw_client import Closed, RawClient
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


def test_a_reader_that_is_further_than_the_power_left_the_log_misses_nothing(tmp_path: Path) -> None:
    """It stays connected, and asks for an offset that the log has again when it gets its next answer."""
    with Broker(data=tmp_path) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        config = {"group.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        reader = Consumer(IMPATIENT | servers | config)
        reader.assign([TopicPartition("orders", 0, 0)])
        write_one_by_one(broker, [f"before-{number}" for number in range(20)])
        read_until(reader, "before-19")
        broker.kill()
        log = tmp_path / "orders-0" / f"{0:020}.log"
        os.truncate(log, log.stat().st_size // 2)
        (tmp_path / "boot-id").write_text("another boot")
        paused = Broker(data=tmp_path)  # On another port, until the log is longer than it ever was.
        with paused:
            write_one_by_one(paused, [f"after-{number}" for number in range(30)])
        broker.start()
        assert "after-0" in read_until(reader, "after-29")
        reader.close()


def write_one_by_one(broker: Broker, values: list[str]) -> None:
    producer = Producer(IMPATIENT | {"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce("orders", value.encode(), partition=0)
        assert producer.flush(TIMEOUT_S) == 0


def read_until(reader: Consumer, last: str) -> list[str]:
    values: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    while last not in values:
        assert time.monotonic() < deadline, f"{last} never came, but {values}"
        values += [text_of(message) for message in reader.consume(100, 0.1) if not message.error()]
    return values


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


@contextmanager
def load_on_dying(broker: Broker, folder: Path) -> Iterator[Workload]:
    """The clients at work on a broker that dies, maybe before all of them have begun, and has been started again."""
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(start_again, broker)
        with started(Workload(broker, folder, SEED)) as workload:
            again.result(TIMEOUT_S)
            yield workload


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


@pytest.mark.parametrize("point", ["txn.prepare.after", "txn.marker.after:2", "txn.complete.before"])
@pytest.mark.parametrize(
    ("client", "reply"),
    [pytest.param(Tv1Client, "prepare", marks=pytest.mark.engines), (Tv2Victim, "complete")],
)
def test_a_decided_abort_is_finished_by_the_next_process(
    point: str, client: type[Victim], reply: str, tmp_path: Path
) -> None:
    with crashing_at(point, tmp_path, fencepost_endtxn_reply=reply) as broker:
        check_after_the_decision(broker, client(broker), commit=False)


@pytest.mark.parametrize("point", ["txn.prepare.after", "txn.marker.after:2", "txn.complete.before"])
def test_a_decision_that_waited_for_the_disk_is_finished_too(point: str, tmp_path: Path) -> None:
    with crashing_at(point, tmp_path, fencepost_flush_on_commit="true") as broker:
        check_after_the_decision(broker, Tv1Client(broker), commit=True)


@pytest.mark.parametrize("client", [Tv1Client, Tv2Victim])
@pytest.mark.parametrize("reply", ["complete", "prepare"])
def test_before_the_decision_the_client_goes_on_and_commits(client: type[Victim], reply: str, tmp_path: Path) -> None:
    with crashing_at("txn.prepare.before", tmp_path, fencepost_endtxn_reply=reply) as broker:
        check_after_the_decision(broker, client(broker), commit=True)


@pytest.mark.parametrize("client", [Tv1Client, Tv2Victim])
def test_before_the_decision_a_transaction_whose_client_is_gone_stays_open_until_the_next_client(
    client: type[Victim], tmp_path: Path
) -> None:
    with crashing_at("txn.prepare.before", tmp_path) as broker:
        die_before_the_decision(broker, client(broker))
        assert txn_state(broker) == "Ongoing"
        victim = client(broker)
        assert txn_state(broker) == "Empty"
        assert read_values(broker) == []
        assert committed_offset(broker) == 0
        victim.write("second", 6)
        assert victim.end(True)
        assert read_values(broker) == both("second")
        assert committed_offset(broker) == 6
        victim.close()


@pytest.mark.parametrize("client", [Tv1Client, Tv2Victim])
def test_before_the_decision_a_restart_aborts_if_the_setting_says_so(client: type[Victim], tmp_path: Path) -> None:
    with crashing_at("txn.prepare.before", tmp_path, fencepost_recovery_ongoing="abort") as broker:
        victim = client(broker)
        victim.write("first", 5)
        with ThreadPoolExecutor(1) as pool:
            told = pool.submit(victim.end, True)
            start_again(broker)
            assert txn_state(broker) == "CompleteAbort"
            assert read_values(broker) == []
            assert committed_offset(broker) == 0
            assert not told.result(TIMEOUT_S), "the client got a success for an aborted commit"
        victim.close()
        victim = client(broker)
        victim.write("second", 6)
        assert victim.end(True)
        assert read_values(broker) == both("second")
        victim.close()


def die_before_the_decision(broker: Broker, victim: Victim) -> None:
    """Run into `txn.prepare.before` with a client that does not try again."""
    victim.write("first", 5)
    with RawClient(broker.host, broker.port) as client:
        state = client.call(DescribeTransactionsRequest([TXN_ID]), version=0).transaction_states[0]
        victim.close()
        request = EndTxnRequest(TXN_ID, state.producer_id, state.producer_epoch, True)
        with pytest.raises(Closed):
            client.call(request, version=3)
    start_again(broker)


@pytest.mark.parametrize("client", [Tv1Client, Tv2Victim])
@pytest.mark.parametrize("point", ["offsets.append.before", "offsets.append.after"])
def test_an_offset_commit_cut_short_is_made_again_and_counts_once(
    client: type[Victim], point: str, tmp_path: Path
) -> None:
    with crashing_at(point, tmp_path) as broker:
        victim = client(broker)
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(victim.write, "first", 5)
            start_again(broker)
            written.result(TIMEOUT_S)
        assert victim.end(True)
        assert read_values(broker) == both("first")
        assert committed_offset(broker) == 5
        victim.close()


@pytest.mark.parametrize("point", ["txn.marker.before", "txn.marker.after:2", "txn.complete.after"])
def test_a_process_that_dies_while_it_finishes_a_transaction_leaves_the_rest_to_the_next(
    point: str, tmp_path: Path
) -> None:
    with crashing_at("txn.prepare.after", tmp_path) as broker:
        victim = Tv2Victim(broker)
        victim.write("first", 5)
        with ThreadPoolExecutor(1) as pool:
            told = pool.submit(victim.end, True)
            assert broker.wait_for_exit(TIMEOUT_S) == -signal.SIGKILL
            broker.settings["fencepost.crash.at"] = point
            with pytest.raises(BrokerFailed, match="exit code -9"):
                broker.start()
            start_again(broker)
            assert told.result(TIMEOUT_S)
        assert read_values(broker) == both("first")
        assert committed_offset(broker) == 5
        assert txn_state(broker) == "CompleteCommit"
        victim.close()


@pytest.mark.parametrize(
    "nth", [pytest.param(1, marks=pytest.mark.engines), 2, pytest.param(7, marks=pytest.mark.engines)]
)
@pytest.mark.parametrize("point", ["segment.roll", "index.write", "snapshot.write", "metadata.save"])
def test_files_that_were_half_written_do_no_harm(point: str, nth: int, tmp_path: Path) -> None:
    """Small segments under load: the process dies in the middle of the Nth new segment, index, snapshot, document."""
    settings = {"log.segment.bytes": "4096", "transaction.state.log.segment.bytes": "4096"}
    with crashing_at(f"{point}:{nth}", tmp_path / "data", **settings) as broker:
        if point == "metadata.save":
            threading.Thread(target=make_more_topics, args=[broker.bootstrap_servers, nth], daemon=True).start()
        with load_on_dying(broker, tmp_path) as workload:
            time.sleep(0.3)
            workload.rest()
        broker.stop()


def make_more_topics(bootstrap_servers: str, count: int) -> None:
    """The document is written for every topic."""
    admin = AdminClient(IMPATIENT | {"bootstrap.servers": bootstrap_servers})
    for number in range(count):
        with suppress(KafkaException, TimeoutError):
            admin.create_topics([NewTopic(f"more-{number}")])[f"more-{number}"].result(1)


def test_a_first_start_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    broker = Broker(data=tmp_path, settings={"fencepost.crash.at": "metadata.save"})
    with pytest.raises(BrokerFailed, match="exit code -9"):
        broker.start()
    broker.settings.clear()
    with broker:
        create_topics(broker)
        victim = Tv2Victim(broker)
        victim.write("first", 5)
        assert victim.end(True)
        assert read_values(broker) == both("first")
        victim.close()
