"""The steps that a transaction leaves in the log of a partition: its record batches, and its marker."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.client.admin.answers import NamedPartition, Rpc
from fencepost.counting import counted
from fencepost.diagnose.snapshot import OFFSETS_TOPIC
from fencepost.diagnose.timeline.records import COMMIT_OFFSETS, PRODUCE, WRITE_MARKERS
from fencepost.diagnose.timeline.rounds import RoundBatches, SeenBatch
from fencepost.diagnose.timeline.steps import Look, Step, batch_source, outcome_name, request_source
from fencepost.diagnose.words import listed

# Of a partition with more batches, the first and the last ones are steps of their own, and the others are one step.
BATCHES_AT_EACH_END = 3


def lane_of(where: NamedPartition) -> str:
    return f"partition {where}"


def grouped(data: Sequence[SeenBatch]) -> list[Sequence[SeenBatch]]:
    """The batches of a partition, each on its own; of many, those in the middle together."""
    ends = BATCHES_AT_EACH_END
    if len(data) <= 2 * ends + 1:
        return [[batch] for batch in data]
    return [*([b] for b in data[:ends]), data[ends:-ends], *([b] for b in data[-ends:])]


def data_step(
    where: NamedPartition,
    group: Sequence[SeenBatch],
    at_ms: int,
    sender: str,
    rpc: Rpc | None,
    marker: SeenBatch | None,
) -> Step:
    first, last = group[0].header, group[-1].header
    count = sum(batch.header.record_count for batch in group)
    is_offsets = bool(group[0].offsets)
    fate = _fate(marker)
    name = counted(count, ("aborted " if fate is Look.ABORTED else "") + ("offset" if is_offsets else "record"))
    return Step(
        key=f"batch {where} {first.base_offset}",
        at_ms=at_ms,
        name=name,
        look=fate,
        lane=lane_of(where),
        sender=sender,
        request=COMMIT_OFFSETS if is_offsets else PRODUCE,
        state=None,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        sentence=_what_was_written(where, group, name),
        sources=(
            batch_source(where, group[0]),
            *([batch_source(where, group[-1])] if last is not first else ()),
            *([request_source(rpc)] if rpc is not None else ()),
        ),
    )


def marker_step(where: NamedPartition, batches: RoundBatches, coordinator: str) -> Step:
    batch = batches.marker
    assert batch is not None
    assert batch.marker is not None
    header, marker = batch.header, batch.marker
    outcome = outcome_name(marker.commit)
    wrote = sum(b.header.record_count for b in batches.data)
    if where.topic == OFFSETS_TOPIC:
        effect = "the offsets are committed now" if marker.commit else "the offsets are dropped"
    elif not batches.data:
        effect = "the transaction wrote no record here that is still in the log"
    else:
        verb = ("counts" if wrote == 1 else "count") if marker.commit else ("is" if wrote == 1 else "are") + " skipped"
        effect = f"{counted(wrote, 'record')} before it {verb}"
    return Step(
        key=f"marker {where} {header.base_offset}",
        at_ms=marker.timestamp,
        name=f"{outcome} marker",
        look=_fate(batch),
        lane=lane_of(where),
        sender=coordinator,
        request=WRITE_MARKERS,
        state=None,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        sentence=f"{outcome} marker on {where} at offset {header.base_offset}: {effect}",
        sources=(batch_source(where, batch),),
    )


def _fate(marker: SeenBatch | None) -> Look:
    if marker is None or marker.marker is None:
        return Look.OPEN
    return Look.COMMITTED if marker.marker.commit else Look.ABORTED


def _what_was_written(where: NamedPartition, group: Sequence[SeenBatch], name: str) -> str:
    first, last = group[0].header, group[-1].header
    if group[0].offsets:
        offsets = listed(
            f"{o.topic}-{o.partition} at {o.value.offset if o.value is not None else 'none'}"
            for batch in group
            for o in batch.offsets
        )
        return f"offsets of group `{group[0].offsets[0].group_id}`, which count after a commit: {offsets}"
    batches = f" in {len(group)} batches" if len(group) > 1 else ""
    if first.base_offset == last.last_offset:
        return f"{name} on {where} at offset {first.base_offset}"
    return f"{name}{batches} on {where}, offsets {first.base_offset} to {last.last_offset}"


def span_of(batches: RoundBatches) -> str:
    first, last = batches.data[0].header.base_offset, batches.data[-1].header.last_offset
    return f"offset {first}" if first == last else f"offsets {first} to {last}"
