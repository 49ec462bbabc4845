"""The commands that look: at transactions, at producers, at what a partition holds and where it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fencepost.client.fetching import Isolation
from fencepost.protocol import errors
from fencepost.protocol.batch import decode_marker
from fencepost.protocol.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
)
from fencepost.protocol.records import iter_batches, iter_records
from tests.transcripts.client import Client, Command

MAX_BYTES = 1 << 20


def describe(client: Client, transactional_id: str) -> Iterator[str]:
    found = _described(client, transactional_id)
    if found.error_code:
        yield errors.name_of(found.error_code)
        return
    yield from (
        found.transaction_state,
        f"pid={found.producer_id}",
        f"epoch={found.producer_epoch}",
        f"timeout={found.transaction_timeout_ms}",
        "started" if found.transaction_start_time_ms >= 0 else "not-started",
    )
    yield from sorted(f"{client.names.short(t.topic)}-{index}" for t in found.topics for index in t.partitions)


def state_of(client: Client, transactional_id: str) -> str:
    """The name of its state; `unknown` if the coordinator does not have it."""
    found = _described(client, transactional_id)
    if found.error_code == errors.TRANSACTIONAL_ID_NOT_FOUND:
        return "unknown"
    return str(found.transaction_state) or errors.name_of(found.error_code)


def _described(client: Client, transactional_id: str) -> Any:
    request = DescribeTransactionsRequest([client.names.full(transactional_id)])
    return client.call(request, 0).transaction_states[0]


def list_transactions(client: Client, *rest: str) -> Iterator[str]:
    given = dict(word.split("=", 1) for word in rest)
    request = ListTransactionsRequest(
        given["states"].split(",") if "states" in given else [],
        [client.names.producer(name + "/0")[0] for name in given["pids"].split(",")] if "pids" in given else [],
        int(given.get("longer", -1)),
        given.get("pattern"),
    )
    reply = client.call(request)
    if reply.error_code:
        yield errors.name_of(reply.error_code)
        return
    yield from (f"{name}?" for name in reply.unknown_state_filters)
    yield from sorted(
        f"{client.names.short(t.transactional_id)}={t.transaction_state}"
        for t in reply.transaction_states
        if t.transactional_id.startswith(client.names.prefix)
    )


def describe_producers(client: Client, place: str) -> Iterator[str]:
    topic, index = client.names.partition(place)
    request = DescribeProducersRequest([DescribeProducersRequest.TopicRequest(topic, [index])])
    found = client.call(request, 0).topics[0].partitions[0]
    if found.error_code:
        yield errors.name_of(found.error_code)
    for p in sorted(found.active_producers, key=lambda p: int(p.producer_id)):
        yield f"pid={p.producer_id}"
        yield f"epoch={p.producer_epoch}"
        yield f"sequence={p.last_sequence}"
        yield f"coordinator={p.coordinator_epoch}"
        yield f"start={p.current_txn_start_offset}"


def find_coordinator(client: Client, key: str) -> Iterator[str]:
    request = FindCoordinatorRequest(client.names.full(key), 1, [client.names.full(key)])
    reply = client.call(request)
    found = reply.coordinators[0] if client.version >= 4 else reply
    yield f"node={found.node_id}" if not found.error_code else errors.name_of(found.error_code)


def read(client: Client, place: str, isolation: str = "uncommitted") -> Iterator[str]:
    """The values that a consumer would deliver to its application."""
    fetched = fetch(client, place, isolation == "committed")
    rule = Isolation((a.first_offset, a.producer_id) for a in fetched.aborted_transactions or ())
    found = False
    for header, batch in iter_batches(fetched.records or b""):
        if rule.delivers(header, batch):
            for record in iter_records(batch):
                found = True
                yield (record.value or b"").decode()
    if not found:
        yield "nothing"


def read_log(client: Client, place: str) -> Iterator[str]:
    """Everything in a partition: values, and markers with their producer's epoch."""
    for header, batch in iter_batches(fetch(client, place, False).records or b""):
        marker = decode_marker(batch) if header.is_control else None
        if marker is not None:
            yield f"{'COMMIT' if marker.commit else 'ABORT'}/{marker.producer_epoch}"
        else:
            yield from ((record.value or b"").decode() for record in iter_records(batch))


def find_ends(client: Client, place: str) -> Iterator[str]:
    fetched = fetch(client, place, False)
    yield f"lso={fetched.last_stable_offset}"
    yield f"hw={fetched.high_watermark}"
    topic, index = client.names.partition(place)
    for isolation in (1, 0):
        partition = ListOffsetsRequest.ListOffsetsPartition(index, -1, -1)
        wanted = [ListOffsetsRequest.ListOffsetsTopic(topic, [partition])]
        found = client.call(ListOffsetsRequest(-1, isolation, wanted), 5).topics[0].partitions[0]
        expected = fetched.last_stable_offset if isolation else fetched.high_watermark
        assert found.offset == expected, f"ListOffsets says {found.offset}, Fetch {expected}"


def fetch(client: Client, place: str, read_committed: bool) -> Any:
    topic, index = client.names.partition(place)
    partition = FetchRequest.FetchPartition(index, -1, 0, partition_max_bytes=MAX_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=MAX_BYTES,
        isolation_level=int(read_committed),
        topics=[FetchRequest.FetchTopic(topic, partitions=[partition])],
    )
    fetched = client.call(request, 11).responses[0].partitions[0]
    assert fetched.error_code == 0, errors.name_of(fetched.error_code)
    assert (fetched.aborted_transactions is not None) == read_committed
    return fetched


COMMANDS: dict[str, Command] = {
    "describe": describe,
    "list": list_transactions,
    "producers": describe_producers,
    "find": find_coordinator,
    "read": read,
    "log": read_log,
    "ends": find_ends,
}
