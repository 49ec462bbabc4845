"""Requests and responses in a few words, for readers of a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.batch import decode_header
from fencepost.protocol.records import iter_records
from fencepost.protocol.schema import Message


def describe(message: Message) -> str:
    name = type(message).__name__
    write = _WRITERS.get(name)
    return f"{name.removesuffix('Request').removesuffix('Response')} {write(message) if write else ''}".rstrip()


def _error(code: int) -> str:
    return errors.name_of(code) if code else "ok"


def _producer(m: Any) -> str:
    return f"{m.transactional_id} {m.producer_id}/{m.producer_epoch}"


def _places(topics: Any) -> str:
    return " ".join(f"{t.name}-{index}" for t in topics for index in t.partitions)


def _produce(m: Any) -> str:
    words = [m.transactional_id or "(plain)"]
    for topic in m.topic_data:
        for data in topic.partition_data:
            header = decode_header(data.records)
            values = ",".join((record.value or b"").decode() for record in iter_records(data.records))
            place = f"{topic.name}-{data.index}"
            words.append(f"{header.producer_id}/{header.producer_epoch} {place} seq={header.base_sequence} [{values}]")
    return " ".join(words)


def _produced(m: Any) -> str:
    parts = [p for t in m.responses for p in t.partition_responses]
    return " ".join(_error(p.error_code) if p.error_code else f"offset={p.base_offset}" for p in parts)


def _fetch(m: Any) -> str:
    places = " ".join(f"{t.topic}-{p.partition}@{p.fetch_offset}" for t in m.topics for p in t.partitions)
    return f"{'committed' if m.isolation_level else 'all'} {places}"


def _fetched(m: Any) -> str:
    words = []
    for t in m.responses:
        for p in t.partitions:
            aborted = "".join(f" -{a.producer_id}@{a.first_offset}" for a in p.aborted_transactions or ())
            size = len(p.records or b"")
            ends = f"{p.last_stable_offset}/{p.high_watermark}"
            said = _error(p.error_code) if p.error_code else f"{size}B {ends}{aborted}"
            words.append(f"{t.topic}-{p.partition_index}:{said}")
    return ", ".join(words)


def _txn_offset_commit(m: Any) -> str:
    offsets = " ".join(f"{t.name}-{p.partition_index}@{p.committed_offset}" for t in m.topics for p in t.partitions)
    return f"{_producer(m)} {m.group_id} {offsets}"


def _offsets_fetched(m: Any) -> str:
    return " ".join(
        _error(p.error_code) if p.error_code else f"{t.name}-{p.partition_index}@{p.committed_offset}"
        for g in m.groups
        for t in g.topics
        for p in t.partitions
    )


def _codes(codes: list[int]) -> str:
    return " ".join(map(_error, codes))


_WRITERS: dict[str, Callable[[Any], str]] = {
    "InitProducerIdRequest": _producer,
    "InitProducerIdResponse": lambda m: _error(m.error_code) if m.error_code else f"{m.producer_id}/{m.producer_epoch}",
    "AddPartitionsToTxnRequest": lambda m: (
        f"{m.v3_and_below_transactional_id} {m.v3_and_below_producer_id}/{m.v3_and_below_producer_epoch} "
        f"{_places(m.v3_and_below_topics)}"
    ),
    "AddPartitionsToTxnResponse": lambda m: _codes(
        [p.partition_error_code for t in m.results_by_topic_v3_and_below for p in t.results_by_partition]
    ),
    "AddOffsetsToTxnRequest": lambda m: f"{_producer(m)} {m.group_id}",
    "AddOffsetsToTxnResponse": lambda m: _error(m.error_code),
    "ProduceRequest": _produce,
    "ProduceResponse": _produced,
    "TxnOffsetCommitRequest": _txn_offset_commit,
    "TxnOffsetCommitResponse": lambda m: _codes([p.error_code for t in m.topics for p in t.partitions]),
    "EndTxnRequest": lambda m: f"{_producer(m)} {'commit' if m.committed else 'abort'}",
    "EndTxnResponse": lambda m: (
        _error(m.error_code) + (f" {m.producer_id}/{m.producer_epoch}" if m.producer_id >= 0 else "")
    ),
    "JoinGroupRequest": lambda m: f"{m.group_id} {m.member_id or '(new)'}",
    "JoinGroupResponse": lambda m: f"{_error(m.error_code)} generation={m.generation_id} {m.member_id}",
    "SyncGroupRequest": lambda m: f"{m.group_id} generation={m.generation_id} {m.member_id}",
    "SyncGroupResponse": lambda m: _error(m.error_code),
    "HeartbeatRequest": lambda m: f"{m.group_id} generation={m.generation_id}",
    "HeartbeatResponse": lambda m: _error(m.error_code),
    "FetchRequest": _fetch,
    "FetchResponse": _fetched,
    "OffsetFetchRequest": lambda m: " ".join(g.group_id for g in m.groups) + (" stable" if m.require_stable else ""),
    "OffsetFetchResponse": _offsets_fetched,
}
