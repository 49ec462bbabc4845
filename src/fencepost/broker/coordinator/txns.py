"""The transaction coordinator: two-phase commit over partitions, driven by `machines/txn/decisions.py`.

A request is decided on the state in memory, its record is appended to `__transaction_state`, and then applied.
Ending a transaction goes through four steps, and each waits for the one before:

    1. append Prepare*            the decision; from here on the only way is forward
    2. a marker to every partition, `__consumer_offsets` included; a full disk is tried again until it is not
    3. append Complete*
    4. answer the client          (after step 1 with fencepost.endtxn.reply=prepare)

With fencepost.flush.on.commit there is a sync between any two: the data before the decision to commit it, the
decision before the markers, the markers before Complete*, so that no power cut finds the later without the earlier.
A crash after step 1 finds Prepare* when it loads, and goes on with step 2; a second marker does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.broker.coordinator.loading import load_latest
from fencepost.machines.log.interface import Log, StorageFailed
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn import decisions as machine
from fencepost.machines.txn.decisions import DEAD, ONGOING, PREPARE_COMMIT, PREPARED, State, TopicPartition, Txn
from fencepost.machines.txn.records import decode_key, decode_value, encode_key, encode_value, partition_for
from fencepost.protocol import errors

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster

COORDINATOR_EPOCH = 0
RETRY_MS = 100

InitReply = Callable[[int, int, int], None]  # error, producer id, epoch
Orphan = tuple[Partition, int, int]  # Where, producer id, epoch


class TxnShard:
    """The transactional ids of one partition of `__transaction_state`."""

    __slots__ = ("partition", "pending", "txns")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.txns: dict[str, Txn] = {}
        self.pending: set[str] = set()  # Ids that wait for the disk, and can do nothing else meanwhile.


@dataclass(slots=True)
class TxnCounts:
    """What happened since the start."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    fenced: int = 0  # Requests refused because a newer producer has the id.
    unverified: int = 0  # Writes that belong to no transaction (KIP-890).


