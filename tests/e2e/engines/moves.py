"""The leaders of a Kafka cluster, and how to move them without killing a broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient

from fencepost.client.client import TRANSACTION, KafkaClient
from fencepost.client.failures import ClientError
from fencepost.protocol import errors
from fencepost.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    DescribeTransactionsRequest,
    ElectLeadersRequest,
    FindCoordinatorRequest,
)
from fencepost.protocol.topic_partition import TopicPartition

TIMEOUT_S = 90.0
PREFERRED = 0
PAUSE_S = 0.05
INTERNAL = ("__transaction_state", "__consumer_offsets")


def leaders(bootstrap_servers: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """The leader of each partition; -1 if there is none."""
    return {where: leader for where, (leader, _) in _layout(bootstrap_servers, topics).items()}


def coordinator(bootstrap_servers: str, transactional_id: str) -> int:
    """The node that coordinates the transactions of this id. Waits while there is none."""
    deadline = time.monotonic() + TIMEOUT_S
    request = FindCoordinatorRequest(transactional_id, TRANSACTION, [transactional_id])
    with KafkaClient({"bootstrap.servers": bootstrap_servers}) as client:
        while True:
            answer = client.send(client.any_broker(), request).coordinators[0]
            if answer.error_code == errors.NONE:
                return int(answer.node_id)
            assert time.monotonic() < deadline, f"{transactional_id} has no coordinator: {answer}"
            time.sleep(PAUSE_S)


def transaction_state(bootstrap_servers: str, transactional_id: str) -> str:
    """The state according to the coordinator: `Ongoing`, `CompleteCommit`, ..."""
    with KafkaClient({"bootstrap.servers": bootstrap_servers}) as client:
        answer = client.ask_coordinator(
            transactional_id,
            TRANSACTION,
            DescribeTransactionsRequest([transactional_id]),
            lambda r: int(r.transaction_states[0].error_code),
        )
    return str(answer.transaction_states[0].transaction_state)


def move_leaders(bootstrap_servers: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Make the next replica of each partition its leader. Returns the new leaders when all have moved."""
    before = _layout(bootstrap_servers, topics)
    turned = {where: replicas[1:] + replicas[:1] for where, (_, replicas) in before.items()}
    with KafkaClient({"bootstrap.servers": bootstrap_servers}) as client:
        _reassign(client, turned)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            now = _layout(bootstrap_servers, topics)
            waiting = [where for where, replicas in turned.items() if now[where][0] != replicas[0]]
            if not waiting:
                return {where: leader for where, (leader, _) in now.items()}
            assert time.monotonic() < deadline, f"no new leader: {waiting}, {now}"
            _elect(client, waiting)
            time.sleep(PAUSE_S)


@contextmanager
def leaders_that_move(bootstrap_servers: str, topics: Iterable[str]) -> Iterator[list[int]]:
    """Move leaders for the length of a `with` block. Yields a list with the number of moves of each round so far."""
    topics = tuple(topics)
    moves: list[int] = []
    over = threading.Event()
    failures: list[BaseException] = []

    def keep_moving() -> None:
        try:
            while not over.is_set():
                moves.append(len(move_leaders(bootstrap_servers, topics)))
        except BaseException as e:
            failures.append(e)

    mover = threading.Thread(target=keep_moving)
    mover.start()
    try:
        yield moves
    finally:
        over.set()
        mover.join()
    assert not failures, failures


def _layout(bootstrap_servers: str, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, list[int]]]:
    """The leader of each partition, and its replicas in the order of preference."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    found = admin.list_topics(timeout=TIMEOUT_S).topics
    return {
        (topic, partition.id): (partition.leader, list(partition.replicas))
        for topic in topics
        for partition in found[topic].partitions.values()
    }


def _reassign(client: KafkaClient, replicas: Mapping[TopicPartition, list[int]]) -> None:
    """Reorder the replicas. No data moves."""
    kind = AlterPartitionReassignmentsRequest
    by_topic: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
    for (topic, partition), order in replicas.items():
        by_topic.setdefault(topic, []).append(kind.ReassignablePartition(partition, order))
    request = kind(topics=[kind.ReassignableTopic(topic, entries) for topic, entries in by_topic.items()])
    response = client.send(client.any_broker(), request)
    refused = [p for t in response.responses for p in t.partitions if p.error_code]
    assert not response.error_code, response
    assert not refused, refused


def _elect(client: KafkaClient, partitions: Iterable[TopicPartition]) -> None:
    """Ask for the preferred leaders. The controller refuses one that is not in sync yet; ask again for that."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    wanted = [ElectLeadersRequest.TopicPartitions(topic, indexes) for topic, indexes in by_topic.items()]
    response = client.send(client.any_broker(), ElectLeadersRequest(PREFERRED, wanted))
    expected = (
        errors.NONE,
        errors.ELECTION_NOT_NEEDED,
        errors.PREFERRED_LEADER_NOT_AVAILABLE,
        errors.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    )
    if response.error_code not in expected:
        raise ClientError(str(response))
