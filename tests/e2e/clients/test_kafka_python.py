"""kafka-python against the broker: pure Python, TV1 with the newer versions of each request.

What all clients do with transactions is in test_transactions.py; here is the rest.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import (
    IsolationLevel,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    OffsetSpec,
    TopicPartition,
)
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import (
    FencedInstanceIdError,
    InvalidPartitionsError,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from fencepost.testing import Broker
from tests.e2e.clients.scenarios import (
    CODECS,
    TEXTS,
    stored_batches,
)
from tests.e2e.conftest import StartBroker

Unique = Callable[[str], str]
TIMEOUT_S = 30.0
CODEC_LIBRARIES = {"snappy": "snappy", "lz4": "lz4", "zstd": "zstandard"}
# A broker that is killed here is back within a second.
RECONNECT = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 50}


@contextmanager
def producer_of(broker: Broker, **config: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **RECONNECT | config)
    try:
        yield producer
    finally:
        producer.close(timeout=5)


@contextmanager
def transactional(broker: Broker, transactional_id: str, **config: Any) -> Iterator[KafkaProducer]:
    with producer_of(broker, transactional_id=transactional_id, **config) as producer:
        producer.init_transactions()
        yield producer


@contextmanager
def consumer_of(broker: Broker, *topics: str, **config: Any) -> Iterator[KafkaConsumer]:
    defaults = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "fetch_max_wait_ms": 20}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, **RECONNECT | defaults | config)
    try:
        # A leader of a group that does not know a topic yet assigns nothing of it, and may not notice until its
        # metadata is five minutes old.
        for topic in topics:
            consumer.partitions_for_topic(topic)
        if topics:
            consumer.subscribe(topics)
        yield consumer
    finally:
        consumer.close()


@contextmanager
def admin_of(broker: Broker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        yield admin
    finally:
        admin.close()


def create(broker: Broker, topic: str, partitions: int = 1, **configs: str) -> str:
    dotted = {name.replace("_", "."): value for name, value in configs.items()}
    with admin_of(broker) as admin:
        admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": dotted}})
    return topic


def send(producer: KafkaProducer, topic: str, values: Sequence[str], **more: Any) -> None:
    """Produce and wait until the broker has taken every record."""
    for sent in [producer.send(topic, value.encode(), **more) for value in values]:
        sent.get(TIMEOUT_S)


def send_plain(broker: Broker, topic: str, values: Sequence[str]) -> None:
    with producer_of(broker) as producer:
        send(producer, topic, values)


def read_records(
    broker: Broker, topic: str, isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
) -> list[Any]:
    """Everything that a reader of this isolation level can see now."""
    with consumer_of(broker, isolation_level=isolation_level) as consumer:
        partitions = [TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        records = []
        while any(consumer.position(where) < end for where, end in ends.items()):
            for got in consumer.poll(timeout_ms=1000).values():
                records += got
        return records


def read(broker: Broker, topic: str, isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> list[str]:
    return [record.value.decode() for record in read_records(broker, topic, isolation_level)]


def next_record(consumer: KafkaConsumer) -> Any:
    got = consumer.poll(timeout_ms=TIMEOUT_S * 1000, max_records=1)
    assert got, "nothing came"
    ((record,),) = got.values()
    return record


class Member(threading.Thread):
    """A consumer that is polled all the time, in a thread of its own.

    A poll that ends in the middle of a rebalance leaves it undone, so two consumers cannot take turns in one thread,
    and a poll is longer after one that was too short for it. kafka-python 3.0 forgets such a rebalance if it began
    because the topic's partitions were unknown before: the consumer keeps its old partitions and sends no heartbeats.
    Therefore the member asks for another one.
    """

    def __init__(self, broker: Broker, *topics: str, **config: Any) -> None:
        super().__init__()
        self.values: list[str] = []
        self.error: BaseException | None = None
        self._opened = consumer_of(broker, *topics, **config)
        self._is_leaving = threading.Event()

    def run(self) -> None:
        try:
            wait_ms = 200
            while not self._is_leaving.is_set():
                for records in self.consumer.poll(timeout_ms=wait_ms).values():
                    self.values.extend(record.value.decode() for record in records)
                coordinator = self.consumer._coordinator
                if coordinator.rejoining:
                    coordinator.request_rejoin()
                wait_ms = min(wait_ms * 2, 5000) if coordinator.need_rejoin() else 200
        except BaseException as error:
            self.error = error

    def assignment(self) -> set[TopicPartition]:
        return set(self.consumer.assignment())

    def is_settled(self) -> bool:
        """Whether the member has joined, and knows no reason to join again."""
        coordinator = self.consumer._coordinator
        return bool(self.consumer.assignment()) and not coordinator.rejoining and not coordinator.need_rejoin()

    def __enter__(self) -> Member:
        self.consumer = self._opened.__enter__()
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._is_leaving.set()
        self.join()
        self._opened.__exit__(*exception)


def until(is_done: Callable[[], bool], what: str, members: Sequence[Member] = ()) -> None:
    """Wait for something that the members do."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        for member in members:
            if member.error is not None:
                raise member.error
        assert time.monotonic() < deadline, f"never so: {what}"
        time.sleep(0.005)


