"""confluent-kafka (librdkafka) against the broker: the client that most Python services use. It speaks TV1.

What all clients do with transactions is in test_transactions.py; here is the rest.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from fencepost.testing import Broker
from tests.e2e.clients.confluent import (
    TIMEOUT_S,
    admin_of,
    committed_offset,
    consumer_of,
    create,
    next_text,
    numbers,
    poll_until,
    producer_of,
    read,
    read_messages,
    send,
    transactional,
)
from tests.e2e.clients.scenarios import (
    CODECS,
    TEXTS,
    stored_batches,
)
from tests.e2e.conftest import StartBroker
from tests.readers.reading import connect, end_offsets

Unique = Callable[[str], str]


# --- records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_records_arrive_as_they_were_sent_in_every_codec(
    broker: Broker, broker_data: Path, unique: Unique, codec: str
) -> None:
    topic = unique(f"codec-{codec}")
    # librdkafka leaves a batch that compression makes no smaller as it is, and a record may be alone in its batch.
    texts = [f"{text}, " * 100 for text in TEXTS]
    send(producer_of(broker, compression_type=codec), topic, texts)
    assert read(broker, topic) == texts
    # The broker keeps a batch as it came.
    assert {header.attributes & 7 for header, _ in stored_batches(broker_data, topic)} == {CODECS.index(codec)}


def test_keys_headers_timestamps_and_nulls_survive(broker: Broker, unique: Unique) -> None:
    topic = unique("whole")
    producer = producer_of(broker)
    headers: list[tuple[str, str | bytes | None]] = [
        ("trace", b"\x00\xff"),
        ("trace", b"twice"),
        ("empty", b""),
        ("null", None),
    ]
    producer.produce(topic, b"value", b"key", headers=headers, timestamp=1_700_000_000_123)
    producer.produce(topic, None, b"tombstone")
    producer.produce(topic, b"", b"")
    producer.produce(topic, None, None)
    assert producer.flush(TIMEOUT_S) == 0
    first, tombstone, empty, nothing = read_messages(broker, topic)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert first.timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_123)
    assert (tombstone.key(), tombstone.value(), tombstone.headers()) == (b"tombstone", None, None)
    assert (empty.key(), empty.value()) == (b"", b"")
    assert (nothing.key(), nothing.value()) == (None, None)


def test_a_topic_may_stamp_records_itself(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("stamped"), message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    send(producer_of(broker), topic, ["x"], timestamp=1)
    kind, timestamp_ms = read_messages(broker, topic)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= timestamp_ms <= int(time.time() * 1000)


def test_offsets_are_found_by_time(broker: Broker, unique: Unique) -> None:
    topic = unique("times")
    producer = producer_of(broker)
    for offset in range(10):
        send(producer, topic, [str(offset)], timestamp=1_700_000_000_000 + offset * 1000)
    with consumer_of(broker, unique("group")) as consumer:

        def offset_at(timestamp_ms: int) -> int:
            found = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], TIMEOUT_S)
            return int(found[0].offset)

        assert offset_at(1_700_000_000_000) == 0
        assert offset_at(1_700_000_004_000) == 4
        assert offset_at(1_700_000_004_001) == 5
        assert offset_at(1_700_000_010_000) == OFFSET_END


def test_a_large_record_goes_through_where_its_topic_allows_it(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("large"), max_message_bytes="9000000")
    value = "x" * 8_000_000
    send(producer_of(broker, message_max_bytes=9_000_000), topic, [value, "small"])
    assert read(broker, topic) == [value, "small"]


def test_a_record_larger_than_its_topic_allows_is_refused_and_the_next_is_not(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("narrow"), max_message_bytes="1000")
    producer = producer_of(broker)
    refused: list[KafkaError | None] = []
    producer.produce(topic, b"x" * 2000, on_delivery=lambda error, _: refused.append(error))
    producer.flush(TIMEOUT_S)
    assert refused[0] is not None
    assert refused[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    send(producer, topic, ["small"])
    assert read(broker, topic) == ["small"]


def test_a_compacted_topic_refuses_records_without_a_key(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("compacted"), cleanup_policy="compact")
    producer = producer_of(broker)
    refused: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: refused.append(error))
    producer.flush(TIMEOUT_S)
    assert refused[0] is not None
    assert refused[0].code() == KafkaError.INVALID_RECORD
    # In one batch the records without a key are named. (librdkafka makes no difference if it is only one.)
    answers: dict[bytes | None, int | None] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        answers[message.value()] = None if error is None else error.code()

    batching = producer_of(broker, linger_ms=1000)
    # Records for a topic that is not known yet are queued one by one when it is, and `flush` sends the first at once.
    batching.list_topics(topic, TIMEOUT_S)
    for value, key in ((b"0", b"key"), (b"1", None), (b"2", b"key"), (b"3", None)):
        batching.produce(topic, value, key, on_delivery=note)
    batching.flush(TIMEOUT_S)
    named, others = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert answers == {b"0": others, b"1": named, b"2": others, b"3": named}
    send(producer, topic, ["kept"], key=b"key")
    assert read(broker, topic) == ["kept"]


def test_two_hundred_topics_are_read_by_one_pattern(broker: Broker, unique: Unique) -> None:
    prefix = unique("many")
    topics = [f"{prefix}.{number}" for number in range(200)]
    admin = admin_of(broker)
    created = admin.create_topics([NewTopic(topic, 1) for topic in topics])
    for future in created.values():
        future.result(TIMEOUT_S)
    producer = producer_of(broker)
    for topic in topics:
        producer.produce(topic, topic.encode())
    assert producer.flush(TIMEOUT_S) == 0
    with consumer_of(broker, unique("group")) as consumer:
        consumer.subscribe([f"^{prefix}[.].*"])
        assert {next_text(consumer) for _ in topics} == set(topics)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acks_is_served(broker: Broker, unique: Unique, acks: str) -> None:
    topic = create(broker, unique("acks"))
    send(producer_of(broker, acks=acks), topic, TEXTS)
    with consumer_of(broker, unique("group")) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert [next_text(consumer) for _ in TEXTS] == TEXTS


def test_what_was_flushed_with_acks_0_by_a_process_that_ended_is_written(broker: Broker, unique: Unique) -> None:
    topic, count = create(broker, unique("leaving")), 3000
    program = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "acks": "0", "batch.num.messages": 1, "linger.ms": 0})
for number in range(int(sys.argv[3])):
    producer.produce(sys.argv[2], b"%d" % number, partition=0)
assert producer.flush(60) == 0
"""
    subprocess.run([sys.executable, "-c", program, broker.bootstrap_servers, topic, str(count)], check=True)
    with connect(broker.bootstrap_servers) as client:
        deadline = time.monotonic() + TIMEOUT_S
        while (found := end_offsets(client, [topic])[topic, 0]) < count:
            assert time.monotonic() < deadline, f"{found} of {count} records are there"
            time.sleep(0.02)


