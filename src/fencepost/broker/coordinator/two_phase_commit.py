"""Ends a transaction on all its partitions: Kafka's two-phase commit. The steps, each waiting for the one before:

    1. append Prepare*            the decision: from here on the outcome is fixed
    2. write a marker to every partition, `__consumer_offsets` included; retry while the disk is full
    3. append Complete*
    4. answer the client          (after step 1 with fencepost.endtxn.reply=prepare)

With fencepost.flush.on.commit=true a sync separates the steps, so that after a power loss no step is on the disk
without the one before it:

    sync the partitions' logs (for a commit) -> 1 -> sync the state log -> 2 -> sync the partitions' logs -> 3

A transaction of TV0 or TV1 has one more sync of the state log before step 4. A crash after step 1 leaves Prepare* in
the state log. The next start continues with step 2; a second marker for the same transaction does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from fencepost.broker.coordinator.elsewhere import write_markers
from fencepost.broker.coordinator.txn_shard import TxnShard
from fencepost.broker.coordinator.txn_trace import UNKNOWN_ID, marked
from fencepost.machines.log.interface import Log
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn.decisions import complete
from fencepost.machines.txn.states import PREPARE_COMMIT, Txn
from fencepost.protocol import errors
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TransactionVersion

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster

RETRY_MS = 100
# Markers that are written before other clients are served. The first marker of a log creates its files.
MARKERS_A_SLICE = 250
PAUSE_MS = 1
NO_COORDINATOR_EPOCH = 0  # Of a marker that no coordinator decided.
# The transaction has ended on the partition: the marker is written, or a later epoch of the producer was seen there.
# After any other error the marker is sent again: the leader could not write it, another node leads the partition, or a
# later coordinator has written to it. That one ends the transaction, and this one will be told so.
_ENDED_THERE = frozenset({errors.NONE, errors.INVALID_PRODUCER_EPOCH})

Then = Callable[[int], None]  # Receives an error code; NONE is success.


@dataclass(slots=True)
class TxnCounts:
    """Counts since the start of the process."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    fenced: int = 0  # Requests refused because a newer producer has the id.
    unverified: int = 0  # Writes that belong to no transaction (KIP-890).


