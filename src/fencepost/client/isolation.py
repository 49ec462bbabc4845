"""Which batches of a fetch a consumer with isolation.level=read_committed drops, by the rules of Kafka's clients."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.protocol.batch import BatchHeader, Buffer, decode_marker


class Isolation:
    """One fetch, batch by batch. `aborted` is its list of aborted transactions: first offset and producer id."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._waiting = sorted(aborted)
        self._dropping: set[int] = set()

    def delivers(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the application gets the records of this batch. Ask for every batch, in the order of the log."""
        while self._waiting and self._waiting[0][0] <= header.last_offset:
            self._dropping.add(self._waiting.pop(0)[1])
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None and not marker.commit:
                self._dropping.discard(marker.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._dropping)
