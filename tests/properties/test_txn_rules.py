"""TV1 and TV2 producers, zombies, timeouts, crashes at any append, a full disk, power losses, in any order.

The log rebuilds the state, a fenced producer never writes, and read_committed readers see all that was committed and
nothing else. In the end no transaction is open and no LSO is held back.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fencepost.broker.cluster import BrokerAddress, Cluster
from fencepost.broker.config import parse
from fencepost.broker.metadata import decode_metadata
from fencepost.client.fetching import Isolation
from fencepost.machines.log.memory import MemoryLog, MemoryStorage
from fencepost.machines.txn.states import IDLE
from fencepost.protocol import errors
from fencepost.protocol.batch import Buffer, encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.records import iter_batches, iter_records
from fencepost.protocol.schema import Message
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV1, TV2, TransactionVersion
from tests.memory_storage import after_kill, after_power_loss
from tests.pure_broker import PureBroker

IDS = ("a", "b", "c")
PARTITIONS = (("orders", 0), ("orders", 1), ("payments", 0))
TIMEOUT_MS = 10_000
DAY_MS = 86_400_000
STATE_PARTITIONS = 2
EXAMPLES = int(os.environ.get("FENCEPOST_EXAMPLES", "100"))


class Crash(BaseException):
    """The process was killed at this point."""


class CrashingLog(MemoryLog):
    """A log that kills the process at an append, just before it or just after."""

    __slots__ = ()

    def append(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp: int) -> int:
        storage = self._storage
        assert isinstance(storage, CrashingStorage)
        storage.appends_left -= 1
        if storage.appends_left == 0 and not storage.after:
            raise Crash("before an append")
        address = super().append(batch, base_offset, last_offset, max_timestamp)
        if storage.appends_left == 0:
            raise Crash("after an append")
        return address


class CrashingStorage(MemoryStorage):
    appends_left = 0  # Until the crash; 0 or less means that none is planned.
    after = False

    def open_log(self, *args: Any) -> Any:
        log = super().open_log(*args)
        assert isinstance(log, MemoryLog)
        log.__class__ = CrashingLog
        log._storage = self
        return log

    @classmethod
    def of(cls, found: MemoryStorage) -> CrashingStorage:
        storage = cls(found._later)
        storage._logs, storage._metadata = found._logs, found._metadata
        return storage


class Transaction:
    """One transaction as its producer sees it: the acknowledged values, and how it ended."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.values: dict[str, TopicPartition] = {}
        self.maybe: set[str] = set()  # Values whose Produce was never answered.
        self.offset: int | None = None
        self.outcome = "open"  # Readers may see its values only if this is "committed" or "unknown".


class Producer:
    """One instance of a producer."""

    def __init__(self, transactional_id: str, producer_id: int, epoch: int, version: TransactionVersion) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.version = version
        self.sequences: dict[TopicPartition, int] = {}
        self.added: set[Any] = set()
        self.txn: Transaction | None = None
        self.is_broken = False  # It got an error and may only abort.
        self.is_fenced = False  # A newer instance has the transactional id.
        self.is_lost = False  # It does not know what was written, so it must not continue its sequences.

    def refused(self, error: int) -> None:
        assert error != errors.UNKNOWN_SERVER_ERROR
        self.is_broken = True


