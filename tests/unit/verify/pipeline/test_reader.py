"""How long a run waits for transactions that are open, by their timeouts."""

from __future__ import annotations

import pytest

from fencepost.verify.pipeline.reader import LATE_S, LONGEST_S, NEVER_MS, USUAL_S, patience_of


@pytest.mark.parametrize(
    ("timeouts_ms", "seconds"),
    [
        ({}, USUAL_S),
        ({"tills": 10_000}, USUAL_S),
        ({"tills": 10_000, "audits": 300_000}, 300 + LATE_S),
        ({"tills": 3_600_000}, LONGEST_S),
    ],
)
def test_the_longest_timeout_counts_up_to_a_limit(timeouts_ms: dict[str, int], seconds: float) -> None:
    assert patience_of(timeouts_ms).seconds == seconds


def test_a_transaction_that_never_times_out_is_not_waited_for_longer_than_usual() -> None:
    patience = patience_of({"tills": NEVER_MS})
    assert patience.seconds == USUAL_S
    assert "tills is still open, and no timeout ends it: waiting for up to 75 s" in patience.why
    assert patience_of({"tills": NEVER_MS, "audits": 300_000}).seconds == 300 + LATE_S
