"""Writes salvaged records to a partition, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from fencepost.cli.errors import Failure
from fencepost.client.client import DEFAULT_DEADLINE_S, KafkaClient, retry
from fencepost.client.failures import BrokerError, ClientError
from fencepost.client.transaction import ProducerIdentity, Transaction
from fencepost.protocol import errors
from fencepost.protocol.batch import TRANSACTIONAL, BatchHeader, advance_sequence
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.records import Record, encode_records
from fencepost.protocol.transaction_version import TV2

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
TIMEOUT_MS = 300_000
REQUEST_TIMEOUT_MS = 30_000
# From version 12 on, a write adds its partition to the transaction.
PRODUCE_TV2, PRODUCE_TV1 = 13, 11


def write_batches(
    client: KafkaClient, topic: str, partition: int, batches: Iterable[tuple[BatchHeader, list[Record]]]
) -> None:
    """Write all records, or none: the batches keep their size and compression. Raises ClientError or Failure."""
    client.leader(topic, partition)  # Raises BrokerError if the partition does not exist.
    transaction = Transaction(client, f"fencepost-salvage-{topic}-{partition}", TIMEOUT_MS, is_verified=True)
    transaction.init()
    identity = transaction.begin()
    transaction.add_partitions([(topic, partition)])
    try:
        sequence = 0
        for header, records in batches:
            encoded = encode_records(
                records, header.codec, TRANSACTIONAL, identity.producer_id, identity.producer_epoch, sequence
            )
            _produce(client, identity, transaction.version is TV2, topic, partition, encoded)
            sequence = advance_sequence(sequence, len(records))
    except BaseException:
        with suppress(ClientError):  # Report the first error, not this one. The timeout also ends the transaction.
            transaction.abort()
        raise
    transaction.commit()


def _produce(
    client: KafkaClient, identity: ProducerIdentity, is_tv2: bool, topic: str, partition: int, encoded: bytes
) -> None:
    data, entry = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData

    def attempt() -> None:
        request = ProduceRequest(
            identity.transactional_id,
            -1,
            REQUEST_TIMEOUT_MS,
            [data(topic, client.topic(topic).topic_id, [entry(partition, encoded)])],
        )
        try:
            response = client.send(client.leader(topic, partition), request, PRODUCE_TV2 if is_tv2 else PRODUCE_TV1)
        except ClientError:
            client.refresh([topic])
            raise
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == errors.MESSAGE_TOO_LARGE:
            raise Failure(
                f"{topic}-{partition} refuses a batch of {len(encoded)} bytes: it is larger than max.message.bytes",
                "raise max.message.bytes of the topic, at least for a while",
            )
        if answer.error_code:
            raise BrokerError(answer.error_code, f"Produce to {topic}-{partition}", answer.error_message)

    retry(attempt, DEFAULT_DEADLINE_S)