class TwoPhaseCommit:
    def __init__(self, cluster: Cluster, counts: TxnCounts) -> None:
        self._cluster = cluster
        self._counts = counts
        self._trace = cluster.trace
        self.answers_after_complete = cluster.config["fencepost.endtxn.reply"] == "complete"
        self._flushes = bool(cluster.config["fencepost.flush.on.commit"])

    def end(self, shard: TxnShard, prepared: Txn, now_ms: int, then: Then) -> None:
        """Steps 1 to 4. `then` receives an error, or NONE at the step that `fencepost.endtxn.reply` names."""

        def go_on(error: int) -> None:
            if error:
                then(error)
            else:
                self._decided(shard, prepared, now_ms, then)

        if self._flushes and prepared.state is PREPARE_COMMIT:
            logs = self._logs_of(prepared.partitions)
            self._sync(shard, prepared, logs, lambda: self.prepare(shard, prepared, now_ms, go_on))
        else:
            self.prepare(shard, prepared, now_ms, go_on)

    def prepare(self, shard: TxnShard, prepared: Txn, now_ms: int, then: Then) -> None:
        """Step 1. For a commit with flush, the data must be synced before. The markers are up to the caller."""
        self._cluster.reach("txn.prepare.before")
        error = shard.write(prepared, now_ms)
        if error:
            then(error)
            return
        if prepared.state is PREPARE_COMMIT:
            self._counts.committed += 1
        else:
            self._counts.aborted += 1
        self._cluster.reach("txn.prepare.after")
        if self._flushes:
            self._cluster.sync([shard.log.partition.log], lambda: then(errors.NONE))
        else:
            then(errors.NONE)

    def _decided(self, shard: TxnShard, prepared: Txn, now_ms: int, then: Then) -> None:
        if self.answers_after_complete:
            self.write_markers(shard, prepared, prepared.partitions, now_ms, then)
        else:
            then(errors.NONE)
            self._cluster.timers.at(
                now_ms, lambda at_ms: self.write_markers(shard, prepared, prepared.partitions, at_ms, None)
            )

    def write_markers(
        self, shard: TxnShard, prepared: Txn, partitions: Iterable[TopicPartition], now_ms: int, then: Then | None
    ) -> None:
        """Write a marker to each of `partitions`, then Complete*. Other requests are served between many markers."""
        if shard.is_closed:
            self._leave(then)
            return
        commit = prepared.state is PREPARE_COMMIT
        unwritten: dict[TopicPartition, int] = {}
        elsewhere: list[TopicPartition] = []
        left = iter(partitions)
        for topic, index in islice(left, MARKERS_A_SLICE):
            partition = self._cluster.partition(topic, index)
            if partition is None:
                # If the topic was deleted, there is nothing left to commit or abort.
                if self._cluster.has_partition(topic, index):
                    elsewhere.append((topic, index))
                continue
            self._cluster.reach("txn.marker.before")
            error = self.write_marker(
                partition,
                prepared.producer_id,
                prepared.producer_epoch,
                commit,
                prepared.client_transaction_version,
                now_ms,
                prepared.transactional_id,
                shard,
            )
            if error not in _ENDED_THERE:
                unwritten[topic, index] = error
                continue
            self._cluster.reach("txn.marker.after")
        rest = list(left)
        if elsewhere:

            def answered(found: Mapping[TopicPartition, int], at_ms: int) -> None:
                self._markers_written(shard, prepared, {**unwritten, **found}, rest, at_ms, then)

            write_markers(self._cluster, prepared, shard.epoch, elsewhere, now_ms, answered)
        else:
            self._markers_written(shard, prepared, unwritten, rest, now_ms, then)

    def _markers_written(
        self,
        shard: TxnShard,
        prepared: Txn,
        results: Mapping[TopicPartition, int],
        rest: list[TopicPartition],
        now_ms: int,
        then: Then | None,
    ) -> None:
        """Go on with the `rest`, and try again where that helps; then Complete*."""
        if shard.is_closed:
            self._leave(then)
            return
        unwritten = [where for where, error in results.items() if error not in _ENDED_THERE]
        if unwritten or rest:
            pause_ms = RETRY_MS if unwritten else PAUSE_MS
            self._cluster.timers.at(
                now_ms + pause_ms, lambda at_ms: self.write_markers(shard, prepared, rest + unwritten, at_ms, then)
            )
        elif self._flushes:
            # Complete* says that all markers are written, so it must not reach the disk before them.
            self._cluster.sync(
                self._logs_of(prepared.partitions), lambda: self._complete(shard, prepared, now_ms, then)
            )
        else:
            self._complete(shard, prepared, now_ms, then)

    def _leave(self, then: Then | None) -> None:
        """Another node coordinates the shard, and will end its transactions; the client must go there."""
        if then is not None:
            then(errors.NOT_COORDINATOR)

    def write_marker(
        self,
        partition: Partition,
        producer_id: int,
        epoch: int,
        commit: bool,
        transaction_version: TransactionVersion,
        now_ms: int,
        transactional_id: str = UNKNOWN_ID,
        shard: TxnShard | None = None,
    ) -> int:
        """Write a marker to a partition that this node leads; without a `shard`, one that no coordinator decided."""
        coordinator_epoch = NO_COORDINATOR_EPOCH if shard is None else shard.epoch
        error = partition.write_marker(producer_id, epoch, commit, coordinator_epoch, now_ms, transaction_version)
        if error == errors.TRANSACTION_COORDINATOR_FENCED and (
            shard is None or self._cluster.is_leader(shard.log.partition)
        ):
            # Differs: Kafka writes no marker if the partition has seen a later coordinator epoch. Fencepost writes it
            # if this is still the coordinator: then only a tool's WriteTxnMarkers can have had a later epoch, and that
            # must not hold back the last stable offset for ever.
            known = partition.producers.by_id[producer_id].coordinator_epoch
            error = partition.write_marker(producer_id, epoch, commit, known, now_ms, transaction_version)
        if self._trace is not None:
            self._trace(marked(transactional_id, partition, producer_id, epoch, commit, error))
        return error

    def _complete(self, shard: TxnShard, prepared: Txn, now_ms: int, then: Then | None) -> None:
        if shard.is_closed:
            self._leave(then)
            return
        self._cluster.reach("txn.complete.before")
        if shard.write(complete(prepared, now_ms), now_ms):
            self._cluster.timers.at(now_ms + RETRY_MS, lambda at_ms: self._complete(shard, prepared, at_ms, then))
            return
        self._cluster.reach("txn.complete.after")

        def answer() -> None:
            if then is not None:
                then(errors.NONE)

        if self._flushes and not prepared.client_transaction_version.bumps_epoch:
            # The next transaction has the same epoch. If a power loss lost Complete* and kept data of the next
            # transaction, recovery would end that one with the markers of this one.
            self._sync(shard, prepared, [shard.log.partition.log], answer)
        else:
            answer()

    def _sync(self, shard: TxnShard, txn: Txn, logs: list[Log], then: Callable[[], None]) -> None:
        """Sync `logs`; meanwhile the id accepts no other request."""
        shard.pending.add(txn.transactional_id)

        def synced() -> None:
            shard.pending.discard(txn.transactional_id)
            then()

        self._cluster.sync(logs, synced)

    def _logs_of(self, partitions: Iterable[TopicPartition]) -> list[Log]:
        """The nodes share the storage, so this includes logs that other nodes lead."""
        return self._cluster.storage.open_logs(partitions)
