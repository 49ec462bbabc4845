"""Apache Kafka's own tools for administrators, on our broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from fencepost.testing import Broker
from tests.e2e.clients.confluent import TIMEOUT_S, admin_of, create, producer_of, send
from tests.engines.apache_kafka import run_tool

pytestmark = pytest.mark.java

Tool = Callable[..., str]
Unique = Callable[[str], str]


@pytest.fixture
def tool(broker: Broker) -> Tool:
    def run(name: str, *arguments: str) -> str:
        return run_tool(name, "--bootstrap-server", broker.bootstrap_servers, *arguments)

    return run


def test_kafka_configs_changes_a_topic(broker: Broker, unique: Unique, tool: Tool) -> None:
    topic = create(broker, unique("topic"))
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    tool("kafka-configs", "--alter", *of_topic, "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]")
    described = tool("kafka-configs", "--describe", *of_topic)
    assert "retention.ms=1000 " in described
    assert "cleanup.policy=compact,delete " in described
    tool("kafka-configs", "--alter", *of_topic, "--delete-config", "retention.ms,cleanup.policy")
    assert "retention.ms" not in tool("kafka-configs", "--describe", *of_topic)


def test_kafka_features_lowers_and_raises_the_transaction_version(tool: Tool) -> None:
    def level() -> int:
        found = re.search(r"transaction\.version.*FinalizedVersionLevel: (\d)", tool("kafka-features", "describe"))
        assert found is not None
        return int(found[1])

    tool("kafka-features", "downgrade", "--feature", "transaction.version=1")
    assert level() == 1
    tool("kafka-features", "upgrade", "--feature", "transaction.version=2")
    assert level() == 2


def test_kafka_consumer_groups_resets_and_deletes(broker: Broker, unique: Unique, tool: Tool) -> None:
    topic, group = create(broker, unique("topic"), partitions=2), unique("group")
    send(producer_of(broker), topic, ["a", "b", "c"], partition=0)
    positions = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 0)]
    admin = admin_of(broker)
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, positions)])[group].result(TIMEOUT_S)
    reset = tool(
        "kafka-consumer-groups",
        *("--reset-offsets", "--group", group, "--topic", f"{topic}:0", "--to-earliest", "--execute"),
    )
    assert re.search(rf"{group}\s+{topic}\s+0\s+0", reset)
    deleted = tool("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert "Request succeeded for deleting offsets" in deleted
    left = tool("kafka-consumer-groups", "--describe", "--group", group)
    assert re.findall(rf"{group}\s+{topic}\s+(\d)\s+(\d)", left) == [("1", "0")]
    assert "was successful" in tool("kafka-consumer-groups", "--delete", "--group", group)


def test_kafka_log_dirs_and_leader_election_and_metadata_quorum_answer(
    broker: Broker, unique: Unique, tool: Tool
) -> None:
    topic = create(broker, unique("topic"))
    send(producer_of(broker), topic, ["x" * 1000])
    described = tool("kafka-log-dirs", "--describe", "--topic-list", topic)
    [folder] = json.loads(described.splitlines()[-1])["brokers"][0]["logDirs"]
    assert folder["logDir"] == str(broker.data)
    assert folder["partitions"][0]["partition"] == f"{topic}-0"
    assert folder["partitions"][0]["size"] > 1000
    arguments = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in tool("kafka-leader-election", *arguments)
    assert re.search(r"LeaderId:\s+1", tool("kafka-metadata-quorum", "describe", "--status"))
