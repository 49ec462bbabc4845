"""The transactions that are open on some partitions, and how long they can stay open at most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.partitions import describe_producers
from fencepost.client.admin.transactions import describe_transactions, list_transactions
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError

# The usual transaction.timeout.ms is 60 s: a transaction that a killed program left open ends by then.
USUAL_S = 75.0
# A coordinator looks for transactions that have timed out every ten seconds.
LATE_S = 15.0


class Patience(NamedTuple):
    """How long to wait for transactions to end, and for which."""

    seconds: float
    why: str


def patience_for(client: KafkaClient, partitions: Iterable[NamedPartition]) -> Patience:
    """Until the last transaction that is open on the partitions has timed out, as far as the cluster tells."""
    try:
        return patience_of(_timeouts_s(client, list(partitions)))
    except ClientError:
        return patience_of({})


def patience_of(timeouts_s: Mapping[str, float]) -> Patience:
    """`timeouts_s`: of each transactional id whose transaction is open."""
    if not timeouts_s or max(timeouts_s.values()) + LATE_S <= USUAL_S:
        return Patience(USUAL_S, "a transaction is still open: waiting until its timeout ends it")
    longest = max(timeouts_s, key=timeouts_s.__getitem__)
    timeout_s = timeouts_s[longest]
    return Patience(
        timeout_s + LATE_S,
        f"the transaction of {longest} is still open, and its timeout ends it after up to {timeout_s:g} s: waiting; "
        "Ctrl-C judges what was seen",
    )


def _timeouts_s(client: KafkaClient, partitions: list[NamedPartition]) -> dict[str, float]:
    producers = describe_producers(client, partitions).found.values()
    ids = {each.producer_id for found in producers for each in found if each.txn_start_offset >= 0}
    if not ids:
        return {}
    listed = list_transactions(client, producer_ids=ids).found
    described = describe_transactions(client, {name: txn.coordinator for name, txn in listed.items()}).found
    return {name: txn.timeout_ms / 1000 for name, txn in described.items()}
