"""Many transactional ids over one connection, with requests sent ahead: far faster than a client for each.

with Pipeline(port) as line:
    producers = init_all(line, names)
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from fencepost.protocol.schema import Message
from tests.wire.raw_client import decode_reply, encode_frame

AHEAD = 200  # Requests that are sent before the first of them is answered.
PATIENCE_S = 120.0
TIMEOUT_MS = 600_000
COORDINATOR_OF_TXN = 1
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
PASSING = {
    errors.COORDINATOR_NOT_AVAILABLE,
    errors.COORDINATOR_LOAD_IN_PROGRESS,
    errors.NOT_COORDINATOR,
    errors.CONCURRENT_TRANSACTIONS,
    errors.UNKNOWN_TOPIC_OR_PARTITION,
    errors.NOT_LEADER_OR_FOLLOWER,
    errors.LEADER_NOT_AVAILABLE,
    errors.NOT_ENOUGH_REPLICAS,  # Apache Kafka: the leader could not ask the coordinator yet.
}
_INT32 = struct.Struct(">i")


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


class Pipeline:
    """One connection; a broker answers its requests in order."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb", buffering=1 << 16)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._replies.close()
        self._socket.close()

    def ask(self, requests: Sequence[Message], version: int) -> list[Any]:
        found = []
        for first in range(0, len(requests), AHEAD):
            some = requests[first : first + AHEAD]
            frames = [encode_frame(request, version) for request in some]
            self._socket.sendall(b"".join([_INT32.pack(len(frame)) + frame for frame in frames]))
            found += [decode_reply(request, version, self._frame()) for request in some]
        return found

    def _frame(self) -> bytes:
        (size,) = _INT32.unpack(self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found: bytes = self._replies.read(size)
        if len(found) < size:
            raise ConnectionError("the broker closed the connection")
        return found


def _until_done(names: Iterable[str], attempt: Any) -> None:
    """Ask for all names, and again for those with an error that passes. `attempt` answers with an error for each."""
    left = list(names)
    deadline = time.monotonic() + PATIENCE_S
    while left:
        codes = attempt(left)
        if bad := set(codes) - PASSING - {errors.NONE}:
            raise SystemExit(f"error: the broker answered with {sorted(bad)}")
        if time.monotonic() > deadline:
            raise SystemExit(f"error: {len(left)} requests were not done within {PATIENCE_S:g} s: {sorted(set(codes))}")
        left = [name for name, code in zip(left, codes) if code]


def init_all(line: Pipeline, names: Sequence[str]) -> dict[str, Identity]:
    """InitProducerId for each id, again until it succeeds."""
    found: dict[str, Identity] = {}

    def attempt(left: list[str]) -> list[int]:
        replies = line.ask([InitProducerIdRequest(name, TIMEOUT_MS) for name in left], 2)
        found.update({n: Identity(r.producer_id, r.producer_epoch) for n, r in zip(left, replies) if not r.error_code})
        return [reply.error_code for reply in replies]

    # Apache Kafka creates its topic for transactions at the first question for a coordinator.
    line.ask([FindCoordinatorRequest(names[0], COORDINATOR_OF_TXN)], 3)
    _until_done(names, attempt)
    return found


def begin_all(line: Pipeline, producers: Mapping[str, Identity], topic: str, partitions: int) -> None:
    """A transaction of one record for each id, left open."""
    where = {name: number % partitions for number, name in enumerate(producers)}

    def add(left: list[str]) -> list[int]:
        replies = line.ask([_add_partition(name, producers[name], topic, where[name]) for name in left], 3)
        return [
            found.partition_error_code
            for reply in replies
            for result in reply.results_by_topic_v3_and_below
            for found in result.results_by_partition
        ]

    def send(left: list[str]) -> list[int]:
        replies = line.ask([_produce(name, producers[name], topic, where[name]) for name in left], 9)
        return [reply.responses[0].partition_responses[0].error_code for reply in replies]

    _until_done(producers, add)
    _until_done(producers, send)


def end_all(line: Pipeline, producers: Mapping[str, Identity]) -> None:
    """Commit the open transaction of each id."""

    def end(left: list[str]) -> list[int]:
        replies = line.ask([EndTxnRequest(name, *producers[name], True) for name in left], 3)
        return [reply.error_code for reply in replies]

    _until_done(producers, end)


def _add_partition(name: str, who: Identity, topic: str, partition: int) -> Message:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(topic, [partition])],
    )


def _produce(name: str, who: Identity, topic: str, partition: int) -> Message:
    batch = encode_batch([(None, b"x" * 100)], time.time_ns() // 1_000_000, *who, 0, transactional=True)
    data = [ProduceRequest.PartitionProduceData(partition, batch)]
    return ProduceRequest(name, -1, 30_000, [ProduceRequest.TopicProduceData(name=topic, partition_data=data)])


def end_offsets(line: Pipeline, topic: str, partitions: int, isolation_level: int) -> list[int]:
    """The high watermark of each partition, or its last stable offset. -1: the broker cannot tell yet."""
    wanted = [ListOffsetsRequest.ListOffsetsPartition(n, -1, LATEST) for n in range(partitions)]
    request = ListOffsetsRequest(-1, isolation_level, [ListOffsetsRequest.ListOffsetsTopic(topic, wanted)])
    [reply] = line.ask([request], 5)
    return [-1 if p.error_code else p.offset for p in reply.topics[0].partitions]


def nothing_is_open(line: Pipeline, topic: str, partitions: int) -> bool:
    """Whether the last stable offset of every partition is its high watermark."""
    stable = end_offsets(line, topic, partitions, READ_COMMITTED)
    return min(stable) >= 0 and stable == end_offsets(line, topic, partitions, READ_UNCOMMITTED)
