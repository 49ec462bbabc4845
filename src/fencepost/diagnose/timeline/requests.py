"""Finds the request behind a step, if the brokers remember requests.

A request belongs to a record if the record was written while the request was handled. The times of both come from
brokers. A record batch has the time of its producer, so its request is found by the order of requests and batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fencepost.client.admin.answers import NamedPartition, Rpc
from fencepost.diagnose.timeline.batches import SeenBatch
from fencepost.protocol import errors

# Brokers read their clocks once for several requests, and each its own.
SLACK_MS = 20
INIT, ADD_PARTITIONS, ADD_OFFSETS, END = "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"
PRODUCE, COMMIT_OFFSETS, WRITE_MARKERS = "Produce", "TxnOffsetCommit", "WriteTxnMarkers"


class Requests:
    """The remembered requests of one transactional id, oldest first, and those among them that have a step."""

    def __init__(self, rpcs: Sequence[Rpc], now_ms: int) -> None:
        self._rpcs = sorted(rpcs, key=lambda rpc: rpc.at_ms)
        self._now_ms = now_ms
        self._used: set[Rpc] = set()

    def behind_record(
        self,
        updated_ms: int,
        names: Collection[str],
        fits: Callable[[Rpc], bool] = lambda rpc: True,
        answers: Collection[int] = (errors.NONE,),
    ) -> Rpc | None:
        """The request that was handled when the record was written; `fits` says whether its contents do not differ."""
        found = [
            (self._distance_ms(rpc, updated_ms), n, rpc)
            for n, rpc in enumerate(self._rpcs)
            if rpc.name in names and fits(rpc) and (rpc.error_code in answers or rpc.duration_us < 0)
        ]
        if not found or min(found)[0] > SLACK_MS:
            return None
        rpc = min(found)[2]
        self._used.add(rpc)
        return rpc

    def behind_batches(self, where: NamedPartition, batches: Sequence[SeenBatch]) -> dict[int, Rpc]:
        """The request that wrote each batch, by the batch's base offset; the last request wrote the last batch."""
        found: dict[int, Rpc] = {}
        done = [rpc for rpc in self._rpcs if rpc.duration_us >= 0 and not rpc.error_code]
        for batch in reversed(batches):
            while done and not _wrote(done[-1], where, batch):
                done.pop()
            if done and self._done_ms(done[-1]) + SLACK_MS >= batch.header.max_timestamp:
                found[batch.header.base_offset] = rpc = done.pop()
                self._used.add(rpc)
        return found

    def rest(self, from_ms: int | None, before_ms: int | None) -> list[Rpc]:
        """The requests of this time that changed nothing: refused, repeated or not answered yet."""
        return [
            rpc
            for rpc in self._rpcs
            if rpc not in self._used
            and (from_ms is None or rpc.at_ms >= from_ms)
            and (before_ms is None or rpc.at_ms < before_ms)
        ]

    def _done_ms(self, rpc: Rpc) -> int:
        return self._now_ms if rpc.duration_us < 0 else rpc.at_ms + rpc.duration_us // 1000

    def _distance_ms(self, rpc: Rpc, at_ms: int) -> int:
        """How far a moment is from the time in which the request was handled."""
        return max(rpc.at_ms - at_ms, at_ms - self._done_ms(rpc), 0)


def _wrote(rpc: Rpc, where: NamedPartition, batch: SeenBatch) -> bool:
    if (rpc.producer_id, rpc.producer_epoch) != (batch.header.producer_id, batch.header.producer_epoch):
        return False
    if batch.offsets:
        return rpc.name == COMMIT_OFFSETS and rpc.about == f"group {batch.offsets[0].group_id}"
    return rpc.name == PRODUCE and rpc.about == str(where)
