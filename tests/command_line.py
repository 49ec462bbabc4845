"""Runs `fencepost …` as a user does: a process of its own, of which only output and exit code are seen."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fencepost.child import child_environment, python_module


def run_fencepost(
    *arguments: str | Path, timeout_s: float = 100, columns: int | None = None, bootstrap_servers: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output fits into `columns`, and the environment names the cluster, if given."""
    return subprocess.run(
        python_module("fencepost", *map(str, arguments)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=_environment(columns) | ({"FENCEPOST_BOOTSTRAP": bootstrap_servers} if bootstrap_servers else {}),
    )


def start_fencepost(
    *arguments: str | Path, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start a command; its stdout and stderr are pipes unless something else is given. The caller ends it.

    Signals end it as in a terminal, also where the tests run in the background or under `nohup`.
    """
    with heeded_signals():
        return subprocess.Popen(
            python_module("fencepost", *map(str, arguments)),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
            env=_environment(),
        )


@contextmanager
def closed_pipe() -> Iterator[int]:
    """The end for writing of a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


def _environment(columns: int | None = None) -> dict[str, str]:
    """Without the COLUMNS that pytest's workers have, on which the layout of tables would depend."""
    given = {name: value for name, value in child_environment().items() if name != "COLUMNS"}
    return given if columns is None else given | {"COLUMNS": str(columns)}


@contextmanager
def heeded_signals() -> Iterator[None]:
    """A process inherits which signals are ignored, and a handler becomes the default."""
    ignored = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
