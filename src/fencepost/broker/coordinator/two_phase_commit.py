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

`TwoPhaseCommit.steps` is a generator: it yields what it waits for. With neither a sync nor another node nor a full disk
in the way, it waits for nothing, and the transaction has ended when `end` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

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
# Something to wait for: it takes the function to call when the wait is over. `Steps` receive what that is called with.
Wait = Callable[[Callable[..., None]], object]
Steps = Generator[Wait, Any, int]  # Returns an error code.


def run(shard: TxnShard, steps: Steps, then: Then, found: tuple[Any, ...] | None = None) -> None:
    """Run `steps` to the end, or up to the next wait and go on after it. `then` receives the error that they return.

    If another node coordinates the shard after a wait, that one ends its transactions, and the steps end here.
    """
    if shard.is_closed:
        then(errors.NOT_COORDINATOR)
        return
    try:
        wait = steps.send(found)
    except StopIteration as end:
        then(end.value)
        return
    wait(lambda *found: run(shard, steps, then, found))


class TwoPhaseCommit:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._counts = cluster.controller.txn_counts
        self._trace = cluster.trace
        self.answers_after_complete = cluster.config["fencepost.endtxn.reply"] == "complete"
        self._flushes = bool(cluster.config["fencepost.flush.on.commit"])

    def end(self, shard: TxnShard, prepared: Txn, now_ms: int, then: Then) -> None:
        """Run the steps. `then` receives an error, or NONE at the step that `fencepost.endtxn.reply` names."""
        run(shard, self.steps(shard, prepared, now_ms, not self.answers_after_complete), then)

    def steps(self, shard: TxnShard, prepared: Txn, now_ms: int, answers_early: bool = False) -> Steps:
        """Steps 1 to 3, from step 2 on if `prepared` is in the shard already. Step 4 is up to the caller."""
        cluster = self._cluster
        if shard.txns.get(prepared.transactional_id) is not prepared:
            if self._flushes and prepared.state is PREPARE_COMMIT:
                yield from self._sync_alone(shard, prepared, self._logs_of(prepared.partitions))
            # Step 1.
            cluster.reach("txn.prepare.before")
            error = shard.write(prepared, now_ms)
            if error:
                return error
            if prepared.state is PREPARE_COMMIT:
                self._counts.committed += 1
            else:
                self._counts.aborted += 1
            cluster.reach("txn.prepare.after")
            if self._flushes:
                yield partial(cluster.sync, [shard.log.partition.log])
            if answers_early:
                cluster.timers.at(now_ms, lambda at_ms: self.end(shard, prepared, at_ms, ignored))
                return errors.NONE

        # Step 2.
        left = list(prepared.partitions)
        while left:
            part, left = left[:MARKERS_A_SLICE], left[MARKERS_A_SLICE:]
            unwritten, elsewhere = self._write_markers_here(shard, prepared, part, now_ms)
            if elsewhere:
                found, now_ms = yield partial(write_markers, cluster, prepared, shard.epoch, elsewhere, now_ms)
                unwritten += [where for where, error in found.items() if error not in _ENDED_THERE]
            left += unwritten
            if left:
                (now_ms,) = yield partial(cluster.timers.at, now_ms + (RETRY_MS if unwritten else PAUSE_MS))
        if self._flushes:
            # Complete* says that all markers are written, so it must not reach the disk before them.
            yield partial(cluster.sync, self._logs_of(prepared.partitions))

        # Step 3.
        cluster.reach("txn.complete.before")
        while shard.write(complete(prepared, now_ms), now_ms):
            (now_ms,) = yield partial(cluster.timers.at, now_ms + RETRY_MS)
        cluster.reach("txn.complete.after")
        if self._flushes and not prepared.client_transaction_version.bumps_epoch:
            # The next transaction has the same epoch. If a power loss lost Complete* and kept data of the next
            # transaction, recovery would end that one with the markers of this one.
            yield from self._sync_alone(shard, prepared, [shard.log.partition.log])
        return errors.NONE

    def _write_markers_here(
        self, shard: TxnShard, prepared: Txn, partitions: Iterable[TopicPartition], now_ms: int
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Write the markers of the partitions that this node leads; return where that failed, and those of others."""
        commit = prepared.state is PREPARE_COMMIT
        unwritten: list[TopicPartition] = []
        elsewhere: list[TopicPartition] = []
        for topic, index in partitions:
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
                unwritten.append((topic, index))
                continue
            self._cluster.reach("txn.marker.after")
        return unwritten, elsewhere

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

    def _sync_alone(self, shard: TxnShard, txn: Txn, logs: list[Log]) -> Generator[Wait, Any, None]:
        """Wait until `logs` are synced; meanwhile the id accepts no other request."""
        shard.pending.add(txn.transactional_id)
        yield partial(self._cluster.sync, logs)
        shard.pending.discard(txn.transactional_id)

    def _logs_of(self, partitions: Iterable[TopicPartition]) -> list[Log]:
        """The nodes share the storage, so this includes logs that other nodes lead."""
        return self._cluster.storage.open_logs(partitions)


def ignored(error: int) -> None:
    """As `then`, where no client waits."""
