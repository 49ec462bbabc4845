"""What administrators do, with three clients: settings, groups and their offsets, features, folders, elections."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonResourceType
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from fencepost.testing import Broker
from tests.e2e.clients.confluent import TIMEOUT_S, admin_of, create, producer_of

Unique = Callable[[str], str]


def settings_of(broker: Broker, topic: str) -> dict[str, str]:
    """The settings that a topic has of its own."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = admin_of(broker)
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: entry.value for name, entry in found.items() if entry.source == 1}


def change(broker: Broker, topic: str, *entries: tuple[str, str | None, AlterConfigOpType]) -> None:
    configs = [ConfigEntry(name, value, incremental_operation=how) for name, value, how in entries]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=configs)
    admin = admin_of(broker)
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def outcome(broker: Broker, topic: str, size: int) -> int | None:
    """The error of a record of this size; None if it is taken."""
    found: list[KafkaError | None] = []

    def note(error: KafkaError | None, message: Message) -> None:
        found.append(error)

    producer = producer_of(broker, message_max_bytes=2_000_000)
    producer.produce(topic, b"x" * size, on_delivery=note)
    assert producer.flush(TIMEOUT_S) == 0
    return None if found[0] is None else found[0].code()


def test_confluent_changes_settings_that_count_at_once(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("settings"))
    assert outcome(broker, topic, 5000) is None
    change(
        broker,
        topic,
        ("max.message.bytes", "1000", AlterConfigOpType.SET),
        ("cleanup.policy", "compact", AlterConfigOpType.APPEND),
    )
    assert settings_of(broker, topic) == {"max.message.bytes": "1000", "cleanup.policy": "delete,compact"}
    assert outcome(broker, topic, 5000) == KafkaError.MSG_SIZE_TOO_LARGE
    change(
        broker,
        topic,
        ("max.message.bytes", None, AlterConfigOpType.DELETE),
        ("cleanup.policy", "compact", AlterConfigOpType.SUBTRACT),
    )
    assert outcome(broker, topic, 5000) is None
    with pytest.raises(KafkaException) as refused:
        change(broker, topic, ("max.message.bytes", "many", AlterConfigOpType.SET))
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert "max.message.bytes=many" in refused.value.args[0].str()


def test_confluent_deletes_groups_moves_their_offsets_and_needs_no_election(broker: Broker, unique: Unique) -> None:
    topic, group = create(broker, unique("topic")), unique("group")
    admin = admin_of(broker)
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])]
    admin.alter_consumer_group_offsets(wanted)[group].result(TIMEOUT_S)
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    [found] = admin.list_consumer_group_offsets(asked)[group].result(TIMEOUT_S).topic_partitions
    assert found.offset == 7
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    with pytest.raises(KafkaException) as gone:
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert gone.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    partition = TopicPartition(topic, 0)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(TIMEOUT_S)
    assert elected[partition].code() == KafkaError.ELECTION_NOT_NEEDED


def test_confluent_hears_that_there_is_no_security(broker: Broker) -> None:
    rule = AclBinding(
        ResourceType.TOPIC, "x", ResourcePatternType.LITERAL, "User:x", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    admin = admin_of(broker)
    with pytest.raises(KafkaException) as refused:
        admin.create_acls([rule])[rule].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED
    credentials = admin.describe_user_scram_credentials()
    assert isinstance(credentials, Future)
    assert credentials.result(TIMEOUT_S) == {}


@pytest.fixture
def python_admin(broker: Broker) -> Any:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield admin
    admin.close()


def test_kafka_python_changes_settings(broker: Broker, unique: Unique, python_admin: KafkaAdminClient) -> None:
    topic = create(broker, unique("settings"))
    resource = PythonResource(PythonResourceType.TOPIC, topic, {"retention.ms": "1000"})
    python_admin.alter_configs([resource])
    assert settings_of(broker, topic) == {"retention.ms": "1000"}
    python_admin.reset_configs([PythonResource(PythonResourceType.TOPIC, topic, ["retention.ms"])])
    assert settings_of(broker, topic) == {}
    with pytest.raises(ValueError, match="Unrecognized configs"):
        # It has asked before: of the broker's own settings none can change while it runs.
        python_admin.alter_configs([PythonResource(PythonResourceType.BROKER, "1", {"num.partitions": "2"})])


def test_kafka_python_describes_what_there_is(broker: Broker, unique: Unique, python_admin: KafkaAdminClient) -> None:
    topic = create(broker, unique("topic"), partitions=3)
    assert outcome(broker, topic, 100) is None
    [found] = python_admin.describe_log_dirs()
    sizes = {
        (entry["name"], part["partition_index"]): part["partition_size"]
        for entry in found["log_dirs"][0]["topics"]
        for part in entry["partitions"]
    }
    assert sum(size for (name, _), size in sizes.items() if name == topic) > 100
    page = python_admin.describe_topic_partitions([topic], response_partition_limit=2)
    assert [part["partition_index"] for part in page["topics"][0]["partitions"]] == [0, 1]
    assert page["next_cursor"] == {"topic_name": topic, "partition_index": 2}
    assert python_admin.list_partition_reassignments() == {}
    assert python_admin.describe_metadata_quorum()["topics"][0]["partitions"][0]["leader_id"] == 1
    assert topic in python_admin.list_config_resources()["topic"]
    assert python_admin.describe_features()["transaction.version"]["supported"] == (0, 2)


def test_kafka_python_moves_and_deletes_offsets(broker: Broker, unique: Unique, python_admin: KafkaAdminClient) -> None:
    topic, group = create(broker, unique("topic"), partitions=2), unique("group")
    first, second = PythonPartition(topic, 0), PythonPartition(topic, 1)
    offsets = {first: OffsetAndMetadata(3, "", -1), second: OffsetAndMetadata(4, "", -1)}
    python_admin.alter_group_offsets(group, offsets)
    python_admin.delete_group_offsets(group, [first])
    left = python_admin.list_group_offsets(group)[group]
    assert {partition: found.offset for partition, found in left.items()} == {second: 4}
    python_admin.delete_groups([group])
    assert python_admin.list_group_offsets(group) == {group: {}}


async def test_aiokafka_replaces_the_settings_of_a_topic(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("settings"), retention_ms="5000")
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        resource = AioResource(AioResourceType.TOPIC, topic, {"segment.ms": "60000"})
        await admin.alter_configs([resource])
    finally:
        await admin.close()
    assert settings_of(broker, topic) == {"segment.ms": "60000"}
