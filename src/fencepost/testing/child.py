"""How to start Python programs of this package as child processes."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs `module`. With -P, it imports nothing from the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """An environment in which the child imports the same `fencepost`, also if it is on `sys.path` and not installed."""
    root = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ)
    if root != sysconfig.get_path("purelib"):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    return environment
