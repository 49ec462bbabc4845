"""Writes the rows of one task: encodes them, takes the leases that are free, sends, and gives the leases back."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from fencepost.client.client import KafkaClient
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.encode.record_batches import EncodedRecordBatch, encode_rows
from fencepost.spark.lease.client import LeaseClient
from fencepost.spark.task.plan import WritePlan
from fencepost.spark.task.sender import Leased, Sender
from fencepost.spark.task.topics import pin

# The most partitions that a task names when it asks for leases: some of so many are free soon.
WANTS_AT_ONCE = 1024

# A Python worker runs many tasks, so they share its connections.
_clients: dict[tuple[tuple[str, str], ...], KafkaClient] = {}


def _client(settings: Mapping[str, object]) -> KafkaClient:
    key = tuple(sorted((name, str(value)) for name, value in settings.items()))
    if key not in _clients:
        _clients[key] = KafkaClient(settings)
    return _clients[key]


def first_turn(*task: int) -> int:
    """Where a task begins when it deals out rows without a key to the partitions.

    Every task of every micro-batch begins elsewhere. Otherwise small tasks would all write to the first partitions.
    """
    return hash(task) & 0x7FFFFFFF


def in_turn(record_batches: Iterable[EncodedRecordBatch], turn: int) -> dict[TopicPartition, deque[EncodedRecordBatch]]:
    """The record batches of each partition; the partitions in the order in which the task asks for them.

    If there are too many to name at once, every task has an order of its own. Otherwise all tasks would wait for the
    same few partitions while the others are free.
    """
    queues: dict[TopicPartition, deque[EncodedRecordBatch]] = {}
    for one in record_batches:
        queues.setdefault((one.topic, one.partition), deque()).append(one)
    if len(queues) <= WANTS_AT_ONCE:
        return queues
    return {where: queues[where] for where in random.Random(turn).sample(list(queues), len(queues))}


class TaskWriter:
    """`counts` has the number of records that were acknowledged in each partition."""

    def __init__(self, plan: WritePlan, leases: LeaseClient, partition_id: int) -> None:
        self._plan = plan
        self._leases = leases
        self._client = _client(plan.settings)
        self.topics = dict(plan.topics)
        self._sender = Sender(plan, self._client, leases, self.topics)
        self._turn = first_turn(plan.identity.producer_epoch, plan.write_number, partition_id)
        self.counts: dict[TopicPartition, int] = {}

    def write(self, table: Any) -> None:
        """Write the rows of a pyarrow Table."""
        record_batches = encode_rows(
            table,
            topic=self._plan.topic,
            partition_count=self._partition_count,
            now_ms=time.time_ns() // 1_000_000,
            null_start=self._turn,
            compression=self._plan.compression,
            max_record_batch_bytes=self._plan.max_record_batch_bytes,
        )
        self._turn += table.num_rows
        waiting = in_turn(record_batches, self._turn)
        while waiting:
            self._send_some(waiting)

    def _partition_count(self, topic: str) -> int:
        if topic not in self.topics:
            self.topics[topic] = pin(self._client, topic)
        return self.topics[topic].partition_count

    def _send_some(self, waiting: dict[TopicPartition, deque[EncodedRecordBatch]]) -> None:
        """Take the leases that are free for the next record batches, send those, and give the leases back.

        The task asks once: a second question would be answered with what others gave back meanwhile, which is little.
        """
        named = list(islice(waiting, WANTS_AT_ONCE))
        leases = self._leases.acquire({where: waiting[where][0].record_count for where in named})
        leased = [Leased(waiting[lease.topic, lease.partition].popleft(), lease) for lease in leases]
        self._sender.send(leased)
        self._leases.release(leases, sum(one.record_batch.size_bytes for one in leased))
        for where in named:  # To the back, so that the task names other partitions first.
            if record_batches := waiting.pop(where):
                waiting[where] = record_batches
        for one in leased:
            self.counts[one.where] = self.counts.get(one.where, 0) + one.record_batch.record_count
