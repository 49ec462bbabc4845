"""Questions to the leaders of partitions: offsets, producers, batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fencepost.client.admin.answers import Answers, NamedPartition, Producer, by_value, chunks
from fencepost.client.client import DEFAULT_DEADLINE_S, KafkaClient, retry
from fencepost.client.failures import BrokerError, ClientError, Unreachable
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeProducersRequest, ListOffsetsRequest
from fencepost.protocol.schema import Message
from fencepost.spelling import did_you_mean

# Shorter than for other questions: a partition that does not answer is reported as such, and the others are shown.
LEADER_DEADLINE_S = 3.0
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST = -1, -2
# Keeps requests and replies at a few hundred kilobytes.
PARTITIONS_PER_REQUEST = 2000
# Asked about to learn what this user may see. The hyphen keeps it apart from the prefixes that users are given.
UNUSED_TOPIC = "-which-topics-may-this-user-see"

V = TypeVar("V")


def partitions_of(client: KafkaClient, topics: Iterable[str] | None = None) -> list[NamedPartition]:
    """The partitions of some topics, or of all. Raises BrokerError for a topic that does not exist."""
    wanted = None if topics is None else list(topics)
    found = client.refresh(wanted)
    for name in wanted or ():
        if name not in found:
            hint = did_you_mean(name, client.refresh(None))
            detail = f"it does not exist; {hint}" if hint else "it does not exist"
            raise BrokerError(errors.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}", detail)
    return [NamedPartition(t.name, i) for t in sorted(found.values()) for i in range(len(t.leaders))]


def why_topics_are_hidden(client: KafkaClient) -> BrokerError | None:
    """Why `partitions_of` may have left out topics; None if this user may see every topic. Raises ClientError.

    The answer about all topics omits, without an error, those that a user may not see. The one about a named topic
    checks the permission before it looks for the topic, so a name that no topic has tells whether the permission is
    for all topics. It does not tell of a single topic that an ACL denies.
    """
    try:
        client.refresh([UNUSED_TOPIC])
    except BrokerError as e:
        if e.code not in errors.DENIALS:
            raise
        return BrokerError(e.code, "DESCRIBE on all topics")
    return None


def list_offsets(
    client: KafkaClient,
    partitions: Iterable[NamedPartition],
    isolation_level: int = READ_UNCOMMITTED,
    timestamp: int = LATEST,
) -> Answers[NamedPartition, int]:
    """The end of each partition: the high watermark, or the last stable offset with READ_COMMITTED."""

    def request(chunk: Mapping[str, list[int]]) -> Message:
        partition = ListOffsetsRequest.ListOffsetsPartition
        topics = [
            ListOffsetsRequest.ListOffsetsTopic(name, [partition(i, timestamp=timestamp) for i in indexes])
            for name, indexes in chunk.items()
        ]
        return ListOffsetsRequest(-1, isolation_level, topics)

    def read(response: Any) -> Iterator[tuple[NamedPartition, int, int]]:
        for topic in response.topics:
            for p in topic.partitions:
                yield NamedPartition(topic.name, p.partition_index), p.error_code, p.offset

    return _ask_leaders(client, partitions, request, read, "offsets")


def end_offset(client: KafkaClient, topic: str, partition: int, read_committed: bool = True) -> int:
    """The end of one partition, with the patience of a client: it waits for a leader. Raises ClientError."""
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition, timestamp=LATEST)
    isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
    request = ListOffsetsRequest(-1, isolation_level, [ListOffsetsRequest.ListOffsetsTopic(topic, [wanted])])

    def attempt() -> int:
        response = client.send(client.leader(topic, partition), request)
        found = response.topics[0].partitions[0]
        if found.error_code:
            client.topic(topic, fresh=True)
            raise BrokerError(found.error_code, f"end of {topic}-{partition}")
        return int(found.offset)

    return retry(attempt, DEFAULT_DEADLINE_S)


def describe_producers(
    client: KafkaClient, partitions: Iterable[NamedPartition]
) -> Answers[NamedPartition, tuple[Producer, ...]]:
    """The producers of each partition that its leader remembers, with their open transactions."""

    def request(chunk: Mapping[str, list[int]]) -> Message:
        return DescribeProducersRequest([DescribeProducersRequest.TopicRequest(n, i) for n, i in chunk.items()])

    def read(response: Any) -> Iterator[tuple[NamedPartition, int, tuple[Producer, ...]]]:
        for topic in response.topics:
            for p in topic.partitions:
                producers = tuple(
                    Producer(
                        s.producer_id,
                        s.producer_epoch,
                        s.last_sequence,
                        s.last_timestamp,
                        s.coordinator_epoch,
                        s.current_txn_start_offset,
                    )
                    for s in p.active_producers
                )
                yield NamedPartition(topic.name, p.partition_index), p.error_code, producers

    return _ask_leaders(client, partitions, request, read, "producers")


def _ask_leaders(
    client: KafkaClient,
    partitions: Iterable[NamedPartition],
    request: Callable[[Mapping[str, list[int]]], Message],
    read: Callable[[Any], Iterator[tuple[NamedPartition, int, V]]],
    what: str,
) -> Answers[NamedPartition, V]:
    """Ask the leader of every partition; if a leader has just moved, ask again until the deadline."""
    answers: Answers[NamedPartition, V] = Answers()
    left = list(partitions)
    problems: dict[NamedPartition, str] = {}

    def attempt() -> None:
        again: list[NamedPartition] = []
        leaders = _leaders(client, left)
        for where in left:
            if where not in leaders:
                missing = BrokerError(errors.UNKNOWN_TOPIC_OR_PARTITION, "it does not exist")
                problems[where] = answers.gone[where] = f"the {what} of {where} are unknown: {missing}"
        for node_id, led in by_value(leaders).items():
            for chunk in chunks(led, PARTITIONS_PER_REQUEST):
                try:
                    answered = _ask_leader(client, node_id, chunk, request, read)
                except Unreachable as e:
                    # One problem of the broker, not one for each of its partitions.
                    problems.update(dict.fromkeys(chunk, f"the {what} of {_first_of(chunk)} are unknown: {e}"))
                    again += chunk if e.patience_s > 0 else ()
                    continue
                except ClientError as e:
                    problems.update((where, f"the {what} of {where} are unknown: {e}") for where in chunk)
                    continue
                for where, code, value in answered:
                    if code == errors.NONE:
                        answers.found[where] = value
                        problems.pop(where, None)
                        continue
                    problems[where] = str(BrokerError(code, f"the {what} of {where} are unknown"))
                    if code == errors.TOPIC_AUTHORIZATION_FAILED:
                        answers.denied.add(where)
                    again += [where] if code in errors.RETRIABLE else ()
        left[:] = again
        if again:
            raise BrokerError(errors.LEADER_NOT_AVAILABLE, f"{again[0]}")

    try:
        retry(attempt, LEADER_DEADLINE_S)
    except ClientError as e:
        for where in left:
            problems.setdefault(where, f"the {what} of {where} are unknown: {e}")
    answers.problems = list(dict.fromkeys(problems[where] for where in sorted(problems)))
    return answers


def _first_of(partitions: Sequence[NamedPartition]) -> str:
    others = len(partitions) - 1
    return str(partitions[0]) + (f" and {others} other partition{'s' if others > 1 else ''}" if others else "")


def _leaders(client: KafkaClient, partitions: Sequence[NamedPartition]) -> dict[NamedPartition, int]:
    """The current leader of each partition that exists; -1: it has none."""
    topics = client.refresh(sorted({where.topic for where in partitions}))
    return {
        where: topics[where.topic].leaders[where.partition]
        for where in partitions
        if where.topic in topics and where.partition < len(topics[where.topic].leaders)
    }


def _ask_leader(
    client: KafkaClient,
    node_id: int,
    partitions: Sequence[NamedPartition],
    request: Callable[[Mapping[str, list[int]]], Message],
    read: Callable[[Any], Iterator[tuple[NamedPartition, int, V]]],
) -> list[tuple[NamedPartition, int, V]]:
    if node_id < 0:
        raise BrokerError(errors.LEADER_NOT_AVAILABLE, "no broker leads it now")
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return list(read(client.send(client.broker(node_id), request(by_topic))))
