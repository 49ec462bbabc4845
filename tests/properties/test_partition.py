"""A partition under any mix of producers, transactions, retries, zombies, full disks and restarts.

The model keeps the values that each transaction wrote and does not look at the log. The claims are about what a
consumer sees, so the test reads as Kafka's consumers do: fetch by fetch, without the batches of aborted transactions.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fencepost.client.fetching import Isolation
from fencepost.machines.log.memory import MemoryLog, MemoryStorage
from fencepost.machines.partition.partition import Partition
from fencepost.machines.partition.producers import BATCHES_KEPT, Producer, decode_snapshot, encode_snapshot
from fencepost.machines.partition.recovery import recover
from fencepost.protocol import errors
from fencepost.protocol.batch import (
    MAX_SEQUENCE,
    Corrupt,
    advance_sequence,
    assemble,
    encode_batch,
)
from fencepost.protocol.produced import RefusedBatch, check_produce_batch
from fencepost.protocol.records import Record, encode_records, iter_batches, iter_records
from fencepost.protocol.transaction_version import TV0, TV2, TransactionVersion
from tests.memory_storage import copy_log

NOW = 1_700_000_000_000
PRODUCERS = 4


def read_committed(partition: Partition, max_bytes: int) -> list[bytes | None]:
    """Everything that a read_committed consumer delivers, by the rules of Kafka's clients."""
    seen: list[bytes | None] = []
    offset = partition.log.start_offset
    while True:
        fetched = partition.fetch(offset, max_bytes, read_committed=True)
        assert fetched.error == errors.NONE
        assert fetched.aborted is not None
        if not fetched.records:
            assert offset == partition.last_stable_offset
            return seen
        isolation = Isolation((first_offset, producer_id) for producer_id, first_offset in fetched.aborted)
        for header, batch in iter_batches(fetched.records):
            assert header.base_offset == offset
            offset = header.last_offset + 1
            if isolation.delivers(header, batch):
                seen += [record.value for record in iter_records(batch)]


@dataclass
class Client:
    """A producer as it sees itself."""

    producer_id: int
    version: TransactionVersion
    epoch: int = 0
    sequence: int = 0
    open_since: int | None = None
    written: list[tuple[int, bytes]] = field(default_factory=list)
    last_batches: list[tuple[bytes, int]] = field(default_factory=list)


