"""Three nodes behind logins and ACLs: only its owner uses a transactional id, and goes on through failovers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from fencepost.testing import Broker

PASSWORDS = {"admin": "a", "alice": "al", "mallory": "m"}
USERS = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
JAAS = f"org.apache.kafka.common.security.plain.PlainLoginModule required {USERS};"
SETTINGS: dict[str, object] = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.inside.plain.sasl.jaas.config": JAAS,
    "listener.name.outside.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
PARTITIONS = 6
TRANSACTIONS = 6


def login(broker: Broker, user: str, listener: str = "OUTSIDE") -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.listeners[listener],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


def allow(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    where = ResourcePatternType.LITERAL
    return AclBinding(kind, name, where, "User:alice", "*", operation, AclPermissionType.ALLOW)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data=tmp_path, settings=SETTINGS, brokers=3) as broker:
        admin = AdminClient(login(broker, "admin"))
        admin.create_topics([NewTopic("orders", PARTITIONS, 3)])["orders"].result(60)
        acls = [
            allow(ResourceType.TOPIC, "orders", AclOperation.WRITE),
            allow(ResourceType.TOPIC, "orders", AclOperation.READ),
            allow(ResourceType.GROUP, "readers", AclOperation.READ),
            allow(ResourceType.TRANSACTIONAL_ID, "orders-1", AclOperation.WRITE),
        ]
        for future in admin.create_acls(acls).values():
            future.result(60)
        yield broker


def test_the_owner_of_a_transactional_id_goes_on_through_failovers_and_nobody_else_may_use_it(broker: Broker) -> None:
    owner = Producer({**login(broker, "alice"), "transactional.id": "orders-1"})
    owner.init_transactions(60)
    for number in range(TRANSACTIONS):
        owner.begin_transaction()
        for partition in range(PARTITIONS):
            owner.produce("orders", str(number).encode(), partition=partition)
        owner.flush(60)
        broker.nodes.move_coordinator("orders-1", number % 3 + 1)
        broker.nodes.move_leader("orders", number, (number + 1) % 3 + 1)
        owner.commit_transaction(60)

    for settings in ({"transactional.id": "orders-1"}, {"transactional.id": "others-1"}):
        stranger = Producer({**login(broker, "mallory"), **settings})
        with pytest.raises(KafkaException) as refused:
            stranger.init_transactions(60)
        assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    owner.begin_transaction()
    owner.produce("orders", b"last", partition=0)
    owner.commit_transaction(60)
    assert read(broker, 0) == [str(number).encode() for number in range(TRANSACTIONS)] + [b"last"]
    for partition in range(1, PARTITIONS):
        assert read(broker, partition) == [str(number).encode() for number in range(TRANSACTIONS)]


def read(broker: Broker, partition: int) -> list[bytes | None]:
    """All committed records, by the listener that the producer did not use."""
    consumer = Consumer(
        {
            **login(broker, "alice", "INSIDE"),
            "group.id": "readers",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("orders", partition, 0)])
    found = []
    while (message := consumer.poll(60)) is not None and not message.error():
        found.append(message.value())
    consumer.close()
    error = message.error() if message is not None else None
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF
    return found
