"""Bugs that brokers had or nearly had. The simulation must find each of them.

`planted` patches one into the running code and removes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.broker.controller import PRODUCER_ID_BLOCK, Controller
from fencepost.broker.coordinator import elsewhere, two_phase_commit
from fencepost.broker.coordinator.two_phase_commit import Steps, TwoPhaseCommit
from fencepost.broker.coordinator.txns import TxnCoordinator
from fencepost.broker.metadata import Metadata
from fencepost.machines.group.offsets import OffsetRecord, Offsets
from fencepost.machines.partition import partition
from fencepost.machines.partition.partition import Partition
from fencepost.machines.partition.producers import Producer, decide_batch, decide_marker
from fencepost.machines.txn import decisions as txn
from fencepost.machines.txn.states import PREPARE_COMMIT, Txn
from fencepost.protocol import errors
from tests.simulation.patching import Patch, patched


def marker_before_decision() -> list[Patch]:
    """Markers are written before the decision is in the coordinator's log."""
    steps = TwoPhaseCommit.steps

    def markers_first(self: TwoPhaseCommit, shard: Any, prepared: Txn, now_ms: int, *rest: Any) -> Steps:
        is_decided = shard.txns.get(prepared.transactional_id) is prepared
        for topic, index in () if is_decided else prepared.partitions:
            found = self._cluster.partition(topic, index)
            if found is None:
                continue  # Another node leads it.
            self._cluster.reach("txn.marker.before")
            version = prepared.client_transaction_version
            commit = prepared.state is PREPARE_COMMIT
            self.write_marker(found, prepared.producer_id, prepared.producer_epoch, commit, version, now_ms)
            self._cluster.reach("txn.marker.after")
        return (yield from steps(self, shard, prepared, now_ms, *rest))

    return [(TwoPhaseCommit, "steps", markers_first)]


def no_epoch_check() -> list[Patch]:
    """A fenced producer continues to write."""

    def check_owner(found: Txn | None, producer_id: int, epoch: int) -> int:
        return errors.INVALID_PRODUCER_ID_MAPPING if found is None or found.producer_id != producer_id else errors.NONE

    def decide(producer: Producer | None, epoch: int, *rest: Any) -> int:
        if producer is not None and epoch < producer.epoch:
            return errors.NONE
        return decide_batch(producer, epoch, *rest)

    return [(txn, "_check_owner", check_owner), (partition, "decide_batch", decide)]


def lso_off_by_one() -> list[Patch]:
    """The last stable offset is one too high: read_committed readers see the first record of an open transaction."""
    advance = Partition.advance

    def advance_wrongly(self: Partition) -> None:
        advance(self)
        oldest = self.producers.oldest_txn()
        if oldest is not None:
            self.last_stable_offset = oldest.first_offset + 1
            self.stable_address = self.log.address_of(oldest.first_offset + 1)

    return [(Partition, "advance", advance_wrongly)]


def pending_offsets_visible() -> list[Patch]:
    """The offsets of a transaction are visible before it commits."""
    apply_offset = Offsets.apply_offset

    def visible(self: Offsets, record: OffsetRecord, producer_id: int | None, record_offset: int) -> None:
        apply_offset(self, record, None, record_offset)

    return [(Offsets, "apply_offset", visible)]


def producer_id_reused() -> list[Patch]:
    """A restart hands out the last block of producer ids again."""
    restore = Controller.restore

    def restored(self: Controller, found: Metadata, now_ms: int) -> None:
        restore(self, found._replace(next_producer_id=max(0, found.next_producer_id - PRODUCER_ID_BLOCK)), now_ms)

    return [(Controller, "restore", restored)]


def unstable_offsets() -> list[Patch]:
    """The successor of a zombie gets the old offsets while the zombie can still commit new ones."""
    return [(Offsets, "is_unstable", lambda self, group_id, topic, index: False)]


def commit_before_sync() -> list[Patch]:
    """With fencepost.flush.on.commit, the decision may reach the disk before the data."""

    steps = TwoPhaseCommit.steps

    def steps_without_data(self: TwoPhaseCommit, shard: Any, prepared: Txn, *rest: Any) -> Steps:
        is_decided = shard.txns.get(prepared.transactional_id) is prepared
        left = steps(self, shard, prepared, *rest)
        if self._flushes and prepared.state is PREPARE_COMMIT and not is_decided:
            next(left)  # It asks for the sync of the data, and gets none.
        return (yield from left)

    return [(TwoPhaseCommit, "steps", steps_without_data)]


# --- with several nodes -----------------------------------------------------------------------------------------


def coordinator_epoch_unchecked() -> list[Patch]:
    """A partition takes the marker of a coordinator that was replaced."""

    def decide(producer: Producer | None, epoch: int, coordinator_epoch: int, *rest: Any) -> int:
        known = -1 if producer is None else producer.coordinator_epoch
        return decide_marker(producer, epoch, max(coordinator_epoch, known), *rest)

    return [(partition, "decide_marker", decide)]


def decided_and_left() -> list[Patch]:
    """A new coordinator does not finish what the one before has decided."""
    return [(TxnCoordinator, "go_on", lambda self, indexes, now_ms: None)]


def complete_before_markers() -> list[Patch]:
    """A coordinator does not wait for the markers of other nodes, so a late one ends the next transaction too."""

    def write_markers(cluster: Any, txn: Any, epoch: int, partitions: Any, now_ms: int, then: Any) -> None:
        elsewhere.write_markers(cluster, txn, epoch, partitions, now_ms, lambda found, at_ms: None)
        then(dict.fromkeys(partitions, errors.NONE), now_ms)

    return [(two_phase_commit, "write_markers", write_markers)]


def answers_of_an_old_coordinator() -> list[Patch]:
    """A node goes on to answer for transactional ids after their coordinator has moved."""
    return [(TxnCoordinator, "resign", lambda self, index: None)]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    "marker-before-decision": marker_before_decision,
    "no-epoch-check": no_epoch_check,
    "lso-off-by-one": lso_off_by_one,
    "pending-offsets-visible": pending_offsets_visible,
    "producer-id-reused": producer_id_reused,
    "unstable-offsets": unstable_offsets,
    "commit-before-sync": commit_before_sync,
    "coordinator-epoch-unchecked": coordinator_epoch_unchecked,
    "decided-and-left": decided_and_left,
    "complete-before-markers": complete_before_markers,
    "answers-of-an-old-coordinator": answers_of_an_old_coordinator,
}


@contextmanager
def planted(bug: str | None) -> Iterator[None]:
    with patched(BUGS[bug]() if bug else []):
        yield
