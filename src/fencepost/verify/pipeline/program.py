"""The program under test: its copies, each a process group that is killed, paused and resumed as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fencepost.child import start_whole

TAIL_LINES = 12
TAIL_BYTES = 16_384


class NotStarted(Exception):
    """The operating system cannot start the command."""


class Copy:
    """One process group of the program."""

    def __init__(self, process: subprocess.Popen[bytes], number: int) -> None:
        self._process = process
        self.number = number  # Counts the starts.
        self.is_ended_by_us = False

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.poll()

    def kill(self) -> None:
        self.is_ended_by_us = True
        self._signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self, patience_s: float) -> bool:
        """End it with SIGTERM; False if it had to be killed."""
        self.is_ended_by_us = True
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(patience_s)
            return True
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.kill()  # Also what the program has left of its group.

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies.
            os.killpg(self._process.pid, number)


class Program:
    """`log` gets stdout and stderr of all copies."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.command = list(command)
        self.copies: list[Copy] = []
        self.starts = 0
        self._environment = {**os.environ, **environment}
        self._log = log

    def start(self) -> Copy:
        """Start another copy. Raises NotStarted."""
        with open(self._log, "ab") as log:
            try:
                process = start_whole(
                    lambda: subprocess.Popen(
                        self.command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=self._environment,
                        start_new_session=True,
                    )
                )
            except OSError as e:
                raise NotStarted(f"cannot start {self.command[0]}: {e.strerror}") from None
        self.starts += 1
        copy = Copy(process, self.starts)
        self.copies.append(copy)
        return copy

    def kill(self, copies: Sequence[Copy]) -> None:
        for copy in list(copies):
            copy.kill()
            self.copies.remove(copy)

    def take_ended(self) -> list[Copy]:
        """The copies that ended by themselves since the last call. What is left of their groups is killed."""
        ended = [copy for copy in self.copies if copy.exit_code is not None]
        self.kill(ended)
        return ended

    def stop(self, patience_s: float) -> bool:
        """End all copies with SIGTERM; False if one had to be killed."""
        deadline = time.monotonic() + patience_s
        obeyed = [copy.stop(max(deadline - time.monotonic(), 0.0)) for copy in self.copies]
        self.copies.clear()
        return all(obeyed)

    def last_lines(self) -> str:
        """The last lines that the program printed."""
        with open(self._log, "rb") as log:
            log.seek(max(os.fstat(log.fileno()).st_size - TAIL_BYTES, 0))
            lines = log.read().decode("utf-8", "replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])


def ended_how(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"
