"""Runs of `fencepost verify cluster` in tests, and what their reports say."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.command_line import run_fencepost

TIMEOUT_S = 300.0


class Verdict(NamedTuple):
    exit_code: int
    report: dict[str, Any]
    stderr: str

    @property
    def kinds(self) -> set[str]:
        """The kinds of anomalies that were found, without those that Kafka allows."""
        return {kind["kind"] for kind in self.report["kinds"] if not kind["is_allowed"]}


def options_of(settings: Mapping[str, str]) -> list[str]:
    """The settings of a client as options of the command line, without bootstrap.servers."""
    given = [f"{name}={value}" for name, value in settings.items() if name != "bootstrap.servers"]
    return [word for pair in given for word in ("--set", pair)]


def committed_by(history: Path) -> Counter[str]:
    """How many transactions the clients of each kind and role have committed."""
    events = map(json.loads, history.open())
    ended = (event for event in events if event["event"] == "ended" and event["outcome"] == "committed")
    return Counter(event["by"].rpartition("-")[0] for event in ended)


def verify_cluster(bootstrap_servers: str, history: Path, *arguments: str) -> Verdict:
    given = ("--bootstrap", bootstrap_servers, "--history", str(history), "--json", *arguments)
    done = run_fencepost("verify", "cluster", *given, timeout_s=TIMEOUT_S)
    return Verdict(done.returncode, _report(done), done.stderr)


def _report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report
