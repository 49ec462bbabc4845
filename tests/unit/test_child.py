"""How the package starts Python programs as child processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from fencepost.child import start_whole

FOREVER = [sys.executable, "-c", "import signal; signal.pause()"]


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """SIGINT has Python's own handler, also if the tests run in the background, where a shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_during_the_start_of_a_process_leaves_no_process_behind() -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(FOREVER))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    with pytest.raises(KeyboardInterrupt):
        start_whole(start)
    assert started[0].poll() == -signal.SIGKILL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_can_be_started_from_any_thread() -> None:
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: started.append(start_whole(lambda: subprocess.Popen(FOREVER))))
    thread.start()
    thread.join()
    assert started[0].poll() is None
    started[0].kill()
    started[0].wait()


def test_a_process_that_cannot_be_started_is_an_error_and_signals_work_as_before() -> None:
    with pytest.raises(FileNotFoundError):
        start_whole(lambda: subprocess.Popen(["/nowhere"]))
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
