"""Ends transactions from outside and reports the result. The only module of `diagnose` that changes a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fencepost.client.admin.answers import DescribedTxn, NamedPartition
from fencepost.client.admin.orders import fence, write_abort_marker
from fencepost.client.client import KafkaClient
from fencepost.diagnose.collect.look import ends_of
from fencepost.diagnose.collect.state_log import collect_last_steps
from fencepost.diagnose.hanging import HangingTxn
from fencepost.diagnose.snapshot import Ends, LogEntry, OpenTxn, is_decided, is_open
from fencepost.diagnose.words import listed
from fencepost.machines.txn.states import COMPLETE_ABORT, COMPLETE_COMMIT

# The decision, its completion and the registration; the record before them may belong to this transaction, too.
STEPS_OF_A_FENCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPartition:
    topic: str
    partition: int
    last_stable_offset_before: int
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The result of an order."""

    transactional_id: str | None
    # Whether there was an open transaction that is aborted now.
    aborted: bool
    # The identity that the cluster gives to the id now; producers with a lower epoch are fenced. None: none is fenced.
    producer_id: int | None
    producer_epoch: int | None
    partitions: tuple[EndedPartition, ...]
    # What is still open under the id, because no coordinator knows it and only `txn abort` ends it.
    hanging: tuple[HangingTxn, ...]
    summary: str


def why_not_fence(txn: DescribedTxn, must_be_open: bool) -> str | None:
    """Why an id cannot be fenced, or why there is nothing to abort; None if the order can be given."""
    if must_be_open and not is_open(txn.state):
        return f"`{txn.transactional_id}` has no open transaction that its coordinator knows: it is {txn.state}"
    if is_decided(txn.state):
        return f"the transaction of `{txn.transactional_id}` is already decided ({txn.state}) and cannot be changed"
    return None


def what_fence_does(txn: DescribedTxn) -> str:
    aborts = "aborts its open transaction and " if is_open(txn.state) else ""
    return f"This {aborts}fences producer {txn.producer_id} (epoch {txn.producer_epoch}) of `{txn.transactional_id}`."


def what_fence_means(txn: DescribedTxn) -> str:
    """What the order does to the transaction, to the epoch and to the producer that runs."""
    aborts = (
        "Readers with `read_committed` skip its records, and its offsets are dropped. " if is_open(txn.state) else ""
    )
    return (
        f"{aborts}The id gets a higher epoch than {txn.producer_epoch}. A producer that still runs learns it from its "
        "next request, which is refused (PRODUCER_FENCED or INVALID_PRODUCER_EPOCH), and has to be started again. "
        "Kafka has no order that aborts a transaction and spares its producer: `txn abort` and `txn fence` send the "
        "same request (InitProducerId)."
    )


def what_stays_stuck(hanging: Collection[HangingTxn]) -> str:
    """What fencing does not end."""
    places = listed(h.where for h in hanging)
    return (
        f"readers of {places} stay stuck: a transaction hangs there that its coordinator does not know, and "
        "fencing does not end it"
    )


def what_may_hang(nameless: Iterable[OpenTxn]) -> str:
    places = listed(f"{open_.where} (producer {open_.producer_id})" for open_ in nameless)
    return f"transactions hang on {places} under no transactional id that is known, and they may be of this id"


def what_abort_does(where: NamedPartition, hanging: Collection[HangingTxn]) -> str:
    """What `order_abort` does on one partition."""
    what = ", ".join(f"producer {h.producer_id} from offset {h.start_offset} ({h.why})" for h in hanging)
    return f"This writes an abort marker on {where} for {what}."


def order_fence(client: KafkaClient, txn: DescribedTxn, hanging: Sequence[HangingTxn] = ()) -> Ended:
    """Abort the open transaction of an id, if there is one, and fence its producer.

    `hanging` has the transactions of the id that hang, which this does not end.
    """
    before = ends_of(client, txn.partitions).found
    producer_id, epoch = fence(client, txn.transactional_id, txn.timeout_ms)
    was_open = is_open(txn.state)
    came_too_late = was_open and was_committed(collect_last_steps(client, txn.transactional_id, STEPS_OF_A_FENCE))
    done = ""
    if was_open:
        done = (
            f"its open transaction is {'committed (by its client, just before)' if came_too_late else 'aborted'} and "
        )
    return Ended(
        transactional_id=txn.transactional_id,
        aborted=was_open and not came_too_late,
        producer_id=producer_id,
        producer_epoch=epoch,
        partitions=_compare(client, before, txn.partitions),
        hanging=tuple(hanging),
        summary=(
            f"`{txn.transactional_id}` is fenced: {done}its producer (id {txn.producer_id}, epoch "
            f"{txn.producer_epoch}) is refused from now on; the epoch is {epoch} now."
        ),
    )


def was_committed(steps: Sequence[LogEntry]) -> bool:
    """Whether the last transaction that ended was committed."""
    ended = [e.txn.state for e in steps if e.txn is not None and e.txn.state in (COMPLETE_COMMIT, COMPLETE_ABORT)]
    return bool(ended) and ended[-1] is COMPLETE_COMMIT


def order_abort(client: KafkaClient, hanging: Collection[HangingTxn]) -> Ended:
    """Write an abort marker for each transaction; only for those that `diagnose_hanging` found."""
    partitions = [h.where for h in hanging]
    before = ends_of(client, partitions).found
    for txn in hanging:
        write_abort_marker(client, txn.where, txn.producer)
    what = listed(f"{h.where} (producer {h.producer_id}, from offset {h.start_offset})" for h in hanging)
    return Ended(
        transactional_id=None,
        aborted=True,
        producer_id=None,
        producer_epoch=None,
        partitions=_compare(client, before, partitions),
        hanging=(),
        summary=f"Aborted the hanging transaction on {what}.",
    )


def _compare(
    client: KafkaClient, before: Mapping[NamedPartition, Ends], partitions: Collection[NamedPartition]
) -> tuple[EndedPartition, ...]:
    after = ends_of(client, partitions).found
    return tuple(
        EndedPartition(
            topic=where.topic,
            partition=where.partition,
            last_stable_offset_before=before[where].last_stable_offset,
            last_stable_offset=after[where].last_stable_offset,
            high_watermark=after[where].high_watermark,
        )
        for where in sorted(after)
        if where in before
    )
