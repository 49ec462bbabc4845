"""The log of a small partition: its batches with their outcomes, and what readers of both isolation levels get."""

from __future__ import annotations

from typing import Any

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.partitions import EARLIEST, READ_COMMITTED, list_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.fetching import read_batches
from fencepost.diagnose.tail.outcomes import Fate, LogBatch, MarkerIndex, decide_fates
from fencepost.protocol.batch import BatchHeader, Buffer, decode_marker
from fencepost.protocol.records import iter_records

# The end of the log, which is what the last clicks wrote.
MOST_OFFSETS = 60


def collect_partition(client: KafkaClient, where: NamedPartition) -> dict[str, Any]:
    start = list_offsets(client, [where], timestamp=EARLIEST).found[where]
    end = list_offsets(client, [where]).found[where]
    lso = list_offsets(client, [where], READ_COMMITTED).found[where]
    first = max(start, end - MOST_OFFSETS)
    return partition_document(str(where), first, lso, end, list(read_batches(client, where, first, end)))


def partition_document(
    name: str, first: int, lso: int, high_watermark: int, batches: list[tuple[BatchHeader, Buffer]]
) -> dict[str, Any]:
    logged = [LogBatch(header, decode_marker(batch) if header.is_control else None) for header, batch in batches]
    fates = decide_fates(logged, MarkerIndex(logged))
    entries: list[dict[str, Any]] = []
    for (header, batch), (_, marker), fate in zip(batches, logged, fates, strict=True):
        who = {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
        if fate is None:
            kind = "COMMIT" if marker is not None and marker.commit else "ABORT"
            entries.append({"offset": header.base_offset, "kind": "marker", "marker": kind, **who})
            continue
        entries.extend(
            {
                "offset": record.offset,
                "kind": "record",
                "fate": fate.value,
                "key": _text(record.key),
                "value": _text(record.value),
                **who,
            }
            for record in iter_records(batch)
            if record.offset >= first
        )
    records = [entry for entry in entries if entry["kind"] == "record"]
    return {
        "name": name,
        "first_offset": first,
        "last_stable_offset": lso,
        "high_watermark": high_watermark,
        "entries": entries,
        "read_uncommitted": [entry["key"] for entry in records],
        "read_committed": [
            entry["key"] for entry in records if entry["offset"] < lso and entry["fate"] != Fate.ABORTED.value
        ],
    }


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")
