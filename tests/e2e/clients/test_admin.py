"""What administrators do, with three clients: settings, groups and their offsets, features, folders, elections."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest
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