def read_committed(broker: PureBroker, where: TopicPartition) -> list[str]:
    """The values that a consumer with isolation.level=read_committed delivers to its application."""
    partition = FetchRequest.FetchPartition(where[1], -1, 0, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(where[0], partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1, topics=topics)
    fetched = broker.call(request, 11).responses[0].partitions[0]
    if fetched.error_code:  # The topic does not exist yet.
        return []
    isolation = Isolation((a.first_offset, a.producer_id) for a in fetched.aborted_transactions)
    values = []
    for header, batch in iter_batches(fetched.records):
        if isolation.delivers(header, batch):
            values += [(record.value or b"").decode() for record in iter_records(batch)]
    return values


class TxnRules(RuleBasedStateMachine):
    endtxn_reply = "complete"
    flush = False

    def __init__(self) -> None:
        super().__init__()
        self.syncs: list[Callable[[], None]] = []
        self.settings = {
            "log.retention.ms": "-1",  # Days pass, and committed records must stay.
            "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
            "offsets.topic.num.partitions": "2",
            "offsets.retention.minutes": str(10_000_000),
            "fencepost.endtxn.reply": self.endtxn_reply,
            "fencepost.flush.on.commit": "true" if self.flush else "false",
        }
        storage = CrashingStorage(self.syncs.append if self.flush else None)
        self.broker = PureBroker(self.settings, storage)
        self.producers: list[Producer] = []
        self.latest: dict[str, Producer] = {}
        self.txns: list[Transaction] = []
        self.serial = 0
        self.is_disk_slow = False  # Syncs wait until time passes.

    @initialize()
    def create_topics(self) -> None:
        kind = CreateTopicsRequest.CreatableTopic
        topics = [kind("orders", 2, 1), kind("payments", 1, 1)]
        self.broker.call(CreateTopicsRequest(topics, 1000), 5)

    # --- talking to the broker ----------------------------------------------------------------------------

    def call(self, request: Message, version: int) -> Any:
        """The response; None if the broker died or has not answered yet."""
        try:
            pending = self.broker.send(request, version)
            if not self.is_disk_slow:
                self.run_syncs()
            return pending.response
        except Crash:
            self.restart(after_kill(self.broker.storage))
            return None

    def run_syncs(self) -> None:
        while self.syncs:
            self.syncs.pop(0)()

    def restart(self, storage: MemoryStorage) -> None:
        self.syncs.clear()
        self.broker.restart(CrashingStorage.of(storage))
        self.run_syncs()

    def txn_of(self, producer: Producer) -> Transaction:
        if producer.txn is None:
            producer.txn = Transaction(producer.transactional_id)
            self.txns.append(producer.txn)
        return producer.txn

    # --- producers ----------------------------------------------------------------------------------------

    @rule(transactional_id=st.sampled_from(IDS), version=st.sampled_from((TV1, TV2)))
    def start_producer(self, transactional_id: str, version: TransactionVersion) -> None:
        reply = self.call(InitProducerIdRequest(transactional_id, TIMEOUT_MS), 4)
        for older in self.producers:
            if older.transactional_id == transactional_id and (reply is None or reply.error_code == 0):
                older.is_broken = True
                older.is_fenced = reply is not None  # Without a reply it is unknown.
        if reply is None or reply.error_code:
            return
        producer = Producer(transactional_id, reply.producer_id, reply.producer_epoch, version)
        for older in self.producers:
            same = (older.producer_id, older.epoch) == (producer.producer_id, producer.epoch)
            assert not same, "two producers were given the same epoch"
        self.producers.append(producer)
        self.latest[transactional_id] = producer

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), where=st.sampled_from(PARTITIONS), adds=st.sampled_from((True, True, True, False)))
    def produce(self, data: st.DataObject, where: TopicPartition, adds: bool) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        if producer.is_broken and not producer.is_fenced:
            return
        must_add = producer.version is TV1 and adds and where not in producer.added
        if must_add and not self.add(producer, where):
            return
        txn = self.txn_of(producer)
        self.serial += 1
        value = f"{producer.transactional_id}{self.serial}"
        sequence = producer.sequences.get(where, 0)
        batch = encode_batch(
            [(None, value.encode())],
            self.broker.now_ms,
            producer.producer_id,
            producer.epoch,
            sequence,
            transactional=True,
        )
        partition = ProduceRequest.PartitionProduceData(where[1], batch)
        topic = ProduceRequest.TopicProduceData(where[0], partition_data=[partition])
        request = ProduceRequest(producer.transactional_id, -1, 1000, [topic])
        reply = self.call(request, 12 if producer.version is TV2 else 11)
        if reply is None:
            txn.maybe.add(value)
            producer.is_broken = True
            producer.is_lost = producer.version is TV1
            return
        error = reply.responses[0].partition_responses[0].error_code
        if error:
            producer.refused(error)
            return
        assert not producer.is_fenced, f"a fenced producer wrote {value}"
        assert producer.version is TV2 or where in producer.added, f"{value} was written where no marker would come"
        txn.values[value] = where
        producer.sequences[where] = sequence + 1

    def add(self, producer: Producer, where: TopicPartition) -> bool:
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            (), producer.transactional_id, producer.producer_id, producer.epoch, [kind(where[0], [where[1]])]
        )
        reply = self.call(request, 3)
        error = reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code if reply else 1
        if error:
            producer.refused(error)
        else:
            assert not producer.is_fenced, "a fenced producer joined a transaction"
            producer.added.add(where)
        return not error

    @precondition(lambda self: self.producers)
    @rule(data=st.data())
    def commit_offset(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        if producer.is_broken and not producer.is_fenced:
            return
        if producer.version is TV1 and "group" not in producer.added:
            group = AddOffsetsToTxnRequest(
                producer.transactional_id, producer.producer_id, producer.epoch, producer.transactional_id
            )
            added = self.call(group, 3)
            if added is None or added.error_code:
                producer.refused(added.error_code if added else 1)
                return
            producer.added.add("group")
        txn = self.txn_of(producer)
        self.serial += 1
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, self.serial, -1, "")
        request = TxnOffsetCommitRequest(
            producer.transactional_id,
            producer.transactional_id,
            producer.producer_id,
            producer.epoch,
            topics=[kind("orders", [partition])],
        )
        reply = self.call(request, 5 if producer.version is TV2 else 3)
        error = reply.topics[0].partitions[0].error_code if reply else 1
        if error:
            producer.refused(error)
            return
        assert not producer.is_fenced, "a fenced producer wrote an offset"
        txn.offset = self.serial

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), commit=st.booleans(), again=st.booleans())
    def end(self, data: st.DataObject, commit: bool, again: bool) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        if producer.is_broken and not producer.is_fenced:
            commit = False
        request = EndTxnRequest(producer.transactional_id, producer.producer_id, producer.epoch, commit)
        reply = self.call(request, 5 if producer.version is TV2 else 4)
        txn = producer.txn
        if reply is None:
            producer.is_broken = True
            if txn is not None and commit:
                txn.outcome = "unknown"
                producer.txn = None
            return
        if reply.error_code:
            producer.refused(reply.error_code)
            return
        assert not producer.is_fenced or not commit or txn is None, "a fenced producer committed"
        if txn is not None:
            txn.outcome = "committed" if commit else "aborted"
        producer.txn = None
        producer.added.clear()
        producer.is_broken = producer.is_fenced or producer.is_lost
        if producer.version is TV2:
            producer.producer_id, producer.epoch = reply.producer_id, reply.producer_epoch
            producer.sequences.clear()
            if again:  # If the reply was lost, a retry must get the same answer.
                repeated = self.call(request, 5)
                if repeated is not None and repeated.error_code == 0:
                    assert (repeated.producer_id, repeated.producer_epoch) == (producer.producer_id, producer.epoch)

    # --- the world ----------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from((0, 1, 1000, TIMEOUT_MS + 10_001)))
    def time_passes(self, ms: int) -> None:
        self.advance(ms)

    @precondition(lambda self: not self.broker.storage.full)
    @rule(days=st.sampled_from((2, 8)))
    def nobody_does_anything_for_days(self, days: int) -> None:
        self.advance(TIMEOUT_MS + 10_001)
        if self.pass_time(lambda: self.broker.sleep(days * DAY_MS)) and days >= 8:
            for producer in self.producers:
                # Every id is forgotten: a producer that comes back is refused, as after a newer instance.
                producer.is_broken = producer.is_fenced = True

    def advance(self, ms: int) -> None:
        self.pass_time(lambda: self.broker.advance(ms))

    def pass_time(self, let_it: Callable[[], None]) -> bool:
        try:
            let_it()
            self.run_syncs()
        except Crash:
            self.restart(after_kill(self.broker.storage))
            return False
        return True

    @rule()
    def kill_and_restart(self) -> None:
        self.restart(after_kill(self.broker.storage))

    @rule(appends=st.integers(1, 6), after=st.booleans())
    def die_at_a_later_append(self, appends: int, after: bool) -> None:
        storage = self.broker.storage
        assert isinstance(storage, CrashingStorage)
        storage.appends_left, storage.after = appends, after

    @rule(full=st.booleans())
    def disk_fills_or_empties(self, full: bool) -> None:
        self.broker.storage.full = full

    @precondition(lambda self: self.flush)
    @rule(slow=st.booleans())
    def disk_slows_down_or_recovers(self, slow: bool) -> None:
        self.is_disk_slow = slow

    @precondition(lambda self: self.flush)
    @rule(kept=st.sets(st.sampled_from(("orders", "payments", "__transaction_state", "__consumer_offsets"))))
    def power_loss(self, kept: set[str]) -> None:
        """Unsynced data is lost, except for the topics in `kept`, which the system had written to disk. Clients die."""
        for producer in self.producers:
            producer.is_broken = True
        self.producers.clear()
        found, whole = after_power_loss(self.broker.storage), after_kill(self.broker.storage)
        for place in found._logs:
            if place[0] in kept:
                found._logs[place] = whole._logs[place]
        self.restart(found)

    # --- what must be true --------------------------------------------------------------------------------

    @invariant()
    def readers_of_committed_data_see_nothing_else(self) -> None:
        outcomes = {value: txn.outcome for txn in self.txns for value in [*txn.values, *txn.maybe]}
        for where in PARTITIONS:
            for value in read_committed(self.broker, where):
                assert outcomes[value] in ("committed", "unknown"), f"{value} of {where} is {outcomes[value]}"

    @invariant()
    def replaying_the_logs_rebuilds_the_state(self) -> None:
        """Compares with the state that the next process would load. `last_producer_epoch` is kept in memory only."""
        live = self.broker.cluster
        found = after_kill(self.broker.storage)
        document = found.load_metadata()
        assert document is not None
        loaded = Cluster(found, parse(self.settings), random.Random(1))
        loaded.brokers = [BrokerAddress(1, "127.0.0.1", 9092)]
        loaded.controller.restore(decode_metadata(document), self.broker.now_ms)
        assert {index: s.txns for index, s in loaded.txns.shards.items()} == {
            index: {name: txn._replace(last_producer_epoch=-1) for name, txn in s.txns.items()}
            for index, s in live.txns.shards.items()
        }
        assert live.groups._homes.keys() == loaded.groups._homes.keys()
        for home, loaded_home in zip(live.groups._homes.values(), loaded.groups._homes.values(), strict=True):
            assert home.shard.offsets == loaded_home.shard.offsets
        for topic in live.topics.values():
            copies = loaded.topics[topic.name].partitions
            for partition, copy in zip(topic.partitions.values(), copies.values(), strict=True):
                assert partition.producers.open_txns == copy.producers.open_txns
                assert partition.last_stable_offset == copy.last_stable_offset

    def teardown(self) -> None:
        storage = self.broker.storage
        assert isinstance(storage, CrashingStorage)
        storage.full, storage.appends_left = False, 0
        for _ in range(5):
            self.advance(TIMEOUT_MS + 10_001)
        for txn in self.broker.cluster.txns.all_txns():
            assert txn.state in IDLE, f"{txn.transactional_id} is {txn.state.kafka_name} for ever"
        for topic in self.broker.cluster.topics.values():
            for partition in topic.partitions.values():
                end = partition.high_watermark
                assert partition.last_stable_offset == end, f"{topic.name}-{partition.index}: the LSO is held back"
        self.check_what_was_committed()

    def check_what_was_committed(self) -> None:
        seen = {value for where in PARTITIONS for value in read_committed(self.broker, where)}
        offsets: dict[str, set[int]] = {transactional_id: {-1} for transactional_id in IDS}
        for txn in self.txns:
            visible = seen.intersection(txn.values)
            if txn.outcome == "committed":
                assert visible == set(txn.values), f"lost: {set(txn.values) - visible}"
                if txn.offset is not None:
                    offsets[txn.transactional_id] = {txn.offset}
            elif txn.outcome == "unknown":
                assert not visible or visible == set(txn.values), f"torn: {visible} of {set(txn.values)}"
                if txn.offset is not None:
                    offsets[txn.transactional_id].add(txn.offset)
            else:
                assert not visible
        for transactional_id, allowed in offsets.items():
            wanted = [OffsetFetchRequest.OffsetFetchRequestTopic("orders", [0])]
            reply = self.broker.call(OffsetFetchRequest(transactional_id, wanted, require_stable=True), 7)
            found = reply.topics[0].partitions[0]
            assert found.error_code == 0, errors.name_of(found.error_code)
            assert found.committed_offset in allowed, f"{found.committed_offset} is none of {allowed}"


class KafkasOrderRules(TxnRules):
    endtxn_reply = "prepare"


class FlushingRules(TxnRules):
    flush = True


@pytest.mark.parametrize("rules", [TxnRules, KafkasOrderRules, FlushingRules])
def test_transactions_hold_whatever_happens(rules: type[TxnRules]) -> None:
    run_state_machine_as_test(
        rules,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
