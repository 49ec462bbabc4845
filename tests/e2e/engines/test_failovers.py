"""Clients of every kind on three nodes, through twenty failovers each: nothing is lost, doubled or torn.

`tests/e2e/test_failover.py` has the same with librdkafka.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.testing import Broker
from tests.e2e.clients.players import Player, Refused, start_player
from tests.e2e.engines.rate_job import Plan
from tests.e2e.engines.rate_run import Job
from tests.e2e.failovers import PARTITIONS, REQUEST_MS, Failovers, Input, Output, three_nodes, wait_until
from tests.engines.java import ROOT, kafka_jars, start_java

# A minute on an idle machine. The first test of a client may have to build it.
pytestmark = pytest.mark.timeout(1200)

FAILOVERS = 20
RECORDS = 60  # Sent before each order, so that clients have work in each failover.
STREAMS_JARS = ROOT / ".tools" / "jars" / "kafka-streams-4.3.1"


# --- transactional producers ------------------------------------------------------------------------------


def has_no_answer(refused: Refused) -> bool:
    """A node was paused, or has stopped."""
    return "timeout" in str(refused) or "unable to dial" in str(refused)


class Writer(threading.Thread):
    """Commits transactions of one record for each partition, until it is told to stop. Every third is aborted.

    A commit may stay unanswered: franz-go gives up then, and the application has to abort. `unknown` are the values of
    such transactions. If the commit was carried out and the coordinator has moved, the client is fenced, and the
    application has to open the id again. Java asks again by itself.
    """

    def __init__(self, player: Player) -> None:
        super().__init__(daemon=True)
        self._player = player
        self._is_enough = threading.Event()
        self.committed: list[str] = []
        self.unknown: list[str] = []
        self._is_in_doubt = False  # Since the last commit.
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for number in range(sys.maxsize):
                if self._is_enough.is_set():
                    return
                self._transact(number)
        except BaseException as e:
            self.error = e

    def open(self) -> None:
        self._player.open(name="p", transactional_id="t", request_ms=REQUEST_MS)

    def _begin(self) -> None:
        try:
            self._player.begin(name="p")
        except Refused as refused:
            if not (self._is_in_doubt and "PRODUCER_FENCED" in str(refused)):
                raise
            self.open()
            self._player.begin(name="p")
        self._is_in_doubt = False

    def _transact(self, number: int) -> None:
        value = f"{'aborted' if number % 3 == 2 else 'committed'}-{number}"
        self._begin()
        for index in range(PARTITIONS):
            self._player.send(name="p", topic="orders", partition=index, values=[value])
        if value.startswith("aborted"):
            return self._abort()
        try:
            self._player.commit(name="p")
        except Refused as refused:
            if not has_no_answer(refused):
                raise
            self.unknown.append(value)
            self._is_in_doubt = True
            return self._abort()
        return self.committed.append(value)

    def _abort(self) -> None:
        while True:
            try:
                self._player.abort(name="p")
            except Refused as refused:
                if not has_no_answer(refused):
                    raise
            else:
                return

    def await_commit(self) -> None:
        before = len(self.committed)
        wait_until(lambda: self.error is not None or len(self.committed) > before, lambda: "a commit")
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self._is_enough.set()
        self.join()
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("client", ["java", "franz-go"])
def test_the_transactions_of_a_producer_stay_whole_through_twenty_failovers(client: str, tmp_path: Path) -> None:
    with (
        three_nodes(tmp_path / "data", "orders") as broker,
        start_player(client, broker.bootstrap_servers) as player,
        reading(broker, "orders") as output,
    ):
        writer = Writer(player)
        writer.open()
        writer.start()
        failovers = Failovers(broker, "orders", "t")
        while failovers.count < FAILOVERS:
            writer.await_commit()
            failovers.next()
        writer.await_commit()
        writer.stop()
        output.await_value(writer.committed[-1], PARTITIONS)
        found = Counter(value for _, value in output.read)
        assert set(found.values()) == {PARTITIONS}, "torn or doubled"
        assert set(writer.committed) - found.keys() == set(), "lost"
        assert found.keys() - set(writer.committed) - set(writer.unknown) == set(), "aborted, and read"
        assert len(writer.unknown) <= FAILOVERS


@contextmanager
def reading(broker: Broker, topic: str) -> Iterator[Output]:
    output = Output(broker, topic)
    try:
        yield output
    finally:
        output.close()


# --- groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("client", "protocol"), [("java", "classic"), ("java", "consumer"), ("franz-go", "classic")])
def test_a_group_processes_every_record_once_through_twenty_failovers(
    client: str, protocol: str, tmp_path: Path
) -> None:
    """Two members consume, process and produce, with the offsets in the transaction."""
    members = ("first", "second")
    with (
        three_nodes(tmp_path / "data", "source", "target") as broker,
        start_player(client, broker.bootstrap_servers) as player,
        reading(broker, "target") as output,
    ):
        topics = {"source": "source", "target": "target"}
        patience = {"session_ms": 6000, "request_ms": REQUEST_MS}
        for member in members:
            who = {"name": member, "transactional_id": member, "group": "g", "protocol": protocol}
            player.mover(**who, **topics, **patience)
            player.process(name=member)
        source = Input(broker, "source")
        failovers = Failovers(broker, "target", "first")

        while failovers.count < FAILOVERS:
            source.send(RECORDS)
            failovers.next()
            source.flush()
            output.await_records(len(source.sent))
        for member in members:
            player.stop(name=member)
        assert sorted(value for _, value in output.read) == sorted(source.sent)


# --- Kafka Streams ----------------------------------------------------------------------------------------


@contextmanager
def counting(broker: Broker, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The program that counts the records of each key in `source`, and writes each count to `target`."""
    if not STREAMS_JARS.is_dir():
        pytest.skip(f"no Kafka Streams in {STREAMS_JARS}; `make test-engines` fetches it")
    class_path = f"{kafka_jars() / '*'}{os.pathsep}{STREAMS_JARS / '*'}"
    arguments = (broker.bootstrap_servers, "source", "target", str(folder), str(REQUEST_MS))
    program = start_java(Path(__file__).with_name("Counting.java"), *arguments, class_path=class_path)
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def test_kafka_streams_counts_every_record_once_through_twenty_failovers(tmp_path: Path) -> None:
    with (
        three_nodes(tmp_path / "data", "source", "target") as broker,
        reading(broker, "target") as output,
        counting(broker, tmp_path / "state") as program,
    ):
        source = Input(broker, "source")
        failovers = Failovers(broker, "target", "counting")
        while failovers.count < FAILOVERS:
            source.send(RECORDS)
            failovers.next()
            source.flush()
            output.await_records(len(source.sent))
            assert program.poll() is None, program.communicate()
        counts: dict[str, list[int]] = {}
        for key, value in output.read:
            counts.setdefault(key, []).append(int(value))
        each = len(source.sent) // PARTITIONS
        assert counts == {str(index): [*range(1, each + 1)] for index in range(PARTITIONS)}


