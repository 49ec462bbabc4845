"""Fetches that wait for data (long polls).

A waiting fetch is registered with its partitions and has a timer. A partition wakes it as soon as its reader can see
more: when the high watermark moves for read_uncommitted, when the last stable offset moves for read_committed. The
wake-up runs inside a write, often in the middle of a transaction, so a failure of the reader must not reach the writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fencepost.machines.log.interface import LogTailUnknown
from fencepost.machines.partition.partition import Partition
from fencepost.machines.timers import Timer, Timers


class WaitingFetch:
    """`run(force)` answers the client and returns True if there is enough to send, or in any case if `force` is true.

    `give_up` closes the connection of a client that cannot be answered.
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
        """Stop waiting, because the client has disconnected."""
        if not fetch.is_done:
            self._remove(fetch)

    def is_empty(self) -> bool:
        return not self._committed and not self._uncommitted

    def partition_gone(self, partition: Partition, now_ms: int) -> None:
        """Its topic was deleted, or another node leads it: answer the fetches that wait for it."""
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
        except Exception as e:  # A bug may cost the reader its connection, but not the writer its transaction.
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
