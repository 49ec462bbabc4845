"""A compacted log under any mix of transactions, aborts, tombstones, cleaning, deleting and death in the middle of it.

What must hold is what a reader of committed keyed data ends up with: the last value of every key. The model knows
only which values were committed, in the order of the log.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.client.fetching import Isolation
from fencepost.machines.log.interface import Log, LogConfig
from fencepost.machines.log.memory import MemoryStorage
from fencepost.machines.partition.compaction import Policy, compact, find_dirt
from fencepost.machines.partition.deletion import Retention, apply_retention, delete_records
from fencepost.machines.partition.partition import Partition
from fencepost.machines.partition.recovery import recover, replay
from fencepost.protocol import errors
from fencepost.protocol.batch import advance_sequence, encode_batch
from fencepost.protocol.records import Record, encode_records, iter_batches, iter_records
from fencepost.protocol.transaction_version import TV0, TV2, TransactionVersion
from tests.memory_storage import after_kill
from tests.unit.server.surveyed import SurveyedFolder

NOW = 1_700_000_000_000
RETENTION_MS = 1000
PRODUCERS = 3
KEYS = [b"a", b"b", b"c", b"long key " * 9]
POINTS = ["segment.roll", "index.write", "clean.swap.before", "clean.swap.after", "clean.install", "retention.delete"]
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=150, compact=True)
Pair = tuple[bytes, bytes | None]

pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=40))), min_size=1, max_size=4)


def new_folder() -> str:
    """A folder in memory, if the system has one: the test syncs often and simulates no power loss."""
    return tempfile.mkdtemp(prefix="fencepost-compaction-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)


class Killed(BaseException):
    """The process died here."""


@dataclass
class Client:
    producer_id: int
    version: TransactionVersion
    epoch: int = 0
    sequence: int = 0
    open_: list[tuple[int, Pair]] = field(default_factory=list)
    is_open: bool = False


def committed(partition: Partition) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of everything that a read_committed consumer delivers."""
    seen: list[tuple[int, bytes, bytes | None]] = []
    offset = partition.log.start_offset
    while offset < partition.last_stable_offset:
        fetched = partition.fetch(offset, 900, read_committed=True)
        assert fetched.error == errors.NONE
        assert fetched.aborted is not None
        if not fetched.records:
            break
        isolation = Isolation((first_offset, producer_id) for producer_id, first_offset in fetched.aborted)
        for header, batch in iter_batches(fetched.records):
            assert header.last_offset >= offset, "offsets increase"
            if isolation.delivers(header, batch):
                for record in iter_records(batch):
                    assert record.key is not None
                    if record.offset >= offset:
                        seen.append((record.offset, record.key, record.value))
            offset = header.last_offset + 1
    return seen


def described(partition: Partition) -> dict[int, tuple[int, int, int]]:
    return {
        p.producer_id: (p.producer_epoch, p.last_sequence, p.current_txn_start_offset)
        for p in partition.describe_producers()
    }


def last_values(written: list[tuple[int, Pair]]) -> dict[bytes, bytes]:
    values: dict[bytes, bytes] = {}
    for _, (key, value) in sorted(written):
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values


