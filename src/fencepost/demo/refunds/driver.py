"""Runs the job in its own process. The demo reads its events, lets it continue, and kills it with all its children."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from fencepost.child import child_environment, python_module, start_whole
from fencepost.demo.refunds.job import JobPlan
from fencepost.demo.report import DemoFailed
from fencepost.spark.connector import JARS_VARIABLE

JOB = "fencepost.demo.refunds.job"
Event = Mapping[str, Any]
# Long, because Spark may have to download its Kafka source first.
SILENCE_S = 300.0
TICK_S = 0.1
GONE_S = 20.0
LOG_LINES = 15
_UNRESOLVED = re.compile(r"unresolved dependency: (org\.apache\.spark#spark-sql-kafka\S*?):? ")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Refused|Broken|Fenced): .*", re.MULTILINE)


class Driver:
    """The `with` block starts the process. The end of the block kills the process and all its children.

    module: the program.
    """

    def __init__(
        self,
        plan: JobPlan,
        java_home: Path,
        log: Path,
        hear: Callable[[Event], None] = lambda event: None,
        tick: Callable[[], None] = lambda: None,
        module: str = JOB,
    ) -> None:
        self.plan = plan
        self._java_home = java_home
        self._log = log
        self._module = module
        self._hear, self._tick = hear, tick
        self._said: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Driver:
        self._process = start_whole(self._start)
        try:
            threading.Thread(target=self._listen, daemon=True).start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def await_event(self, *names: str) -> Event:
        """The next event with one of these names. Raises DemoFailed if the job ends or stops reporting."""
        deadline = time.monotonic() + SILENCE_S
        while time.monotonic() < deadline:
            event = self.next_event(TICK_S)
            if event is None:
                continue
            if event["event"] in names:
                return event
            if event["event"] == "ended":
                raise self.failed(event)
            deadline = time.monotonic() + SILENCE_S
        raise DemoFailed(f"the Spark job has reported nothing for {SILENCE_S:g} s", self._end_of_log())

    def next_event(self, timeout_s: float) -> Event | None:
        """The next event of the job, `ended` after the job has ended, or None after the timeout."""
        self._tick()
        try:
            line = self._said.get(timeout=timeout_s)
        except queue.Empty:
            return None
        event: Event = {"event": "ended", "exit_code": self._process.wait(GONE_S)} if line is None else json.loads(line)
        self._hear(event)
        return event

    def await_end(self) -> None:
        """Wait until the job has read all settlements and has ended without an error."""
        self.await_event("finished")
        while (event := self.await_event("ended", "batch"))["event"] != "ended":
            pass
        if event["exit_code"] != 0:
            raise self.failed(event)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # The job has ended; the next event reports it.
            self._process.stdin.write(b"go on\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """Send SIGKILL to Python and its JVM, and wait until their workers have ended too."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        deadline = time.monotonic() + GONE_S
        while left := processes_of_session(self._process.pid):
            if time.monotonic() > deadline:
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = child_environment() | {"JAVA_HOME": str(self._java_home), "TMPDIR": self.plan.scratch}
        if self.plan.master.startswith("local"):
            # Otherwise Spark resolves the host name, which may have no address.
            environment = {"SPARK_LOCAL_IP": "127.0.0.1", **environment}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                python_module(self._module, self.plan.encode()),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                # The JVM is in the same process group, and the Python workers are in the same session.
                start_new_session=True,
            )

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line.decode())
        self._said.put(None)

    def failed(self, event: Event) -> DemoFailed:
        """The exception for a job that `ended` too early."""
        problem, hint = explain(self._log.read_text(errors="replace"))
        return DemoFailed(
            f"run {self.plan.run} of the Spark job ended with exit code {event['exit_code']}: {problem}", hint
        )

    def _end_of_log(self) -> str:
        return explain(self._log.read_text(errors="replace"))[1]


def explain(log: str) -> tuple[str, str]:
    """The reason why the job ended, according to its log, and a hint for the user."""
    if found := _UNRESOLVED.search(log):
        hint = (
            "the Kafka source must have the same version as PySpark, and version 4.0 is published: pip install "
            f"'pyspark==4.0.*'; or download the jars, and set {JARS_VARIABLE} to their folder"
        )
        return f"Spark cannot fetch its Kafka source, {found[1]}", hint
    sentences = _EXCEPTION.findall(log)
    lines = log.strip().splitlines()[-LOG_LINES:]
    return (
        sentences[-1] if sentences else "its log does not say why",
        "the end of its log:\n" + "\n".join(f"  {line}" for line in lines),
    )


def processes_of_session(session_id: int) -> list[int]:
    """The running processes of a session, without zombies."""
    if Path("/proc/self/stat").exists():
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_in_session(pid, session_id)]
    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=False).stdout
    pairs = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, state in pairs if not state.startswith("Z") and _session_of(int(pid)) == session_id]


def _is_in_session(pid: int, session_id: int) -> bool:
    try:
        # The process name may contain any character. The fields after it: state, parent, group, session.
        state, _, _, session, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    return int(session) == session_id and state != "Z"


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
