"""Which faults make an EndTxn late."""

from __future__ import annotations

import random

from fencepost.verify.checkers.late_end_txn import longest_delay_ns
from fencepost.verify.history import Fault
from fencepost.verify.nemesis.schedule import FAULTS, schedule


def test_no_fault_of_a_schedule_makes_an_end_txn_late() -> None:
    actions = schedule(random.Random(1), 3000.0, FAULTS, ["writer-0"])
    faults = [Fault(0, "nemesis", f"{action.what} (2 times)") for action in actions]
    assert any("EndTxn" in fault.what for fault in faults)
    assert longest_delay_ns(faults) == 0


def test_the_longest_delay_counts() -> None:
    faults = [Fault(0, "nemesis", f"delay {words} (2 times)") for words in ("EndTxn 4s request", "* 1m request")]
    assert longest_delay_ns(faults) == 60_000_000_000