class CompactionRules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = new_folder()
        self.now = NOW
        self.die_at: str | None = None
        self.written: list[tuple[int, Pair]] = []  # Committed.
        self.originals: dict[int, Pair] = {}
        self.deleted_below = 0
        self.deletes = False
        self.clients: list[Client] = []
        self.open()

    def teardown(self) -> None:
        self.folder.abandon()
        shutil.rmtree(self.path)

    def open(self) -> None:
        self.folder = SurveyedFolder(self.path, at=self.at)
        self.partition = recover(self.folder.open_log("t", 0, bytes(range(16)), CONFIG), "t", 0)
        self.partition.compacted = True

    def at(self, point: str) -> None:
        """Nothing that runs after the crash may change the files that the next process finds."""
        if point == self.die_at:
            self.left_behind = new_folder()
            shutil.copytree(self.path, self.left_behind, dirs_exist_ok=True)
            raise Killed

    @property
    def log(self) -> Log:
        return self.partition.log

    @initialize(
        modes=st.lists(st.sampled_from([TV0, TV2]), min_size=PRODUCERS, max_size=PRODUCERS), deletes=st.booleans()
    )
    def start(self, modes: list[TransactionVersion], deletes: bool) -> None:
        self.clients = [Client(100 + n, version) for n, version in enumerate(modes)]
        self.deletes = deletes

    def note(self, base_offset: int, written: list[Pair]) -> list[tuple[int, Pair]]:
        noted = [(base_offset + n, pair) for n, pair in enumerate(written)]
        self.originals.update(noted)
        return noted

    @rule(written=pairs, codec=st.sampled_from([0, 0, 1, 4]), apart=st.integers(0, 3))
    def write(self, written: list[Pair], codec: int, apart: int) -> None:
        records = [Record(n, self.now + n * apart, key, value) for n, (key, value) in enumerate(written)]
        result = self.partition.append(encode_records(records, codec), self.now)
        assert result.error == errors.NONE
        self.written += self.note(result.base_offset, written)

    @rule(rng=st.randoms(use_true_random=False), times=st.integers(1, 20))
    def do_many_things(self, rng: random.Random, times: int) -> None:
        for _ in range(times):
            who = rng.randrange(PRODUCERS)
            written = [
                (rng.choice(KEYS), None if rng.random() < 0.2 else b"%d" % rng.randrange(1000))
                for _ in range(rng.randint(1, 3))
            ]
            what = rng.random()
            if what < 0.2:
                self.write(written, rng.choice([0, 0, 2]), 1)
            else:
                self.write_in_a_transaction(who, written)
                if what > 0.5:
                    self.end(who, what > 0.7)

    def write_in_a_transaction(self, who: int, written: list[Pair]) -> None:
        client = self.clients[who]
        batch = encode_batch(written, self.now, client.producer_id, client.epoch, client.sequence, transactional=True)
        result = self.partition.append(batch, self.now, verified=True, transaction_version=client.version)
        assert result.error == errors.NONE, "its epoch and sequence are known"
        client.sequence = advance_sequence(client.sequence, len(written))
        client.is_open = True
        client.open_ += self.note(result.base_offset, written)

    @rule(who=st.integers(0, PRODUCERS - 1), commit=st.booleans())
    def end(self, who: int, commit: bool) -> None:
        client = self.clients[who]
        if client.version.bumps_epoch:
            client.epoch, client.sequence = client.epoch + 1, 0
        version = client.version
        error = self.partition.write_marker(client.producer_id, client.epoch, commit, 0, self.now, version)
        assert error == errors.NONE
        if commit:
            self.written += client.open_
        client.open_, client.is_open = [], False

    @rule(ms=st.sampled_from([1, RETENTION_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(
        die_at=st.one_of(st.none(), st.none(), st.sampled_from(POINTS)),
        max_keys=st.sampled_from([1, 2, 100]),
        keeps_markers=st.booleans(),
    )
    def clean(self, die_at: str | None, max_keys: int, keeps_markers: bool) -> None:
        self.log.roll()
        self.partition.save_snapshot()
        self.die_at = die_at
        policy = Policy(RETENTION_MS, CONFIG.segment_bytes, max_keys, keeps_markers)
        with suppress(Killed):
            dirt = find_dirt(self.log, self.partition.last_stable_offset, 0, self.now)
            for _ in compact(self.log, dirt, self.partition.producers.by_id, policy, self.now):
                pass
            assert self.log.clean_offset >= dirt.first_dirty_offset
            self.die_at = None
            return
        self.start_on_what_is_left()

    def start_on_what_is_left(self) -> None:
        self.die_at = None
        self.folder.abandon()
        shutil.rmtree(self.path)
        self.path = self.left_behind
        self.open()

    @rule()
    def restart(self) -> None:
        self.folder.abandon()
        self.open()

    @rule()
    def stop_and_start(self) -> None:
        self.partition.save_snapshot()
        self.folder.close()
        self.open()

    @rule(data=st.data())
    @precondition(lambda self: self.deletes)
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.start_offset, self.log.end_offset), label="offset")
        if offset > self.log.start_offset and offset > self.partition.last_stable_offset:
            return  # The records of an open transaction would be deleted, which the model does not know.
        assert delete_records(self.partition, offset) == (errors.NONE, offset)
        self.deleted_below = max(self.deleted_below, offset)

    @rule(size=st.integers(0, 2000), die=st.booleans())
    @precondition(lambda self: self.deletes)
    def delete_segments(self, size: int, die: bool) -> None:
        self.die_at = "retention.delete" if die else None
        with suppress(Killed):
            apply_retention(self.partition, Retention(-1, size), self.now)
            self.deleted_below = max(self.deleted_below, self.log.start_offset)
            self.die_at = None
            return
        self.start_on_what_is_left()
        assert self.log.start_offset >= self.deleted_below
        self.deleted_below = self.log.start_offset

    @invariant()
    def the_last_value_of_every_key_is_there(self) -> None:
        """The decided ones; records before a deletion may be gone, but must not come back."""
        lso, start = self.partition.last_stable_offset, self.log.start_offset
        assert start == self.deleted_below
        decided = [(offset, pair) for offset, pair in self.written if offset < lso]
        found = committed(self.partition)
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        kept = [(offset, pair) for offset, pair in decided if offset >= start]
        for offset, key, value in found:
            assert self.originals[offset] == (key, value)
            assert (offset, (key, value)) in kept
        assert last_values([(offset, (key, value)) for offset, key, value in found]) == last_values(kept)

    @invariant()
    def open_transactions_are_whole(self) -> None:
        open_ids = {client.producer_id for client in self.clients if client.is_open}
        assert set(self.partition.producers.open_txns) == open_ids
        found: set[int] = set()
        offset = self.partition.last_stable_offset
        while offset < self.log.end_offset:
            for header, batch in iter_batches(self.log.read(offset, 1 << 20, self.log.end_address)):
                found |= {record.offset for record in iter_records(batch)}
                offset = header.last_offset + 1
        for client in self.clients:
            assert found >= {offset for offset, _ in client.open_}

    @invariant()
    def producers_are_known_even_without_a_snapshot(self) -> None:
        if self.deleted_below:
            return  # Then some producers are only in a snapshot.
        replayed = Partition(self.log, "t", 0)
        replay(replayed, 0)
        assert described(replayed) == described(self.partition)


class MemoryCompactionRules(CompactionRules):
    """The same in memory, without crashes."""

    storage: MemoryStorage | None = None

    def open(self) -> None:
        self.storage = MemoryStorage() if self.storage is None else after_kill(self.storage)
        self.partition = recover(self.storage.open_log("t", 0, bytes(range(16)), CONFIG), "t", 0)
        self.partition.compacted = True

    def teardown(self) -> None:
        shutil.rmtree(self.path)

    @rule()
    def restart(self) -> None:
        self.open()

    @rule()
    def stop_and_start(self) -> None:
        self.partition.save_snapshot()
        self.open()


TestCompaction = CompactionRules.TestCase
TestCompaction.settings = settings(max_examples=150, stateful_step_count=20, suppress_health_check=list(HealthCheck))
TestMemoryCompaction = MemoryCompactionRules.TestCase
TestMemoryCompaction.settings = settings(
    max_examples=100, stateful_step_count=20, suppress_health_check=list(HealthCheck)
)
