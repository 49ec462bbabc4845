"""The work of the transaction coordinator after a start, before it serves clients.

A decided transaction is finished, an expired id is forgotten, and an open transaction stays open until its client
continues or its timeout ends it (`fencepost.recovery.ongoing=abort` ends it at once). After a power loss acknowledged
records may be gone, so every id gets a new producer id and every transaction that no coordinator knows is aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.coordinator.two_phase_commit import RETRY_MS, Steps, ignored, run
from fencepost.broker.coordinator.txn_shard import TxnShard
from fencepost.machines.log.interface import StorageFailed
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn.decisions import decide_fence, decide_init, will_end
from fencepost.machines.txn.states import IDLE, NO_EPOCH, NO_ID, ONGOING, PREPARED, Txn
from fencepost.protocol import errors
from fencepost.protocol.transaction_version import TV0

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster
    from fencepost.broker.coordinator.txns import TxnCoordinator


class Orphan(NamedTuple):
    """A transaction that is open on a partition and unknown to its coordinator."""

    partition: Partition
    producer_id: int
    epoch: int


class TxnRecovery:
    def __init__(self, cluster: Cluster, txns: TxnCoordinator) -> None:
        self._cluster = cluster
        self._txns = txns
        # Producers with an orphan that could not be aborted yet. They must not begin a new transaction meanwhile.
        self.orphaned: set[int] = set()

    def finish(self, known: Sequence[Txn], now_ms: int, then: Callable[[], None]) -> None:
        """Call `then` when every client that may have lost something is fenced.

        `known`: the transactions of the coordinators of all nodes.
        """
        self._abort(self._find_orphans(known), now_ms)
        # Data of an open transaction is not synced yet. If a power loss lost some of it, its client must not commit the
        # rest.
        lost_appends = self._cluster.storage.may_have_lost_appends
        aborts_ongoing = self._cluster.config["fencepost.recovery.ongoing"] == "abort"
        unfenced = {txn.transactional_id for txn in self._txns.all_txns()} if lost_appends else set()

        def fenced(transactional_id: str, error: int) -> None:
            if error:
                return  # Another node coordinates the id, and goes on.
            unfenced.discard(transactional_id)
            if not unfenced:
                then()

        if not unfenced:
            then()
        for shard in self._txns.shards.values():
            for txn in list(shard.txns.values()):
                if lost_appends:
                    fence = self._fence_owner(shard, txn.transactional_id, now_ms)
                    run(shard, fence, partial(fenced, txn.transactional_id))
                elif txn.state in PREPARED:
                    self._txns.two_phase_commit.end(shard, txn, now_ms, ignored)
                elif txn.state is ONGOING and aborts_ongoing:
                    self._txns.fence(shard, txn, now_ms, ignored)

    def go_on(self, shard: TxnShard, now_ms: int) -> None:
        """Continue where the node stopped that has led the shard: with what it has decided, and after a power loss with
        the ids that it has not fenced yet."""
        lost_appends = self._cluster.storage.may_have_lost_appends
        first_id_after_loss = self._cluster.metadata.first_producer_id_after_loss
        for txn in list(shard.txns.values()):
            if lost_appends and txn.producer_id < first_id_after_loss:
                run(shard, self._fence_owner(shard, txn.transactional_id, now_ms), ignored)
            elif txn.state in PREPARED:
                self._txns.two_phase_commit.end(shard, txn, now_ms, ignored)

    def _fence_owner(self, shard: TxnShard, transactional_id: str, now_ms: int) -> Steps:
        """Keep the producer of an id from continuing after a power loss, whatever the state of the id is.

        A power loss can lose the record that opened a transaction, and any of its data. The client would continue with
        the rest. With TV0 and TV1, its commit could also look like a retry of the commit before, and succeed.

        First the transaction that is open, if any, is ended under its own producer id. Then the id gets a new one: the
        power loss can lose the records of the last epochs too, and a later epoch of the same producer id could be one
        of these.
        """
        two_phase_commit = self._txns.two_phase_commit
        while True:
            shard.pending.add(transactional_id)
            txn = shard.txns[transactional_id]
            try:
                if txn.state in PREPARED:
                    error = yield from two_phase_commit.steps(shard, txn, now_ms)
                elif txn.state is ONGOING:
                    error = yield from two_phase_commit.steps(shard, self._aborted(txn, now_ms), now_ms)
                else:
                    error = shard.write(self._with_new_producer_id(txn, now_ms), now_ms)
                    if not error:
                        break
            except StorageFailed:  # The disk refuses the claim of new producer ids.
                error = errors.COORDINATOR_LOAD_IN_PROGRESS
            if error:
                (now_ms,) = yield partial(self._cluster.timers.at, now_ms + RETRY_MS)
        shard.pending.discard(transactional_id)
        return errors.NONE

    def _aborted(self, txn: Txn, now_ms: int) -> Txn:
        """The record that decides to abort an open transaction. Raises StorageFailed."""
        cluster = self._cluster
        record = decide_fence(txn, cluster.transaction_version, now_ms, cluster.allocate_producer_id).record
        assert record is not None
        return record

    def _with_new_producer_id(self, txn: Txn, now_ms: int) -> Txn:
        """The record of a transactional id as if no producer had ever registered it. Raises StorageFailed."""
        allocate = self._cluster.allocate_producer_id
        record = decide_init(None, txn.transactional_id, NO_ID, NO_EPOCH, txn.timeout_ms, now_ms, allocate).record
        assert record is not None
        return record

    def _find_orphans(self, known_txns: Sequence[Txn]) -> list[Orphan]:
        """A power loss can keep data and lose the record that announced its partition, or that ended its transaction.

        Left alone, an orphan would hold back the last stable offset until the next transaction of the same id, and be
        committed with that one.
        """
        known: dict[int, Txn] = {t.producer_id: t for t in known_txns if t.state not in IDLE}
        orphans: list[Orphan] = []
        for topic in self._cluster.topics.values():
            for partition in topic.partitions.values():
                for producer_id in partition.producers.open_txns:
                    txn = known.get(producer_id)
                    epoch = partition.epoch_of(producer_id)
                    if txn is not None and (topic.name, partition.index) in txn.partitions and will_end(txn, epoch):
                        continue
                    self._cluster.notice(
                        f"{topic.name}-{partition.index}: producer {producer_id} has an open transaction that its "
                        "coordinator does not know: aborted"
                    )
                    orphans.append(Orphan(partition, producer_id, epoch))
        return orphans

    def _abort(self, orphans: list[Orphan], now_ms: int) -> None:
        write_marker = self._txns.two_phase_commit.write_marker
        unwritten = [
            orphan
            for orphan in orphans
            if self._cluster.partition(orphan.partition.topic, orphan.partition.index) is orphan.partition
            and write_marker(orphan.partition, orphan.producer_id, orphan.epoch, False, TV0, now_ms)
            == errors.KAFKA_STORAGE_ERROR
        ]
        self.orphaned = {orphan.producer_id for orphan in unwritten}
        if unwritten:
            self._cluster.timers.at(now_ms + RETRY_MS, lambda at_ms: self._abort(unwritten, at_ms))
