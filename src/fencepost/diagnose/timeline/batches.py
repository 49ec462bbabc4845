"""Finds the record batches and the marker of one round in the log of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.diagnose.timeline.rounds import Round
from fencepost.machines.group.offsets import OffsetRecord
from fencepost.machines.txn.states import PREPARE_COMMIT
from fencepost.protocol.batch import BatchHeader, Marker


class SeenBatch(NamedTuple):
    header: BatchHeader
    # Only a control batch that ends a transaction has one.
    marker: Marker | None = None
    # The offsets of consumer groups in it, if it is from `__consumer_offsets`.
    offsets: tuple[OffsetRecord, ...] = ()


class RoundBatches(NamedTuple):
    data: tuple[SeenBatch, ...] = ()
    marker: SeenBatch | None = None


def batches_of(round_: Round, batches: Sequence[SeenBatch], open_from: int | None, lacks_marker: bool) -> RoundBatches:
    """Those of `batches`, in the order of the log, that the transaction of the round wrote.

    `open_from` is the offset of its first record if the transaction is open on the partition. `lacks_marker` says that
    its coordinator still has to write the marker.
    """
    began = round_.began or round_.prepared
    if began is None:
        return RoundBatches()
    mine = [batch for batch in batches if batch.header.producer_id == began.producer_id]
    marker = None if open_from is not None or lacks_marker else _marker(round_, mine)
    if marker is None:
        if open_from is None:
            return RoundBatches()
        return RoundBatches(tuple(b for b in mine if _is_data(b) and b.header.base_offset >= open_from))
    at = mine.index(marker)
    first = next((n + 1 for n in reversed(range(at)) if mine[n].marker is not None), 0)
    return RoundBatches(tuple(b for b in mine[first:at] if _is_data(b)), marker)


def _is_data(batch: SeenBatch) -> bool:
    return batch.header.is_transactional and not batch.header.is_control


def _marker(round_: Round, mine: Sequence[SeenBatch]) -> SeenBatch | None:
    """The marker of the round's decision.

    It has the epoch of the decision. With TV1 the markers of several rounds may have the same epoch, and that of this
    round is the nearest in time.
    """
    prepared = round_.prepared
    if prepared is None:
        return None
    found = [
        (abs(batch.marker.timestamp - prepared.updated_ms), n)
        for n, batch in enumerate(mine)
        if batch.marker is not None
        and batch.marker.commit is (prepared.state is PREPARE_COMMIT)
        and batch.marker.producer_epoch == prepared.producer_epoch
    ]
    return mine[min(found)[1]] if found else None
