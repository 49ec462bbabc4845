"""Fetches that wait for data (long polls), and fetch sessions.

A waiting fetch is registered with its partitions and has a timer. A partition wakes it as soon as its reader can see
more: when the high watermark moves for read_uncommitted, when the last stable offset moves for read_committed. The
wake-up runs inside a write, often in the middle of a transaction, so a failure of the reader must not reach the writer.

Fetch sessions (KIP-227): the broker remembers the partitions that a consumer reads, and sends only what changed. A
session has an id, and an epoch that counts its fetches. A fetch with any other epoch is refused: a request was lost or
repeated. When all slots are taken, or all sessions together hold too many partitions, the session that was idle longest
is dropped. Its client gets FETCH_SESSION_ID_NOT_FOUND and starts a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fencepost.machines.log.interface import LogTailUnknown
from fencepost.machines.partition.partition import Fetched, Partition
from fencepost.machines.rng import Rng
from fencepost.machines.timers import Timer, Timers
from fencepost.protocol import errors


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


FINAL_EPOCH = -1  # The client wants no session, or closes the one it has.
MAX_SESSION_EPOCH = 2**31 - 1
# Over all sessions of a broker; one partition takes about half a kilobyte.
MAX_PARTITIONS = 200_000


# A partition as the client names it: by its topic's name, or by its id and an empty name.
Place = tuple[str, bytes, int]


class Wanted(NamedTuple):
    """One partition of a fetch; its first three fields are its place."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int


class FetchSession:
    __slots__ = (
        "_sent",
        "counted",
        "epoch",
        "is_incremental",
        "session_id",
        "uses_topic_ids",
        "wanted",
    )

    def __init__(self, session_id: int, uses_topic_ids: bool = False) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1  # The epoch that the next fetch must have.
        self.is_incremental = False  # From the second fetch on.
        self.wanted: dict[Place, Wanted] = {}
        self.counted = 0  # The partitions of this session in the total of `FetchSessions`.
        self._sent: dict[Place, tuple[int, int]] = {}

    def update(self, wanted: Iterable[Wanted], forgotten: Iterable[Place]) -> None:
        for where in forgotten:
            self.wanted.pop(where, None)
            self._sent.pop(where, None)
        for w in wanted:
            self.wanted[w[:3]] = w

    def is_news(self, wanted: Wanted, fetched: Fetched) -> bool:
        """Whether a partition has anything new for the client. Remembers it as sent."""
        where = wanted[:3]
        offsets = (fetched.high_watermark, fetched.log_start_offset)
        before = self._sent.get(where)
        self._sent[where] = offsets
        if fetched.error:
            del self._sent[where]
            return True
        if fetched.records:
            # This partition moves to the end, so that the others come first next time and none is starved.
            self.wanted[where] = self.wanted.pop(where, wanted)
            return True
        return before != offsets


class FetchSessions:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}
        self._partitions = 0

    def create(self, rng: Rng, uses_topic_ids: bool) -> FetchSession:
        if self._slots == 0:
            return FetchSession(0)
        if len(self._sessions) >= self._slots:
            self.remove(next(iter(self._sessions)))
        session_id = rng.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = rng.randrange(1, 2**31)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids)
        return session

    def resume(self, session_id: int, epoch: int, uses_topic_ids: bool) -> tuple[FetchSession, int]:
        session = self._sessions.get(session_id)
        if session is None:
            return FetchSession(0), errors.FETCH_SESSION_ID_NOT_FOUND
        if epoch != session.epoch:
            return session, errors.INVALID_FETCH_SESSION_EPOCH
        if uses_topic_ids != session.uses_topic_ids:
            return session, errors.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = 1 if session.epoch == MAX_SESSION_EPOCH else session.epoch + 1
        self._sessions[session_id] = self._sessions.pop(session_id)  # To the end: the session idle longest is first.
        return session, errors.NONE

    def update(self, session: FetchSession, wanted: Iterable[Wanted], forgotten: Iterable[Place]) -> None:
        """Update a session, then drop the sessions idle longest while all together hold too many partitions."""
        session.update(wanted, forgotten)
        if session.session_id in self._sessions:
            self._partitions += len(session.wanted) - session.counted
            session.counted = len(session.wanted)
            while self._partitions > MAX_PARTITIONS:
                self.remove(next(iter(self._sessions)))

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= session.counted
