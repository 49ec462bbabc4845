"""Every broker with a bug is caught: within 20 seeds, and within two minutes."""

from __future__ import annotations

import time
from collections.abc import Set
from pathlib import Path

import pytest

from tests.e2e.verify.mutants import MUTANTS, MutantBroker
from tests.e2e.verify.runs import Verdict, verify_cluster

SEEDS = 20
SECONDS = "8"
LIMIT_S = 120.0
# The kinds of anomalies that each bug leads to; others may come with them.
CAUGHT_AS = {
    "marker-lost": {"lost-write", "torn-transaction", "G1a", "stuck-LSO", "precommitted-read"},
    "marker-before-data": {"precommitted-read", "G1a"},
    "fence-forgotten": {"fenced-write"},
    "lso-too-far": {"precommitted-read", "G1a"},
    "offsets-without-outputs": {"offsets-ahead"},
    "batch-lost": {"lost-write", "torn-transaction"},
    "zero-offsets": {"inconsistent-offsets"},
    "duplicates-kept": {"duplicate"},
    "aborted-visible": {"G1a"},
    "fetch-skips": {"poll-skip", "G1b"},
}
# Some bugs need more than clients that are replaced.
WITH = {"duplicates-kept": ("--fault", "duplicate Produce times=20 skip=20")}


FEW_FAULTS = ("--clients", "librdkafka=1,fencepost-v2=1", "--faults", "zombie")
# All kinds of faults, and one for certain that disturbs EndTxn, with clients of transaction version 1. None of them
# makes a request late, so none excuses the broker.
ALL_FAULTS = ("--clients", "librdkafka=2", "--fault", "error EndTxn NOT_COORDINATOR times=3")


def catch(mutant: str, folder: Path, *options: str, never: Set[str] = frozenset()) -> Verdict:
    """The first run that finds the bug, and no kind of `never`; fails if no run does so in time."""
    began = time.monotonic()
    for seed in range(SEEDS):
        with MutantBroker(mutant) as broker:
            verdict = verify_cluster(
                broker.bootstrap_servers,
                folder / f"{seed}.jsonl",
                *("--seconds", SECONDS, "--seed", str(seed), *options, *WITH.get(mutant, ())),
            )
        took_s = time.monotonic() - began
        if verdict.kinds & CAUGHT_AS[mutant] and not verdict.kinds & never:
            print(f"{mutant}: seed {seed}, {took_s:.0f} s, {', '.join(sorted(verdict.kinds))}")
            assert verdict.exit_code == 1
            assert took_s < LIMIT_S
            return verdict
    pytest.fail(f"{mutant} was not caught with {SEEDS} seeds: {verdict.stderr}")


@pytest.mark.engines
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_broker_is_caught(mutant: str, tmp_path: Path) -> None:
    catch(mutant, tmp_path, *FEW_FAULTS)


@pytest.mark.engines
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", ["batch-lost", "lso-too-far"])
def test_no_fault_of_a_usual_run_excuses_a_broken_broker(mutant: str, tmp_path: Path) -> None:
    # A machine that stands still for three seconds makes a late EndTxn by itself, so one seed proves nothing.
    catch(mutant, tmp_path, *ALL_FAULTS, never={"late-EndTxn"})
