"""The values of a timeline: lanes, steps that happen in them, and the source that a step can be opened to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from fencepost.client.admin.answers import NamedPartition, Rpc
from fencepost.diagnose.history import id_or_none, rpc_row
from fencepost.diagnose.snapshot import Ends, LogEntry
from fencepost.diagnose.timeline.rounds import SeenBatch
from fencepost.protocol.batch import CODECS, BatchHeader


class Look(Enum):
    """What kind of step it is, so that a drawing can give each kind a look of its own."""

    PLAIN = "a step of every transaction"
    OPEN = "readers wait for its end"
    COMMITTED = "a commit"
    ABORTED = "an abort by the client"
    TIMEOUT = "an abort by the coordinator after the timeout"
    TAKEOVER = "a new producer takes the id over and fences the one before"
    FENCED = "an operator fences the producer"
    LATE = "a request or a record of a producer whose transaction had ended"
    REFUSED = "a request that was refused"
    WAITING = "a request that is not answered yet"


class LaneKind(Enum):
    PRODUCER = "a producer"
    OPERATOR = "an operator"
    COORDINATOR = "the coordinator"
    PARTITION = "a partition"
    OFFSETS = "a partition of __consumer_offsets"
    READERS = "readers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    key: str
    kind: LaneKind
    title: str


class SourceKind(Enum):
    RECORD = "record"
    BATCH = "record batch"
    MARKER = "marker"
    REQUEST = "request"
    ENDS = "ends of a partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The record or request behind a step: its fields by their names."""

    kind: SourceKind
    title: str
    fields: Mapping[str, object]
    # Where it is in a log; None for a request.
    where: NamedPartition | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    # The same in every answer about the same step.
    key: str
    at_ms: int
    name: str
    look: Look
    # The lane in which it happens, and the lane of the sender, where an arrow begins.
    lane: str
    sender: str | None
    # The request that caused it, as far as the records show; the brokers may have forgotten the request itself.
    request: str | None
    # The state of the transactional id after the step; None if it stays.
    state: str | None
    producer_id: int | None
    producer_epoch: int | None
    sentence: str
    sources: tuple[Source, ...]


COMMIT, ABORT = "COMMIT", "ABORT"


def record_source(log: NamedPartition | None, entry: LogEntry) -> Source:
    fields: dict[str, object] = {"record_timestamp_ms": entry.timestamp_ms}
    txn = entry.txn
    if txn is not None:
        fields |= {
            "transactional_id": txn.transactional_id,
            "state": txn.state.kafka_name,
            "producer_id": txn.producer_id,
            "producer_epoch": txn.producer_epoch,
            "partitions": [str(NamedPartition(*p)) for p in sorted(txn.partitions)],
            "transaction_start_ms": id_or_none(txn.start_ms),
            "transaction_last_update_ms": txn.updated_ms,
            "transaction_timeout": f"{txn.timeout_ms} ms",
            "previous_producer_id": id_or_none(txn.previous_producer_id),
            "next_producer_id": id_or_none(txn.next_producer_id),
            "client_transaction_version": int(txn.client_transaction_version),
        }
    place = f" of {log}" if log is not None else ""
    what = f"Record {entry.offset}" if txn is not None else f"Tombstone {entry.offset}"
    return Source(kind=SourceKind.RECORD, title=f"{what}{place}", fields=fields, where=log, offset=entry.offset)


def batch_source(where: NamedPartition, batch: SeenBatch) -> Source:
    header, marker = batch.header, batch.marker
    if marker is not None:
        fields = _header(header) | {"type": outcome_name(marker.commit), "coordinator_epoch": marker.coordinator_epoch}
        title = f"{outcome_name(marker.commit)} marker at offset {header.base_offset} of {where}"
        return Source(kind=SourceKind.MARKER, title=title, fields=fields, where=where, offset=header.base_offset)
    fields = _header(header)
    if batch.offsets:
        fields["committed_offsets"] = [
            f"group {o.group_id}: {o.topic}-{o.partition} at {o.value.offset if o.value is not None else 'none'}"
            for o in batch.offsets
        ]
    title = f"Record batch at offset {header.base_offset} of {where}"
    return Source(kind=SourceKind.BATCH, title=title, fields=fields, where=where, offset=header.base_offset)


def _header(header: BatchHeader) -> dict[str, object]:
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "size_bytes": header.size_bytes,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "compression": CODECS[header.codec] if header.codec < len(CODECS) else header.codec,
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "crc": f"{header.crc:#010x}",
    }


def request_source(rpc: Rpc) -> Source:
    row = rpc_row(rpc)
    result = row.result if row.result is not None else "not answered yet"
    fields: dict[str, object] = {
        "request": f"{row.name} v{row.version}",
        "about": row.about,
        "answer": result,
        "arrived_ms": row.at_ms,
        "took": f"{row.duration_us} us" if row.duration_us is not None else None,
        "client_id": row.client_id,
        "client": f"{row.host}:{row.port}",
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
    }
    return Source(kind=SourceKind.REQUEST, title=f"{row.name} v{row.version}: {result}", fields=fields)


def ends_source(where: NamedPartition, ends: Ends) -> Source:
    """How far readers get in a partition now."""
    return Source(
        kind=SourceKind.ENDS,
        title=f"How far readers get on {where} now",
        fields={
            "last_stable_offset": ends.last_stable_offset,
            "high_watermark": ends.high_watermark,
            "offsets_behind_the_last_stable_offset": ends.gap,
        },
        where=where,
        offset=ends.last_stable_offset,
    )


def outcome_name(commit: bool) -> str:
    return COMMIT if commit else ABORT
