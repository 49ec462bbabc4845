"""The leader epochs of a log, and the file of them: at which offset the batches of each epoch begin."""

from __future__ import annotations

from fencepost.protocol.batch import Buffer
from fencepost.server.storage.checkpoints import write_leader_epochs


class EpochStarts:
    """`last` is the epoch of the last batch, as it stands in the batch header; empty if the log never had a batch."""

    __slots__ = ("_directory", "_starts", "last")

    def __init__(self, directory: str, starts: list[tuple[int, int]]) -> None:
        self._directory = directory
        self._starts = starts
        self.last = starts[-1][0].to_bytes(4, "big", signed=True) if starts else b""

    def all(self) -> list[tuple[int, int]]:
        """Each epoch with the offset of its first batch."""
        return list(self._starts)

    def begin(self, leader_epoch: Buffer, start_offset: int) -> None:
        """The next batch has another epoch than the last one: note it if it is new. Raises OSError."""
        epoch = int.from_bytes(leader_epoch, "big", signed=True)
        if epoch > (self._starts[-1][0] if self._starts else -1):
            starts = [*self._starts, (epoch, start_offset)]
            write_leader_epochs(self._directory, starts)
            self._starts = starts
        self.last = bytes(leader_epoch)
