"""Writes salvaged records to a partition, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from fencepost.cli.streams import Failure
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.client.producing import produce
from fencepost.client.transaction import Transaction
from fencepost.protocol import errors
from fencepost.protocol.batch import TRANSACTIONAL, BatchHeader, advance_sequence
from fencepost.protocol.records import Record, encode_records

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
TIMEOUT_MS = 300_000


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
            _produce(client, transaction, topic, partition, encoded)
            sequence = advance_sequence(sequence, len(records))
    except BaseException:
        with suppress(ClientError):  # Report the first error, not this one. The timeout also ends the transaction.
            transaction.abort()
        raise
    transaction.commit()


def _produce(client: KafkaClient, transaction: Transaction, topic: str, partition: int, encoded: bytes) -> None:
    try:
        produce(client, topic, partition, encoded, transaction.transactional_id, transaction.version)
    except BrokerError as e:
        if e.code != errors.MESSAGE_TOO_LARGE:
            raise
        raise Failure(
            f"{topic}-{partition} refuses a batch of {len(encoded)} bytes: it is larger than max.message.bytes",
            "raise max.message.bytes of the topic, at least for a while",
        ) from None
