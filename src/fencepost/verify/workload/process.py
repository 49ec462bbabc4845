"""The process of a client, as its parent sees it: started, killed, paused, retired, and asked to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from fencepost.child import child_environment, python_module, start_whole
from fencepost.verify.workload.child import RETIRE, STOP
from fencepost.verify.workload.plan import ClientPlan

MODULE = "fencepost.verify.workload.child"
SAID_CHARS = 2000


class ClientFailed(Exception):
    """A client ended unexpectedly."""


class ClientProcess:
    """`settings` are those of its client library. Ctrl-C in a terminal reaches only the parent."""

    def __init__(self, plan: ClientPlan, settings: Mapping[str, Any], seed: int, folder: Path) -> None:
        self.plan = plan
        self.part = folder / f"{plan.name}.part"
        self._given = {"client": plan.document(), "settings": dict(settings), "seed": seed, "part": str(self.part)}
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes]
        self.is_paused = False

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def noted_bytes(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def start(self) -> None:
        assert self._process is None, f"{self.name} is running already"
        self._stderr = tempfile.TemporaryFile(prefix="fencepost-client-")  # noqa: SIM115
        self._process = start_whole(
            lambda: subprocess.Popen(
                python_module(MODULE),
                stdin=subprocess.PIPE,
                stderr=self._stderr,
                env=child_environment(),
                process_group=0,
            )
        )
        # Not as an argument, which every user of the machine can read: it may have a password.
        self._tell(json.dumps(self._given))

    def check(self) -> None:
        """Raises ClientFailed if it has ended by itself."""
        if self._process is not None and self._process.poll() not in (None, 0):
            raise ClientFailed(f"{self.name} ended with exit code {self._process.returncode}\n{self._said()}")

    def kill(self) -> None:
        """SIGKILL, also if it is paused. `start` then starts the next one, which continues its part."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            with suppress(OSError):
                if self._process.stdin is not None:
                    self._process.stdin.close()
            self._stderr.close()
            self._process = None
            self.is_paused = False

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def retire(self) -> None:
        """Another client has taken over its transactional id: it ends after its transaction, whatever comes of it."""
        self._tell(RETIRE)

    def ask_to_stop(self) -> None:
        if self.is_paused:
            self.resume()
        if self._process is not None:
            self._tell(STOP)

    def ends_within(self, seconds: float) -> bool:
        if self._process is None:
            return True
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(seconds, 0))
        return self._process.poll() is not None

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(OSError):  # It has ended.
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _signal(self, number: signal.Signals) -> None:
        """To its process group: a Java client has two processes."""
        if self.is_running:
            assert self._process is not None
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _said(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-SAID_CHARS:]
