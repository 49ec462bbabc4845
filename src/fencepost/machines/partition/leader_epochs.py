"""The leaders that a partition had: the epoch of each, with the offset of the first record that it wrote.

A client that knows an older leader epoch learns from this table that it must fetch metadata again, and where the log of
that leader ended: records that it read beyond that offset are no longer part of the log (KIP-101, KIP-320). The leader
epoch of a partition grows after a power loss, because the log may then be shorter than its readers know.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.protocol import errors


class LeaderEpochs:
    __slots__ = ("_starts", "current")

    def __init__(self, known: Iterable[tuple[int, int]] = ()) -> None:
        self._starts = list(known)
        self.current = self._starts[-1][0] if self._starts else -1

    def begin(self, epoch: int, offset: int) -> None:
        """Batches carry this epoch from `offset` on; no news if it is not above the last one."""
        if epoch > self.current:
            self._starts.append((epoch, offset))
            self.current = epoch

    def check(self, client_epoch: int) -> int:
        """Whether a client knows this leader: NONE, or which of the two is behind; -1: it did not say."""
        if client_epoch < 0 or client_epoch == self.current:
            return errors.NONE
        return errors.FENCED_LEADER_EPOCH if client_epoch < self.current else errors.UNKNOWN_LEADER_EPOCH

    def at(self, offset: int) -> int:
        """The epoch of the leader that wrote `offset`."""
        for epoch, start in reversed(self._starts):
            if start <= offset:
                return epoch
        return self._starts[0][0]

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Answer OffsetForLeaderEpoch: the newest epoch not above `epoch` and where it ended, or (-1, -1)."""
        if epoch > self.current:
            return -1, -1
        end = end_offset
        for known, start in reversed(self._starts):
            if known <= epoch:
                return known, end
            end = start
        # Kafka: an epoch before the first one ends where the first one starts.
        return epoch, end
