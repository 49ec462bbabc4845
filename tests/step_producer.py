"""A transactional producer that is driven step by step: every call sends the requests of one step, and no others."""

from __future__ import annotations

import time

from fencepost.client.admin.offsets import OffsetToCommit
from fencepost.client.client import KafkaClient, retry
from fencepost.client.failures import BrokerError
from fencepost.client.transaction import Transaction
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import ProduceRequest
from tests.readers.reading import TIMEOUT_S

IMPLICIT_ADD, BEFORE_IMPLICIT_ADD = 12, 11


class StepProducer:
    def __init__(self, client: KafkaClient, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.client = client
        self.transaction = Transaction(client, transactional_id, timeout_ms)
        self._sequences: dict[tuple[str, int, int, int], int] = {}

    def init(self) -> None:
        self.transaction.init()

    def produce(self, topic: str, partition: int, *values: str) -> int:
        """Write a batch; returns its offset."""
        self.transaction.add_partitions([(topic, partition)])
        identity = self.transaction.identity
        key = (topic, partition, identity.producer_id, identity.producer_epoch)
        sequence = self._sequences.get(key, 0)
        records = [(b"key", value.encode()) for value in values]
        now_ms = time.time_ns() // 1_000_000
        batch = encode_batch(records, now_ms, identity.producer_id, identity.producer_epoch, sequence, True)
        self._sequences[key] = sequence + len(values)
        data = [ProduceRequest.PartitionProduceData(partition, batch)]
        request = ProduceRequest(
            identity.transactional_id, -1, 30_000, [ProduceRequest.TopicProduceData(topic, partition_data=data)]
        )
        version = IMPLICIT_ADD if self.transaction.version.bumps_epoch else BEFORE_IMPLICIT_ADD

        def attempt() -> int:
            response = self.client.send(self.client.leader(topic, partition), request, version)
            written = response.responses[0].partition_responses[0]
            if written.error_code:
                raise BrokerError(written.error_code, f"Produce to {topic}-{partition}")
            return int(written.base_offset)

        # Apache Kafka answers so while it writes the markers of the transaction before.
        return retry(attempt, TIMEOUT_S, errors.RETRIABLE | {errors.CONCURRENT_TRANSACTIONS})

    def commit_offset(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        self.transaction.commit_offsets(group_id, [OffsetToCommit(topic, partition, offset)])

    def commit(self) -> None:
        self.transaction.commit()

    def abort(self) -> None:
        self.transaction.abort()
