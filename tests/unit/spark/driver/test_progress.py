"""The line of a micro-batch in the driver's log."""

from __future__ import annotations

from fencepost.spark.driver.progress import COMMITTED, EMPTY, SKIPPED, BatchProgress


def test_a_committed_batch_says_how_much_and_how_long() -> None:
    batch = BatchProgress(7, COMMITTED, 40_000, 4_123_456, 12, 1234, 0.0041, 5, 9)
    assert str(batch) == (
        "micro-batch 7: committed 40,000 records, 4,123,456 bytes in 12 record batches; the transaction took 1,234 ms, "
        "0.4% of its timeout (producer 5, epoch 9)"
    )
    assert batch.as_json()["timeout_share"] == 0.0041


def test_a_second_attempt_is_mentioned() -> None:
    assert str(BatchProgress(-1, COMMITTED, attempts=2)).endswith("(producer -1, epoch -1, attempt 2)")
    assert str(BatchProgress(-1, COMMITTED)).startswith("a frame: committed")


def test_what_was_not_written_says_why() -> None:
    assert str(BatchProgress(3, SKIPPED)) == "micro-batch 3: skipped, Kafka has it already"
    assert str(BatchProgress(4, EMPTY)) == "micro-batch 4: empty, nothing to commit"
