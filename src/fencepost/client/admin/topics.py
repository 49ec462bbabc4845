"""Topics: which there are, how their partitions lie on the brokers, and the orders to create and to delete one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from fencepost.client.admin.answers import DEADLINE_S
from fencepost.client.client import KafkaClient, retry
from fencepost.client.connection import BrokerConnection, Disconnected
from fencepost.client.failures import BrokerError, OutcomeUnknown
from fencepost.protocol import errors
from fencepost.protocol.messages import CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest

ORDER_TIMEOUT_MS = 30_000
CLUSTER_DEFAULT = -1
NAMES_IN_DELETE = 5  # Later versions may name topics by their id.
# The second answers a name that no topic can have.
NO_SUCH_TOPIC = frozenset({errors.UNKNOWN_TOPIC_OR_PARTITION, errors.INVALID_TOPIC_EXCEPTION})


class PartitionLayout(NamedTuple):
    partition: int
    leader: int  # -1: no leader.
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicLayout(NamedTuple):
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionLayout, ...]

    @property
    def replication_factor(self) -> int:
        """Of the partition with the fewest copies."""
        return min((len(p.replicas) for p in self.partitions), default=0)


class CreatedTopic(NamedTuple):
    """The answer to CreateTopics; -1 if the broker does not say what it chose."""

    name: str
    partition_count: int
    replication_factor: int


def describe_layouts(client: KafkaClient, topics: Iterable[str] | None = None) -> dict[str, TopicLayout]:
    """The layout of some topics, or of all. Topics that do not exist are left out."""
    return retry(lambda: _ask_layouts(client, topics), DEADLINE_S)


def _ask_layouts(client: KafkaClient, topics: Iterable[str] | None) -> dict[str, TopicLayout]:
    wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    response = client.send(client.any_broker(), MetadataRequest(wanted, allow_auto_topic_creation=False))
    found = {}
    for topic in response.topics:
        if topic.error_code in NO_SUCH_TOPIC:
            continue
        if topic.error_code:
            raise BrokerError(topic.error_code, f"topic {topic.name}")
        partitions = sorted(
            PartitionLayout(p.partition_index, p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes))
            for p in topic.partitions
        )
        found[topic.name] = TopicLayout(topic.name, topic.topic_id, topic.is_internal, tuple(partitions))
    return found


def create_topic(
    client: KafkaClient,
    name: str,
    partition_count: int = CLUSTER_DEFAULT,
    replication_factor: int = CLUSTER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> CreatedTopic:
    """Create a topic and wait until each of its partitions has a leader. Raises BrokerError if it is refused."""
    config = CreateTopicsRequest.CreatableTopicConfig
    wanted = CreateTopicsRequest.CreatableTopic(
        name, partition_count, replication_factor, [], [config(n, v) for n, v in (configs or {}).items()]
    )
    request = CreateTopicsRequest([wanted], ORDER_TIMEOUT_MS, validate_only)
    what = f"creating topic {name}"
    made = order(client, what, lambda controller: client.send(controller, request).topics[0])
    if not validate_only:
        retry(lambda: _require_leaders(client, name), DEADLINE_S)
    return CreatedTopic(name, made.num_partitions, made.replication_factor)


def _require_leaders(client: KafkaClient, name: str) -> None:
    layout = _ask_layouts(client, [name]).get(name)
    if layout is None or not layout.partitions or any(p.leader < 0 for p in layout.partitions):
        raise BrokerError(errors.LEADER_NOT_AVAILABLE, f"topic {name}", "it was created, but is not ready yet")


def delete_topic(client: KafkaClient, name: str) -> None:
    """Delete a topic and wait until the brokers no longer show it. Raises BrokerError if it is refused."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=ORDER_TIMEOUT_MS)
    order(
        client,
        f"deleting topic {name}",
        lambda controller: client.send(controller, request, NAMES_IN_DELETE).responses[0],
    )
    retry(lambda: _require_absence(client, name), DEADLINE_S)


def _require_absence(client: KafkaClient, name: str) -> None:
    if name in _ask_layouts(client, [name]):
        raise BrokerError(errors.LEADER_NOT_AVAILABLE, f"topic {name}", "it was deleted, but brokers still show it")


def order(client: KafkaClient, what: str, send: Callable[[BrokerConnection], Any]) -> Any:
    """Send an order once; another attempt follows only if it cannot have had an effect."""

    def attempt() -> Any:
        controller = _controller(client)
        try:
            result = send(controller)
        except Disconnected as e:
            raise OutcomeUnknown(f"{what} was not answered, so it may have happened: {e}") from e
        if result.error_code == errors.NOT_CONTROLLER:
            raise BrokerError(result.error_code, what)
        return result

    result = retry(attempt, DEADLINE_S)
    if result.error_code:
        raise BrokerError(result.error_code, what, getattr(result, "error_message", None))
    return result


def _controller(client: KafkaClient) -> BrokerConnection:
    """The broker for orders. Brokers without ZooKeeper name any of them, which passes the order on."""
    response = client.send(client.any_broker(), MetadataRequest([], allow_auto_topic_creation=False))
    return client.broker(response.controller_id) if response.controller_id >= 0 else client.any_broker()
