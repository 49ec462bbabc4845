"""Logs made by hand, as encoded batches, and windows of them."""

from __future__ import annotations

from typing import Any

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.strip.window import LogWindow, ReadBatch
from fencepost.diagnose.tail.outcomes import LogBatch
from fencepost.protocol.batch import TRANSACTIONAL, decode_header, decode_marker, encode_marker, stamp
from fencepost.protocol.records import Record, encode_records

NOW_MS = 1_800_000_000_000


def read(encoded: bytes) -> ReadBatch:
    return ReadBatch(LogBatch(decode_header(encoded), decode_marker(encoded)), encoded)


def record(value: bytes | None = b"placed", key: bytes | None = None, **more: Any) -> Record:
    return Record(0, NOW_MS, key, value, more.get("headers", ()))


def plain(offset: int, *records: Record, codec: int = 0) -> ReadBatch:
    return read(stamp(encode_records(list(records) or [record()], codec), offset, 0))


def data(offset: int, producer_id: int, count: int = 1, epoch: int = 0, codec: int = 0) -> ReadBatch:
    batch = encode_records([record()] * count, codec, TRANSACTIONAL, producer_id, epoch, 0)
    return read(stamp(batch, offset, 0))


def marker(offset: int, producer_id: int, commit: bool) -> ReadBatch:
    return read(encode_marker(producer_id, 0, commit, 3, NOW_MS, offset))


def window(*batches: ReadBatch, **changes: Any) -> LogWindow:
    """A window of everything; the last stable offset is behind it unless it is said."""
    end = max((b.header.last_offset + 1 for b in batches), default=0)
    fields: dict[str, Any] = {
        "where": NamedPartition("orders", 0),
        "log_start_offset": 0,
        "last_stable_offset": end,
        "high_watermark": end,
        "at_offset": 0,
        "first_offset": 0,
        "end_offset": end,
        "batches": batches,
        "open_since": {},
    }
    return LogWindow(**fields | changes)
