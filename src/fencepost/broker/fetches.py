"""Fetches that wait for data: the long polls, and the sessions of incremental fetches (KIP-227).

A waiting fetch hangs on its partitions and on a timer. The partition wakes it the moment its readers could see
more: at the high watermark for read_uncommitted, at the last stable offset for read_committed. Who wakes it is a
writer, often in the middle of a transaction, so nothing that goes wrong with the reader may come back to him.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fencepost.machines.log.interface import LogTailUnknown
from fencepost.machines.partition.partition import Partition
from fencepost.machines.timers import Timer, Timers


class WaitingFetch:
    """`run(force)` answers and returns True once there is enough to send, or when it is forced to.

    `give_up` ends a client that cannot be answered.
    """

    __slots__ = ("give_up", "is_done", "partitions", "read_committed", "run", "timer")

    def __init__(
        self,
        partitions: list[Partition],
        read_committed: bool,
        run: Callable[[bool], bool],
        give_up: Callable[[Exception], None],
    ) -> None:
        self.partitions = partitions
        self.read_committed = read_committed
        self.run = run
        self.give_up = give_up
        self.timer: Timer | None = None
        self.is_done = False


class WaitingFetches:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._committed: dict[Partition, dict[WaitingFetch, None]] = {}
        self._uncommitted: dict[Partition, dict[WaitingFetch, None]] = {}

    def wait(
        self,
        partitions: Iterable[Partition],
        read_committed: bool,
        deadline_ms: int,
        run: Callable[[bool], bool],
        give_up: Callable[[Exception], None],
    ) -> WaitingFetch:
        # A partition that is named twice must not wake the fetch twice.
        fetch = WaitingFetch(list(dict.fromkeys(partitions)), read_committed, run, give_up)
        fetch.timer = self._timers.at(deadline_ms, lambda now_ms: self._finish(fetch, True))
        waiting = self._committed if read_committed else self._uncommitted
        for partition in fetch.partitions:
            queue = waiting.get(partition)
            if queue is None:
                queue = waiting[partition] = {}
                if read_committed:
                    partition.on_last_stable_offset = self._wake_committed
                else:
                    partition.on_high_watermark = self._wake_uncommitted
            queue[fetch] = None
        return fetch

    def cancel(self, fetch: WaitingFetch) -> None:
        """The client went away: nobody waits any more."""
        if not fetch.is_done:
            self._remove(fetch)

    def is_empty(self) -> bool:
        return not self._committed and not self._uncommitted

    def partition_deleted(self, partition: Partition, now_ms: int) -> None:
        for waiting in (self._committed, self._uncommitted):
            for fetch in list(waiting.get(partition, ())):
                self._finish(fetch, True)

    def _wake_committed(self, partition: Partition) -> None:
        for fetch in tuple(self._committed.get(partition, ())):
            self._finish(fetch, False)

    def _wake_uncommitted(self, partition: Partition) -> None:
        for fetch in tuple(self._uncommitted.get(partition, ())):
            self._finish(fetch, False)

    def _finish(self, fetch: WaitingFetch, force: bool) -> None:
        if fetch.is_done:
            return
        try:
            if fetch.run(force):
                self._remove(fetch)
        except LogTailUnknown:
            raise
        except Exception as e:  # A bug must cost the reader's connection, not the writer's transaction.
            self._remove(fetch)
            fetch.give_up(e)

    def _remove(self, fetch: WaitingFetch) -> None:
        fetch.is_done = True
        if fetch.timer is not None:
            fetch.timer.cancel()
        waiting = self._committed if fetch.read_committed else self._uncommitted
        for partition in fetch.partitions:
            queue = waiting.get(partition)
            if queue is not None and fetch in queue:
                del queue[fetch]
                if not queue:
                    del waiting[partition]
                    if fetch.read_committed:
                        partition.on_last_stable_offset = None
                    else:
                        partition.on_high_watermark = None
