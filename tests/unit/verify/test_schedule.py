"""The faults of a run, from a seed, and which of them make an EndTxn late."""

from __future__ import annotations

import random
from random import Random

import pytest

from fencepost.faults.fault import parse_line
from fencepost.verify.checkers.late_requests import longest_delay_ns
from fencepost.verify.history import Fault
from fencepost.verify.nemesis.schedule import COMMAND, ERRORS, FAULTS, KILL, NETWORK, FaultAction, schedule

CLIENTS = ("writer-0", "copier-0")


def test_the_same_seed_makes_the_same_faults() -> None:
    assert schedule(Random(7), 60, FAULTS, CLIENTS) == schedule(Random(7), 60, FAULTS, CLIENTS)
    assert schedule(Random(7), 60, FAULTS, CLIENTS) != schedule(Random(8), 60, FAULTS, CLIENTS)


def test_a_minute_has_every_kind_of_fault() -> None:
    found = {action.kind for seed in range(5) for action in schedule(Random(seed), 60, FAULTS, CLIENTS)}
    assert found == set(FAULTS)


@pytest.mark.parametrize("seed", range(20))
def test_faults_come_in_order_and_are_over_when_the_run_ends(seed: int) -> None:
    actions = schedule(Random(seed), 30, FAULTS, CLIENTS)
    assert actions == sorted(actions)
    assert all(0 < action.at_s < action.at_s + action.seconds <= 30 or not action.seconds for action in actions)


@pytest.mark.parametrize("seed", range(50))
def test_every_fault_of_the_network_is_one_that_the_tap_knows(seed: int) -> None:
    for action in schedule(Random(seed), 60, (NETWORK, ERRORS), CLIENTS):
        fault = parse_line(action.what)
        # Longer, and with version 1 a correct cluster would end the wrong transaction.
        assert fault.delay_ms < 1000


def test_only_the_faults_that_were_asked_for_happen() -> None:
    assert {action.kind for action in schedule(Random(1), 60, (KILL,), CLIENTS)} == {KILL}
    assert schedule(Random(1), 60, (), CLIENTS) == []


def test_a_command_runs_at_its_interval() -> None:
    assert schedule(Random(1), 31, (), CLIENTS, "reboot", 10.0) == [
        FaultAction(10.0, COMMAND, "reboot"),
        FaultAction(20.0, COMMAND, "reboot"),
        FaultAction(30.0, COMMAND, "reboot"),
    ]
    assert schedule(Random(1), 10, (), CLIENTS, "reboot", 10.0) == []


def test_no_fault_of_a_schedule_makes_an_end_txn_late() -> None:
    actions = schedule(random.Random(1), 3000.0, FAULTS, ["writer-0"])
    faults = [Fault(0, "nemesis", f"{action.what} (2 times)") for action in actions]
    assert any("EndTxn" in fault.what for fault in faults)
    assert longest_delay_ns(faults) == 0


def test_the_longest_delay_counts() -> None:
    faults = [Fault(0, "nemesis", f"delay {words} (2 times)") for words in ("EndTxn 4s request", "* 1m request")]
    assert longest_delay_ns(faults) == 60_000_000_000
