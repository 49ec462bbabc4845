"""The interface between a partition and the storage of its records.

A log stores whole v2 record batches in offset order and finds them again. It decides nothing: offsets, epochs and the
LSO are decided in `machines/partition/`. There are two implementations: `MemoryLog` (`memory.py`), and `FileLog` with
Kafka's segment files (`server/storage/file_log.py`).

An `address` is a byte position over the whole log, as if its segments were one long file. It stays valid while the log
is open, until a batch at or after it is cleaned or its own segment is deleted. `address_of(end_offset)` is
`end_address`.

A log is a row of segments. Batches are appended to the last one, the active segment. Old segments can be deleted from
the front (`advance_start`), and closed ones replaced by fewer batches (`rewrite`), which leaves gaps between offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from fencepost.protocol.batch import Buffer, Part
from fencepost.protocol.topic_partition import TopicPartition


class StorageFailed(Exception):
    """The disk refused (full, read-only, broken). Of an append, nothing was kept."""


class LogFenced(StorageFailed):
    """Another leader has taken over the log (`Storage.take_over`): this handle neither reads nor writes any more."""


class CorruptLog(StorageFailed):
    """A batch that was valid when it was written is not valid any more: the disk, or a program, changed it."""


class LogTailUnknown(Exception):
    """It is unknown how much of the last writes is on disk. Never catch it: the process must stop, because only
    recovery, which reads the files again, can find out."""

    hint = "check the disk; the next start recovers the data that is on it"


class HalfDone(LogTailUnknown):
    """A change is on disk, and an error kept the state in memory from following it. The process must stop, because
    only recovery makes the state from what is on disk."""

    hint = "the next start makes the state from what is on disk; please report this, unless memory was short"

    def __init__(self, what: str, error: Exception) -> None:
        super().__init__(f"{what}: {type(error).__name__}: {error}")


class StoredBatch(NamedTuple):
    """One batch that a scan of a log found: its place, and its first bytes."""

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


class LogSegment(Protocol):
    """A part of a log that is deleted, or cleaned, as a whole."""

    base_offset: int
    size: int

    def largest_timestamp(self) -> int:
        """The greatest timestamp of its records; if they have none, the time of the last write."""
        ...

    def first_timestamp(self) -> int:
        """The timestamp of its first batch; -1 if it has none."""
        ...


class Rewrite(Protocol):
    """Batches that will replace one or several closed segments, all at once or not at all."""

    def append(self, batch: bytes, last_offset: int, max_timestamp: int) -> None:
        """Raises StorageFailed; then the caller must abandon the rewrite."""
        ...

    def append_aborted(self, entry: AbortedTxn) -> None:
        """An entry of the aborted-transaction index; `last_offset` strictly increases."""
        ...

    def finish(self, then: Callable[[bool], None]) -> None:
        """Swap the segments, and call `then` with whether that was done: now, or once everything is on disk.

        If the disk refused, or the old segments are gone meanwhile, nothing has changed.
        """
        ...

    def abandon(self) -> None:
        """Leave everything as it was. Does nothing once `finish` was called."""
        ...


class Log(Protocol):
    start_offset: int  # The first offset that can be read.
    end_offset: int  # The offset that the next record will get.
    end_address: int
    clean_offset: int  # Below it the log is clean: it has one record for each key.

    @property
    def start_address(self) -> int: ...

    def append(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp: int) -> int:
        """Store one batch (offsets already stamped) and return its address. The log keeps no reference to it.

        `base_offset` is `end_offset` now; afterwards `end_offset` is `last_offset + 1`. When this
        returns, the batch survives a crash of the process, but not of the machine: see `Storage.sync`.
        Raises StorageFailed, and then the log is exactly as it was.
        """
        ...

    def read(self, offset: int, max_bytes: int, end_address: int) -> bytes:
        """Whole batches from the one that contains `offset` on, up to `end_address`.

        Stops at `max_bytes`, but always returns the first batch whole. May stop early, at the end of a segment.
        Empty only if there is no batch between `offset` and `end_address`.
        """
        ...

    def read_in_place(self, offset: int, max_bytes: int, end_address: int) -> Part:
        """As `read`, for bytes that only the kernel reads, to send them: they may be pages of a file.

        The caller may ask for their length and must not look at them: see `server/storage/open_files.py`.
        """
        ...

    def address_of(self, offset: int) -> int:
        """Where the batch that contains `offset` begins (or the first batch after it)."""
        ...

    def scan(self, from_offset: int) -> Iterator[StoredBatch]:
        """Every batch from the one that contains `from_offset` on, in order."""
        ...

    def first_batch_not_before(self, timestamp: int) -> bytes | None:
        """The first batch whose max timestamp is at least `timestamp`, whole; None if there is none."""
        ...

    def append_aborted(self, entry: AbortedTxn) -> None:
        """Add to the aborted-transaction index; `last_offset` strictly increases.

        An entry that the index has already (its `last_offset` is not above that of the last entry) is ignored. A
        crash may lose entries that are newer than the snapshot, so a caller that replays `scan()` on top of
        `load_snapshot()` appends the entry of every abort marker again.
        """
        ...

    def aborted(self, from_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """Entries with last_offset >= from_offset and first_offset < upper_offset, in order."""
        ...

    def save_snapshot(self, snapshot: bytes) -> None:
        """Keep the partition's producer state at `end_offset`."""
        ...

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot to replay from, with its offset: replaying `scan(offset)` on top of it
        gives the producer state. None: replay from `start_offset`. Snapshots that cannot be trusted
        (newer than the end of the log) are dropped by the log itself."""
        ...

    def leader_epochs(self) -> list[tuple[int, int]]:
        """The leader epochs of its batches, each with its first offset; the oldest may be unknown."""
        ...

    def wants_snapshot(self) -> bool:
        """Whether enough was appended since the last snapshot that recovery would be slow."""
        ...

    def segments(self) -> Sequence[LogSegment]:
        """In order; the last one is the active segment. Do not keep the list: a change of the log may change it."""
        ...

    def roll(self) -> None:
        """Close the active segment, if it has a batch, and begin another. Raises StorageFailed."""
        ...

    def advance_start(self, offset: int) -> None:
        """Let the log begin at `offset`, for good. Does nothing if the log begins later than that already.

        Segments that are wholly below `offset` are deleted once a snapshot covers them: call again with the same
        offset after the next snapshot. Raises StorageFailed, and then the start is one that a restart will find.
        """
        ...

    def rewrite(self, base_offset: int, end_offset: int) -> Rewrite:
        """Begin to replace the closed segments from the one at `base_offset` to the one that ends at `end_offset`.

        Raises StorageFailed.
        """
        ...

    def note_clean(self, offset: int) -> None:
        """Set `clean_offset`, and keep it over a restart if possible; if it is lost, more is cleaned again."""
        ...

    def configure(self, config: LogConfig) -> None:
        """Take new topic settings."""
        ...

    def close(self) -> None: ...


class Storage(Protocol):
    """All logs of a data folder, and the cluster's document."""

    # The machine went down since the last process wrote here, or a loss was accepted: appends may be gone. Opening a
    # log may find that out.
    may_have_lost_appends: bool

    def note_recovered(self) -> None:
        """The broker has dealt with lost appends: a process after this one need not do it again."""
        ...

    def open_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """Open (recovering if the last stop was not clean) or create. Creates no file before the first append."""
        ...

    def take_over(self, topic: str, partition: int) -> Log:
        """A new handle on an open log, for a new leader. Older handles are fenced: their methods raise LogFenced."""
        ...

    def open_logs(self, partitions: Iterable[TopicPartition]) -> list[Log]:
        """The newest handles of those logs that are open."""
        ...

    def delete_log(self, topic: str, partition: int) -> None: ...

    def load_metadata(self) -> bytes | None:
        """The document last given to `save_metadata`."""
        ...

    def save_metadata(self, document: bytes) -> None:
        """Replace the document atomically and durably (survives power loss). Raises StorageFailed."""
        ...

    def sync(self, logs: list[Log], then: Callable[[], None]) -> None:
        """Call `then()` once everything appended to `logs` so far is as durable as the settings ask.

        Without `fencepost.flush.on.commit` that is at once. With it, one fdatasync per file is shared by all callers
        that wait, and `then` is never called before `sync` has returned. A failed fdatasync stops the process,
        because the state of the tail is unknown.
        """
        ...

    def close(self) -> None:
        """A clean stop: everything is on disk, and the next start has nothing to recover."""
        ...


class LogConfig(NamedTuple):
    """The topic settings that storage needs, under Kafka's names."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    index_interval_bytes: int = 4096
    compact: bool = False  # Offsets may have gaps.
    keeps_state: bool = False  # The log of a coordinator, which a start reads whole.
