"""Runs one step of the set-up: prints a line when it starts and ends, and the step's output only if it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"


class StepFailed(Exception):
    """A step of the set-up failed; the message has the end of its output."""


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def step(what: str, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> None:
    """Run `command`. If it fails, raise StepFailed with the last lines that it printed."""
    say(f"setup: {what} ...")
    began = time.monotonic()
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join("    " + line for line in done.stdout.strip().splitlines()[-25:])
        raise StepFailed(f"{what}: exit code {done.returncode}\n{tail}")
    say(f"setup: {what} done in {time.monotonic() - began:.0f} s")