# --- groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_move_as_consumers_come_and_go_and_each_record_is_read_once(
    broker: Broker, unique: Unique, assignor: str
) -> None:
    topic, group_id = create(broker, unique("moving"), partitions=6), unique("group")
    everything = set(range(6))
    producer = producer_of(broker)
    sent: list[str] = []
    got: list[str] = []

    def send_more() -> None:
        values = [f"{len(sent) + number}" for number in range(30)]
        sent.extend(values)
        send(producer, topic, values)

    def share(*consumers: Consumer) -> None:
        """Poll until they have all partitions between them, in equal parts."""

        def is_fair() -> bool:
            parts = [numbers(consumer) for consumer in consumers]
            size = len(everything) // len(consumers)
            return all(len(part) == size for part in parts) and set().union(*parts) == everything

        send_more()
        poll_until(consumers, is_fair, f"{len(consumers)} consumers share {everything}", got)

    config = {"partition.assignment.strategy": assignor}
    with consumer_of(broker, group_id, **config) as first:
        first.subscribe([topic])
        share(first)
        with consumer_of(broker, group_id, **config) as second:
            second.subscribe([topic])
            share(first, second)
        share(first)
        with consumer_of(broker, group_id, **config) as third:
            third.subscribe([topic])
            share(first, third)
            poll_until([first, third], lambda: len(got) >= len(sent), "all records came", got)
    assert sorted(got, key=int) == sent


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("static"), partitions=4), unique("group")
    revoked: list[TopicPartition] = []
    with consumer_of(broker, group_id, group_instance_id="stays") as stays:
        stays.subscribe([topic], on_revoke=lambda _, partitions: revoked.extend(partitions))
        with consumer_of(broker, group_id, group_instance_id="returns") as returns:
            returns.subscribe([topic])
            poll_until([stays, returns], lambda: len(numbers(stays)) == len(numbers(returns)) == 2, "two each")
            had = numbers(returns)
        revoked.clear()
        with consumer_of(broker, group_id, group_instance_id="returns") as returns:
            returns.subscribe([topic])
            poll_until([stays, returns], lambda: bool(numbers(returns)), "the member is back")
            assert numbers(returns) == had
            assert revoked == []


