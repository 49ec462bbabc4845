"""Real clients through a tap: they do the same as without it, and the tap shows their transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.client.admin.offsets import committed_offsets
from fencepost.client.client import KafkaClient
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    DescribeClusterRequest,
    FetchRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    ProduceRequest,
)
from fencepost.tap.decoding import WireEvent
from fencepost.testing import Broker, Tap
from tests.e2e.clients.players import COMMANDS, Player, start_player
from tests.e2e.conftest import Target
from tests.readers.reading import IMPATIENT, TIMEOUT_S, connect

pytestmark = pytest.mark.timeout(360)
CLIENTS = [pytest.param(name, marks=[pytest.mark.java] if name == "java" else []) for name in COMMANDS]
OFTEN = ["confluent-kafka", "aiokafka", "kafka-python", pytest.param("java", marks=pytest.mark.java)]
TEXTS = [f"order {number}" for number in range(30)]
END = "the end"
Unique = Callable[[str], str]


@contextmanager
def behind_a_tap(servers: str, client: str) -> Iterator[tuple[Tap, Player]]:
    with Tap(servers) as tap, start_player(client, tap.bootstrap_servers) as player:
        yield tap, player


def create(servers: str, *topics: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, partitions) for topic in topics]).values():
        made.result(TIMEOUT_S)


def run_transactions(servers: str, client: str, unique: Unique, partitions: int = 1) -> list[WireEvent]:
    """A commit, an abort, and records that move from topic to topic with the offsets of a group."""
    source, target, group, txn = (unique(f"{client}-{word}") for word in ("source", "target", "group", "txn"))
    with behind_a_tap(servers, client) as (tap, player):
        create(tap.bootstrap_servers, source, target, partitions=partitions)
        player.open(name="p", transactional_id=txn)
        for outcome in ("commit", "abort"):
            player.begin(name="p")
            player.send(name="p", topic=target, partition=partitions - 1, values=[f"{outcome}-1", f"{outcome}-2"])
            (player.commit if outcome == "commit" else player.abort)(name="p")
        player.open(name="plain")
        player.send(name="plain", topic=source, partition=0, values=TEXTS)
        player.mover(name="m", group=group, transactional_id=f"{txn}-m", source=source, target=target, session_ms=6000)
        assert player.move(name="m", count=10, end="commit") == TEXTS[:10]
        assert player.move(name="m", count=20, end="commit") == TEXTS[10:]
        for partition in range(partitions):
            player.send(name="plain", topic=target, partition=partition, values=[END])
        read = player.read(topic=target, partitions=partitions, isolation="read_committed", until=END)
        assert sorted(value for values in read for value in values) == sorted([*TEXTS, "commit-1", "commit-2"])
        with KafkaClient({"bootstrap.servers": tap.bootstrap_servers}) as own_client:
            where = (source, 0)
            assert committed_offsets(own_client, group, [where])[where][0] == len(TEXTS)
        assert tap.remarks == []
        return [event for event in tap.events if event.transactional_id in (txn, f"{txn}-m")]


def check_events(events: list[WireEvent], client: str) -> None:
    """Each request has its reply, and each transaction its steps in order."""
    asked = {(e.connection, e.correlation_id, e.api) for e in events if e.kind == "request"}
    answered = {(e.connection, e.correlation_id, e.api) for e in events if e.kind == "reply"}
    # A client may close the connection to a bootstrap server before the answer, if it has found another way.
    assert answered <= asked
    assert {api for _, _, api in asked - answered} <= {"FindCoordinator"}
    assert all(e.duration_us is not None and e.error is not None for e in events if e.kind == "reply")
    ended = [e.about["committed"] for e in events if e.kind == "request" and e.api == "EndTxn"]
    assert ended.count(True) >= 3
    assert ended.count(False) >= 1
    apis = {e.api for e in events}
    assert {"FindCoordinator", "InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"} <= apis
    produced = [e for e in events if e.api == "Produce" and e.kind == "request"]
    assert all(e.producer_id is not None and e.about["partitions"] for e in produced)
    # Versions from 12 on have the partitions added by Produce itself.
    assert ("AddPartitionsToTxn" in apis) is (min(e.version for e in produced) < 12)


@pytest.mark.parametrize("client", OFTEN)
def test_a_client_works_through_the_tap_and_the_tap_shows_its_transactions(
    client: str, broker: Broker, unique: Unique
) -> None:
    check_events(run_transactions(broker.bootstrap_servers, client, unique), client)


@pytest.mark.engines
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_works_through_the_tap_on_any_kafka(client: str, target: Target, unique: Unique) -> None:
    check_events(run_transactions(target.servers, client, unique), client)


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Broker]:
    with Broker(brokers=3) as broker:
        yield broker


@pytest.mark.parametrize("client", ["confluent-kafka", pytest.param("java", marks=pytest.mark.java)])
def test_clients_of_several_nodes_never_leave_the_tap(client: str, three_nodes: Broker, unique: Unique) -> None:
    events = run_transactions(three_nodes.bootstrap_servers, client, unique, partitions=6)
    check_events(events, client)
    assert {e.broker for e in events} <= set(three_nodes.bootstrap_servers.split(","))


def test_every_address_is_one_of_the_tap_and_stays_the_same(three_nodes: Broker) -> None:
    with Tap(three_nodes.bootstrap_servers) as tap, connect(tap.bootstrap_servers) as client:
        found = []
        for version in (0, 1, 5, 8, 9, 12, 13):
            brokers = client.call(MetadataRequest([]), version=version).brokers
            found.append({(b.node_id, b.host, b.port) for b in brokers})
        for version in (0, 1, 2):
            brokers = client.call(DescribeClusterRequest(), version=version).brokers
            found.append({(b.broker_id, b.host, b.port) for b in brokers})
        assert len(found[0]) == 3
        assert all(each == found[0] for each in found)
        assert {f"{host}:{port}" for _, host, port in found[0]}.isdisjoint(three_nodes.bootstrap_servers.split(","))
        for version in (0, 2, 3, 4, 6):
            request = FindCoordinatorRequest("t", 1 if version else 0, ["t"])
            reply = client.call(request, version=version)
            place = reply.coordinators[0] if version >= 4 else reply
            assert (place.node_id, place.host, place.port) in found[0]
        # Each of them leads to its own broker, which gives the same addresses.
        for _, host, port in found[0]:
            with connect(f"{host}:{port}") as other:
                brokers = other.call(MetadataRequest([]), version=12).brokers
                assert {(b.node_id, b.host, b.port) for b in brokers} == found[0]


def test_a_new_leader_that_a_reply_names_has_an_address_of_the_tap(three_nodes: Broker, unique: Unique) -> None:
    topic = unique("topic")
    three_nodes.create_topic(topic)
    data = [ProduceRequest.PartitionProduceData(0, encode_batch([(b"k", b"v")], 1))]
    with Tap(three_nodes.bootstrap_servers) as tap:
        with connect(tap.bootstrap_servers) as client:
            found = client.call(MetadataRequest([MetadataRequest.MetadataRequestTopic(name=topic)]), version=12)
        addresses = {b.node_id: (b.host, b.port) for b in found.brokers}
        topic_id, leader = found.topics[0].topic_id, found.topics[0].partitions[0].leader_id
        other = next(node_id for node_id in addresses if node_id != leader)
        produce = ProduceRequest(None, -1, 30_000, [ProduceRequest.TopicProduceData("", topic_id, data)])
        fetch = FetchRequest(topics=[FetchRequest.FetchTopic("", topic_id, [FetchRequest.FetchPartition(0, -1, 0)])])
        with connect("{}:{}".format(*addresses[other])) as client:
            for request, version in ((produce, 13), (fetch, 17)):
                [place] = client.call(request, version=version).node_endpoints
                assert (place.node_id, (place.host, place.port)) == (leader, addresses[leader])


def test_transactions_go_on_while_leaders_move_and_a_node_stops(three_nodes: Broker, unique: Unique) -> None:
    topic, txn = unique("topic"), unique("txn")
    three_nodes.create_topic(topic)
    with Tap(three_nodes.bootstrap_servers) as tap:
        settings = {"bootstrap.servers": tap.bootstrap_servers, "transactional.id": txn}
        producer = Producer(IMPATIENT | settings)
        producer.init_transactions(TIMEOUT_S)
        for number in range(9):
            if number % 3 == 0:
                three_nodes.nodes.move_leader(topic, 0, 1 + number // 3)
            elif number == 4:
                three_nodes.nodes.move_coordinator(txn, 3)
            elif number == 7:
                three_nodes.nodes.stop(3)
            producer.begin_transaction()
            producer.produce(topic, str(number))
            producer.commit_transaction(TIMEOUT_S)
        three_nodes.nodes.start(3)
    assert [record.value for record in three_nodes.read_committed(topic)] == [b"%d" % number for number in range(9)]
