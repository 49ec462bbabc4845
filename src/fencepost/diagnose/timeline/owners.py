"""The producers that registered a transactional id, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.diagnose.history import is_fenced_by_order
from fencepost.diagnose.snapshot import LogEntry
from fencepost.machines.txn.states import EMPTY, Txn


class Owner(NamedTuple):
    """A producer, or an operator who fenced one: it has the epochs from this one up to that of the next owner."""

    key: str
    producer_id: int
    first_epoch: int
    is_operator: bool = False


def owners_of(entries: Sequence[LogEntry]) -> tuple[Owner, ...]:
    """The owners in the order of their registrations, as far as the log still shows them."""
    found: list[Owner] = []
    before: Txn | None = None
    for txn in (entry.txn for entry in entries):
        if txn is not None and (not found or _is_new(before, txn)):
            key = f"producer {txn.producer_id}/{txn.producer_epoch}"
            found.append(Owner(key, txn.producer_id, txn.producer_epoch, is_fenced_by_order(before, txn)))
        elif txn is not None and txn.producer_id != found[-1].producer_id:
            # The epochs of its producer id were used up: the same producer has another id.
            found.append(found[-1]._replace(producer_id=txn.producer_id, first_epoch=txn.producer_epoch))
        before = txn
    return tuple(found)


def _is_new(before: Txn | None, txn: Txn) -> bool:
    if txn.state is not EMPTY or before is None:
        return txn.state is EMPTY
    return (txn.producer_id, txn.producer_epoch) != (before.producer_id, before.producer_epoch)


def owner_with(owners: Sequence[Owner], producer_id: int, producer_epoch: int) -> Owner | None:
    """The owner that this id and epoch were given to; None if the log no longer shows it."""
    for owner in reversed(owners):
        if owner.producer_id == producer_id and owner.first_epoch <= producer_epoch:
            return owner
    return None
