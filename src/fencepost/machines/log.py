"""What a partition asks of the place that keeps its records.

A log stores whole v2 record batches in offset order and finds them again. It decides nothing:
offsets, epochs and the LSO are the partition's business (`partition.py`). Two implementations:
`MemoryLog` (`memory_log.py`) and `FileLog` (`server/storage`), the one with Kafka's segment files.

An `address` is a byte position over the whole log, as if its segments were one long file. It stays
valid while the log is open. `address_of(end_offset)` is `end_address`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol


class StorageFailed(Exception):
    """The disk refused (full, read-only, broken). Of an append, nothing was kept."""


class LogTailUnknown(Exception):
    """Nobody knows what the disk holds of the last writes. Never catch it: the process must stop, since only
    recovery, which reads the files again, can tell."""


class StoredBatch(NamedTuple):
    """One batch met while scanning a log: its place, and its first bytes."""

    address: int
    size_bytes: int
    # The 61 header bytes, and for a control batch the whole batch: enough to replay it.
    head: bytes


class AbortedTxn(NamedTuple):
    """One entry of the aborted-transaction index (Kafka's `.txnindex`)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Log(Protocol):
    start_offset: int  # The first offset that can be read.
    end_offset: int  # The offset that the next record will get.
    start_address: int
    end_address: int

    def append(self, batch: bytes, base_offset: int, last_offset: int, max_timestamp: int) -> int:
        """Store one batch (offsets already stamped) and return its address.

        `base_offset` is `end_offset` now; afterwards `end_offset` is `last_offset + 1`. When this
        returns, the batch survives the death of the process (not of the machine: see `Storage.sync`).
        Raises StorageFailed, and then the log is exactly as it was.
        """
        ...

    def read(self, offset: int, max_bytes: int, end_address: int) -> bytes:
        """Whole batches from the one that contains `offset` on, up to `end_address`.

        Stops at `max_bytes`, but always gives the first batch whole. May stop early (at the end of a segment).
        Empty only if there is no batch between `offset` and `end_address`.
        """
        ...

    def address_of(self, offset: int) -> int:
        """Where the batch that contains `offset` begins (or the first batch after it)."""
        ...

    def scan(self, from_offset: int) -> Iterator[StoredBatch]:
        """Every batch from the one that contains `from_offset` on, in order."""
        ...

    def offset_for_time(self, timestamp: int) -> bytes | None:
        """The first batch whose max timestamp is at least `timestamp`, whole; None if there is none."""
        ...

    def append_aborted(self, entry: AbortedTxn) -> None:
        """Add to the aborted-transaction index; `last_offset` strictly increases.

        An entry that is known already (its `last_offset` is not above the last one's) is ignored. Entries
        younger than the snapshot may be lost in a crash, so whoever replays `scan()` on top of
        `load_snapshot()` gives every abort marker's entry again.
        """
        ...

    def aborted(self, from_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """Entries with last_offset >= from_offset and first_offset < upper_offset, in order."""
        ...

    def save_snapshot(self, snapshot: bytes) -> None:
        """Keep the partition's producer state as it is at `end_offset`."""
        ...

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot to replay from, with its offset: replaying `scan(offset)` on top of it
        gives the producer state. None: replay from `start_offset`. Snapshots that cannot be trusted
        (newer than the end of the log) are dropped by the log itself."""
        ...

    def wants_snapshot(self) -> bool:
        """Whether enough was appended since the last snapshot that recovery would be slow."""
        ...

    def close(self) -> None: ...


class Storage(Protocol):
    """All logs of a data folder, and the cluster's own small facts beside them."""

    # The machine went down since the last process wrote here: appends that nobody synced may be gone.
    may_have_lost_appends: bool

    def open_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """Open (recovering if the last stop was not clean) or create. Creates no file before the first append."""
        ...

    def delete_log(self, topic: str, partition: int) -> None: ...

    def load_metadata(self) -> bytes | None:
        """The document last given to `save_metadata`."""
        ...

    def save_metadata(self, document: bytes) -> None:
        """Replace the document atomically and durably (survives power loss). Raises StorageFailed."""
        ...

    def sync(self, logs: list[Log], then: Callable[[], None]) -> None:
        """Call `then()` (no arguments) once everything appended to `logs` so far is as durable as the
        settings ask: at once without `fencepost.flush.on.commit`; after one fdatasync per file, shared by all
        callers that wait meanwhile, with it. Never calls back into a call to `sync` that is still running
        when flushing is on. A failed fdatasync stops the process: the tail's state is unknown."""
        ...

    def close(self) -> None:
        """Clean stop: everything on disk, the next start has nothing to recover."""
        ...


class LogConfig(NamedTuple):
    """The topic settings that storage needs, under Kafka's names."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    index_interval_bytes: int = 4096
