"""The transaction coordinator: one shard of transactional ids for each partition of `__transaction_state`.

A request finds its shard, `machines/txn/decisions.py` decides, and the shard's log appends and applies the record.
`two_phase_commit.py` ends transactions; `txn_recovery.py` continues after a start. Timers end transactions that were
open for too long, and forget ids that were idle for too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING

from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.coordinator.two_phase_commit import Then, TwoPhaseCommit, ignored
from fencepost.broker.coordinator.txn_recovery import TxnRecovery
from fencepost.broker.coordinator.txn_shard import TxnShard
from fencepost.broker.coordinator.txn_trace import aborted_for_another, refused, timed_out
from fencepost.broker.topics import TXN_TOPIC
from fencepost.machines.log.interface import StorageFailed
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn import decisions
from fencepost.machines.txn.records import partition_for
from fencepost.machines.txn.states import DEAD, ONGOING, IllegalMove, Txn, TxnState
from fencepost.protocol import errors
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TransactionVersion

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster

# Receives an error code, and the producer id and epoch that the client uses next (-1 where there are none).
IdentityReply = Callable[[int, int, int], None]


class StateLogDamaged(Exception):
    """A partition of `__transaction_state` holds records that no coordinator can have written in this order."""


class TxnCoordinator:
    def __init__(self, cluster: Cluster) -> None:
        self.counts = cluster.controller.txn_counts
        self.shards: dict[int, TxnShard] = {}  # Those that this node leads, by partition.
        self.two_phase_commit = TwoPhaseCommit(cluster)
        self._recovery = TxnRecovery(cluster, self)
        self._cluster = cluster
        self._trace = cluster.trace
        self._config = cluster.config
        self._flushes = bool(cluster.config["fencepost.flush.on.commit"])
        self._shard_count: int = cluster.config["transaction.state.log.num.partitions"]

    # --- finding things -----------------------------------------------------------------------------------

    def partition_of(self, transactional_id: str, now_ms: int) -> int:
        """The partition of `__transaction_state` that keeps the id. Creates the topic when it is first needed."""
        self._cluster.ensure_internal_topic(TXN_TOPIC, now_ms)
        return partition_for(transactional_id, self._shard_count)

    def is_here(self, transactional_id: str, now_ms: int) -> bool:
        """Whether this node coordinates the id."""
        return self.partition_of(transactional_id, now_ms) in self.shards

    def shard_of(self, transactional_id: str, now_ms: int) -> TxnShard:
        """Raises NotCoordinator if another node coordinates the id."""
        shard = self.shards.get(partition_for(transactional_id, self._shard_count))
        if shard is None:
            shard = self.shards.get(self.partition_of(transactional_id, now_ms))
            if shard is None:
                raise NotCoordinator
        return shard

    def find(self, transactional_id: str) -> Txn | None:
        shard = self.shards.get(partition_for(transactional_id, self._shard_count))
        return None if shard is None else shard.txns.get(transactional_id)

    def all_txns(self) -> Iterable[Txn]:
        for shard in self.shards.values():
            yield from shard.txns.values()

    def list_txns(self, states: Set[TxnState], producer_ids: Set[int], longer_than_ms: int, now_ms: int) -> list[Txn]:
        """Answer ListTransactions; an empty set, or a negative time, filters nothing."""
        return [
            txn
            for txn in self.all_txns()
            if (not states or txn.state in states)
            and (not producer_ids or txn.producer_id in producer_ids)
            and (longer_than_ms < 0 or now_ms - txn.start_ms > longer_than_ms)
        ]

    # --- InitProducerId -----------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        expected_producer_id: int,
        expected_epoch: int,
        timeout_ms: int,
        now_ms: int,
        reply: IdentityReply,
    ) -> None:
        shard = self.shard_of(transactional_id, now_ms)
        if transactional_id in shard.pending:
            reply(errors.CONCURRENT_TRANSACTIONS, -1, -1)
            return
        txn = shard.txns.get(transactional_id)
        if (
            txn is not None
            and txn.state is ONGOING
            and decisions.is_expected_producer(txn, expected_producer_id, expected_epoch)
        ):
            self._fence_then_init(shard, txn, expected_producer_id, expected_epoch, timeout_ms, now_ms, reply)
            return
        try:
            decision = decisions.decide_init(
                txn,
                transactional_id,
                expected_producer_id,
                expected_epoch,
                timeout_ms,
                now_ms,
                self._cluster.allocate_producer_id,
            )
        except StorageFailed:
            reply(errors.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)  # Kafka: there is no block of producer ids.
            return
        record = decision.record
        error = decision.error or (shard.write(record, now_ms) if record else errors.NONE)
        if error or record is None:
            self._refusal(decision.error, transactional_id, expected_producer_id, expected_epoch, txn)
            reply(error, -1, -1)
            return
        granted = record
        if self._flushes:
            # A power loss must not hand the same epoch out twice.
            self._cluster.sync(
                [shard.log.partition.log], lambda: reply(errors.NONE, granted.producer_id, granted.producer_epoch)
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
        reply: IdentityReply,
    ) -> None:
        """Another producer left a transaction open: abort it first."""

        def fenced(error: int) -> None:
            if error:
                reply(error, -1, -1)
            elif not self.two_phase_commit.answers_after_complete:
                reply(errors.CONCURRENT_TRANSACTIONS, -1, -1)
            else:
                # Differs: Kafka answers CONCURRENT_TRANSACTIONS to an InitProducerId that aborts a transaction, and the
                # client asks again. Fencepost answers after the abort.
                self.init_producer_id(
                    txn.transactional_id, expected_producer_id, expected_epoch, timeout_ms, now_ms, reply
                )

        if self._trace is not None:
            self._trace(aborted_for_another(txn))
        self.fence(shard, txn, now_ms, fenced)

    def fence(self, shard: TxnShard, txn: Txn, now_ms: int, then: Then) -> None:
        """Abort the open transaction, which fences its producer."""
        try:
            decision = decisions.decide_fence(
                txn, self._cluster.transaction_version, now_ms, self._cluster.allocate_producer_id
            )
        except StorageFailed:
            then(errors.COORDINATOR_LOAD_IN_PROGRESS)
            return
        assert decision.record is not None
        self.two_phase_commit.end(shard, decision.record, now_ms, then)

    # --- AddPartitionsToTxn, verification -----------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Set[TopicPartition],
        transaction_version: TransactionVersion,
        now_ms: int,
    ) -> int:
        """Make the partitions part of the producer's transaction, which begins with the first of them."""
        if not transactional_id:
            return errors.INVALID_REQUEST
        shard = self.shard_of(transactional_id, now_ms)
        if transactional_id in shard.pending or producer_id in self._recovery.orphaned:
            return errors.CONCURRENT_TRANSACTIONS
        txn = shard.txns.get(transactional_id)
        decision = decisions.decide_add(txn, producer_id, epoch, partitions, transaction_version, now_ms)
        if decision.record is not None:
            return shard.write(decision.record, now_ms)
        return self._refusal(decision.error, transactional_id, producer_id, epoch, txn)

    def _refusal(self, error: int, transactional_id: str, producer_id: int, epoch: int, txn: Txn | None) -> int:
        """The error for the client. A refused request is counted if its producer was replaced."""
        is_from_before_a_loss = producer_id < self._cluster.metadata.first_producer_id_after_loss
        if error == errors.INVALID_PRODUCER_ID_MAPPING and is_from_before_a_loss:
            # Clients take that error for an abort, but their commit may have been decided before the loss.
            error = errors.PRODUCER_FENCED
        if error in (errors.PRODUCER_FENCED, errors.INVALID_PRODUCER_EPOCH):
            self.counts.fenced += 1
            if self._trace is not None:
                self._trace(refused(transactional_id, producer_id, epoch, error, txn))
        return error

    def verify(self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition) -> int:
        """Whether the partition is in the producer's transaction. Raises NotCoordinator."""
        if not transactional_id:
            return errors.INVALID_REQUEST
        shard = self.shards.get(partition_for(transactional_id, self._shard_count))
        if shard is None and TXN_TOPIC in self._cluster.topics:
            raise NotCoordinator
        txn = None if shard is None else shard.txns.get(transactional_id)
        error = decisions.verify_partition(txn, producer_id, epoch, partition)
        if error:
            self.counts.unverified += 1
            return self._refusal(error, transactional_id, producer_id, epoch, txn)
        return error

    # --- EndTxn -------------------------------------------------------------------------------------------

    def end_txn(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        commit: bool,
        transaction_version: TransactionVersion,
        now_ms: int,
        reply: IdentityReply,
    ) -> None:
        """Commit or abort. A TV2 client receives the producer id and epoch of its next transaction."""
        shard = self.shard_of(transactional_id, now_ms)
        txn = shard.txns.get(transactional_id)
        bumps_epoch = transaction_version.bumps_epoch
        try:
            if bumps_epoch:
                decision = decisions.decide_end_and_bump(
                    txn, producer_id, epoch, commit, now_ms, self._cluster.allocate_producer_id
                )
            else:
                decision = decisions.decide_end(txn, producer_id, epoch, commit, now_ms)
        except StorageFailed:
            reply(errors.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
            return
        prepared = decision.record
        if not decision.error and transactional_id in shard.pending:
            reply(errors.CONCURRENT_TRANSACTIONS, -1, -1)
            return
        if decision.error or prepared is None:
            error = self._refusal(decision.error, transactional_id, producer_id, epoch, txn)
            if error == errors.NONE and bumps_epoch and txn is not None:
                reply(errors.NONE, txn.producer_id, txn.producer_epoch)
            else:
                reply(error, -1, -1)
            return
        next_id, next_epoch = decisions.identity_after(prepared) if bumps_epoch else (-1, -1)

        def answer(error: int) -> None:
            # If this node is replaced after the decision, the next coordinator finishes it. The client must hear of it
            # here: if another producer gets the id first, no coordinator can tell it any more.
            if error and shard.txns.get(transactional_id) is txn:  # Nothing is decided.
                reply(error, -1, -1)
            else:
                reply(errors.NONE, next_id, next_epoch)

        self.two_phase_commit.end(shard, prepared, now_ms, answer)

    # --- timers -------------------------------------------------------------------------------------------

    def abort_timed_out(self, now_ms: int) -> None:
        for shard in list(self.shards.values()):
            for txn in [t for t in shard.txns.values() if decisions.is_timed_out(t, now_ms)]:
                if txn.transactional_id in shard.pending:
                    continue
                self._cluster.notice(
                    f"transaction {txn.transactional_id} (producer {txn.producer_id}, epoch {txn.producer_epoch}) "
                    f"was open for {now_ms - txn.start_ms} ms, its timeout is {txn.timeout_ms} ms: aborted"
                )
                self.time_out(shard, txn, now_ms)

    def time_out(self, shard: TxnShard, txn: Txn, now_ms: int) -> None:
        """Abort the open transaction, which fences its producer."""
        self.counts.timed_out += 1
        if self._trace is not None:
            self._trace(timed_out(txn, now_ms))
        self.fence(shard, txn, now_ms, ignored)

    def remove_expired(self, now_ms: int) -> None:
        expiration_ms = self._config["transactional.id.expiration.ms"]
        for shard in self.shards.values():
            for txn in [t for t in shard.txns.values() if decisions.is_expired(t, expiration_ms, now_ms)]:
                if txn.transactional_id in shard.pending:
                    continue
                shard.write(txn._replace(state=DEAD, updated_ms=now_ms), now_ms)

    # --- leading ------------------------------------------------------------------------------------------

    def read(self, partition: Partition) -> TxnShard:
        """The ids of one partition of `__transaction_state`. Raises StateLogDamaged."""
        shard = TxnShard(partition, self._cluster, self._trace)
        try:
            shard.load()
        except IllegalMove as e:
            raise StateLogDamaged(
                f"{TXN_TOPIC}-{partition.index}: {e}: the log is damaged, or another program wrote to it\n\n"
                "hint: restore the data folder from a copy"
            ) from None
        return shard

    def resign(self, index: int) -> None:
        """Another node leads the partition."""
        shard = self.shards.pop(index, None)
        if shard is not None:
            shard.is_closed = True

    def go_on(self, indexes: Iterable[int], now_ms: int) -> None:
        """After a move: continue where the coordinator before has stopped."""
        for index in indexes:
            self._recovery.go_on(self.shards[index], now_ms)

    def begin_timers(self, now_ms: int) -> None:
        timers = self._cluster.timers
        interval_ms = self._config["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
        timers.every(interval_ms, now_ms, self.abort_timed_out)
        interval_ms = self._config["transaction.remove.expired.transaction.cleanup.interval.ms"]
        timers.every(interval_ms, now_ms, self.remove_expired)

    def finish_recovery(self, known: Sequence[Txn], now_ms: int, then: Callable[[], None]) -> None:
        """Continue where the last process stopped. `known`: the transactions of the coordinators of all nodes.

        `then` is called when every client that may have lost something is fenced."""
        self._recovery.finish(known, now_ms, then)
        self.remove_expired(now_ms)
