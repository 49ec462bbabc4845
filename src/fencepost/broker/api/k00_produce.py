"""Produce (key 0), v3-13: append one record batch to each of some partitions.

v5 log start offset; v8 record errors and messages; v10 the new leader (KIP-951); v11 TRANSACTION_ABORTABLE is
understood; v12 adds a partition to the transaction implicitly (TV2, KIP-890); v13 topic ids. The response is encoded
here: it is on the hot path.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from fencepost.broker.cluster import Cluster
from fencepost.broker.coordinator.elsewhere import add_partitions as ask_coordinator
from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.leaders import NO_TAGS, NewLeaders
from fencepost.broker.node import Context
from fencepost.broker.topics import INTERNAL_TOPICS, Topic
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.partition.partition import AppendResult, Partition
from fencepost.protocol import errors
from fencepost.protocol.batch import ATTRIBUTES_AT, HEADER_BYTES, PRODUCER, PRODUCER_AT, TRANSACTIONAL, Buffer
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.schema import write_uvarint
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV0, TV2

_INT32 = struct.Struct(">i")
_SIZE = struct.Struct(">h")
_RESULT_V3 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
# The errors of the coordinator that a producer sees under another code; all others pass unchanged.
_AS_SEEN_BY_PRODUCER = {
    errors.COORDINATOR_LOAD_IN_PROGRESS: errors.NOT_ENOUGH_REPLICAS,
    errors.COORDINATOR_NOT_AVAILABLE: errors.NOT_ENOUGH_REPLICAS,
    errors.NOT_COORDINATOR: errors.NOT_ENOUGH_REPLICAS,
    errors.NETWORK_EXCEPTION: errors.NOT_ENOUGH_REPLICAS,
    errors.PRODUCER_FENCED: errors.INVALID_PRODUCER_EPOCH,
}
NO_APPEND = -1
ACKS = (-1, 0, 1)
WAITING_ACKS = (-1, 1)
FIRST_WITH_LEADERS = 10
FIRST_WITH_TOPIC_IDS = 13
LEADER_TAG = 0
_ACKS_AND_COUNT = struct.Struct(">hxxxxB")


def handle(ctx: Context, req: ProduceRequest) -> bytes | None:
    version, cluster = ctx.version, ctx.cluster
    is_guarded = cluster.authorizer is not None
    request_error = errors.NONE
    if is_guarded and not _may_write_transaction(ctx, req):
        request_error = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif req.acks not in ACKS:
        request_error = errors.INVALID_REQUIRED_ACKS
    elif req.transactional_id is None or len(req.topic_data) != 1 or len(req.topic_data[0].partition_data) != 1:
        request_error = _check_producers(req)
    by_id = version >= FIRST_WITH_TOPIC_IDS
    results: list[AppendResult] = []
    unverified: list[_Unverified] = []
    fenced_before = cluster.txns.counts.fenced
    for topic_data in req.topic_data:
        topic = _topic_of(cluster, topic_data, version)
        is_denied = is_guarded and not _may_write(ctx, topic, None if by_id else topic_data.name)
        for data in topic_data.partition_data:
            index = data.index
            if is_denied and request_error != errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                result = _refused(errors.TOPIC_AUTHORIZATION_FAILED)
            elif request_error:
                result = _refused(request_error)
            elif topic is None:
                result = _refused(errors.UNKNOWN_TOPIC_ID if by_id else errors.UNKNOWN_TOPIC_OR_PARTITION)
            elif not 0 <= index < topic.partition_count:
                result = _refused(errors.UNKNOWN_TOPIC_OR_PARTITION)
            elif topic.name in INTERNAL_TOPICS:
                # Differs: Kafka refuses a Produce to an internal topic after asking the coordinator, so from v12 on it
                # adds the partition to the transaction. Fencepost refuses first and adds nothing.
                result = _refused(errors.INVALID_TOPIC_EXCEPTION, f"clients may not produce to {topic.name}")
            elif (partition := topic.partitions.get(index)) is None:
                result = _refused(errors.NOT_LEADER_OR_FOLLOWER)
            else:
                try:
                    result = append(cluster, partition, data.records, req.transactional_id, version, ctx.now_ms)
                except NotCoordinator:
                    result = _refused(errors.NOT_COORDINATOR)
                    assert data.records is not None
                    unverified.append(_Unverified(len(results), partition, data.records))
            results.append(result)
    # A request that is fenced counts once, and not for each of its partitions.
    cluster.txns.counts.fenced = min(cluster.txns.counts.fenced, fenced_before + 1)
    if unverified:
        _verify_elsewhere(ctx, req, results, unverified)
        return None
    return _answer(ctx, req, results)


class _Unverified(NamedTuple):
    """A batch that waits for the coordinator of its transaction, which is on another node."""

    at: int  # The position of its result.
    partition: Partition
    records: Buffer


def _verify_elsewhere(
    ctx: Context, req: ProduceRequest, results: list[AppendResult], unverified: list[_Unverified]
) -> None:
    """Ask the coordinator, and then append. Until the answer to the client, its connection handles no other request."""
    cluster = ctx.cluster
    # The batches of a request come from one producer.
    producer_id, epoch = PRODUCER.unpack_from(unverified[0].records, PRODUCER_AT)
    verifications = [waiting.partition.verifications.begin(producer_id) for waiting in unverified]
    transaction_version = TV2 if ctx.version >= 12 else TV0

    def verified(found: Mapping[TopicPartition, int], now_ms: int) -> None:
        for waiting, verification in zip(unverified, verifications, strict=True):
            partition = waiting.partition
            where = (partition.topic, partition.index)
            error = found[where]
            if not partition.verifications.end(producer_id, verification):
                error = error or errors.INVALID_TXN_STATE
            if cluster.partition(*where) is not partition:
                results[waiting.at] = _refused(errors.NOT_LEADER_OR_FOLLOWER)
            elif error:
                results[waiting.at] = _refused(_seen_by_producer(error, ctx.version))
            else:
                results[waiting.at] = partition.append(
                    waiting.records, now_ms, verified=True, transaction_version=transaction_version
                )
        response = _answer(ctx, req, results)
        if response is not None:
            ctx.reply(response)

    assert req.transactional_id is not None
    ask_coordinator(
        cluster,
        req.transactional_id,
        producer_id,
        epoch,
        {(waiting.partition.topic, waiting.partition.index) for waiting in unverified},
        not transaction_version.bumps_epoch,
        ctx.now_ms,
        verified,
    )


def _answer(ctx: Context, req: ProduceRequest, results: list[AppendResult]) -> bytes | None:
    version = ctx.version
    if req.acks == 0:
        # The client expects no answer, so closing the connection is the only way to report an error.
        if any(result.error for result in results):
            ctx.close_connection("a Produce request with acks=0 failed")
        ctx.reply_nothing()
        return None
    flexible = version >= 9
    out = bytearray(write_uvarint(len(req.topic_data) + 1) if flexible else _INT32.pack(len(req.topic_data)))
    remaining = iter(results)
    leaders = NewLeaders(ctx)
    for topic_data in req.topic_data:
        if version >= FIRST_WITH_TOPIC_IDS:
            out += topic_data.topic_id
        else:
            raw = topic_data.name.encode()
            out += (write_uvarint(len(raw) + 1) if flexible else _SIZE.pack(len(raw))) + raw
        count = len(topic_data.partition_data)
        out += write_uvarint(count + 1) if flexible else _INT32.pack(count)
        for data in topic_data.partition_data:
            result, tags = next(remaining), NO_TAGS
            if result.error == errors.NOT_LEADER_OR_FOLLOWER and version >= FIRST_WITH_LEADERS:
                tags = leaders.name(LEADER_TAG, _topic_of(ctx.cluster, topic_data, version), data.index)
            _encode_result(out, data.index, result, version, tags)
        if flexible:
            out += b"\0"
    out += b"\0\0\0\0"
    if flexible:
        out += leaders.endpoints()
    return bytes(out)


def _topic_of(cluster: Cluster, data: ProduceRequest.TopicProduceData, version: int) -> Topic | None:
    return cluster.topics_by_id.get(data.topic_id) if version >= FIRST_WITH_TOPIC_IDS else cluster.topics.get(data.name)


def answer_from_bytes(cluster: Cluster, frame: bytes, pos: int, version: int, now_ms: int) -> bytes | None:
    """One batch for one partition, in v9 to v12: what a small transaction sends to each of its topics.

    The three empty tag sections at the end are the partition's, the topic's and the request's.
    """
    if not 9 <= version <= 12 or frame[-3:] != b"\0\0\0":
        return None
    try:
        size = frame[pos + 1]  # After the header's tags: one more than the length of the transactional id.
        name_at = pos + 9 + size
        name_size = frame[name_at - 1]
        index_at = name_at + name_size
        if frame[pos] or size > 0x7F or name_size > 0x7F or name_size < 1 or frame[index_at - 1] != 2:
            return None
        acks, topics = _ACKS_AND_COUNT.unpack_from(frame, name_at - 8)
        (index,) = _INT32.unpack_from(frame, index_at)
        records_size, shift, records_at = 0, 0, index_at + 4
        while True:
            byte = frame[records_at]
            records_size |= (byte & 0x7F) << shift
            records_at += 1
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                return None  # No length has more than five bytes.
        # With a transactional id the batch needs no check for one. No bytes may be left over.
        if topics != 2 or not size or acks not in WAITING_ACKS or records_at + records_size + 2 != len(frame):
            return None
        transactional_id = frame[pos + 2 : pos + 1 + size].decode()
        topic = cluster.topics.get(frame[name_at : index_at - 1].decode())
    except (IndexError, UnicodeDecodeError, struct.error):
        return None
    if topic is None or topic.name in INTERNAL_TOPICS or (partition := topic.partitions.get(index)) is None:
        return None
    try:
        result = append(cluster, partition, frame[records_at:-3], transactional_id, version, now_ms)
    except NotCoordinator:
        return None
    out = bytearray(b"\2" + frame[name_at - 1 : index_at])
    _encode_result(out, index, result, version)
    out += b"\0\0\0\0\0\0"
    return bytes(out)


def append(
    cluster: Cluster,
    partition: Partition,
    records: Buffer | None,
    transactional_id: str | None,
    version: int,
    now_ms: int,
) -> AppendResult:
    """Append one batch. Before a transaction's first write to a partition, ask the coordinator.

    Raises NotCoordinator, before anything has changed, if that is on another node.
    """
    if records is None:
        # Differs: Kafka never answers a Produce that has no record batch for a partition. Fencepost answers
        # INVALID_RECORD.
        return _refused(errors.INVALID_RECORD, "there is no record batch for the partition")
    if len(records) < HEADER_BYTES or not records[ATTRIBUTES_AT] & TRANSACTIONAL:
        return partition.append(records, now_ms)
    producer_id, epoch = PRODUCER.unpack_from(records, PRODUCER_AT)
    transaction_version = TV2 if version >= 12 else TV0
    producer = partition.producers.by_id.get(producer_id)
    if producer is not None:
        if epoch == producer.epoch and producer.txn_first_offset >= 0:
            # Its transaction already has data here, so the partition is verified.
            return partition.append(records, now_ms, transaction_version=transaction_version)
        if epoch < producer.epoch:
            # Kafka: a batch with an old epoch is refused before the log is read, without the log start offset.
            return partition.append(records, now_ms, transaction_version=transaction_version)._replace(
                log_start_offset=-1
            )
    assert transactional_id is not None
    # Differs: Kafka verifies asynchronously, remembers the lowest sequence that it was asked to verify, and refuses
    # batches above it. With TV1, a duplicate from the previous transaction, or a batch that it refused, can make it
    # refuse the next transaction. Fencepost handles a connection's next request after the answer to this one, so no
    # batch can overtake another.
    where = (partition.topic, partition.index)
    if transaction_version.bumps_epoch:
        error = cluster.txns.add_partitions(transactional_id, producer_id, epoch, {where}, TV2, now_ms)
    elif cluster.config["transaction.partition.verification.enable"]:
        error = cluster.txns.verify(transactional_id, producer_id, epoch, where)
    else:
        error = errors.NONE
    if error:
        return _refused(_seen_by_producer(error, version))
    return partition.append(records, now_ms, verified=True, transaction_version=transaction_version)


def _seen_by_producer(error: int, version: int) -> int:
    if error == errors.CONCURRENT_TRANSACTIONS:
        return error if version >= 12 else errors.NOT_ENOUGH_REPLICAS
    if error == errors.TRANSACTION_ABORTABLE:
        return error if version >= 11 else errors.INVALID_TXN_STATE
    return _AS_SEEN_BY_PRODUCER.get(error, error)


def _may_write_transaction(ctx: Context, req: ProduceRequest) -> bool:
    """Transactional batches need the permission to write with their transactional id."""
    if req.transactional_id is None or not _is_transactional(req):
        return True  # Without an id, `_check_producers` refuses them.
    return ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, req.transactional_id)


def _may_write(ctx: Context, topic: Topic | None, name: str | None) -> bool:
    asked = name if topic is None else topic.name
    return asked is None or ctx.may(Operation.WRITE, ResourceType.TOPIC, asked)  # None: the topic id is unknown.


def _is_transactional(req: ProduceRequest) -> bool:
    return any(
        data.records and len(data.records) >= HEADER_BYTES and data.records[ATTRIBUTES_AT] & TRANSACTIONAL
        for topic in req.topic_data
        for data in topic.partition_data
    )


def _check_producers(req: ProduceRequest) -> int:
    """Transactional batches need the request to name its transactional id, and come from one producer."""
    producer = None
    for topic in req.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records and len(records) >= HEADER_BYTES and records[ATTRIBUTES_AT] & TRANSACTIONAL:
                if req.transactional_id is None:
                    return errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                found = PRODUCER.unpack_from(records, PRODUCER_AT)
                if producer not in (None, found):
                    return errors.INVALID_PRODUCER_ID_MAPPING
                producer = found
    return errors.NONE


def _refused(error: int, message: str | None = None) -> AppendResult:
    return AppendResult(error, -1, NO_APPEND, -1, message)


def _encode_result(out: bytearray, index: int, result: AppendResult, version: int, tags: bytes = NO_TAGS) -> None:
    error, base_offset, append_time, start_offset, message, _, record_errors = result
    if version < 5:
        out += _RESULT_V3.pack(index, error, base_offset, append_time)
        return
    out += _RESULT_V5.pack(index, error, base_offset, append_time, start_offset)
    if version >= 9:
        if message is None:
            out += b"\1\0" + tags  # A batch with record errors has a message too.
            return
        out += write_uvarint(len(record_errors) + 1)
        for each in record_errors:
            out += _INT32.pack(each.batch_index) + _compact_string(each.message) + b"\0"
        out += _compact_string(message) + tags
    elif version == 8:
        out += _INT32.pack(len(record_errors))
        for each in record_errors:
            out += _INT32.pack(each.batch_index) + _string(each.message)
        out += b"\xff\xff" if message is None else _string(message)


def _string(text: str) -> bytes:
    raw = text.encode()
    return _SIZE.pack(len(raw)) + raw


def _compact_string(text: str) -> bytes:
    raw = text.encode()
    return write_uvarint(len(raw) + 1) + raw
