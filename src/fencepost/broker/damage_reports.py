"""What clients and the operator learn of batches that cannot be read any more, because the disk changed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fencepost.machines.log.interface import CorruptLog, LogFenced, StorageFailed
from fencepost.machines.partition.partition import Partition
from fencepost.protocol import errors

MOST_PLACES = 1000
HINT = (
    "hint: check the disk; `fencepost salvage show` lists the batches of the file, and a consumer can seek behind the "
    "damaged one"
)


class DamageReports:
    """A damaged batch has a line at the first read that meets it. A client asks again and again, so the next lines come
    after ten reads, a hundred, and so on."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._reads: Counter[str] = Counter()

    def code_of(self, partition: Partition, failure: StorageFailed) -> int:
        """The error for a client whose read failed. Reports damage."""
        if isinstance(failure, LogFenced):
            return errors.NOT_LEADER_OR_FOLLOWER
        if not isinstance(failure, CorruptLog):
            return errors.KAFKA_STORAGE_ERROR
        text = f"{partition.topic}-{partition.index} is damaged: {failure}: readers get CORRUPT_MESSAGE"
        if text in self._reads or len(self._reads) < MOST_PLACES:
            self._reads[text] += 1
            reads = self._reads[text]
            if reads == 1:
                self._notice(text)
                self._notice(HINT)
            elif reads == 10 ** (len(str(reads)) - 1):
                self._notice(f"{text} ({reads} reads so far)")
        return errors.CORRUPT_MESSAGE
