"""ACLs over sockets, with real clients, which may use everything that no ACL is about, and nothing that one denies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from fencepost.broker.config import STANDARD_AUTHORIZER
from fencepost.testing import Broker
from tests.engines.apache_kafka import run_tool
from tests.readers.reading import TIMEOUT_S

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
EVERY_ACL = AclBindingFilter(  # The stubs do not know that None matches everything.
    ResourceType.ANY,
    None,  # type: ignore[arg-type]
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data=tmp_path / "data", settings=SETTINGS) as broker:
        broker.create_topic("orders")
        broker.create_topic("secret")
        yield broker


def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def add(
    broker: Broker,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    host: str = "*",
    permission: AclPermissionType = AclPermissionType.DENY,
) -> None:
    acl = AclBinding(kind, name, pattern, "User:*", host, operation, permission)
    client = admin(broker)
    for done in client.create_acls([acl]).values():
        done.result(TIMEOUT_S)


def produce(broker: Broker, topic: str) -> str:
    """The error of a record, or nothing."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    [error] = errors
    return "" if error is None else str(error.name())


def begin(broker: Broker, transactional_id: str) -> str:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id})
    try:
        producer.init_transactions(TIMEOUT_S)
    except KafkaException as error:
        return str(error.args[0].name())
    return ""


def poll(broker: Broker, group: str) -> str:
    """The first error, or nothing if a record comes."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "bootstrap.servers": broker.bootstrap_servers}
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        error = message.error()
        return "" if error is None else str(error.name())
    finally:
        consumer.close()


def test_a_client_is_denied_what_an_acl_denies_and_the_log_says_so(broker: Broker) -> None:
    assert produce(broker, "orders") == ""
    add(broker, ResourceType.TOPIC, "secret", AclOperation.WRITE)
    add(broker, ResourceType.TOPIC, "orders", AclOperation.ALL, host="127.0.0.1", permission=AclPermissionType.ALLOW)
    add(broker, ResourceType.TOPIC, "orders", AclOperation.ALL, host="10.9.9.9")
    add(broker, ResourceType.TRANSACTIONAL_ID, "theirs-", AclOperation.WRITE, ResourcePatternType.PREFIXED)
    add(broker, ResourceType.GROUP, "theirs", AclOperation.READ)
    assert produce(broker, "secret") == "TOPIC_AUTHORIZATION_FAILED"
    assert begin(broker, "theirs-1") == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    assert poll(broker, "theirs") == "GROUP_AUTHORIZATION_FAILED"
    assert begin(broker, "mine-1") == ""
    assert poll(broker, "mine") == ""
    for line in (
        "denied User:ANONYMOUS at 127.0.0.1: DESCRIBE on topic secret (Metadata)",
        "denied User:ANONYMOUS at 127.0.0.1: DESCRIBE on transactional id theirs-1 (FindCoordinator)",
        "denied User:ANONYMOUS at 127.0.0.1: DESCRIBE on group theirs (FindCoordinator)",
    ):
        assert line in broker.log


def test_acls_survive_kill_9_and_are_gone_when_they_are_deleted(broker: Broker) -> None:
    add(broker, ResourceType.TOPIC, "secret", AclOperation.ALL)
    broker.kill()
    broker.start()
    assert produce(broker, "secret") == "TOPIC_AUTHORIZATION_FAILED"
    client = admin(broker)
    [found] = client.describe_acls(EVERY_ACL).result(TIMEOUT_S)
    assert (found.name, found.principal, found.operation) == ("secret", "User:*", AclOperation.ALL)
    [deleted] = client.delete_acls([EVERY_ACL]).values()
    assert [acl.name for acl in deleted.result(TIMEOUT_S)] == ["secret"]
    assert produce(broker, "secret") == ""


@pytest.mark.java
@pytest.mark.engines
def test_kafka_acls_adds_lists_and_removes(broker: Broker) -> None:
    def acls(*arguments: str) -> str:
        return run_tool("kafka-acls", "--bootstrap-server", broker.bootstrap_servers, *arguments)

    def listed(*arguments: str) -> Sequence[str]:
        lines = acls("--list", *arguments).splitlines()
        return sorted(line.strip() for line in lines if "principal=" in line or "ResourcePattern" in line)

    alice = ("--allow-principal", "User:alice")
    # The cluster first: from then on an ACL is about it, and no other user may change ACLs.
    acls("--add", "--allow-principal", "User:ANONYMOUS", "--cluster", "--operation", "All")
    acls(
        "--add",
        *alice,
        "--producer",
        "--topic",
        "orders",
        "--transactional-id",
        "orders-",
        "--resource-pattern-type",
        "prefixed",
    )
    acls("--add", *alice, "--consumer", "--topic", "orders", "--group", "readers")
    acls("--add", "--deny-principal", "User:*", "--deny-host", "10.9.9.9", "--operation", "Read", "--topic", "*")
    assert [line.split("`")[1] for line in listed() if line.startswith("Current ACLs")] == sorted(
        [
            "ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL)",
            "ResourcePattern(resourceType=GROUP, name=readers, patternType=LITERAL)",
            "ResourcePattern(resourceType=TOPIC, name=*, patternType=LITERAL)",
            "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)",
            "ResourcePattern(resourceType=TOPIC, name=orders, patternType=PREFIXED)",
            "ResourcePattern(resourceType=TRANSACTIONAL_ID, name=orders-, patternType=PREFIXED)",
        ]
    )
    matching = "".join(listed("--topic", "orders-eu", "--resource-pattern-type", "match"))
    assert "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)" in matching
    assert "(principal=User:*, host=10.9.9.9, operation=READ, permissionType=DENY)" in matching
    assert "operation=READ, permissionType=ALLOW" not in matching, "the consumer's ACL is for another topic"
    acls("--remove", "--force", *alice, "--consumer", "--topic", "orders", "--group", "readers")
    assert not [line for line in listed() if "name=readers" in line]
