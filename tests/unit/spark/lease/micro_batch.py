"""One open transaction of a lease service, and what its tests do with it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.client import LeaseClient
from fencepost.spark.lease.messages import Lease, MustAbort, TaskAttempt
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer

REFUNDS, AUDIT = ("refunds", 0), ("audit", 0)
WAIT_S = 20.0


class MicroBatch:
    """One open transaction of a server, with the calls that its driver got."""

    def __init__(self, server: LeaseServer, *, timeout_ms: int = 30_000, at_once: int | None = 1) -> None:
        self.server = server
        self.touched: list[TopicPartition] = []
        self.broken: queue.Queue[MustAbort] = queue.Queue()
        table = LeaseTable(lease_timeout_ms=timeout_ms, first_touches_at_once=at_once)
        self.address = server.open(table, self.add, self.broken.put)

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        self.touched += partitions

    def client(
        self, partition_id: int, attempt: int | None = None, write: int = 1, number: int | None = None
    ) -> LeaseClient:
        task = TaskAttempt(write, partition_id, 100 + partition_id if attempt is None else attempt)
        return LeaseClient(self.address, task, number)


def acquire(client: LeaseClient, partition: TopicPartition, count: int = 10) -> Lease:
    (lease,) = client.acquire({partition: count})
    return lease


def write(client: LeaseClient, partition: TopicPartition, count: int = 10) -> int:
    lease = acquire(client, partition, count=count)
    client.release([lease])
    return lease.base_sequence


def is_waiting(future: Future[Any]) -> bool:
    time.sleep(0.1)
    return not future.done()


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()