class PartitionRules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.partition = Partition(MemoryLog(self.storage), "t", 0)
        self.clients: list[Client] = []
        self.visible: list[tuple[int, bytes]] = []
        self.values = 0
        self.remembers = BATCHES_KEPT

    @initialize(
        modes=st.lists(st.sampled_from([TV0, TV2]), min_size=PRODUCERS, max_size=PRODUCERS),
        near_the_end=st.booleans(),
    )
    def start(self, modes: list[TransactionVersion], near_the_end: bool) -> None:
        for n, version in enumerate(modes):
            # Below TV2 the sequence continues from one transaction to the next, so it can wrap around.
            first = MAX_SEQUENCE - 3 if near_the_end and not version.bumps_epoch else 0
            self.clients.append(Client(100 + n, version, sequence=first))

    def next_values(self, count: int) -> list[bytes]:
        self.values += count
        return [b"%d" % n for n in range(self.values - count, self.values)]

    @rule(who=st.integers(0, PRODUCERS - 1), count=st.integers(1, 3))
    def write_in_a_transaction(self, who: int, count: int) -> None:
        client = self.clients[who]
        values = self.next_values(count)
        data = encode_batch([(b"k", v) for v in values], NOW, client.producer_id, client.epoch, client.sequence, True)
        open_here = self.partition.has_open_txn(client.producer_id, client.epoch)
        assert open_here == (client.open_since is not None)
        if not open_here:
            refused = self.partition.append(data, NOW, transaction_version=client.version)
            assert refused.error == errors.INVALID_TXN_STATE
        end = self.partition.high_watermark
        result = self.partition.append(data, NOW, verified=not open_here, transaction_version=client.version)
        assert (result.error, result.base_offset, result.duplicate) == (errors.NONE, end, False)
        client.sequence = advance_sequence(client.sequence, count)
        if client.open_since is None:
            client.open_since = end
        client.written += [(end + i, value) for i, value in enumerate(values)]
        client.last_batches = [*client.last_batches, (data, end)][-BATCHES_KEPT:]

    @rule(count=st.integers(1, 3))
    def write_plainly(self, count: int) -> None:
        values = self.next_values(count)
        end = self.partition.high_watermark
        assert self.partition.append(encode_batch([(b"k", v) for v in values], NOW), NOW).base_offset == end
        self.visible += [(end + i, value) for i, value in enumerate(values)]

    @rule(who=st.integers(0, PRODUCERS - 1), back=st.integers(1, BATCHES_KEPT))
    def send_again(self, who: int, back: int) -> None:
        client = self.clients[who]
        if back > min(len(client.last_batches), self.remembers):
            return
        data, offset = client.last_batches[-back]
        result = self.partition.append(data, NOW, transaction_version=client.version)
        if client.open_since is not None and offset < client.open_since:
            # librdkafka may give the sequences of an aborted record to a new one: see `Partition.append`.
            assert result.error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            assert (result.error, result.base_offset, result.duplicate) == (errors.NONE, offset, True)

    @rule(who=st.integers(0, PRODUCERS - 1), skip=st.integers(1, 5))
    def leave_a_gap(self, who: int, skip: int) -> None:
        client = self.clients[who]
        if self.partition.epoch_of(client.producer_id) < 0:
            return
        sequence = advance_sequence(client.sequence, skip)
        data = encode_batch([(b"k", b"lost")], NOW, client.producer_id, client.epoch, sequence, True)
        result = self.partition.append(data, NOW, verified=True, transaction_version=client.version)
        assert result.error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(who=st.integers(0, PRODUCERS - 1), transactional=st.booleans())
    def a_zombie_writes(self, who: int, transactional: bool) -> None:
        client = self.clients[who]
        if self.partition.epoch_of(client.producer_id) < 1:
            return
        data = encode_batch(
            [(b"k", b"zombie")], NOW, client.producer_id, client.epoch - 1, client.sequence, transactional
        )
        assert self.partition.append(data, NOW, verified=True).error == errors.INVALID_PRODUCER_EPOCH

    @rule(who=st.integers(0, PRODUCERS - 1), commit=st.booleans(), fence=st.booleans())
    def end_a_transaction(self, who: int, commit: bool, fence: bool) -> None:
        client = self.clients[who]
        # With TV2 the coordinator bumps the epoch at every end, below TV2 only when it fences.
        bump = client.version.bumps_epoch or (fence and not commit)
        epoch = client.epoch + bump
        version = client.version
        error = self.partition.write_marker(client.producer_id, epoch, commit, 0, NOW, version)
        assert error == errors.NONE
        if commit:
            self.visible += client.written
        client.open_since = None
        client.written = []
        if bump or not client.last_batches:
            # The partition knows this epoch from its marker only, so it expects the first sequence.
            client.epoch, client.sequence, client.last_batches = epoch, 0, []

    @rule(who=st.integers(0, PRODUCERS - 1), commit=st.booleans())
    def a_marker_comes_late(self, who: int, commit: bool) -> None:
        """With TV2, the marker of the previous transaction cannot end the one that is open."""
        client = self.clients[who]
        if client.version.bumps_epoch and client.open_since is not None:
            error = self.partition.write_marker(client.producer_id, client.epoch, commit, 0, NOW, TV2)
            assert error == errors.INVALID_PRODUCER_EPOCH

    @rule(who=st.integers(0, PRODUCERS - 1))
    def the_disk_is_full(self, who: int) -> None:
        client = self.clients[who]
        self.storage.full = True
        data = encode_batch([(b"k", b"never")], NOW, client.producer_id, client.epoch, client.sequence, True)
        assert self.partition.append(data, NOW, verified=True).error == errors.KAFKA_STORAGE_ERROR
        epoch = client.epoch + client.version.bumps_epoch
        error = self.partition.write_marker(client.producer_id, epoch, True, 0, NOW, client.version)
        assert error == errors.KAFKA_STORAGE_ERROR
        self.storage.full = False

    @rule()
    def take_a_snapshot(self) -> None:
        self.partition.save_snapshot()

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        log = self.partition.log
        assert isinstance(log, MemoryLog)
        before = self.partition
        if killed:
            log = copy_log(log, self.storage, log.end_offset)
        from_snapshot = log.load_snapshot() is not None
        self.partition = after = recover(log, "t", 0)
        assert after.producers.open_txns == before.producers.open_txns
        assert list(after.producers.open_txns) == list(before.producers.open_txns)
        assert after.stable_address == before.stable_address
        assert after.last_stable_offset == before.last_stable_offset
        assert log.aborted(0, log.end_offset) == before.log.aborted(0, log.end_offset)
        assert after.describe_producers() == before.describe_producers() or from_snapshot
        by_id = {d.producer_id: d for d in after.describe_producers()}
        assert by_id == {d.producer_id: d for d in before.describe_producers()}
        if from_snapshot:
            # Kafka: a snapshot keeps one batch of each producer.
            self.remembers = 1
        else:
            assert after.producers.by_id == before.producers.by_id

    @invariant()
    def the_last_stable_offset_is_the_oldest_open_transaction(self) -> None:
        starts = [client.open_since for client in self.clients if client.open_since is not None]
        assert self.partition.last_stable_offset == min(starts, default=self.partition.high_watermark)
        assert self.partition.stable_address == self.partition.log.address_of(self.partition.last_stable_offset)

    @invariant()
    def readers_see_exactly_what_was_committed(self) -> None:
        lso = self.partition.last_stable_offset
        expected = [value for offset, value in sorted(self.visible) if offset < lso]
        for max_bytes in (1, 300, 1 << 20):
            assert read_committed(self.partition, max_bytes) == expected


