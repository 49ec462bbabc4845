"""The contents of a broker, for the assertions of a test: committed records and transactions, read as a client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fencepost.client.admin.answers import DescribedTxn, NamedPartition
from fencepost.client.admin.partitions import EARLIEST, READ_COMMITTED, list_offsets, partitions_of
from fencepost.client.admin.transactions import describe_transactions, list_transactions
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.client.fetching import fetch_partition
from fencepost.protocol import errors
from fencepost.protocol.messages import CreateTopicsRequest
from fencepost.testing.faults import OrderRefused


class CommittedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def create_topic(client: KafkaClient, name: str, partitions: int, configs: Mapping[str, object]) -> None:
    """Raises OrderRefused if the topic exists, or if the broker refuses its name or settings."""
    settings = [CreateTopicsRequest.CreatableTopicConfig(key, str(value)) for key, value in configs.items()]
    topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1, configs=settings)
    response = client.send(client.any_broker(), CreateTopicsRequest([topic], 30_000))
    result = response.topics[0]
    if result.error_code:
        why = result.error_message or errors.name_of(result.error_code)
        raise OrderRefused(
            f"topic {name!r} cannot be created: {why}\n\n"
            "hint: give each test its own topics, and settings with Kafka's names"
        )


def read_committed(client: KafkaClient, topic: str) -> Iterator[CommittedRecord]:
    """The records up to the last stable offset, partition by partition. Raises OrderRefused if there is no topic."""
    try:
        partitions = partitions_of(client, [topic])
    except BrokerError as e:
        raise OrderRefused(f"topic {topic!r} cannot be read: {e}\n\nhint: create it, or write to it, first") from None
    starts = list_offsets(client, partitions, timestamp=EARLIEST)
    ends = list_offsets(client, partitions, READ_COMMITTED)
    if problems := starts.problems + ends.problems:
        raise OrderRefused(f"topic {topic!r} cannot be read: {problems[0]}\n\nhint: does the broker run?")
    for where in partitions:
        yield from _read_partition(client, where, starts.found[where], ends.found[where])


def _read_partition(client: KafkaClient, where: NamedPartition, start: int, end: int) -> Iterator[CommittedRecord]:
    position = start
    while position < end:
        records, following = fetch_partition(client, where, position, READ_COMMITTED).delivered(position)
        for record in records:
            if record.offset < end:
                yield CommittedRecord(*where, record.offset, record.key, record.value, record.headers, record.timestamp)
        if following == position:
            return  # Everything behind it was deleted.
        position = following


def transactions(client: KafkaClient) -> list[DescribedTxn]:
    """All transactional ids with their states, by name."""
    listed = list_transactions(client)
    described = describe_transactions(client, {id_: txn.coordinator for id_, txn in listed.found.items()})
    if problems := listed.problems + described.problems:
        raise ClientError(problems[0])
    return [described.found[id_] for id_ in sorted(described.found)]
