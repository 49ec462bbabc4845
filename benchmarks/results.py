"""The file of results: the machine, and for each case the commit, the date and every repetition's figures."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from confluent_kafka import libversion, version

from benchmarks.figures import Repetitions
from tests.engines.java import KAFKA_VERSION

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class CaseResult:
    commit: str
    date: str
    took_s: float
    figures: dict[str, dict[str, list[float]]]  # By contender and figure, one value a repetition.

    def of(self, contender: str) -> Repetitions | None:
        return self.figures.get(contender)


@dataclass(frozen=True)
class Results:
    machine: dict[str, str]
    cases: dict[str, CaseResult]

    def of(self, case: str, contender: str) -> Repetitions | None:
        return self.cases[case].of(contender) if case in self.cases else None


def machine() -> dict[str, str]:
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        "client": f"confluent-kafka {version()}, librdkafka {libversion()[0]}",
        "Apache Kafka": KAFKA_VERSION,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()


def commit_of() -> str:
    """The commit of this repository, with a plus if files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    commit = git("rev-parse", "--short=7", "HEAD") or "unknown"
    return f"{commit}+" if git("status", "--porcelain", "--", "src") else commit


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")


def merge(before: Results | None, new: Results) -> Results:
    """The new figures, and those of cases that were not measured this time."""
    return new if before is None else Results(new.machine, before.cases | new.cases)


def keep(path: Path, new: Results) -> None:
    """Put figures in a file, beside those of other cases that are there already."""
    write(path, merge(read(path) if path.exists() else None, new))


def read(path: Path) -> Results:
    found = json.loads(path.read_text())
    return Results(found["machine"], {name: CaseResult(**case) for name, case in found["cases"].items()})


def write(path: Path, results: Results) -> None:
    rounded = json.loads(json.dumps(asdict(results)), parse_float=lambda text: float(f"{float(text):.5g}"))
    text = json.dumps(rounded, indent=1)
    path.write_text(text + "\n")
