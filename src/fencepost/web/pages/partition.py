"""The page of a partition: its log as a strip, one record opened, and what readers get.

The query says which window of the log is shown: `offset=N` or `time=2026-03-01T12:00:00Z` (around it, and opened),
`first=N` (from there on), `before=N` (what ends there), or nothing (the end of the log, as it moves). `record=N` opens
a record of the window. `count=N` is the number of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.fetching import TopicGone
from fencepost.counting import whole_number
from fencepost.diagnose.collect.reading import Start, StartKind
from fencepost.diagnose.collect.strip import MOST_RECORDS, Side, collect_strip
from fencepost.diagnose.strip.strip import Decode, Strip, diagnose_strip
from fencepost.diagnose.strip.window import DecodedBatches, LogWindow, records_of
from fencepost.diagnose.words import plain
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import Page, PageRefused, Params, SubjectNotFound

RECORDS = 200
MOST_NUMBER = 2**63 - 1
MOST_PARTITION = 2**31 - 1


class WindowQuery(NamedTuple):
    """What a query asks for."""

    start: Start
    side: Side
    # The record to open: an offset, or None. A time opens the record that it finds.
    record: int | None
    record_count: int

    @property
    def is_following(self) -> bool:
        return self.start.kind is StartKind.LATEST


def ask(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> dict[str, Any]:
    where = NamedPartition(params["topic"], _partition(params))
    wanted = parse_query(query)
    with cluster.client() as client:
        try:
            window = collect_strip(client, where, wanted.start, wanted.side, wanted.record_count)
        except TopicGone as e:
            raise SubjectNotFound(str(e)) from None
    return partition_document(window, wanted, cluster.own(DecodedBatches).records_of)


def _partition(params: Params) -> int:
    number = whole_number(params["partition"], MOST_PARTITION)
    if number is None:
        raise SubjectNotFound(f"{params['partition']} is no partition\n\nhint: a partition is a number, from 0 on")
    return number


def parse_query(query: Mapping[str, str]) -> WindowQuery:
    """Raises PageRefused."""
    record = _number(query, "record")
    count = _number(query, "count")
    count = RECORDS if count is None else min(max(count, 1), MOST_RECORDS)
    if (offset := _number(query, "offset")) is not None:
        return WindowQuery(Start(StartKind.OFFSET, offset), Side.AROUND, offset if record is None else record, count)
    if text := query.get("time"):
        return WindowQuery(Start(StartKind.TIME, _time_ms(text)), Side.AROUND, record, count)
    if (first := _number(query, "first")) is not None:
        return WindowQuery(Start(StartKind.OFFSET, first), Side.FROM, record, count)
    if (before := _number(query, "before")) is not None:
        return WindowQuery(Start(StartKind.OFFSET, before), Side.BEFORE, record, count)
    return WindowQuery(Start(StartKind.LATEST), Side.BEFORE, record, count)


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    number = whole_number(text, MOST_NUMBER)
    if number is None:
        raise PageRefused(f"{name}={text} is no number\n\nhint: a number from 0 to {MOST_NUMBER}")
    return number


def _time_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(round(moment.timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise PageRefused(f"time={text} is no time\n\nhint: write it as 2026-03-01T12:00:00Z") from None


def partition_document(window: LogWindow, wanted: WindowQuery, decode: Decode = records_of) -> dict[str, Any]:
    record = wanted.record
    if record is None and wanted.start.kind is StartKind.TIME and not window.remark:
        record = window.at_offset
    return strip_document(diagnose_strip(window, record, decode)) | {"is_following": wanted.is_following}


def strip_document(strip: Strip) -> dict[str, Any]:
    """The strip, and the places of the windows before and after it: `before` and `first` of their queries."""
    document: dict[str, Any] = plain(strip)
    return document | {
        "earlier": strip.first_offset if strip.first_offset > strip.log_start_offset else None,
        "later": strip.end_offset if strip.end_offset < strip.high_watermark else None,
    }


PAGE = Page(
    path="/partition/{topic}/{partition}", script="partition.js", title="Partition {topic}-{partition}", ask=ask
)