# --- the Spark sink ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("plane", ["jvm", "python"])
def test_the_spark_sink_writes_every_row_once_through_twenty_failovers(
    plane: str, needs_spark: None, tmp_path: Path
) -> None:
    batches, rows = 36, 500
    more = {"request.timeout.ms": str(REQUEST_MS), "socket.connection.setup.timeout.ms": str(REQUEST_MS)}
    with three_nodes(tmp_path / "data", "rows") as broker, reading(broker, "rows") as output:
        folder = tmp_path / "spark"
        folder.mkdir()
        plan = Plan(broker.bootstrap_servers, "rows", str(folder), batches, rows, plane=plane, more=more)
        failovers = Failovers(broker, "rows", "rows")
        with Job(Path(sys.executable), plan) as job:
            while failovers.count < FAILOVERS:
                # The next micro-batch has begun, or will in a moment.
                assert job.await_event("batch")[-1]["outcome"] == "committed"
                failovers.next()
            job.await_event("finished")
        output.await_records(batches * rows)
        assert sorted(int(value) for _, value in output.read) == [*range(batches * rows)]


# --- the load of the crash runs ---------------------------------------------------------------------------


def test_a_node_that_stops_or_pauses_every_second_loses_nothing_under_load() -> None:
    run = [sys.executable, "-m", "scripts.crash_nodes", "--nodes", "3", "--seconds", "60"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "nothing lost"
