"""Ctrl-C during `fencepost spark check`: the exit code of other commands, no traceback, and no JVM that stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fencepost.child import child_environment, python_module
from fencepost.testing import Broker
from tests.command_line import heeded_signals

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]
# On an idle machine Spark's workers are there after six seconds. At a load average of 40, the JVM alone took twenty
# seconds to write its first line, and the session was not there after sixty.
TIMEOUT_S = 300


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # It ended meanwhile.
        return ""


def await_child(process: subprocess.Popen[bytes], words: str) -> list[psutil.Process]:
    """All processes that it has started, once one of them has these words in its command."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"it ended with {process.returncode} before a process {words} was seen"
        found = psutil.Process(process.pid).children(recursive=True)
        if any(words in command_of(child) for child in found):
            return found
        time.sleep(0.1)  # A look at all processes takes a while.
    raise TimeoutError(words)


def python_that_starts_slowly(folder: Path) -> Path:
    """For Spark's workers: on a busy machine, they may have come and gone between two looks at the processes."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nsleep 5\nexec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    "moment", [pytest.param("org.apache.spark.deploy.SparkSubmit", marks=pytest.mark.engines), "pyspark.daemon"]
)
def test_ctrl_c_ends_the_check_and_its_jvm(broker: Broker, tmp_path: Path, moment: str) -> None:
    command = ["spark", "check", "--id", "refunds-1", "--bootstrap", broker.bootstrap_servers]
    with open(tmp_path / "said", "w+b") as said, heeded_signals():
        process = subprocess.Popen(
            python_module("fencepost", *command),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**child_environment(), "PYSPARK_PYTHON": str(python_that_starts_slowly(tmp_path))},
            process_group=0,
        )
    started: list[psutil.Process] = []
    try:
        started = await_child(process, moment)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130
        _, left = psutil.wait_procs(started, timeout=TIMEOUT_S)
        assert left == []
    finally:
        process.kill()
        for each in started:
            if each.is_running():
                each.kill()
    text = (tmp_path / "said").read_text()
    assert "\ninterrupted\n" in text
    assert "Traceback" not in text
