"""Nodes that stop, start, pause and go on under librdkafka producers and consumers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from fencepost.cli import main
from fencepost.testing import Broker
from fencepost.testing.faults import OrderRefused
from tests.engines.apache_kafka import ApacheKafka

PARTITIONS = 6
FEW = {"transaction.state.log.num.partitions": 6, "offsets.topic.num.partitions": 6}


class Writer(threading.Thread):
    """Commits transactions of one record for each partition, until it is told to stop. Every third is aborted."""

    def __init__(self, broker: Broker, name: str) -> None:
        super().__init__(daemon=True)
        self.transactional_id = name
        self._servers = broker.bootstrap_servers
        self._is_enough = threading.Event()
        self.committed: list[str] = []
        self.unknown: list[str] = []
        self.error: BaseException | None = None

    def stop(self) -> None:
        self._is_enough.set()
        self.join(120)
        assert not self.is_alive(), "the producer hangs"
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        try:
            self._run()
        except BaseException as e:
            self.error = e

    def _run(self) -> None:
        producer = self._new_producer()
        number = 0
        while not self._is_enough.is_set():
            number += 1
            value = f"{self.transactional_id} {number}"
            try:
                producer.begin_transaction()
                for index in range(PARTITIONS):
                    producer.produce("orders", value.encode(), partition=index)
                if number % 3 == 0:
                    producer.abort_transaction(60)
                    continue
                self._commit(producer)
                self.committed.append(value)
            except KafkaException as e:
                error = e.args[0]
                if error.txn_requires_abort():
                    producer.abort_transaction(60)
                elif error.fatal():
                    self.unknown.append(value)
                    producer = self._new_producer()
                else:
                    raise

    def _commit(self, producer: Producer) -> None:
        while True:
            try:
                return producer.commit_transaction(60)
            except KafkaException as e:
                if not e.args[0].retriable():
                    raise

    def _new_producer(self) -> Producer:
        settings = {"bootstrap.servers": self._servers, "transactional.id": self.transactional_id, "linger.ms": 0}
        # A paused node answers nothing, and a producer waits that long for each answer.
        producer = Producer({**settings, "socket.timeout.ms": 5000, "log_level": 0})
        producer.init_transactions(60)
        return producer


def check(broker: Broker, writers: list[Writer]) -> None:
    """Nothing is lost, doubled or torn."""
    found: dict[str, list[int]] = {}
    for record in broker.read_committed("orders"):
        assert record.value is not None
        found.setdefault(record.value.decode(), []).append(record.partition)
    torn = {value: partitions for value, partitions in found.items() if sorted(partitions) != [*range(PARTITIONS)]}
    assert torn == {}
    committed = {value for writer in writers for value in writer.committed}
    unknown = {value for writer in writers for value in writer.unknown}
    assert committed - found.keys() == set(), "lost"
    assert found.keys() - committed - unknown == set(), "aborted, and read"


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


MANY_ROUNDS = 6


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [1, pytest.param(MANY_ROUNDS, marks=pytest.mark.engines)])
def test_producers_go_on_while_nodes_stop_pause_and_come_back(rounds: int, tmp_path: Path) -> None:
    """Each round stops one node and pauses it later, and moves a leader and a coordinator: four failovers."""
    with Broker(brokers=3, data=tmp_path / "data", topics={"orders": PARTITIONS}, settings=FEW) as broker:
        writers = [Writer(broker, f"t{n}") for n in range(2)]
        for writer in writers:
            writer.start()

        def await_commits() -> None:
            """Every producer commits once more."""
            before = [len(writer.committed) for writer in writers]
            wait_until(
                lambda: all(len(w.committed) > n or w.error for w, n in zip(writers, before, strict=True)),
                "no commit for a minute",
            )

        await_commits()
        for number in range(rounds):
            node_id = number % 3 + 1
            broker.nodes.stop(node_id)
            await_commits()
            broker.nodes.start(node_id)
            broker.nodes.move_coordinator("t0", node_id)
            broker.nodes.move_leader("orders", node_id, node_id)
            await_commits()
            broker.nodes.pause(node_id)
            if rounds == MANY_ROUNDS:
                await_commits()
            broker.nodes.resume(node_id)
            await_commits()
        for writer in writers:
            writer.stop()
        check(broker, writers)
        broker.kill()
        broker.start()
        check(broker, writers)
        assert all(len(writer.committed) > 3 * rounds for writer in writers)


def test_a_consumer_group_goes_on_when_its_coordinator_and_its_leaders_stop() -> None:
    with Broker(brokers=3, topics={"orders": PARTITIONS}, settings=FEW) as broker:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.subscribe(["orders"])
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        read: list[str] = []

        def write_and_read(round_number: int) -> None:
            for index in range(PARTITIONS):
                producer.produce("orders", f"{round_number}-{index}".encode(), partition=index)
            assert producer.flush(60) == 0
            deadline = time.monotonic() + 60
            while len(read) < PARTITIONS * (round_number + 1):
                assert time.monotonic() < deadline, f"only {read}"
                message = consumer.poll(0.1)
                if message is not None and not message.error():
                    read.append((message.value() or b"").decode())
            consumer.commit(asynchronous=False)

        write_and_read(0)
        for round_number, node_id in enumerate((1, 2), 1):
            broker.nodes.stop(node_id)
            write_and_read(round_number)
            broker.nodes.start(node_id)
        assert sorted(read) == sorted(f"{n}-{index}" for n in range(3) for index in range(PARTITIONS))
        committed = consumer.committed([TopicPartition("orders", index) for index in range(PARTITIONS)], 60)
        assert [place.offset for place in committed] == [3] * PARTITIONS
        consumer.close()


def test_orders_that_cannot_be_carried_out_say_why() -> None:
    with Broker(brokers=2, topics={"orders": 1}, settings=FEW) as broker:
        assert [(node.node_id, node.port, node.state) for node in broker.nodes.describe()] == [
            (1, broker.port, "up"),
            (2, broker.port + 1, "up"),
        ]
        broker.nodes.stop(2)
        nodes = broker.nodes
        refused: list[tuple[Callable[[], None], str]] = [
            (lambda: nodes.stop(1), "node 1 is the last one that is up\n\nhint: start or resume another one first"),
            (lambda: nodes.stop(2), "node 2 is stopped, it would have to be up or paused"),
            (lambda: nodes.start(7), "there is no node 7\n\nhint: the nodes are 1, 2"),
            (lambda: nodes.start(1), "node 1 is up, it would have to be stopped"),
            (lambda: nodes.resume(1), "node 1 is up, it would have to be paused"),
            (lambda: nodes.move_leader("orders", 0, 2), "node 2 is stopped"),
            (lambda: nodes.move_leader("orders", 1, 1), "there is no partition orders:1"),
        ]
        for order, said in refused:
            with pytest.raises(OrderRefused, match=said):
                order()
        broker.nodes.start(2)
        assert [node.state for node in broker.nodes.describe()] == ["up", "up"]


def test_a_node_whose_port_was_taken_meanwhile_says_so_and_can_be_started_later() -> None:
    with Broker(brokers=2, settings=FEW) as broker:
        broker.nodes.stop(2)
        with socket.create_server(("127.0.0.1", broker.port + 1)), pytest.raises(OrderRefused, match="already in use"):
            broker.nodes.start(2)
        broker.nodes.start(2)
        assert [node.state for node in broker.nodes.describe()] == ["up", "up"]


def run(capsys: pytest.CaptureFixture[str], broker: Broker, *words: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of `fencepost cluster`."""
    code = main(["cluster", *words, "--bootstrap", broker.bootstrap_servers])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_commands_give_the_same_orders(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(brokers=2, topics={"orders": 2}, settings=FEW) as broker:
        ports = [broker.port, broker.port + 1]
        code, out, _ = run(capsys, broker, "nodes")
        assert code == 0
        assert [line.split()[:3] for line in out.splitlines()[1:]] == [
            [str(n), f"127.0.0.1:{port}", "up"] for n, port in enumerate(ports, 1)
        ]
        for order, states in (
            ("stop-node", ["up", "stopped"]),
            ("start-node", ["up", "up"]),
            ("pause-node", ["up", "paused"]),
            ("resume-node", ["up", "up"]),
        ):
            code, out, _ = run(capsys, broker, order, "2", "--json")
            assert code == 0
            assert [node["state"] for node in json.loads(out)["nodes"]] == states
        for node_id in (2, 1):
            for words in (("move-leader", "orders:0"), ("move-leader", "orders:1"), ("move-coordinator", "t")):
                assert run(capsys, broker, *words, str(node_id))[0] == 0
            assert next(node.leaders for node in broker.nodes.describe() if node.node_id == node_id) == 2
        code, out, err = run(capsys, broker, "move-leader", "orders:7", "1")
        assert (code, out) == (1, "")
        assert err == "error: there is no partition orders:7\n\nhint: the last one is orders:1\n"
        code, _, err = run(capsys, broker, "move-leader", "none:0", "1")
        assert (code, err) == (
            1,
            "error: there is no partition none:0\n\nhint: `fencepost topic list` shows the topics\n",
        )
        code, _, err = run(capsys, broker, "move-coordinator", "", "1")
        assert (code, err.splitlines()[0]) == (2, "error: the transactional id is empty")


def test_a_command_at_a_paused_node_says_that_another_node_takes_orders(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(brokers=2, settings=FEW) as broker:
        first, second = broker.bootstrap_servers.split(",")
        broker.nodes.pause(1)
        assert main(["cluster", "resume-node", "1", "--bootstrap", first]) == 3
        assert "hint: is this node paused or stopped? Name another one" in capsys.readouterr().err
        assert main(["cluster", "resume-node", "1", "--bootstrap", second]) == 0
        assert [node.state for node in broker.nodes.describe()] == ["up", "up"]


@pytest.mark.engines
def test_apache_kafka_takes_no_orders(apache: ApacheKafka, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "nodes", "--bootstrap", apache.bootstrap_servers]) == 1
    assert "the brokers of this cluster take no orders about nodes" in capsys.readouterr().err
