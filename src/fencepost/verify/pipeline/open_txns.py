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
# No run waits for longer than this, whatever the timeout is.
LONGEST_S = 15 * 60.0
# Kafka: a transaction of a two-phase commit (KIP-939) has this timeout, and only its own producer ends it.
NEVER_MS = 2**31 - 1


class Patience(NamedTuple):
    """How long to wait for transactions to end, and for which."""

    seconds: float
    why: str


def patience_for(client: KafkaClient, partitions: Iterable[NamedPartition]) -> Patience:
    """Until the last transaction that is open on the partitions has timed out, as far as the cluster tells its timeout.

    At most `LONGEST_S`.
    """
    try:
        return patience_of(_timeouts_ms(client, list(partitions)))
    except ClientError:
        return patience_of({})


def patience_of(timeouts_ms: Mapping[str, int]) -> Patience:
    """`timeouts_ms`: of each transactional id whose transaction is open."""
    ending_s = {id_: timeout_ms / 1000 for id_, timeout_ms in timeouts_ms.items() if timeout_ms < NEVER_MS}
    if not ending_s or max(ending_s.values()) + LATE_S <= USUAL_S:
        endless = next((id_ for id_ in timeouts_ms if id_ not in ending_s), None)
        if endless is not None:
            why = f"the transaction of {endless} is still open, and no timeout ends it: {_waiting(USUAL_S)}"
            return Patience(USUAL_S, why)
        return Patience(USUAL_S, "a transaction is still open: waiting until its timeout ends it")
    longest = max(ending_s, key=ending_s.__getitem__)
    seconds = min(ending_s[longest] + LATE_S, LONGEST_S)
    return Patience(
        seconds,
        f"the transaction of {longest} is still open, and its timeout ends it after up to {ending_s[longest]:g} s: "
        f"{_waiting(seconds)}",
    )


def _waiting(seconds: float) -> str:
    return f"waiting for up to {seconds:g} s; Ctrl-C judges what was seen"


def _timeouts_ms(client: KafkaClient, partitions: list[NamedPartition]) -> dict[str, int]:
    producers = describe_producers(client, partitions).found.values()
    ids = {each.producer_id for found in producers for each in found if each.txn_start_offset >= 0}
    if not ids:
        return {}
    listed = list_transactions(client, producer_ids=ids).found
    described = describe_transactions(client, {name: txn.coordinator for name, txn in listed.items()}).found
    return {name: txn.timeout_ms for name, txn in described.items()}
