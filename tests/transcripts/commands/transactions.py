"""The commands that are requests of a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    MetadataRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tests.transcripts.client import Client, Command
from tests.transcripts.names import Names
from tests.transcripts.parsing import options


def init_producer_id(client: Client, transactional_id: str, *rest: str) -> Iterator[str]:
    plain, given = options(rest)
    producer_id, epoch = client.names.producer(plain[0]) if plain else (-1, -1)
    name = None if transactional_id == "-" else client.names.full(transactional_id)
    request = InitProducerIdRequest(name, int(given.get("timeout", 60_000)), producer_id, epoch)
    reply = client.call(request)
    if reply.error_code:
        assert (reply.producer_id, reply.producer_epoch) == (-1, -1), "an error came with a producer id"
        yield errors.name_of(reply.error_code)
    else:
        yield from (f"pid={reply.producer_id}", f"epoch={reply.producer_epoch}")


def add_partitions(client: Client, transactional_id: str, producer: str, *partitions: str) -> Iterator[str]:
    return _add(client, transactional_id, producer, partitions, verify_only=False)


def verify_partitions(client: Client, transactional_id: str, producer: str, *partitions: str) -> Iterator[str]:
    return _add(client, transactional_id, producer, partitions, verify_only=True)


def _add(
    client: Client, transactional_id: str, producer: str, partitions: tuple[str, ...], verify_only: bool
) -> Iterator[str]:
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topics = [kind(topic, indexes) for topic, indexes in client.names.partitions_by_topic(partitions).items()]
    name, (producer_id, epoch) = client.names.full(transactional_id), client.names.producer(producer)
    if client.version >= 4:
        txn = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(name, producer_id, epoch, verify_only, topics)
        request = AddPartitionsToTxnRequest(transactions=[txn])
    else:
        request = AddPartitionsToTxnRequest((), name, producer_id, epoch, topics)
    reply = client.call(request)
    if client.version >= 4:
        assert reply.error_code == 0, f"error {reply.error_code} for the whole request"
        results = reply.results_by_transaction[0].topic_results
    else:
        results = reply.results_by_topic_v3_and_below
    found = [(f"{t.name}-{p.partition_index}", p.partition_error_code) for t in results for p in t.results_by_partition]
    yield from _codes(client.names, sorted(found))


def add_offsets(client: Client, transactional_id: str, producer: str, group: str) -> Iterator[str]:
    name, (producer_id, epoch) = client.names.full(transactional_id), client.names.producer(producer)
    request = AddOffsetsToTxnRequest(name, producer_id, epoch, client.group(group))
    yield errors.name_of(client.call(request).error_code)


def commit_offsets(client: Client, transactional_id: str, producer: str, group: str, *rest: str) -> Iterator[str]:
    """`orders-0@5` is offset 5 of orders-0; `generation=`, `member=` and `instance=` say who commits."""
    plain, given = options(rest)
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition_kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    topics: dict[str, list[Any]] = {}
    for word in plain:
        place, _, offset = word.partition("@")
        topic, index = client.names.partition(place)
        metadata = "m" * int(given.get("metadata", 0))
        topics.setdefault(topic, []).append(partition_kind(index, int(offset), -1, metadata))
    request = TxnOffsetCommitRequest(
        client.names.full(transactional_id),
        client.group(group),
        *client.names.producer(producer),
        int(given.get("generation", -1)),
        client.members.get(given.get("member", ""), given.get("member", "")),
        given.get("instance"),
        [kind(topic, partitions) for topic, partitions in topics.items()],
    )
    reply = client.call(request)
    found = [(f"{t.name}-{p.partition_index}", p.error_code) for t in reply.topics for p in t.partitions]
    yield from _codes(client.names, sorted(found))


def end_txn(client: Client, transactional_id: str, producer: str, how: str) -> Iterator[str]:
    assert how in ("commit", "abort")
    request = EndTxnRequest(client.names.full(transactional_id), *client.names.producer(producer), how == "commit")
    reply = client.call(request)
    if reply.error_code or client.version < 5:
        assert (reply.producer_id, reply.producer_epoch) == (-1, -1)
        yield errors.name_of(reply.error_code)
    else:
        yield from (f"pid={reply.producer_id}", f"epoch={reply.producer_epoch}")


def produce(
    client: Client, transactional_id: str, producer: str, sequence: str, place: str, *values: str
) -> Iterator[str]:
    """Write a batch of `values`. With the transactional id `-` the batch is not transactional."""
    values = values or ("x",)
    producer_id, epoch = client.names.producer(producer)
    batch = encode_batch(
        [(None, value.encode()) for value in values],
        client.target.now_ms,
        producer_id,
        epoch,
        int(sequence),
        transactional=transactional_id != "-",
    )
    topic, index = client.names.partition(place)
    name = None if transactional_id == "-" else client.names.full(transactional_id)
    topic_id = _topic_id(client, topic) if client.version >= 13 else bytes(16)
    data = ProduceRequest.TopicProduceData(topic, topic_id, [ProduceRequest.PartitionProduceData(index, batch)])
    reply = client.call(ProduceRequest(name, -1, 10_000, [data]))
    result = reply.responses[0].partition_responses[0]
    yield errors.name_of(result.error_code) if result.error_code else f"offset={result.base_offset}"


def _topic_id(client: Client, topic: str) -> bytes:
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
    reply = client.call(MetadataRequest(wanted, allow_auto_topic_creation=False), 12)
    topic_id: bytes = reply.topics[0].topic_id
    return topic_id


def write_marker(client: Client, producer: str, how: str, *rest: str) -> Iterator[str]:
    partitions, given = options(rest)
    kind = WriteTxnMarkersRequest.WritableTxnMarkerTopic
    topics = [kind(topic, indexes) for topic, indexes in client.names.partitions_by_topic(partitions).items()]
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        *client.names.producer(producer),
        how == "commit",
        topics,
        int(given.get("coordinator", 0)),
        int(given.get("tv", 0)),
    )
    reply = client.call(WriteTxnMarkersRequest([marker]))
    found = [(f"{t.name}-{p.partition_index}", p.error_code) for t in reply.markers[0].topics for p in t.partitions]
    yield from _codes(client.names, sorted(found))


def _codes(names: Names, results: list[tuple[str, int]]) -> Iterator[str]:
    """One word if all partitions have the same error, else one for each."""
    codes = {code for _, code in results}
    if len(codes) == 1:
        yield errors.name_of(codes.pop())
    else:
        for name, code in results:
            yield f"{names.short(name)}={errors.name_of(code)}"


COMMANDS: dict[str, Command] = {
    "init": init_producer_id,
    "add": add_partitions,
    "verify": verify_partitions,
    "offsets": add_offsets,
    "commit-offset": commit_offsets,
    "end": end_txn,
    "produce": produce,
    "marker": write_marker,
}