def committed_offset(broker: Broker, group_id: str, topic: str) -> int | None:
    with consumer_of(broker, group_id=group_id) as consumer:
        found: int | None = consumer.committed(TopicPartition(topic, 0))
        return found


# --- records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_records_arrive_as_they_were_sent_in_every_codec(
    broker: Broker, broker_data: Path, unique: Unique, codec: str
) -> None:
    library = CODEC_LIBRARIES.get(codec)
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"kafka-python needs the package {library} for {codec}")
    topic = unique(f"codec-{codec}")
    with producer_of(broker, compression_type=None if codec == "none" else codec, linger_ms=20) as producer:
        send(producer, topic, TEXTS)
    assert read(broker, topic) == TEXTS
    # The broker keeps a batch as it came.
    assert {header.attributes & 7 for header, _ in stored_batches(broker_data, topic)} == {CODECS.index(codec)}


def test_keys_headers_timestamps_and_nulls_survive(broker: Broker, unique: Unique) -> None:
    topic = unique("whole")
    headers = [("trace", b"\x00\xff"), ("trace", b"twice"), ("empty", b"")]
    with producer_of(broker) as producer:
        sent = producer.send(topic, b"value", b"key", headers=headers, timestamp_ms=1_700_000_000_123).get(TIMEOUT_S)
        assert (sent.partition, sent.offset, sent.timestamp) == (0, 0, 1_700_000_000_123)
        producer.send(topic, None, b"tombstone")
        producer.send(topic, b"", b"")
    first, tombstone, empty = read_records(broker, topic)
    assert (first.key, first.value, first.headers) == (b"key", b"value", headers)
    assert (first.timestamp, first.timestamp_type) == (1_700_000_000_123, 0)
    assert (tombstone.key, tombstone.value) == (b"tombstone", None)
    assert (empty.key, empty.value) == (b"", b"")


def test_offsets_are_found_by_time(broker: Broker, unique: Unique) -> None:
    topic = unique("times")
    where = TopicPartition(topic, 0)
    with producer_of(broker) as producer:
        for offset in range(10):
            producer.send(topic, b"x", timestamp_ms=1_700_000_000_000 + offset * 1000).get(TIMEOUT_S)
    with consumer_of(broker) as consumer:
        found = consumer.offsets_for_times({where: 1_700_000_004_001})[where]
        assert (found.offset, found.timestamp) == (5, 1_700_000_005_000)
        assert consumer.offsets_for_times({where: 1_700_000_010_000}) == {where: None}
        assert consumer.beginning_offsets([where]) == {where: 0}
        assert consumer.end_offsets([where]) == {where: 10}


