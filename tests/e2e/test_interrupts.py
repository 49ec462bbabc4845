"""Ctrl-C and SIGTERM at any moment of a start: the exit code of the other commands, and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from fencepost.child import child_environment
from tests.command_line import heeded_signals

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
WEB = ("fencepost", "web", "--listen", "127.0.0.1:0")
BROKER = ("fencepost", "broker", "--memory", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0")
INTERRUPTED = 130


def start(*command: str) -> subprocess.Popen[str]:
    """Python names each module on stderr when it was imported, so that a test can wait for that."""
    with heeded_signals():
        return subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", *command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=child_environment(),
            process_group=0,
        )


def await_import(process: subprocess.Popen[str], module: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("import time:") and line.rpartition("|")[2].strip() == module:
            return
    pytest.fail(f"{module} was not imported")


def said_at_the_end(process: subprocess.Popen[str]) -> list[str]:
    _, said = process.communicate(timeout=TIMEOUT_S)
    # The first line may be the rest of one that the test has read.
    lines = [line for line in said.splitlines()[1:] if line and "import time:" not in line]
    return [line for line in lines if " INFO " not in line]


@pytest.mark.parametrize(
    ("command", "module", "number"),
    [
        (WEB, "click", signal.SIGINT),
        (WEB, "starlette.routing", signal.SIGINT),
        (WEB, "starlette.routing", signal.SIGTERM),
        (BROKER, "fencepost.broker.node", signal.SIGINT),
    ],
)
def test_a_server_that_is_stopped_while_it_starts_leaves_no_traceback(
    command: tuple[str, ...], module: str, number: int
) -> None:
    with start(*command) as process:
        try:
            await_import(process, module)
            process.send_signal(number)
            said = said_at_the_end(process)
        finally:
            process.kill()
    # 0: the server listened already.
    assert process.returncode in ((0, INTERRUPTED) if number == signal.SIGINT else (0, -signal.SIGTERM))
    assert said == (["interrupted"] if process.returncode == INTERRUPTED else [])


def test_a_workbench_that_is_stopped_again_and_again_ends_with_0() -> None:
    with start(*WEB) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready ")
            child = psutil.Process(process.pid)
            while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
                process.send_signal(signal.SIGINT)
            # Python says so itself if a signal comes in the moment in which its handler is replaced, and ignores it.
            assert [line for line in said_at_the_end(process)[-1:] if "ignored due to race condition" not in line] == []
        finally:
            process.kill()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("moment", "number"),
    [("imports", signal.SIGINT), ("broker", signal.SIGINT), ("demo", signal.SIGINT), ("demo", signal.SIGTERM)],
)
def test_make_dev_that_is_stopped_while_it_starts_leaves_no_traceback_and_no_process(
    moment: str, number: int, tmp_path: Path
) -> None:
    with start("scripts.dev", "127.0.0.1:0", str(tmp_path / "data")) as process:
        dev = psutil.Process(process.pid)
        children: list[psutil.Process] = []
        try:
            if moment == "imports":
                await_import(process, "fencepost.protocol.messages")
            while moment == "broker" and not children:
                children = dev.children()
            if moment == "demo":
                assert process.stdout is not None
                assert process.stdout.readline()
                children = dev.children(recursive=True)
            # As a terminal does: Ctrl-C is for the whole group, but `kill` for one process.
            os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
            said = said_at_the_end(process)
            assert psutil.wait_procs(children, TIMEOUT_S)[1] == []
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode in (0, INTERRUPTED, -number)
    assert [line for line in said if line != "interrupted"] == []