def test_of_two_consumers_with_one_instance_id_the_older_is_fenced(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("static")), unique("group")
    with consumer_of(broker, group_id, group_instance_id="same") as older:
        older.subscribe([topic])
        poll_until([older], lambda: bool(numbers(older)), "the older one has the partition")
        with consumer_of(broker, group_id, group_instance_id="same") as newer:
            newer.subscribe([topic])
            poll_until([newer], lambda: bool(numbers(newer)), "the newer one has the partition")
            with pytest.raises(KafkaException) as fenced:
                poll_until([older], lambda: False, "the older one is told")
    assert "group.instance.id" in fenced.value.args[0].str()


DIES = """
import sys
from confluent_kafka import Consumer
bootstrap_servers, group_id, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group_id, "session.timeout.ms": 1000,
                     "heartbeat.interval.ms": 100})
consumer.subscribe([topic])
while True:
    consumer.poll(0.02)
    print(len(consumer.assignment()), flush=True)
"""


def test_the_partitions_of_a_consumer_that_dies_go_to_the_others(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("dies"), partitions=2), unique("group")
    with consumer_of(broker, group_id, session_timeout_ms=1000) as lives:
        lives.subscribe([topic])
        arguments = [sys.executable, "-c", DIES, broker.bootstrap_servers, group_id, topic]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as dies:
            try:
                poll_until([lives], lambda: len(numbers(lives)) == 2, "it has both")
                poll_until([lives], lambda: len(numbers(lives)) == 1, "they have one each")
            finally:
                dies.kill()
        poll_until([lives], lambda: len(numbers(lives)) == 2, "it has both again")


def test_a_group_goes_on_where_it_stopped_and_its_lag_is_known(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("lag")), unique("group")
    send(producer_of(broker), topic, TEXTS)

    def take(count: int) -> list[str]:
        with consumer_of(broker, group_id, enable_auto_commit=False) as consumer:
            consumer.subscribe([topic])
            values = [next_text(consumer) for _ in range(count)]
            (kept,) = consumer.commit(asynchronous=False)
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
            assert end - kept.offset == len(TEXTS) - sum(counts)
            return values

    counts = [20]
    assert take(20) == TEXTS[:20]
    counts.append(30)
    assert take(30) == TEXTS[20:]


# --- transactions -----------------------------------------------------------------------------------------


def test_a_producer_that_is_fenced_hears_that_it_is_fatal(broker: Broker, unique: Unique) -> None:
    topic, transactional_id = unique("fenced"), unique("txn")
    first = transactional(broker, transactional_id)
    first.begin_transaction()
    send(first, topic, ["zombie"])
    second = transactional(broker, transactional_id)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    assert fenced.value.args[0].fatal()
    second.begin_transaction()
    send(second, topic, ["heir"])
    second.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == ["heir"]


def test_offsets_of_a_member_that_has_been_replaced_are_refused(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("source"), partitions=2), unique("group")
    producer = transactional(broker, unique("txn"))
    with consumer_of(broker, group_id) as early:
        early.subscribe([topic])
        poll_until([early], lambda: len(numbers(early)) == 2, "it is alone")
        outdated = early.consumer_group_metadata()
        with consumer_of(broker, group_id) as late:
            late.subscribe([topic])
            poll_until([early, late], lambda: len(numbers(early)) == len(numbers(late)) == 1, "one each")
            producer.begin_transaction()
            with pytest.raises(KafkaException) as refused:
                producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], outdated, TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.ILLEGAL_GENERATION
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(TIMEOUT_S)


def test_a_transaction_of_many_batches_over_many_partitions_is_seen_whole(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("wide"), partitions=12)
    producer = transactional(broker, unique("txn"), batch_size=2000, compression_type="lz4")
    producer.begin_transaction()
    values = [f"{number:05}" for number in range(20_000)]
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % 12)
        producer.poll(0)
    producer.commit_transaction(TIMEOUT_S)
    assert sorted(read(broker, topic)) == values


# --- administration ---------------------------------------------------------------------------------------