def test_large_records_go_through_where_their_topic_allows_them(broker: Broker, unique: Unique) -> None:
    wide = create(broker, unique("wide"), max_message_bytes="9000000")
    narrow = create(broker, unique("narrow"), max_message_bytes="1000")
    value = "x" * 8_000_000
    with producer_of(broker, max_request_size=9_000_000) as producer:
        send(producer, wide, [value])
        with pytest.raises(MessageSizeTooLargeError):
            send(producer, narrow, ["x" * 2000])
    assert read(broker, wide) == [value]
    assert read(broker, narrow) == []


def test_twenty_topics_are_read_by_one_pattern(broker: Broker, unique: Unique) -> None:
    prefix = unique("many")
    topics = [f"{prefix}.{number}" for number in range(20)]
    with admin_of(broker) as admin:
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1} for topic in topics})
    with producer_of(broker) as producer:
        for topic in topics:
            producer.send(topic, topic.encode())
    with consumer_of(broker, group_id=unique("group")) as consumer:
        consumer.subscribe(pattern=f"^{prefix}[.].*")
        assert {next_record(consumer).value.decode() for _ in topics} == set(topics)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acks_is_served(broker: Broker, unique: Unique, acks: int | str) -> None:
    topic = create(broker, unique("acks"))
    with producer_of(broker, acks=acks, enable_idempotence=acks == "all") as producer:
        for text in TEXTS:
            producer.send(topic, text.encode())
    with consumer_of(broker, topic) as consumer:
        assert [next_record(consumer).value.decode() for _ in TEXTS] == TEXTS


# --- groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "assignor",
    [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor],
)
def test_partitions_move_as_consumers_come_and_go_and_each_record_is_read_once(
    broker: Broker, unique: Unique, assignor: type
) -> None:
    topic, group_id = create(broker, unique("moving"), partitions=6), unique("group")
    everything = {TopicPartition(topic, index) for index in range(6)}
    sent: list[str] = []

    def member() -> Member:
        return Member(broker, topic, group_id=group_id, partition_assignment_strategy=[assignor])

    def share(*members: Member) -> None:
        """Wait until they have all partitions between them, in equal parts."""

        def is_fair() -> bool:
            parts = [member.assignment() for member in members]
            size = len(everything) // len(members)
            return all(len(part) == size for part in parts) and set().union(*parts) == everything

        values = [str(len(sent) + number) for number in range(30)]
        sent.extend(values)
        send_plain(broker, topic, values)
        until(is_fair, f"{len(members)} consumers share {len(everything)} partitions", members)

    with member() as first:
        share(first)
        with member() as second:
            share(first, second)
        share(first)
        with member() as third:
            share(first, third)
            members = (first, second, third)
            until(lambda: sum(len(member.values) for member in members) >= len(sent), "all records came", members)
    assert sorted(first.values + second.values + third.values, key=int) == sent


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("static"), partitions=4), unique("group")

    def member(name: str) -> Member:
        return Member(broker, topic, group_id=group_id, group_instance_id=name)

    with member("stays") as stays:
        with member("returns") as returns:
            until(lambda: len(stays.assignment()) == len(returns.assignment()) == 2, "two each", [stays, returns])
            until(lambda: stays.is_settled() and returns.is_settled(), "the group is stable", [stays, returns])
            had = returns.assignment()
            generation = stays.consumer.group_metadata().generation_id
        with member("returns") as returns:
            until(lambda: bool(returns.assignment()), "the member is back", [stays, returns])
            assert returns.assignment() == had
            assert stays.consumer.group_metadata().generation_id == generation


def test_of_two_consumers_with_one_instance_id_the_older_is_fenced(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("static")), unique("group")
    config = {"group_id": group_id, "group_instance_id": "same", "auto_commit_interval_ms": 100}
    with Member(broker, topic, **config) as older:
        until(lambda: bool(older.assignment()), "the older one has the partition", [older])
        with Member(broker, topic, **config) as newer:
            until(lambda: bool(newer.assignment()), "the newer one has the partition", [newer])
            with pytest.raises(FencedInstanceIdError):
                until(lambda: False, "the older one is told", [older])


