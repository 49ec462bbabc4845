"""AddPartitionsToTxn (key 24), v0-5: add partitions to a transaction.

Clients send v0-3, for one transaction. Brokers send v4-5, for several transactions; verify_only asks without adding.
v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. The response to clients is encoded here: it is on the hot path.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from functools import lru_cache

from fencepost.broker.cluster import Cluster
from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.node import Context
from fencepost.broker.topics import INTERNAL_TOPICS
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from fencepost.protocol.schema import Malformed, write_uvarint
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV0, TV2, TransactionVersion

Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
TxnResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
# One error code for all partitions, or one for each.
Outcome = int | dict[TopicPartition, int]

# Larger requests are not cached, so that the cache stays small.
MAX_REMEMBERED_BYTES = 512

_COUNT = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
_SIZE = struct.Struct(">h")
_RESULT = struct.Struct(">ih")


def handle(ctx: Context, req: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | bytes:
    if ctx.version < 4:
        topics = req.v3_and_below_topics
        if not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, req.v3_and_below_transactional_id):
            return encode(ctx.version, topics, errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        outcome = _add(
            ctx,
            req.v3_and_below_transactional_id,
            req.v3_and_below_producer_id,
            req.v3_and_below_producer_epoch,
            topics,
            TV0,
        )
        return encode(ctx.version, topics, outcome)
    if not ctx.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return AddPartitionsToTxnResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED)
    # Differs: Kafka never answers an AddPartitionsToTxn without transactions. Fencepost answers with an empty list.
    results = []
    for txn in req.transactions:
        who = (txn.transactional_id, txn.producer_id, txn.producer_epoch)
        outcome = _verify(ctx, *who, txn.topics) if txn.verify_only else _add(ctx, *who, txn.topics, TV2)
        results.append(TxnResult(txn.transactional_id, _results(txn.topics, outcome)))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def answer_from_bytes(cluster: Cluster, frame: bytes, pos: int, version: int, now_ms: int) -> bytes | None:
    """A request for existing partitions. Below TV2 a client repeats the same request in each of its transactions."""
    if version > 3 or len(frame) - pos > MAX_REMEMBERED_BYTES:
        return None
    known = _remembered(version, frame[pos:])
    if known is None:
        return None
    transactional_id, producer_id, epoch, partitions, topics, granted = known
    for topic, index in partitions:
        if topic in INTERNAL_TOPICS or not cluster.has_partition(topic, index):
            return None
    if not cluster.txns.shards:
        return None
    try:
        error = cluster.txns.add_partitions(transactional_id, producer_id, epoch, partitions, TV0, now_ms)
    except NotCoordinator:
        error = errors.NOT_COORDINATOR
    return granted if error == errors.NONE else encode(version, topics, _seen_by_client(error, version))


@lru_cache(4096)
def _remembered(
    version: int, body: bytes
) -> tuple[str, int, int, frozenset[TopicPartition], Sequence[Topic], bytes] | None:
    """The decoded request and the encoded answer without errors."""
    if version >= 3 and body[:1] != b"\0":
        return None  # The header has tags.
    try:
        req, _ = AddPartitionsToTxnRequest.decode(body, 1 if version >= 3 else 0, version)
    except Malformed:
        return None
    topics = req.v3_and_below_topics
    return (
        req.v3_and_below_transactional_id,
        req.v3_and_below_producer_id,
        req.v3_and_below_producer_epoch,
        frozenset(_partitions_of(topics)),
        topics,
        encode(version, topics, errors.NONE),
    )


def _add(
    ctx: Context,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    topics: Sequence[Topic],
    transaction_version: TransactionVersion,
) -> Outcome:
    partitions = _partitions_of(topics)
    refused = _check(ctx, partitions)
    if refused:
        return refused
    try:
        error = ctx.cluster.txns.add_partitions(
            transactional_id, producer_id, epoch, partitions, transaction_version, ctx.now_ms
        )
    except NotCoordinator:
        error = errors.NOT_COORDINATOR
    return _seen_by_client(error, ctx.version)


def _seen_by_client(error: int, version: int) -> int:
    return errors.INVALID_PRODUCER_EPOCH if error == errors.PRODUCER_FENCED and version < 2 else error


def _verify(ctx: Context, transactional_id: str, producer_id: int, epoch: int, topics: Sequence[Topic]) -> Outcome:
    partitions = _partitions_of(topics)
    verify = ctx.cluster.txns.verify
    if not ctx.cluster.txns.is_here(transactional_id, ctx.now_ms):
        return errors.NOT_COORDINATOR
    return _check(ctx, partitions) or {
        where: verify(transactional_id, producer_id, epoch, where) for where in partitions
    }


def _partitions_of(topics: Sequence[Topic]) -> set[TopicPartition]:
    return {(topic.name, index) for topic in topics for index in topic.partitions}


def _check(ctx: Context, partitions: set[TopicPartition]) -> Outcome:
    denied = {topic for topic in {topic for topic, _ in partitions} if not _may_add(ctx, topic)}
    refused = {where: error for where in partitions if (error := _check_partition(ctx, denied, *where))}
    if refused:
        # All or nothing: the other partitions are not added either.
        return {where: refused.get(where, errors.OPERATION_NOT_ATTEMPTED) for where in partitions}
    return errors.NONE


def _may_add(ctx: Context, topic: str) -> bool:
    if ctx.version >= 4:
        return True  # Brokers may add everything.
    # Clients must use AddOffsetsToTxn for an internal topic.
    return topic not in INTERNAL_TOPICS and ctx.may(Operation.WRITE, ResourceType.TOPIC, topic)


def _check_partition(ctx: Context, denied: Collection[str], topic: str, index: int) -> int:
    if topic in denied:
        return errors.TOPIC_AUTHORIZATION_FAILED
    return errors.NONE if ctx.cluster.has_partition(topic, index) else errors.UNKNOWN_TOPIC_OR_PARTITION


def _error_of(outcome: Outcome, topic: str, index: int) -> int:
    return outcome if isinstance(outcome, int) else outcome[topic, index]


def _results(topics: Sequence[Topic], outcome: Outcome) -> list[TopicResult]:
    return [
        TopicResult(t.name, [PartitionResult(index, _error_of(outcome, t.name, index)) for index in t.partitions])
        for t in topics
    ]


def encode(version: int, topics: Sequence[Topic], outcome: Outcome) -> bytes:
    """The response in v0-3."""
    flexible = version >= 3
    out = bytearray(b"\0\0\0\0" + write_uvarint(len(topics) + 1) if flexible else _HEAD.pack(0, len(topics)))
    for topic in topics:
        name = topic.name.encode()
        out += (write_uvarint(len(name) + 1) if flexible else _SIZE.pack(len(name))) + name
        count = len(topic.partitions)
        out += write_uvarint(count + 1) if flexible else _COUNT.pack(count)
        for index in topic.partitions:
            out += _RESULT.pack(index, _error_of(outcome, topic.name, index))
            if flexible:
                out += b"\0"
        if flexible:
            out += b"\0"
    if flexible:
        out += b"\0"
    return bytes(out)