def test_topics_are_created_grown_described_and_deleted(broker: Broker, unique: Unique) -> None:
    admin, topic = admin_of(broker), unique("admin")
    create(broker, topic, partitions=2, retention_ms="123456", cleanup_policy="compact")
    with pytest.raises(KafkaException) as again:
        create(broker, topic)
    assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS

    def partitions() -> int:
        return len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions)

    assert partitions() == 2
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)
    assert partitions() == 5
    with pytest.raises(KafkaException) as shrunk:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    assert shrunk.value.args[0].code() == KafkaError.INVALID_PARTITIONS

    resource = ConfigResource(ResourceType.TOPIC, topic)
    config = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert config["retention.ms"].value == "123456"
    assert config["cleanup.policy"].value == "compact"
    assert not config["retention.ms"].is_default
    assert config["max.message.bytes"].is_default

    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    with pytest.raises(KafkaException) as gone:
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_created_again_under_its_old_name_is_empty(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("again"))
    send(producer_of(broker), topic, ["old"])
    admin = admin_of(broker)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    create(broker, topic)
    assert read(broker, topic) == []
    send(producer_of(broker), topic, ["new"])
    assert read(broker, topic) == ["new"]


def test_the_cluster_and_its_broker_describe_themselves(broker: Broker) -> None:
    admin = admin_of(broker)
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [(node.host, node.port) for node in cluster.nodes] == [(broker.host, broker.port)]
    assert cluster.controller.id == cluster.nodes[0].id
    assert len(cluster.cluster_id) == 22
    resource = ConfigResource(ResourceType.BROKER, str(cluster.nodes[0].id))
    config = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert config["transaction.max.timeout.ms"].value == "900000"
    assert config["transaction.max.timeout.ms"].is_read_only


def test_topics_describe_their_partitions(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("described"), partitions=3)
    admin = admin_of(broker)
    description = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    assert [partition.id for partition in description.partitions] == [0, 1, 2]
    assert {partition.leader.port for partition in description.partitions} == {broker.port}
    assert not description.is_internal


def test_groups_are_listed_and_described(broker: Broker, unique: Unique) -> None:
    admin, topic, group_id = admin_of(broker), create(broker, unique("described")), unique("group")
    with consumer_of(broker, group_id, client_id="me", partition_assignment_strategy="roundrobin") as consumer:
        consumer.subscribe([topic])
        poll_until([consumer], lambda: bool(numbers(consumer)), "it is a member")
        group = admin.describe_consumer_groups([group_id])[group_id].result(TIMEOUT_S)
        assert (group.state, group.partition_assignor) == (ConsumerGroupState.STABLE, "roundrobin")
        (member,) = group.members
        assert (member.client_id, member.assignment.topic_partitions) == ("me", [TopicPartition(topic, 0)])
        listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(TIMEOUT_S).valid
        assert group_id in {group.group_id for group in listed}
    group = admin.describe_consumer_groups([group_id])[group_id].result(TIMEOUT_S)
    assert (group.state, group.members) == (ConsumerGroupState.EMPTY, [])