def test_a_group_goes_on_where_it_stopped_and_its_lag_is_known(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("lag")), unique("group")
    where = TopicPartition(topic, 0)
    send_plain(broker, topic, TEXTS)
    with consumer_of(broker, topic, group_id=group_id, enable_auto_commit=False) as consumer:
        assert [next_record(consumer).value.decode() for _ in range(20)] == TEXTS[:20]
        consumer.commit()
        assert consumer.end_offsets([where])[where] - consumer.committed(where) == 30
    with consumer_of(broker, topic, group_id=group_id, enable_auto_commit=False) as consumer:
        assert [next_record(consumer).value.decode() for _ in range(30)] == TEXTS[20:]


# --- transactions -----------------------------------------------------------------------------------------


def test_offsets_of_a_member_that_has_been_replaced_are_refused(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("source"), partitions=2), unique("group")
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)}
    with (
        transactional(broker, unique("txn")) as producer,
        Member(broker, topic, group_id=group_id) as early,
    ):
        until(lambda: len(early.assignment()) == 2, "it is alone", [early])
        outdated = early.consumer.group_metadata()
        with Member(broker, topic, group_id=group_id) as late:
            until(lambda: len(early.assignment()) == len(late.assignment()) == 1, "one each", [early, late])
            producer.begin_transaction()
            with pytest.raises(KafkaError, match="IllegalGeneration"):
                producer.send_offsets_to_transaction(offsets, outdated)
        producer.abort_transaction()


# --- administration ---------------------------------------------------------------------------------------


def test_topics_are_created_grown_described_and_deleted(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("admin"), partitions=2, retention_ms="123456")
    with admin_of(broker) as admin:
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
        admin.create_partitions({topic: 5})
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 5
        with pytest.raises(InvalidPartitionsError):
            admin.create_partitions({topic: 3})
        configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        assert {name: config["value"] for name, config in configs["topic"][topic].items()} == {"retention.ms": "123456"}
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics([topic])


def test_the_cluster_describes_itself(broker: Broker) -> None:
    with admin_of(broker) as admin:
        cluster = admin.describe_cluster()
    (node,) = cluster["brokers"]
    assert (node["host"], node["port"]) == (broker.host, broker.port)
    assert cluster["controller_id"] == node["broker_id"]
    assert len(cluster["cluster_id"]) == 22


def test_groups_are_listed_described_and_their_offsets_shown(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("described")), unique("group")
    send_plain(broker, topic, TEXTS)
    where = TopicPartition(topic, 0)
    with admin_of(broker) as admin, consumer_of(broker, topic, group_id=group_id) as consumer:
        next_record(consumer)
        consumer.commit()
        assert group_id in {group["group_id"] for group in admin.list_groups()}
        group = admin.describe_groups([group_id])[group_id]
        assert (group["group_state"], group["protocol_type"], group["protocol_data"]) == ("Stable", "consumer", "range")
        assert len(group["members"]) == 1
        assert admin.list_group_offsets({group_id: None})[group_id][where].offset == 1


