"""Batches of a partition that wait until a coordinator on another node has said whether they belong to a transaction.

Meanwhile the transaction may end. A batch that is appended after its marker would belong to no transaction and hold
back the last stable offset for ever. So a marker of the same producer ends the verifications that wait, and their
batches are refused. Follows Kafka's VerificationStateEntry (KIP-890).
"""

from __future__ import annotations


class Verification:
    __slots__ = ("has_ended", "waiting")

    def __init__(self) -> None:
        self.has_ended = False  # The transaction, by a marker.
        self.waiting = 0  # Requests that wait for the coordinator.


class Verifications:
    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, Verification] = {}

    def begin(self, producer_id: int) -> Verification:
        found = self.by_producer.setdefault(producer_id, Verification())
        found.waiting += 1
        return found

    def end(self, producer_id: int, verification: Verification) -> bool:
        """The coordinator has answered; return whether the transaction has had no marker meanwhile."""
        verification.waiting -= 1
        if not verification.waiting and self.by_producer.get(producer_id) is verification:
            del self.by_producer[producer_id]
        return not verification.has_ended

    def txn_ended(self, producer_id: int) -> None:
        verification = self.by_producer.pop(producer_id, None)
        if verification is not None:
            verification.has_ended = True
