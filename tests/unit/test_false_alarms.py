"""`scripts/false_alarms.py`: what it says of a run of `fencepost verify cluster`, and of all of them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from scripts.false_alarms import Outcome, read_outcome, totals

ALLOWED = {"kind": "G0", "is_allowed": True}
LOST = {"kind": "lost-write", "is_allowed": False}


def outcome(seed: int, exit_code: int, *kinds: dict[str, Any]) -> Outcome:
    report = {"committed": 1200, "aborted": 30, "unknown": 1, "kinds": kinds}
    return read_outcome(
        seed, 2, 3, subprocess.CompletedProcess([], exit_code, json.dumps(report), "error: no answer\n")
    )


def test_a_run_is_accused_of_what_kafka_does_not_allow() -> None:
    right, accused = outcome(1, 0, ALLOWED), outcome(2, 1, ALLOWED, LOST)
    assert str(right) == ("seed 1: transaction version 2, nodes: 3; 1200 committed, 30 aborted, 1 in doubt; no anomaly")
    assert str(accused).endswith("; ACCUSED: lost-write")
    assert totals([right, accused]) == (
        "runs: 2; 2,400 committed, 60 aborted, 2 in doubt; accused: 1 (seeds 2); failed: 0"
    )


def test_a_run_without_a_verdict_has_failed_and_is_not_accused() -> None:
    unread = outcome(1, 3)
    silent = read_outcome(2, 1, 1, subprocess.CompletedProcess([], 3, "", "error: no broker\n"))
    assert [each.problem for each in (unread, silent)] == ["error: no answer", "error: no broker"]
    assert totals([unread, silent]).endswith("; accused: 0; failed: 2 (seeds 1, 2)")
