"""Commands of the user's that disturb a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.verify.nemesis.means import UserCommand

LIMIT_S = 10.0


def await_that(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_command_that_fails_is_noted_with_its_last_line() -> None:
    command = UserCommand("echo first >&2; echo no such pod >&2; exit 3")
    await_that(lambda: command.is_over)
    assert command.end() == "echo first >&2; echo no such pod >&2; exit 3 (exit code 3: no such pod)"


def test_a_command_that_succeeds_is_noted_without_what_it_said() -> None:
    command = UserCommand("echo done >&2")
    await_that(lambda: command.is_over)
    assert command.end() == "echo done >&2 (exit code 0)"


def test_a_command_that_still_runs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    command = UserCommand(f"sleep 60 & echo $! > {file}; wait")
    await_that(lambda: file.exists() and file.read_text().endswith("\n"))
    assert not command.is_over
    assert command.end().endswith("; wait (killed after 0 s, before its end)")
    with pytest.raises(ProcessLookupError):
        await_that(lambda: os.kill(int(file.read_text()), 0))


def test_a_command_that_never_ends_is_over_at_its_limit() -> None:
    command = UserCommand("sleep 60", limit_s=0.2)
    assert not command.is_over
    await_that(lambda: command.is_over)
    assert command.end() == "sleep 60 (killed after 0 s, before its end)"
