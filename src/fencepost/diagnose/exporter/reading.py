"""The answers of a cluster at one moment, and the changes between two moments. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.client.admin.answers import DescribedTxn
from fencepost.diagnose.snapshot import Look, TxnsSnapshot
from fencepost.machines.txn.states import EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterReading:
    lso: Look
    txns: TxnsSnapshot
    # The leader of each partition of `__transaction_state`; empty while the cluster has had no transaction.
    coordinators: tuple[int, ...]
    # With TV2, every end of a transaction changes the epoch of its producer.
    ends_bump_epochs: bool

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(
                (
                    *self.lso.unanswered_coordinators,
                    *self.lso.problems,
                    *self.txns.problems,
                )
            )
        )


def fencings_between(
    before: Mapping[str, DescribedTxn], after: Mapping[str, DescribedTxn], ends_bump_epochs: bool
) -> int:
    """How many producers were fenced between two looks, as far as two looks show it.

    A producer that registers an id gets a higher epoch, or a new producer id, and fences all earlier ones. With TV1
    every new epoch is a fencing. With TV2 the end of a transaction gives one, too, so that only an id without a
    transaction since its registration (`Empty`) shows one. Several fencings of an id between two looks count once.
    """
    return sum(
        _is_newer(before[id_], txn) and (not ends_bump_epochs or txn.state == EMPTY.kafka_name)
        for id_, txn in after.items()
        if id_ in before
    )


def _is_newer(before: DescribedTxn, after: DescribedTxn) -> bool:
    return before.producer_id != after.producer_id or before.producer_epoch < after.producer_epoch
