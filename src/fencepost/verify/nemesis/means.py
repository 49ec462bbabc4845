"""What a nemesis works with, for a cluster and for a pipeline: faults on the tap, and commands of the user's."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from fencepost.child import start_whole
from fencepost.faults.fault import parse_line
from fencepost.tap.running import TapThread
from fencepost.verify.history import Fault

# A command that still runs after so long is killed.
COMMAND_LIMIT_S = 120.0
WAITS = f"waiting for the command of --nemesis, for up to {COMMAND_LIMIT_S:g} s; Ctrl-C ends it"


class Lasting(NamedTuple):
    """A disturbance that goes on: `is_over` says when it is to end, `end` ends it and says what it was."""

    began_ns: int
    is_over: Callable[[float], bool]
    end: Callable[[], str]
    is_command: bool = False  # Of the user's. It may have to undo what it did.

    def ended(self, by: str) -> Fault | None:
        """End it, and return what to note; None if there was nothing of it."""
        what = self.end()
        return Fault(self.began_ns, by, what, round((time.monotonic_ns() - self.began_ns) / 1e9, 3)) if what else None


class TapFault:
    """A fault in the words of `fencepost tap`, from now on."""

    def __init__(self, tap: TapThread, words: str) -> None:
        self._tap = tap
        self._number: int = tap.call(lambda: tap.tap.add_fault(parse_line(words)))

    def end(self) -> int:
        """Returns how often it struck."""
        hits: int = self._tap.call(lambda: self._tap.tap.faults.hits(self._number))
        self._tap.call(lambda: self._tap.tap.remove_fault(self._number))
        return hits


class UserCommand:
    """A command in a shell, in a session of its own: Ctrl-C in a terminal does not reach it."""

    def __init__(self, command: str, limit_s: float = COMMAND_LIMIT_S) -> None:
        self._command = command
        self._limit_s = limit_s
        self._began_s = time.monotonic()
        self._stderr = tempfile.TemporaryFile(prefix="fencepost-command-")  # noqa: SIM115
        self._process = start_whole(
            lambda: subprocess.Popen(
                command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                start_new_session=True,
            )
        )

    @property
    def is_over(self) -> bool:
        """It has ended, or has run for too long."""
        return not self._is_running or time.monotonic() >= self._began_s + self._limit_s

    @property
    def _is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> str:
        """How it ended, with its last line if it failed. One that still runs is killed, with all that it started."""
        if self._is_running:
            seconds = time.monotonic() - self._began_s
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._stderr.close()
            return f"{self._command} (killed after {seconds:.0f} s, before its end)"
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace").strip().splitlines()
        self._stderr.close()
        last = said[-1:] if self._process.returncode else []
        return f"{self._command} (exit code {self._process.returncode}{''.join(f': {line}' for line in last)})"
