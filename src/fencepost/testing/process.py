"""The child process of a `Broker`: started, listened to, given orders, and waited for.

It ends when its parent ends, in whatever way, because its stdin ends then. It says on stdout when it is ready. Orders
and answers are JSON, one line each, over stdin and stdout. Its log is what it writes to stderr.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import threading
import time
from typing import IO, Any

from fencepost.child import child_environment, start_whole
from fencepost.testing.faults import OrderRefused

STOP_TIMEOUT_S = 30.0
ORDER_TIMEOUT_S = 30.0
LOG_TAIL_CHARS = 4000


class BrokerFailed(Exception):
    """The broker did not start, ended unexpectedly, or did not stop cleanly."""


class BrokerProcess:
    """One process at a time; `log` is that of all of them. `child` is None before the first and after each."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.stderr: IO[bytes]
        self._exit_code: int | None = None
        self._log_before = ""  # The log of the processes that have ended.
        self._one_order_at_a_time = threading.Lock()
        self._one_lets_go = threading.Lock()
        self._unanswered = ""  # The order whose answer has not arrived.
        self._heard = b""  # From the broker's stdout: the beginning of a line.

    @property
    def is_running(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def running(self) -> subprocess.Popen[bytes]:
        if self.child is None:
            raise BrokerFailed("the broker is not running")
        return self.child

    @property
    def log(self) -> str:
        return self._log_before if self.child is None else self._log_before + self._log_now()

    @property
    def log_tail(self) -> str:
        return self.log[-LOG_TAIL_CHARS:] or "It wrote nothing to stderr."

    def _log_now(self) -> str:
        fd = self.stderr.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    # --- its life -----------------------------------------------------------------------------------------

    def start(self, command: list[str]) -> None:
        assert not self.is_running, f"the broker is running already, as process {self.running().pid}"
        if self.child is not None:
            self.let_go()  # It ended by itself.
        # A file, not a pipe: a full pipe would block the broker.
        self.stderr = tempfile.TemporaryFile(prefix="fencepost-broker-")  # noqa: SIM115
        self.child = start_whole(
            lambda: subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
                env=child_environment(),
                # Ctrl-C in a terminal is for the test run, which then stops its brokers cleanly.
                process_group=0,
            )
        )

    def await_ready(self, timeout_s: float) -> dict[str, str]:
        """Wait until clients can connect; return HOST:PORT of each listener by its name, of several nodes the first."""
        said = self._next_line(timeout_s, "not ready")
        word, _, addresses = said.partition(" ")
        assert word == "ready", f"the broker said {said!r}"
        found: dict[str, str] = {}
        for text in addresses.split(","):
            name, _, address = text.rpartition("://")
            found.setdefault(name or "PLAINTEXT", address)
        return found

    def wait(self, timeout_s: float) -> int:
        """Wait until it has ended; return its exit code, at once if it has ended already."""
        if self.child is None:
            assert self._exit_code is not None, "the broker was never started"
            return self._exit_code
        try:
            exit_code = self.child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BrokerFailed(f"process {self.child.pid} still runs after {timeout_s} s\n{self.log_tail}") from None
        self.let_go()
        return exit_code

    def kill(self) -> None:
        """SIGKILL, and wait until it has ended. Does nothing if it has ended already."""
        child = self.child
        if child is None:
            return
        child.kill()
        child.wait()
        with self._one_lets_go:
            if self.child is child:  # Another thread may have killed it at the same time.
                self.let_go()

    def let_go(self) -> None:
        """It has ended and was waited for: keep its log, close our ends of its pipes."""
        child = self.running()
        assert child.returncode is not None
        self._log_before += self._log_now()
        self.stderr.close()
        self.child = None
        self._unanswered, self._heard = "", b""
        self._exit_code = child.returncode
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.close()
        child.stdout.close()

    # --- orders -------------------------------------------------------------------------------------------

    def order(self, order: str, **given: Any) -> Any:
        """Send an order to the broker and return its answer. Raises OrderRefused if it cannot be carried out."""
        with self._one_order_at_a_time:
            child = self.running()
            assert child.stdin is not None
            if self._unanswered:
                # An earlier order had no answer in time. Its answer comes before ours.
                self._next_line(ORDER_TIMEOUT_S, f"{order} has to wait: no answer to {self._unanswered}")
                self._unanswered = ""
            try:
                os.write(child.stdin.fileno(), json.dumps({"order": order, **given}).encode() + b"\n")
            except BrokenPipeError:
                exit_code = child.wait(STOP_TIMEOUT_S)
                raise BrokerFailed(f"the broker has ended with exit code {exit_code}\n{self.log_tail}") from None
            self._unanswered = order
            answer = json.loads(self._next_line(ORDER_TIMEOUT_S, f"no answer to {order}"))
            self._unanswered = ""
        if "refused" in answer:
            raise OrderRefused(answer["refused"])
        return answer["result"]

    def _next_line(self, timeout_s: float, otherwise: str) -> str:
        """The next line that the broker writes to stdout."""
        child = self.running()
        assert child.stdout is not None
        ready = select.poll()
        ready.register(child.stdout, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            if not ready.poll(max(deadline - time.monotonic(), 0) * 1000):
                raise BrokerFailed(f"{otherwise} after {timeout_s} s\n{self.log_tail}")
            chunk = os.read(child.stdout.fileno(), 4096)
            if not chunk:
                exit_code = child.wait(STOP_TIMEOUT_S)
                raise BrokerFailed(f"the broker ended with exit code {exit_code}\n{self.log_tail}")
            self._heard += chunk
        said, _, self._heard = self._heard.partition(b"\n")
        return said.decode().strip()
