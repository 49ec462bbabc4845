"""A producer with transaction version 2: an epoch for each transaction, and partitions that are added by Produce."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.schema import Message
from tests.readers.reading import TIMEOUT_S, connect
from tests.wire.raw_client import Closed, RawClient


class Tv2Client:
    """One transactional id. It reconnects, and sends a request again, until the request is answered."""

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._connection: RawClient | None = None
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.producer_epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    def moved_to(self, bootstrap_servers: str) -> Tv2Client:
        """The same producer in the same transaction, at another address."""
        moved = Tv2Client(bootstrap_servers, self.transactional_id)
        moved._begin(self.producer_id, self.producer_epoch)
        moved._sequences |= self._sequences
        return moved

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, request: Message, version: int) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                if self._connection is None:
                    self._connection = connect(self._bootstrap_servers)
                return self._connection.call(request, version)
            except (Closed, OSError):
                self.close()
                assert time.monotonic() < deadline, "the broker does not come back"
                time.sleep(0.02)

    def call_while_concurrent(self, request: Message, version: int, codes: Callable[[Any], set[int]]) -> Any:
        """Repeat the request while the markers of the last transaction are not written yet."""
        deadline = time.monotonic() + TIMEOUT_S
        while errors.CONCURRENT_TRANSACTIONS in codes(reply := self.call(request, version)):
            assert time.monotonic() < deadline, f"{self.transactional_id}: the last transaction never ends"
            time.sleep(0.01)
        return reply

    def init(self, timeout_ms: int = 60_000) -> None:
        request = InitProducerIdRequest(self.transactional_id, timeout_ms)
        reply = self.call_while_concurrent(request, 5, lambda reply: {reply.error_code})
        assert reply.error_code == errors.NONE, f"InitProducerId: error {reply.error_code}"
        self._begin(reply.producer_id, reply.producer_epoch)

    def _begin(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._sequences.clear()

    def produce(self, batches: Mapping[tuple[str, int], list[str]]) -> int:
        """Send one batch to each partition; return an error code, if there is one."""
        topics: dict[str, list[Any]] = {}
        for (topic, partition), values in batches.items():
            sequence = self._sequences.get((topic, partition), 0)
            self._sequences[topic, partition] = sequence + len(values)
            batch = encode_batch(
                [(None, value.encode()) for value in values],
                time.time_ns() // 1_000_000,
                self.producer_id,
                self.producer_epoch,
                sequence,
                transactional=True,
            )
            topics.setdefault(topic, []).append(ProduceRequest.PartitionProduceData(partition, batch))
        data = [ProduceRequest.TopicProduceData(name=topic, partition_data=parts) for topic, parts in topics.items()]
        request = ProduceRequest(self.transactional_id, -1, 30_000, data)
        reply = self.call_while_concurrent(request, 12, _produce_codes)
        return next(iter(_produce_codes(reply) - {errors.NONE}), errors.NONE)

    def send_offset(self, group_id: str, topic: str, partition: int, offset: int) -> int:
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition, offset, -1, "")
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(topic, [part])],
        )
        reply = self.call(request, version=5)
        return int(reply.topics[0].partitions[0].error_code)

    def end(self, commit: bool) -> int:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.producer_epoch, commit)
        reply = self.call_while_concurrent(request, 5, lambda reply: {reply.error_code})
        if reply.error_code == errors.NONE:
            self._begin(reply.producer_id, reply.producer_epoch)
        return int(reply.error_code)


def _produce_codes(reply: Any) -> set[int]:
    return {partition.error_code for topic in reply.responses for partition in topic.partition_responses}