def test_offsets_are_listed_by_isolation_level_and_time(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("listed"))
    where = TopicPartition(topic, 0)
    with admin_of(broker) as admin, producer_of(broker) as plain, transactional(broker, unique("txn")) as producer:

        def offset(spec: OffsetSpec | int, isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
            return int(admin.list_partition_offsets({where: spec}, isolation_level)[where].offset)

        send(plain, topic, ["plain"], timestamp_ms=1000)
        producer.begin_transaction()
        send(producer, topic, ["open"], timestamp_ms=2000)
        assert offset(OffsetSpec.EARLIEST) == 0
        assert offset(OffsetSpec.LATEST) == 2
        assert offset(OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED) == 1
        assert offset(OffsetSpec.MAX_TIMESTAMP) == 1
        assert offset(1500) == 1
        producer.commit_transaction()
        assert offset(OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED) == 3


def test_transactions_and_producers_are_listed_and_described(broker: Broker, unique: Unique) -> None:
    topic, transactional_id = create(broker, unique("listed")), unique("txn")
    where = TopicPartition(topic, 0)
    with admin_of(broker) as admin, transactional(broker, transactional_id, transaction_timeout_ms=54_321) as producer:

        def state() -> str:
            return str(admin.describe_transactions([transactional_id])[transactional_id].state.value)

        assert state() == "Empty"
        producer.begin_transaction()
        send(producer, topic, ["open"])
        assert state() == "Ongoing"
        described = admin.describe_transactions([transactional_id])[transactional_id]
        assert (described.transaction_timeout_ms, described.topic_partitions) == (54_321, {where})
        (listed,) = [
            transaction
            for listing in admin.list_transactions(transactional_id_pattern=transactional_id).values()
            for transaction in listing
        ]
        assert listed == (transactional_id, described.producer_id, "Ongoing")
        (known,) = admin.describe_producers([where])[where].active_producers
        assert (known.producer_id, known.current_transaction_start_offset) == (described.producer_id, 0)
        producer.commit_transaction()
        assert state() == "CompleteCommit"
        (known,) = admin.describe_producers([where])[where].active_producers
        assert known.current_transaction_start_offset == -1


# --- crashes ----------------------------------------------------------------------------------------------


def test_records_sent_while_the_broker_restarts_are_neither_lost_nor_doubled(start_broker: StartBroker) -> None:
    broker = start_broker()
    topic, count = create(broker, "steady"), 1500
    progress = threading.Condition()
    acknowledged = 0
    failed: list[BaseException] = []

    def produce() -> None:
        nonlocal acknowledged
        try:
            with producer_of(broker) as producer:
                for number in range(count):
                    sent = producer.send(topic, str(number).encode())
                    if number % 10 == 0:
                        sent.get(TIMEOUT_S)
                    with progress:
                        acknowledged = number
                        progress.notify()
                producer.flush(TIMEOUT_S)
        except BaseException as error:
            failed.append(error)

    def wait_for(number: int) -> None:
        with progress:
            assert progress.wait_for(lambda: acknowledged >= number, TIMEOUT_S), failed

    thread = threading.Thread(target=produce)
    thread.start()
    wait_for(200)
    broker.restart()
    wait_for(700)
    broker.kill()
    broker.restart()
    thread.join()
    assert failed == []
    assert read(broker, topic) == [str(number) for number in range(count)]


def test_a_transaction_goes_on_after_kill_9_with_its_records_and_offsets(start_broker: StartBroker) -> None:
    broker = start_broker()
    source, target = create(broker, "source"), create(broker, "target")
    where = TopicPartition(source, 0)
    send_plain(broker, source, TEXTS)
    with (
        transactional(broker, "txn") as producer,
        consumer_of(broker, source, group_id="group", enable_auto_commit=False) as consumer,
    ):

        def move(count: int) -> None:
            send(producer, target, [next_record(consumer).value.decode() for _ in range(count)])
            position = OffsetAndMetadata(consumer.position(where), "", -1)
            producer.send_offsets_to_transaction({where: position}, consumer.group_metadata())

        producer.begin_transaction()
        move(30)
        broker.kill()
        broker.restart()
        assert read(broker, target) == []
        move(20)
        producer.commit_transaction()
    assert committed_offset(broker, "group", source) == 50
    assert read(broker, target) == TEXTS


# --- the client's own example -----------------------------------------------------------------------------


def test_the_clients_transactional_example_runs(broker: Broker, unique: Unique) -> None:
    """As the README of kafka-python shows it: one transaction committed, the next aborted."""
    topic = unique("txn_topic")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=unique("fizzbuzz"))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, value=b"yes").get()
    producer.commit_transaction()

    producer.begin_transaction()
    producer.send(topic, value=b"no").get()
    producer.abort_transaction()
    producer.close()

    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level=IsolationLevel.READ_COMMITTED,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([topic])
    assert next(consumer).value == b"yes"
    consumer.close()
    assert read(broker, topic) == ["yes"]
