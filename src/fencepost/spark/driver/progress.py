"""The progress of a micro-batch: a line for the driver's log, a document beside Spark's own, numbers for Prometheus."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

COMMITTED, SKIPPED, EMPTY = "committed", "skipped", "empty"


@dataclass(frozen=True, slots=True)
class BatchProgress:
    batch_id: int  # -1: a plain frame.
    outcome: str  # COMMITTED; SKIPPED: Kafka had the micro-batch already; EMPTY: there was nothing to commit.
    records: int = 0
    bytes: int = 0  # As sent: encoded and compressed.
    record_batches: int = 0
    transaction_ms: int = 0  # From the first write to the answer to the commit.
    timeout_share: float = 0.0
    producer_id: int = -1
    producer_epoch: int = -1
    attempts: int = 1

    def __str__(self) -> str:
        name = name_of(self.batch_id)
        if self.outcome == SKIPPED:
            return f"{name}: skipped, Kafka has it already"
        if self.outcome == EMPTY:
            return f"{name}: empty, nothing to commit"
        again = f", attempt {self.attempts}" if self.attempts > 1 else ""
        return (
            f"{name}: committed {self.records:,} records, {self.bytes:,} bytes in {self.record_batches:,} record "
            f"batches; the transaction took {self.transaction_ms:,} ms, {self.timeout_share:.1%} of its timeout "
            f"(producer {self.producer_id}, epoch {self.producer_epoch}{again})"
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def name_of(batch_id: int) -> str:
    return "a frame" if batch_id < 0 else f"micro-batch {batch_id}"
