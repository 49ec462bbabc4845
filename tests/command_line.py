"""Runs `fencepost …` as a user does: a process of its own, of which only output and exit code are seen."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fencepost.testing.child import child_environment, python_module


def run_fencepost(*arguments: str | Path, timeout_s: float = 100) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        python_module("fencepost", *map(str, arguments)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=child_environment(),
    )


def start_fencepost(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start a command; its stdout and stderr are pipes. The caller ends it."""
    return subprocess.Popen(
        python_module("fencepost", *map(str, arguments)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
