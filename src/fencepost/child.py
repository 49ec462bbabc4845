"""How to start Python programs of this package as child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import AnyStr


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs `module`. With -P, it imports nothing from the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def start_module(module: str, *arguments: str) -> subprocess.Popen[str]:
    """A child that hears and answers in lines. Ctrl-C in a terminal reaches only its parent, which has to end it."""
    return start_whole(
        lambda: subprocess.Popen(
            python_module(module, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=child_environment(),
            process_group=0,
        )
    )


def child_environment() -> dict[str, str]:
    """An environment in which the child imports the same `fencepost`, also if it is on `sys.path` and not installed."""
    root = str(Path(__file__).resolve().parents[1])
    environment = dict(os.environ)
    if root != sysconfig.get_path("purelib"):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    return environment


def start_whole(start: Callable[[], subprocess.Popen[AnyStr]]) -> subprocess.Popen[AnyStr]:
    """The process that `start` starts. If a signal such as Ctrl-C interrupts this, the process is killed again.

    An interrupted Popen alone can leave a process behind, and no variable that holds it.
    """
    started: list[subprocess.Popen[AnyStr]] = []
    try:
        with _signals_held():
            started.append(start())
        return started[0]
    except BaseException:
        for process in started:
            process.kill()
            process.communicate()
        raise


@contextmanager
def _signals_held() -> Iterator[None]:
    """The handlers of signals that arrive in the block run at its end. Only the main thread has handlers."""
    held: list[int] = []
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # A signal that is ignored, or that ends the process at once, keeps its effect.
                if callable(signal.getsignal(each)):
                    before[each] = signal.signal(each, lambda number, _: held.append(number))
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in held[:1]:
            signal.raise_signal(number)