class TxnCoordinator:
    def __init__(self, cluster: Cluster) -> None:
        self.counts = TxnCounts()
        self._cluster = cluster
        self._config = cluster.config
        self._answers_after_complete = cluster.config["fencepost.endtxn.reply"] == "complete"
        self._flushes = bool(cluster.config["fencepost.flush.on.commit"])
        self.shards: list[TxnShard] = []
        # Producers of which a partition holds something that could not be aborted yet: see `_adopt_orphans`.
        self._orphaned: set[int] = set()

    # --- finding things -----------------------------------------------------------------------------------

    def ensure_shards(self, now_ms: int) -> None:
        if not self.shards:
            from fencepost.broker.cluster import TXN_TOPIC

            topic = self._cluster.ensure_internal_topic(TXN_TOPIC, now_ms)
            self.shards = [TxnShard(partition) for partition in topic.partitions]

    def shard_index(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self._config["transaction.state.log.num.partitions"])

    def shard_of(self, transactional_id: str, now_ms: int) -> TxnShard:
        if not self.shards:
            self.ensure_shards(now_ms)
        return self.shards[partition_for(transactional_id, len(self.shards))]

    def find(self, transactional_id: str) -> Txn | None:
        if not self.shards:
            return None
        return self.shards[partition_for(transactional_id, len(self.shards))].txns.get(transactional_id)

    def all_txns(self) -> Iterable[Txn]:
        for shard in self.shards:
            yield from shard.txns.values()

    # --- InitProducerId -----------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        expected_producer_id: int,
        expected_epoch: int,
        timeout_ms: int,
        now_ms: int,
        reply: InitReply,
    ) -> None:
        shard = self.shard_of(transactional_id, now_ms)
        if transactional_id in shard.pending:
            reply(errors.CONCURRENT_TRANSACTIONS, -1, -1)
            return
        txn = shard.txns.get(transactional_id)
        if (
            txn is not None
            and txn.state is ONGOING
            and machine.is_expected_producer(txn, expected_producer_id, expected_epoch)
        ):
            self._fence_then_init(shard, txn, expected_producer_id, expected_epoch, timeout_ms, now_ms, reply)
            return
        try:
            decision = machine.decide_init(
                txn,
                transactional_id,
                expected_producer_id,
                expected_epoch,
                timeout_ms,
                now_ms,
                self._cluster.allocate_producer_id,
            )
        except StorageFailed:
            reply(errors.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)  # Kafka: no block of producer ids to be had.
            return
        record = decision.record
        error = decision.error or (self._record(shard, record, now_ms) if record else errors.NONE)
        if error or record is None:
            reply(error, -1, -1)
            return
        granted = record
        if self._flushes:
            # A power cut must not hand the same epoch out twice.
            self._cluster.sync(
                [shard.partition.log], lambda: reply(errors.NONE, granted.producer_id, granted.producer_epoch)
            )
        else:
            reply(errors.NONE, granted.producer_id, granted.producer_epoch)

    def _fence_then_init(
        self,
        shard: TxnShard,
        txn: Txn,
        expected_producer_id: int,
        expected_epoch: int,
        timeout_ms: int,
        now_ms: int,
        reply: InitReply,
    ) -> None:
        """Another producer left a transaction open: abort it first."""

        def go_on(error: int) -> None:
            if error:
                reply(error, -1, -1)
            elif not self._answers_after_complete:
                reply(errors.CONCURRENT_TRANSACTIONS, -1, -1)
            else:
                # Differs: Apache Kafka answers CONCURRENT_TRANSACTIONS and lets the client ask again.
                self.init_producer_id(
                    txn.transactional_id, expected_producer_id, expected_epoch, timeout_ms, now_ms, reply
                )

        self._fence(shard, txn, now_ms, go_on)

    def _fence(self, shard: TxnShard, txn: Txn, now_ms: int, then: Callable[[int], None]) -> None:
        try:
            decision = machine.decide_fence(
                txn, self._cluster.transaction_version, now_ms, self._cluster.allocate_producer_id
            )
        except StorageFailed:
            then(errors.COORDINATOR_LOAD_IN_PROGRESS)
            return
        assert decision.record is not None
        self._end(shard, decision.record, now_ms, then)

    # --- adding partitions --------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Set[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> int:
        if not transactional_id:
            return errors.INVALID_REQUEST
        shard = self.shard_of(transactional_id, now_ms)
        if transactional_id in shard.pending or producer_id in self._orphaned:
            return errors.CONCURRENT_TRANSACTIONS
        decision = machine.decide_add(
            shard.txns.get(transactional_id), producer_id, epoch, partitions, client_version, now_ms
        )
        if decision.record is not None:
            return self._record(shard, decision.record, now_ms)
        self._count_refusal(decision.error)
        return decision.error

    def _count_refusal(self, error: int) -> None:
        if error in (errors.PRODUCER_FENCED, errors.INVALID_PRODUCER_EPOCH):
            self.counts.fenced += 1

    def verify(self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition) -> int:
        if not transactional_id:
            return errors.INVALID_REQUEST
        error = machine.verify_partition(self.find(transactional_id), producer_id, epoch, partition)
        if error:
            self.counts.unverified += 1
        return error

    # --- ending -------------------------------------------------------------------------------------------

    def end_txn(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        commit: bool,
        version: int,
        now_ms: int,
        reply: InitReply,
    ) -> None:
        """EndTxn; from v5 on the reply carries the producer id and epoch of the next transaction."""
        shard = self.shard_of(transactional_id, now_ms)
        txn = shard.txns.get(transactional_id)
        bumps = version >= 5
        try:
            if bumps:
                decision = machine.decide_end_and_bump(
                    txn, producer_id, epoch, commit, now_ms, self._cluster.allocate_producer_id
                )
            else:
                decision = machine.decide_end(txn, producer_id, epoch, commit, now_ms)
        except StorageFailed:
            reply(errors.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
            return
        prepared = decision.record
        if not decision.error and transactional_id in shard.pending:
            reply(errors.CONCURRENT_TRANSACTIONS, -1, -1)
            return
        if decision.error or prepared is None:
            self._count_refusal(decision.error)
            if decision.error == errors.NONE and bumps and txn is not None:
                reply(errors.NONE, txn.producer_id, txn.producer_epoch)
            else:
                reply(decision.error, -1, -1)
            return
        next_id, next_epoch = machine.identity_after(prepared) if bumps else (-1, -1)

        def answer(error: int) -> None:
            if error:
                reply(error, -1, -1)
            else:
                reply(errors.NONE, next_id, next_epoch)

        self._end(shard, prepared, now_ms, answer)

    def _end(self, shard: TxnShard, prepared: Txn, now_ms: int, then: Callable[[int], None]) -> None:
        """Steps 1 to 4. `then` hears an error, or 0 at the step that `fencepost.endtxn.reply` names."""
        if self._flushes and prepared.state is PREPARE_COMMIT:
            shard.pending.add(prepared.transactional_id)

            def data_is_safe() -> None:
                shard.pending.discard(prepared.transactional_id)
                self._prepare(shard, prepared, now_ms, then)

            self._cluster.sync(self._logs_of(prepared.partitions), data_is_safe)
        else:
            self._prepare(shard, prepared, now_ms, then)

    def _prepare(self, shard: TxnShard, prepared: Txn, now_ms: int, then: Callable[[int], None]) -> None:
        self._reach("txn.prepare.before")
        error = self._record(shard, prepared, now_ms)
        if error:
            then(error)
            return
        if prepared.state is PREPARE_COMMIT:
            self.counts.committed += 1
        else:
            self.counts.aborted += 1
        self._reach("txn.prepare.after")
        if self._flushes:
            self._cluster.sync([shard.partition.log], lambda: self._decided(shard, prepared, now_ms, then))
        else:
            self._decided(shard, prepared, now_ms, then)

    def _decided(self, shard: TxnShard, prepared: Txn, now_ms: int, then: Callable[[int], None]) -> None:
        if self._answers_after_complete:
            self._write_markers(shard, prepared, prepared.partitions, now_ms, then)
        else:
            then(errors.NONE)
            self._cluster.timers.at(
                now_ms, lambda at_ms: self._write_markers(shard, prepared, prepared.partitions, at_ms, None)
            )

    def _write_markers(
        self,
        shard: TxnShard,
        prepared: Txn,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        then: Callable[[int], None] | None,
    ) -> None:
        """A marker to each partition that still lacks one, then Complete*."""
        commit = prepared.state is PREPARE_COMMIT
        unwritten = []
        for topic, index in partitions:
            partition = self._cluster.partition(topic, index)
            if partition is None:
                continue  # Deleted meanwhile: there is nothing left to commit or abort.
            self._reach("txn.marker.before")
            error = self._write_marker(
                partition,
                prepared.producer_id,
                prepared.producer_epoch,
                commit,
                prepared.client_transaction_version,
                now_ms,
            )
            if error == errors.KAFKA_STORAGE_ERROR:
                unwritten.append((topic, index))
                continue
            # Any other refusal means that the partition has seen a later epoch: this transaction is over there.
            self._reach("txn.marker.after")
        if unwritten:
            self._cluster.timers.at(
                now_ms + RETRY_MS, lambda at_ms: self._write_markers(shard, prepared, unwritten, at_ms, then)
            )
        elif self._flushes:
            # Complete* must not reach the disk before the markers it vouches for.
            self._cluster.sync(
                self._logs_of(prepared.partitions), lambda: self._complete(shard, prepared, now_ms, then)
            )
        else:
            self._complete(shard, prepared, now_ms, then)

    def _write_marker(
        self, partition: Partition, producer_id: int, epoch: int, commit: bool, version: int, now_ms: int
    ) -> int:
        error = partition.write_marker(producer_id, epoch, commit, COORDINATOR_EPOCH, now_ms, version)
        if error == errors.TRANSACTION_COORDINATOR_FENCED:
            # Differs: Apache Kafka gives up. There is one coordinator here, so a later epoch can only come from
            # a tool's WriteTxnMarkers, and must not hold back the LSO for ever.
            known = partition.producers.by_id[producer_id].coordinator_epoch
            error = partition.write_marker(producer_id, epoch, commit, known, now_ms, version)
        if not error and partition.topic == "__consumer_offsets":
            self._cluster.groups.marker_written(partition.index, producer_id, commit)
        return error

    def _complete(self, shard: TxnShard, prepared: Txn, now_ms: int, then: Callable[[int], None] | None) -> None:
        self._reach("txn.complete.before")
        if self._record(shard, machine.complete(prepared, now_ms), now_ms):
            self._cluster.timers.at(now_ms + RETRY_MS, lambda at_ms: self._complete(shard, prepared, at_ms, then))
            return
        self._reach("txn.complete.after")
        if self._flushes and prepared.client_transaction_version < 2:
            # The next transaction will have the same epoch, so a power cut that loses Complete* and keeps the next
            # one's data would let recovery end that with this one's markers.
            shard.pending.add(prepared.transactional_id)

            def end_is_safe() -> None:
                shard.pending.discard(prepared.transactional_id)
                if then is not None:
                    then(errors.NONE)

            self._cluster.sync([shard.partition.log], end_is_safe)
        elif then is not None:
            then(errors.NONE)

    def _record(self, shard: TxnShard, txn: Txn, now_ms: int) -> int:
        """Append the record and take it into the state; on failure nothing has changed."""
        value = None if txn.state is DEAD else encode_value(txn, self._cluster.transaction_version)
        try:
            shard.partition.append_record(encode_key(txn.transactional_id), value, now_ms)
        except StorageFailed:
            return errors.NOT_COORDINATOR  # Kafka: what it makes of KAFKA_STORAGE_ERROR; clients try again.
        machine.apply(shard.txns, txn)
        return errors.NONE

    def _logs_of(self, partitions: Iterable[TopicPartition]) -> list[Log]:
        found = (self._cluster.partition(topic, index) for topic, index in partitions)
        return [partition.log for partition in found if partition is not None]

    def _reach(self, point: str) -> None:
        if self._cluster.crash_at is not None:
            self._cluster.crash_at(point)

    # --- timers -------------------------------------------------------------------------------------------

    def abort_timed_out(self, now_ms: int) -> None:
        for shard in self.shards:
            for txn in [t for t in shard.txns.values() if machine.is_timed_out(t, now_ms)]:
                if txn.transactional_id in shard.pending:
                    continue
                self._cluster.notice(
                    f"transaction {txn.transactional_id} (producer {txn.producer_id}, epoch {txn.producer_epoch}) "
                    f"was open for {now_ms - txn.start_ms} ms, its timeout is {txn.timeout_ms} ms: aborted"
                )
                self.time_out(shard, txn, now_ms)

    def time_out(self, shard: TxnShard, txn: Txn, now_ms: int) -> None:
        """Abort the open transaction, whose producer is fenced by that."""
        self.counts.timed_out += 1
        self._fence(shard, txn, now_ms, lambda error: None)

    def remove_expired(self, now_ms: int) -> None:
        expiration_ms = self._config["transactional.id.expiration.ms"]
        for shard in self.shards:
            for txn in [t for t in shard.txns.values() if machine.is_expired(t, expiration_ms, now_ms)]:
                if txn.transactional_id in shard.pending:
                    continue
                self._record(shard, txn._replace(state=DEAD, updated_ms=now_ms), now_ms)

    # --- loading ------------------------------------------------------------------------------------------

    def load(self, now_ms: int) -> None:
        from fencepost.broker.cluster import TXN_TOPIC

        topic = self._cluster.topics.get(TXN_TOPIC)
        self.shards = [self._load_shard(partition) for partition in topic.partitions] if topic else []
        timers = self._cluster.timers
        interval_ms = self._config["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
        timers.every(interval_ms, now_ms, self.abort_timed_out)
        interval_ms = self._config["transaction.remove.expired.transaction.cleanup.interval.ms"]
        timers.every(interval_ms, now_ms, self.remove_expired)

    def _load_shard(self, partition: Partition) -> TxnShard:
        """The last record of each id counts, so only that one is decoded."""
        shard = TxnShard(partition)
        for key, record in load_latest(partition).by_key.items():
            transactional_id = decode_key(key)
            txn = None if transactional_id is None else decode_value(transactional_id, record.value)
            if txn is not None:
                shard.txns[txn.transactional_id] = txn
        return shard

    def finish_recovery(self, now_ms: int, then: Callable[[], None]) -> None:
        """Go on where the last process stopped: finish what was decided, forget what expired.

        `then` is called when every client that may have lost something is fenced.
        """
        self._adopt_orphans(now_ms)
        # Data of an open transaction is not synced yet. If some of it is gone, its client must not commit the rest.
        lost_appends = self._cluster.storage.may_have_lost_appends
        aborts_ongoing = self._config["fencepost.recovery.ongoing"] == "abort"
        unfenced = {txn.transactional_id for txn in self.all_txns()} if lost_appends else set()

        def fenced(transactional_id: str) -> None:
            unfenced.discard(transactional_id)
            if not unfenced:
                then()

        if not unfenced:
            then()
        for shard in self.shards:
            for txn in list(shard.txns.values()):
                if lost_appends:
                    self._fence_owner(shard, txn.transactional_id, now_ms, fenced)
                elif txn.state in PREPARED:
                    self._write_markers(shard, txn, txn.partitions, now_ms, None)
                elif txn.state is ONGOING and aborts_ongoing:
                    self._fence(shard, txn, now_ms, lambda error: None)
        self.remove_expired(now_ms)

    def _fence_owner(self, shard: TxnShard, transactional_id: str, now_ms: int, then: Callable[[str], None]) -> None:
        """After a power cut: the producer of an id must not go on, whatever its state says.

        The cut can lose the record that opened a transaction, and with it any of the data. The client would go on with
        the rest of it; and where the transaction before was committed under the same epoch (TV1), its commit would be
        taken for a retry of that one and be answered with success.
        """
        txn = shard.txns[transactional_id]
        shard.pending.add(transactional_id)

        def is_fenced(error: int) -> None:
            if error:
                self._cluster.timers.at(
                    now_ms + RETRY_MS, lambda at_ms: self._fence_owner(shard, transactional_id, at_ms, then)
                )
                return
            shard.pending.discard(transactional_id)
            then(transactional_id)

        if txn.state in PREPARED:
            self._write_markers(
                shard, txn, txn.partitions, now_ms, lambda _: self._fence_owner(shard, transactional_id, now_ms, then)
            )
        elif txn.state is ONGOING:
            self._fence(shard, txn, now_ms, is_fenced)
        else:
            is_fenced(self._take_epoch(shard, txn, now_ms))

    def _take_epoch(self, shard: TxnShard, txn: Txn, now_ms: int) -> int:
        try:
            decision = machine.decide_init(
                txn, txn.transactional_id, -1, -1, txn.timeout_ms, now_ms, self._cluster.allocate_producer_id
            )
        except StorageFailed:
            return errors.COORDINATOR_LOAD_IN_PROGRESS
        assert decision.record is not None
        return self._record(shard, decision.record, now_ms)

    def _adopt_orphans(self, now_ms: int) -> None:
        """Abort what is open on a partition and unknown to the coordinator: a power cut can lose the record that
        announced a partition, or the end of the transaction before, and keep the data. Left alone, it would hold the
        LSO until the next transaction of the same id, and be committed with that."""
        known: dict[int, Txn] = {t.producer_id: t for t in self.all_txns() if t.state not in machine.IDLE}
        orphans: list[Orphan] = []
        for topic in self._cluster.topics.values():
            for partition in topic.partitions:
                for producer_id in list(partition.producers.open_txns):
                    txn = known.get(producer_id)
                    if (
                        txn is not None
                        and (topic.name, partition.index) in txn.partitions
                        and machine.will_end(txn, partition.epoch_of(producer_id))
                    ):
                        continue
                    self._cluster.notice(
                        f"{topic.name}-{partition.index}: producer {producer_id} has an open transaction that its "
                        "coordinator does not know: aborted"
                    )
                    orphans.append((partition, producer_id, partition.epoch_of(producer_id)))
        self._abort_orphans(orphans, now_ms)

    def _abort_orphans(self, orphans: list[Orphan], now_ms: int) -> None:
        """Their producers begin nothing new until it is done: that would be mixed up with it."""
        unwritten = [
            (partition, producer_id, epoch)
            for partition, producer_id, epoch in orphans
            if self._cluster.partition(partition.topic, partition.index) is partition
            and self._write_marker(partition, producer_id, epoch, False, 0, now_ms) == errors.KAFKA_STORAGE_ERROR
        ]
        self._orphaned = {producer_id for _, producer_id, _ in unwritten}
        if unwritten:
            self._cluster.timers.at(now_ms + RETRY_MS, lambda at_ms: self._abort_orphans(unwritten, at_ms))

    # --- what the tools ask ---------------------------------------------------------------------------------

    def list_txns(self, states: Set[State], producer_ids: Set[int], longer_than_ms: int, now_ms: int) -> list[Txn]:
        return [
            txn
            for txn in self.all_txns()
            if (not states or txn.state in states)
            and (not producer_ids or txn.producer_id in producer_ids)
            and (longer_than_ms < 0 or now_ms - txn.start_ms > longer_than_ms)
        ]