def test_offsets_are_listed_by_isolation_level_and_time(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("listed"))
    send(producer_of(broker), topic, ["plain"], timestamp=1000)
    producer = transactional(broker, unique("txn"))
    producer.begin_transaction()
    send(producer, topic, ["open"], timestamp=2000)
    admin, where = admin_of(broker), TopicPartition(topic, 0)

    def offset(spec: OffsetSpec, isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
        found = admin.list_offsets({where: spec}, isolation_level=isolation_level)
        return int(found[where].result(TIMEOUT_S).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 2
    assert offset(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED) == 1
    assert offset(OffsetSpec.max_timestamp()) == 1
    assert offset(OffsetSpec.for_timestamp(1500)) == 1
    producer.commit_transaction(TIMEOUT_S)
    assert offset(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED) == 3


def test_a_groups_offsets_are_listed_and_set(broker: Broker, unique: Unique) -> None:
    admin, topic, group_id = admin_of(broker), create(broker, unique("set")), unique("group")
    send(producer_of(broker), topic, TEXTS)
    wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([wanted])[group_id].result(TIMEOUT_S)
    asked = ConsumerGroupTopicPartitions(group_id)
    found = admin.list_consumer_group_offsets([asked])[group_id].result(TIMEOUT_S)
    assert [(each.topic, each.partition, each.offset) for each in found.topic_partitions] == [(topic, 0, 7)]
    with consumer_of(broker, group_id) as consumer:
        consumer.subscribe([topic])
        assert next_text(consumer) == TEXTS[7]


# --- crashes ----------------------------------------------------------------------------------------------


def test_records_sent_while_the_broker_restarts_are_neither_lost_nor_doubled(start_broker: StartBroker) -> None:
    broker = start_broker()
    topic, count = create(broker, "steady"), 3000
    producer = producer_of(broker, enable_idempotence=True, linger_ms=1)
    failed: list[KafkaError] = []
    acknowledged = 0
    progress = threading.Condition()

    def delivered(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        with progress:
            if error is not None:
                failed.append(error)
            acknowledged += 1
            progress.notify()

    def produce() -> None:
        for number in range(count):
            producer.produce(topic, str(number).encode(), on_delivery=delivered)
            producer.poll(0.001)
        producer.flush(TIMEOUT_S)

    def wait_for(number: int) -> None:
        with progress:
            assert progress.wait_for(lambda: acknowledged >= number, TIMEOUT_S)

    thread = threading.Thread(target=produce)
    thread.start()
    wait_for(300)
    broker.restart()
    wait_for(1200)
    broker.kill()
    broker.restart()
    thread.join()
    assert failed == []
    assert read(broker, topic) == [str(number) for number in range(count)]


def test_a_transaction_goes_on_after_kill_9_with_its_records_and_offsets(start_broker: StartBroker) -> None:
    broker = start_broker()
    source, target = create(broker, "source"), create(broker, "target")
    send(producer_of(broker), source, TEXTS)
    producer = transactional(broker, "txn")
    with consumer_of(broker, "group", enable_auto_commit=False) as consumer:
        consumer.subscribe([source])
        producer.begin_transaction()
        send(producer, target, [next_text(consumer) for _ in range(30)])
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        broker.kill()
        broker.restart()
        assert read(broker, target) == []
        send(producer, target, [next_text(consumer) for _ in range(20)])
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
    assert committed_offset(broker, "group", source) == 50
    assert read(broker, target) == TEXTS


@pytest.mark.parametrize("is_open", [True, False])
def test_a_producer_that_outlives_a_power_loss_hears_that_it_is_fenced(
    start_broker: StartBroker, is_open: bool
) -> None:
    broker = start_broker()
    create(broker, "topic")
    old = transactional(broker, "txn")
    old.begin_transaction()
    if is_open:
        send(old, "topic", ["zombie"])
    broker.kill()
    assert broker.data is not None
    (broker.data / "boot-id").write_text("another boot")
    broker.restart()
    if not is_open:
        old.produce("topic", b"zombie")
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError._FENCED
    assert refused.value.args[0].fatal()
    new = transactional(broker, "txn")
    new.begin_transaction()
    send(new, "topic", ["heir"])
    new.commit_transaction(TIMEOUT_S)
    assert read(broker, "topic") == ["heir"]


@pytest.mark.parametrize("point", ["txn.prepare.before", "txn.prepare.after", "txn.complete.after"])
def test_a_commit_during_which_the_broker_is_killed_happens_once(start_broker: StartBroker, point: str) -> None:
    # The second transaction to end does not get past the point.
    broker = start_broker(fencepost_crash_at=f"{point}:2")
    producer = transactional(broker, "txn")

    def restart_when_dead() -> None:
        assert broker.wait_for_exit(TIMEOUT_S) == -9
        broker.restart()

    restarting = threading.Thread(target=restart_when_dead)
    for value in ("first", "second"):
        producer.begin_transaction()
        send(producer, "topic", [value])
        if value == "second":
            restarting.start()
        producer.commit_transaction(TIMEOUT_S)
    restarting.join()
    assert read(broker, "topic") == ["first", "second"]


# --- the client's own example -----------------------------------------------------------------------------


def test_the_clients_consume_transform_produce_example_runs(broker: Broker, unique: Unique) -> None:
    """As examples/eos_transactions.py of confluent-kafka-python: a transaction for every hundred records."""
    source, target, group_id = unique("input"), unique("output"), unique("eos")
    send(producer_of(broker), source, (f"{number}" for number in range(250)))

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(source, 0)])
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": unique("eos")})
    producer.init_transactions()
    producer.begin_transaction()
    count = 0
    while True:
        producer.poll(0)
        message = consumer.poll(1.0)
        if message is None:
            continue
        error, value = message.error(), message.value()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            break
        assert value is not None
        producer.produce(target, b64encode(value))
        count += 1
        if count % 100 == 0:
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            producer.commit_transaction()
            producer.begin_transaction()
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()
    consumer.close()

    assert read(broker, target) == [b64encode(f"{number}".encode()).decode() for number in range(250)]
    assert committed_offset(broker, group_id, source) == 250
