"""Skip a batch, run it, or refuse: decided from what the last transaction left in Kafka. Pure.

Every transaction commits a marker with its records: which query and batch it was, and a digest of the batch's source
offsets. Spark runs batch N again after a crash unless its own commit log has it; the marker says whether Kafka has it:

    marker                                         decision
    same query, an earlier batch                   run
    same query, this batch, same digest            skip
    same query, this batch, another digest         refuse
    same query, a later batch                      refuse
    another query                                  refuse, unless the user adopts its work
    none                                           run a batch too young for its marker to have expired, and a batch
                                                   0 of unknown age; else refuse
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

MARKER_VERSION = 1
MAX_MARKER_BYTES = 4096  # offset.metadata.max.bytes, as brokers come.
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Marker:
    query_id: str
    batch_id: int
    digest: str
    # Counts the transactions that left a marker: where several are found, the highest is the last.
    number: int = 0


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Offset metadata where a marker should be, in no form that this version knows."""

    text: str


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: str


class Verdict(Enum):
    RUN = "run"
    SKIP = "skip"


RUN, SKIP = Verdict.RUN, Verdict.SKIP
Decision = Verdict | Refuse


def encode_marker(marker: Marker) -> str:
    """Raises ValueError if a broker would not take it."""
    fields = {
        "fencepost": MARKER_VERSION,
        "query": marker.query_id,
        "batch": marker.batch_id,
        "digest": marker.digest,
        "number": marker.number,
    }
    text = json.dumps(fields, separators=(",", ":"))
    if len(text) > MAX_MARKER_BYTES:
        raise ValueError(f"a marker of {len(text)} bytes; offset metadata takes {MAX_MARKER_BYTES}")
    return text


def decode_marker(text: str) -> Marker | Unreadable:
    try:
        fields = json.loads(text)
    except ValueError:
        return Unreadable(text)
    if not isinstance(fields, dict) or fields.get("fencepost") != MARKER_VERSION:
        return Unreadable(text)
    query_id, batch_id, digest, number = (fields.get(name) for name in ("query", "batch", "digest", "number"))
    if isinstance(query_id, str) and isinstance(digest, str) and type(batch_id) is int and type(number) is int:
        return Marker(query_id, batch_id, digest, number)
    return Unreadable(text)


def newest(markers: Iterable[Marker | Unreadable]) -> Marker | Unreadable | None:
    """The marker of the last transaction, of those found on several output topics.

    A topic that is no longer written to keeps an old one. One that cannot be read may be the last, so it counts.
    """
    found = list(markers)
    unreadable = next((m for m in found if isinstance(m, Unreadable)), None)
    readable = [m for m in found if isinstance(m, Marker)]
    return unreadable or max(readable, key=lambda m: (m.number, m.batch_id), default=None)


def decide(
    marker: Marker | Unreadable | None,
    query_id: str,
    batch_id: int,
    digest: str,
    *,
    offsets_age_ms: int | None,
    retention_ms: int | None,
    adopt: bool = False,
    run_batch: int | None = None,
    skip_batch: int | None = None,
) -> Decision:
    """What to do with a batch that Spark wants to be run.

    offsets_age_ms: since when the batch is planned, by `<checkpoint>/offsets`; retention_ms: how long the broker keeps
    offsets of a group without members. None: not known. run_batch, skip_batch: the user's answer to an earlier
    refusal of this very batch; neither turns a clear case around, so a committed batch is skipped all the same.
    """
    if isinstance(marker, Marker) and marker.query_id != query_id:
        return RUN if adopt else _another_query(marker, query_id, batch_id)
    decision = _by_marker(marker, batch_id, digest, offsets_age_ms, retention_ms)
    if isinstance(decision, Refuse) and run_batch == batch_id:
        return RUN
    if isinstance(decision, Refuse) and skip_batch == batch_id:
        return SKIP
    return decision


def _another_query(marker: Marker, query_id: str, batch_id: int) -> Refuse:
    return Refuse(
        f"the last transaction was batch {marker.batch_id} of query {marker.query_id}, but this is query {query_id}, "
        f"batch {batch_id}: its checkpoint is new, or another query uses the same transactional.id"
        "\n\nhint: bring the old checkpoint back; or, if this query is to take over and its source offsets start "
        "where the old one's ended, set adopt=True"
    )


def _by_marker(
    marker: Marker | Unreadable | None,
    batch_id: int,
    digest: str,
    offsets_age_ms: int | None,
    retention_ms: int | None,
) -> Decision:
    choice = (
        f"\n\nhint: look into the output topics; then set run_batch={batch_id} if this batch is missing there, or "
        f"skip_batch={batch_id} if it is there"
    )
    if marker is None:
        return _without_marker(batch_id, offsets_age_ms, retention_ms, choice)
    if isinstance(marker, Unreadable):
        return Refuse(
            f"cannot tell whether batch {batch_id} was committed: Kafka holds {marker.text[:200]!r} where the marker "
            f"of the last transaction should be. Another program commits to the same group, or a newer version of this "
            f"one{choice}"
        )
    if marker.batch_id < batch_id:
        return RUN
    if marker.batch_id == batch_id and marker.digest == digest:
        return SKIP
    if marker.batch_id == batch_id:
        return Refuse(
            f"batch {batch_id} is committed with source offsets {marker.digest}, but the checkpoint now has "
            f"{digest} for it: offsets/{batch_id} was deleted or changed, and the batch no longer holds the "
            f"same rows. Running it may write rows twice, skipping it may lose rows{choice}"
        )
    return Refuse(
        f"Kafka has batch {marker.batch_id} of this query, but Spark runs batch {batch_id}: the checkpoint was set "
        "back, by a restore or by deleted files. Running it would write rows twice\n\nhint: bring the newer "
        f"checkpoint back; or set run_batch={batch_id} to write it and those after it again, or skip_batch={batch_id} "
        "to leave it out"
    )


def _without_marker(batch_id: int, offsets_age_ms: int | None, retention_ms: int | None, choice: str) -> Decision:
    if batch_id == 0 and offsets_age_ms is None:
        return RUN
    if offsets_age_ms is None or retention_ms is None:
        unknown = "when the batch was planned" if offsets_age_ms is None else "how long the broker keeps offsets"
        return Refuse(
            f"cannot tell whether batch {batch_id} was committed: Kafka holds no marker of this pipeline, and it is "
            f"not known {unknown}{choice}"
        )
    # An hour for clocks that differ, and for the broker's own rounds of cleaning up.
    if offsets_age_ms < retention_ms - HOUR_MS:
        return RUN
    return Refuse(
        f"cannot tell whether batch {batch_id} was committed: Kafka holds no marker of this pipeline, and the batch "
        f"was planned {_days(offsets_age_ms)} ago, while the broker keeps offsets for {_days(retention_ms)} "
        f"(offsets.retention.minutes): a marker would have expired{choice}"
    )


def _days(ms: int) -> str:
    return f"{ms / 86_400_000:.1f} days" if ms >= 2 * 86_400_000 else f"{ms / HOUR_MS:.1f} hours"