PartitionRules.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestPartition = PartitionRules.TestCase


batches_sent = st.lists(st.integers(1, 4), min_size=1, max_size=12)


@given(first=st.integers(MAX_SEQUENCE - 20, MAX_SEQUENCE) | st.integers(0, MAX_SEQUENCE), counts=batches_sent)
def test_sequences_follow_one_another_from_anywhere(first: int, counts: list[int]) -> None:
    partition = Partition(MemoryLog(), "t", 0)
    sequence = first
    offset = 0
    sent = []
    for count in counts:
        data = encode_batch([(None, b"v")] * count, NOW, 7, 0, sequence)
        assert partition.append(data, NOW).base_offset == offset
        sent.append((data, offset))
        for again, at in sent[-BATCHES_KEPT:]:
            result = partition.append(again, NOW)
            assert (result.base_offset, result.duplicate) == (at, True)
        sequence = advance_sequence(sequence, count)
        offset += count
    assert partition.high_watermark == sum(counts)


int16, int32, int64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))


@st.composite
def snapshots(draw: st.DrawFn) -> dict[int, Producer]:
    producers: dict[int, Producer] = {}
    for producer_id in draw(st.sets(int64.filter(lambda n: n >= 0), max_size=8)):
        partition = Partition(MemoryLog(), "t", 0)
        for epoch in sorted(draw(st.lists(st.integers(0, 32767), min_size=1, max_size=3))):
            data = encode_batch([(None, b"v")] * draw(st.integers(1, 3)), NOW, producer_id, epoch, 0, True)
            partition.append(data, draw(st.integers(NOW, NOW + 1000)), verified=True)
            if draw(st.booleans()):
                partition.write_marker(producer_id, epoch, draw(st.booleans()), draw(st.integers(0, 9)), NOW)
        producers |= partition.producers.by_id
    for producer in producers.values():
        if producer.batches:
            producer.last_timestamp = producer.batches[-1].timestamp
    return producers


@given(snapshots())
def test_a_snapshot_comes_back(producers: dict[int, Producer]) -> None:
    assert decode_snapshot(encode_snapshot(producers)) == producers


@given(st.binary(max_size=300))
def test_no_bytes_pass_for_a_snapshot_by_chance(data: bytes) -> None:
    try:
        decode_snapshot(data)
    except Corrupt:
        pass
    else:
        raise AssertionError("these bytes have no checksum")


some_bytes = st.none() | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple)
some_records = st.lists(
    st.builds(Record, st.just(0), st.integers(0, 2 * NOW), some_bytes, some_bytes, headers),
    min_size=1,
    max_size=40,
)


@given(some_records, st.sampled_from([0, 1, 2, 3, 4]))
def test_any_records_come_back_from_a_batch_that_is_accepted(records: list[Record], codec: int) -> None:
    batch = encode_records(records, codec)
    assert not isinstance(check_produce_batch(batch), RefusedBatch)
    assert list(iter_records(batch)) == [r._replace(offset=n) for n, r in enumerate(records)]


@given(some_records, st.sampled_from([0, 1, 2, 3, 4]), st.data())
@settings(max_examples=300)
def test_a_mutated_batch_is_accepted_whole_or_refused_and_never_breaks_the_partition(
    records: list[Record], codec: int, data: st.DataObject
) -> None:
    batch = bytearray(encode_records(records, codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(batch)) | st.just(len(batch)))
    partition = Partition(MemoryLog(), "t", 0)
    result = partition.append(bytes(batch[:cut]), NOW)
    assert (result.error == errors.NONE) == (partition.high_watermark > 0)
    assert partition.append(encode_batch([(b"k", b"v")], NOW), NOW).error == errors.NONE


@given(st.binary(max_size=200), st.integers(0, 2**31 - 1), st.sampled_from([0, 1, 2, 3, 4]))
@settings(max_examples=300)
def test_records_of_any_bytes_are_read_or_corrupt(payload: bytes, count: int, codec: int) -> None:
    batch = assemble(payload, count, codec, NOW, NOW)
    with suppress(Corrupt):
        assert len(list(iter_records(batch, max_bytes=1 << 20))) == count
