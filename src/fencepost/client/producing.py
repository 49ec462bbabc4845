"""Produce: writes one record batch to its partition, and finds the leader again when it has moved."""

from __future__ import annotations

from fencepost.client.client import DEFAULT_DEADLINE_S, KafkaClient, retry
from fencepost.client.failures import BrokerError, ClientError
from fencepost.protocol import errors
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.transaction_version import TV1, TV2, TransactionVersion

REQUEST_TIMEOUT_MS = 30_000
# From version 12 on, a write adds its partition to the transaction.
LAST_VERSIONS = {TV1: 11, TV2: 13}
ALL_REPLICAS = -1


def produce(
    client: KafkaClient,
    topic: str,
    partition: int,
    batch: bytes,
    transactional_id: str | None = None,
    version: TransactionVersion = TV2,
    deadline_s: float = DEFAULT_DEADLINE_S,
) -> int:
    """Write the batch and return its first offset, -1 if the broker does not know it any more. Raises ClientError.

    A retry after a lost reply writes a second copy, unless the batch has a producer id and a sequence.
    """
    data, entry = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData

    def attempt() -> int:
        topic_id = client.topic(topic).topic_id
        request = ProduceRequest(
            transactional_id, ALL_REPLICAS, REQUEST_TIMEOUT_MS, [data(topic, topic_id, [entry(partition, batch)])]
        )
        try:
            response = client.send(client.leader(topic, partition), request, LAST_VERSIONS[version])
        except ClientError:
            client.refresh([topic])
            raise
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == errors.DUPLICATE_SEQUENCE_NUMBER:
            return -1
        if answer.error_code:
            if answer.error_code in errors.RETRIABLE:
                client.refresh([topic])
            raise BrokerError(answer.error_code, f"Produce to {topic}-{partition}", answer.error_message)
        return int(answer.base_offset)

    return retry(attempt, deadline_s)
