"""What transactions promise, with every client: the same scenarios, played by each of them in its own language.

librdkafka (confluent-kafka), aiokafka, kafka-python and kafkajs speak TV1, Java and franz-go TV2. The scenarios run
on Apache Kafka as well (`make test-engines`), so what is claimed here is Kafka's behaviour and not ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.protocol.messages import DescribeRpcsRequest, FetchRequest
from fencepost.protocol.records import iter_batches
from fencepost.testing import Broker
from tests.e2e.clients.players import COMMANDS, Player, Refused, start_player
from tests.e2e.clients.scenarios import INTERLEAVED, READ_COMMITTED, READ_UNCOMMITTED, TEXTS
from tests.e2e.conftest import StartBroker
from tests.readers.reading import IMPATIENT, TIMEOUT_S, committed_offsets, connect, end_offsets

# The first test of a client may have to build it.
pytestmark = pytest.mark.timeout(360)

CLIENTS = [pytest.param(name, marks=[pytest.mark.java] if name == "java" else []) for name in COMMANDS]
END = "the end"
# Every client has words of its own for it.
FENCED = {
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "_FENCED",
    "ProducerFenced",
    "ProducerFencedError",
    "ProducerFencedException",
    "InvalidProducerEpochError",
    "InvalidProducerEpochException",
}
SPEAKS_TV2 = {"java", "franz-go"}


class Kafka(NamedTuple):
    name: str
    servers: str
    session_ms: int  # The shortest that its groups allow.


@pytest.fixture(
    scope="module", params=["fencepost", pytest.param("apache", marks=[pytest.mark.engines, pytest.mark.java])]
)
def kafka(request: pytest.FixtureRequest) -> Kafka:
    if request.param == "fencepost":
        return Kafka("fencepost", request.getfixturevalue("broker").bootstrap_servers, 1000)
    return Kafka("apache", request.getfixturevalue("apache").bootstrap_servers, 6000)


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def shared_player(kafka: Kafka, client: str) -> Iterator[Player]:
    with start_player(client, kafka.servers) as player:
        yield player


@pytest.fixture
def player(shared_player: Player, record_property: Callable[[str, object], None]) -> Player:
    record_property("version", shared_player.hello()["version"])
    return shared_player


class Names(NamedTuple):
    """What a test calls its things, so that no other test has them too."""

    txn: str
    source: str
    target: str
    group: str


class Scene:
    """Topics of a scenario, and what is in them."""

    def __init__(self, kafka: Kafka, client: str, unique: Callable[[str], str]) -> None:
        self.kafka = kafka
        self._unique: Callable[[str], str] = lambda word: unique(f"{client}-{word}")
        self.names = Names(*(self._unique(word) for word in Names._fields))
        self._partitions: dict[str, int] = {}
        self._producer = Producer(IMPATIENT | {"bootstrap.servers": kafka.servers})

    def topic(self, name: str = "", partitions: int = 1) -> str:
        name = name or self._unique("topic")
        admin = AdminClient({"bootstrap.servers": self.kafka.servers})
        admin.create_topics([NewTopic(name, num_partitions=partitions)])[name].result(TIMEOUT_S)
        self._partitions[name] = partitions
        return name

    def fill(self, topic: str, values: list[str]) -> None:
        """In turn to every partition."""
        for number, value in enumerate(values):
            self._producer.produce(topic, value, partition=number % self._partitions[topic])
        assert self._producer.flush(TIMEOUT_S) == 0

    def end(self, topic: str) -> None:
        """A last record for every partition, by which a reader knows that there is no more."""
        self.fill(topic, [END] * self._partitions[topic])

    def what_to_read(self, topic: str, isolation: str = "read_committed") -> dict[str, object]:
        return {"topic": topic, "partitions": self._partitions[topic], "isolation": isolation, "until": END}

    def check(self, player: Player, topic: str, committed: list[str], uncommitted: list[str] | None = None) -> None:
        """What readers of both isolation levels find in a topic of one partition."""
        self.end(topic)
        assert player.read(**self.what_to_read(topic)) == [committed]
        if uncommitted is not None:
            assert player.read(**self.what_to_read(topic, "read_uncommitted")) == [uncommitted]

    def offset(self) -> int:
        """How far the group is in the source."""
        return committed_offsets(self.kafka.servers, self.names.group, self.names.source).get(0, 0)

    def mover(self, name: str, transactional_id: str = "") -> dict[str, object]:
        names = {"source": self.names.source, "target": self.names.target, "group": self.names.group}
        who = {"name": name, "transactional_id": transactional_id or self.names.txn}
        return names | who | {"session_ms": self.kafka.session_ms}

    def epochs(self, topic: str) -> list[int]:
        """The producer epochs of the batches in a topic, markers left out."""
        partition = FetchRequest.FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
        topics = [FetchRequest.FetchTopic(topic, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)
        with connect(self.kafka.servers) as connection:
            found = connection.call(request, 11).responses[0].partitions[0]
        return [header.producer_epoch for header, _ in iter_batches(found.records) if not header.is_control]

    def request_versions(self) -> dict[str, set[int]]:
        """The last requests of the transactional id, and in which versions they came."""
        with connect(self.kafka.servers) as connection:
            (found,) = connection.call(DescribeRpcsRequest([self.names.txn]), 0).transactions
        versions: dict[str, set[int]] = {}
        for rpc in found.rpcs:
            versions.setdefault(rpc.name, set()).add(rpc.version)
        return versions


@pytest.fixture
def scene(kafka: Kafka, client: str, unique: Callable[[str], str]) -> Scene:
    return Scene(kafka, client, unique)


def refusals(*steps: Callable[[], object]) -> list[str]:
    """The names of the errors that the steps meet."""
    found = []
    for step in steps:
        try:
            step()
        except Refused as refused:
            found.append(refused.name)
    return found


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, f"never so: {what}"
        time.sleep(0.02)


# --- atomic, and isolated ---------------------------------------------------------------------------------


def test_readers_of_committed_data_skip_aborted_records_between_others(player: Player, scene: Scene) -> None:
    topic = scene.topic()
    for name in ("a", "b"):
        player.open(name=name, transactional_id=f"{scene.names.txn}-{name}")
    player.open(name="plain")
    is_open: set[str] = set()
    for name, action, value in INTERLEAVED:
        if action == "send":
            if name != "plain" and name not in is_open:
                player.begin(name=name)
                is_open.add(name)
            player.send(name=name, topic=topic, partition=0, values=[value])
        else:
            (player.commit if action == "commit" else player.abort)(name=name)
            is_open.discard(name)
    for name in ("a", "b", "plain"):
        player.close(name=name)
    scene.check(player, topic, READ_COMMITTED, READ_UNCOMMITTED)


def test_each_transaction_has_the_epoch_that_its_version_gives_it(player: Player, scene: Scene, client: str) -> None:
    topic = scene.topic()
    player.open(name="p", transactional_id=scene.names.txn)
    for _ in range(3):
        player.begin(name="p")
        player.send(name="p", topic=topic, partition=0, values=["x"])
        player.commit(name="p")
    speaks_tv2 = client in SPEAKS_TV2
    assert scene.epochs(topic) == ([0, 1, 2] if speaks_tv2 else [0, 0, 0])
    if scene.kafka.name == "fencepost":
        # Only ours remembers them. A TV2 client leaves out what Produce does by itself.
        versions = scene.request_versions()
        assert ("AddPartitionsToTxn" in versions) is not speaks_tv2
        assert (min(versions["Produce"]) >= 12) is (max(versions["Produce"]) >= 12) is speaks_tv2
        assert (min(versions["EndTxn"]) >= 5) is (max(versions["EndTxn"]) >= 5) is speaks_tv2
    player.close(name="p")


# --- fencing, and time ------------------------------------------------------------------------------------


def test_a_second_producer_with_the_same_id_fences_the_first(player: Player, scene: Scene) -> None:
    topic = scene.topic()
    player.open(name="first", transactional_id=scene.names.txn)
    player.begin(name="first")
    player.send(name="first", topic=topic, partition=0, values=["zombie"])
    player.open(name="second", transactional_id=scene.names.txn)
    (refused,) = refusals(lambda: player.commit(name="first"))
    assert refused in FENCED
    player.begin(name="second")
    player.send(name="second", topic=topic, partition=0, values=["heir"])
    player.commit(name="second")
    scene.check(player, topic, ["heir"], ["zombie", "heir"])


# --- offsets, and groups ----------------------------------------------------------------------------------


def test_offsets_sent_to_a_transaction_count_when_it_commits_and_vanish_when_it_aborts(
    player: Player, scene: Scene
) -> None:
    source, target = scene.topic(scene.names.source), scene.topic(scene.names.target)
    scene.fill(source, TEXTS)
    player.mover(**scene.mover("m"))
    assert player.move(name="m", count=10, end="commit") == TEXTS[:10]
    assert scene.offset() == 10
    assert player.move(name="m", count=5, end="abort") == TEXTS[10:15]
    assert scene.offset() == 10
    assert player.move(name="m", count=40, end="commit") == TEXTS[10:]
    assert scene.offset() == 50
    scene.check(player, target, TEXTS)


# --- crashes ----------------------------------------------------------------------------------------------


def test_a_program_that_is_killed_and_started_again_finds_nothing_of_what_was_open(
    player: Player, scene: Scene, client: str
) -> None:
    source, target = scene.topic(scene.names.source), scene.topic(scene.names.target)
    scene.fill(source, TEXTS)
    with start_player(client, scene.kafka.servers) as killed:
        killed.mover(**scene.mover("m"))
        assert killed.move(name="m", count=10, end="commit") == TEXTS[:10]
        assert killed.move(name="m", count=10, end="none") == TEXTS[10:20]
        killed.kill()
    with connect(scene.kafka.servers) as connection:
        assert end_offsets(connection, [target], 1)[target, 0] < end_offsets(connection, [target], 0)[target, 0]
        # The same id aborts it at once, long before its timeout.
        player.mover(**scene.mover("m"))
        wait_until(
            lambda: end_offsets(connection, [target], 1) == end_offsets(connection, [target], 0), "nothing is open"
        )
    # The group gives the partition to the new member when it has not heard of the old one for a while.
    assert player.move(name="m", count=40, end="commit") == TEXTS[10:]
    assert scene.offset() == 50
    scene.check(player, target, TEXTS)


@pytest.fixture
def mortal(kafka: Kafka, start_broker: StartBroker) -> Broker:
    if kafka.name != "fencepost":
        pytest.skip("the Apache Kafka that all tests share is not killed")
    return start_broker()


def test_a_transaction_goes_on_after_kill_9_of_the_broker(
    mortal: Broker, client: str, unique: Callable[[str], str]
) -> None:
    scene = Scene(Kafka("fencepost", mortal.bootstrap_servers, 1000), client, unique)
    topic = scene.topic()
    with ExitStack() as players:
        player = players.enter_context(start_player(client, mortal.bootstrap_servers))
        player.open(name="p", transactional_id="txn")
        player.begin(name="p")
        player.send(name="p", topic=topic, partition=0, values=TEXTS[:30])
        mortal.kill()
        mortal.restart()
        player.send(name="p", topic=topic, partition=0, values=TEXTS[30:])
        player.commit(name="p")
        scene.check(player, topic, TEXTS)
