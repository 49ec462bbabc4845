"""`rate_job.py` in a process of its own, with any version of PySpark: what it reports, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from fencepost.child import child_environment
from tests.e2e.engines.rate_job import Plan
from tests.engines.java import ROOT, java_home

TIMEOUT_S = 180.0


def environment() -> dict[str, str]:
    return child_environment() | {"JAVA_HOME": str(java_home()), "PYTHONPATH": str(ROOT / "src")}


class Job:
    """`rate_job.py` for the length of a `with` block. The end of the block kills it and all its children."""

    def __init__(self, python: Path, plan: Plan) -> None:
        self._log = Path(plan.folder) / "job.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [python, ROOT / "tests/e2e/engines/rate_job.py", json.dumps(asdict(plan))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        below = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
        os.killpg(self._process.pid, signal.SIGKILL) if below else self._process.kill()
        self._process.communicate()
        psutil.wait_procs(below, 30)

    def await_event(self, name: str) -> list[dict[str, Any]]:
        """All events up to the next one with this name."""
        assert self._process.stdout is not None
        told: list[dict[str, Any]] = []
        while not told or told[-1]["event"] != name:
            line = self._process.stdout.readline()
            assert line, f"{told}\n{self._log.read_text(errors='replace')[-6000:]}"
            told.append(json.loads(line))
        return told

    def await_failure(self) -> str:
        """Wait until it has ended by itself, with an error. Returns its log."""
        assert self._process.wait(TIMEOUT_S) == 1
        return self._log.read_text(errors="replace")

    def kill_python_workers(self) -> int:
        """Kill all Python workers, idle ones too. Returns their number."""
        workers = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # It or its parent has just ended.
                # Workers are forks of a daemon that Java started.
                parent = process.parent()
                if parent and "pyspark.daemon" in process.cmdline() and "pyspark.daemon" in parent.cmdline():
                    process.kill()
                    workers.append(process)
        psutil.wait_procs(workers, 30)
        return len(workers)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
