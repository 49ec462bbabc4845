"""Run `fencepost verify cluster` on correct brokers, again and again: every anomaly that it finds is a false alarm.

Usage: python -m scripts.false_alarms [--runs N] [--seconds N] [--seed N]

The seeds of the runs follow one another. Each run has a broker of its own, with one node or three and transaction
version 1 or 2 in turn, and all clients and faults that the command has by default. The history of a run with an anomaly
is kept.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fencepost.child import child_environment, python_module
from fencepost.cli.streams import say
from fencepost.testing import Broker

KINDS_OF_BROKERS = tuple((version, nodes) for nodes in (1, 3) for version in (2, 1))
# Beside its seconds, for the start and the last reads.
MOST_S = 300.0


class Outcome(NamedTuple):
    """`accused` names the kinds of anomalies; `problem` says why a run has no verdict."""

    seed: int
    transaction_version: int
    nodes: int
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    accused: tuple[str, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        where = f"seed {self.seed}: transaction version {self.transaction_version}, nodes: {self.nodes}"
        if self.problem:
            return f"{where}; FAILED: {self.problem}"
        counts = f"{self.committed} committed, {self.aborted} aborted, {self.unknown} in doubt"
        return f"{where}; {counts}; {'ACCUSED: ' + ', '.join(self.accused) if self.accused else 'no anomaly'}"


def run_once(seed: int, transaction_version: int, nodes: int, seconds: float, folder: Path) -> Outcome:
    settings = {"transaction.version": str(transaction_version)}
    history = folder / f"history-{seed}.jsonl"
    with Broker(brokers=nodes, data=folder / f"data-{seed}", settings=settings) as broker:
        given = ("--bootstrap", broker.bootstrap_servers, "--seed", str(seed), "--seconds", f"{seconds:g}")
        done = subprocess.run(
            python_module("fencepost", "verify", "cluster", *given, "--history", str(history), "--json"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds + MOST_S,
            check=False,
            env=child_environment(),
        )
    outcome = read_outcome(seed, transaction_version, nodes, done)
    if not outcome.accused:
        history.unlink(missing_ok=True)
    return outcome


def read_outcome(seed: int, transaction_version: int, nodes: int, done: subprocess.CompletedProcess[str]) -> Outcome:
    outcome = Outcome(seed, transaction_version, nodes)
    if not done.stdout:
        return outcome._replace(problem=done.stderr.strip() or f"exit code {done.returncode}")
    report = json.loads(done.stdout)
    accused = tuple(kind["kind"] for kind in report["kinds"] if not kind["is_allowed"])
    problem = done.stderr.strip() if done.returncode and not accused else ""
    counts = (report["committed"], report["aborted"], report["unknown"])
    return Outcome(seed, transaction_version, nodes, *counts, accused, problem)


def totals(outcomes: Sequence[Outcome]) -> str:
    accused = [outcome.seed for outcome in outcomes if outcome.accused]
    failed = [outcome.seed for outcome in outcomes if outcome.problem]
    counts = [sum(getattr(each, name) for each in outcomes) for name in ("committed", "aborted", "unknown")]
    return (
        f"runs: {len(outcomes)}; {counts[0]:,} committed, {counts[1]:,} aborted, {counts[2]:,} in doubt; "
        f"accused: {len(accused)}{_seeds(accused)}; failed: {len(failed)}{_seeds(failed)}"
    )


def _seeds(seeds: Sequence[int]) -> str:
    return f" (seeds {', '.join(map(str, seeds))})" if seeds else ""


def main() -> int:
    options = parse_arguments()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-false-alarms-"))
    outcomes: list[Outcome] = []
    try:
        for number in range(options.runs):
            version, nodes = KINDS_OF_BROKERS[number % len(KINDS_OF_BROKERS)]
            with tempfile.TemporaryDirectory(dir=folder) as data:
                outcome = run_once(options.seed + number, version, nodes, options.seconds, Path(data))
                for history in Path(data).glob("history-*.jsonl"):
                    history.rename(folder / history.name)
                    say(f"the history is in {folder / history.name}: `fencepost verify check` judges it again")
            outcomes.append(outcome)
            print(outcome, flush=True)
    except KeyboardInterrupt:
        say("interrupted")
    print(totals(outcomes))
    if not any(folder.iterdir()):
        folder.rmdir()
    return 1 if any(outcome.accused or outcome.problem for outcome in outcomes) else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.false_alarms",
        description=(__doc__ or "").partition("\n")[0],
        epilog="example: .venv/bin/python -m scripts.false_alarms --runs 100 --seed 1",
    )
    parser.add_argument("--runs", type=int, default=20, help="how many runs (default: 20)")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long the clients of a run work (default: 6)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="of the first run")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs is {options.runs}, expected 1 or more")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
