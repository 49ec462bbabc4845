"""A pytest plugin: librdkafka's lines about lost brokers do not reach the terminal between the dots of pytest-xdist.

A client may outlive its broker, and its threads then write `%3|...|FAIL|...` to stderr, which looks like a failed test.
During a test pytest captures stderr, so the report of a failed test still has these lines.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator

import pytest

_kept: list[subprocess.Popen[bytes]] = []
LINE = r"^%[0-7]\|[0-9.]+\|[A-Z]+\|.*#(producer|consumer)-[0-9]+\|"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests() -> Generator[None, None, None]:
    """Before pytest's own capture, which keeps the stderr that it finds."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        # A process of its own, and in a group of its own: it outlives a crash and Ctrl-C, and passes on what they say.
        command = ("grep", "--extended-regexp", "--line-buffered", "--invert-match", LINE)
        passing_on = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, process_group=0)
        assert passing_on.stdin is not None
        os.dup2(passing_on.stdin.fileno(), 2)
        passing_on.stdin.close()
        _kept.append(passing_on)
    return (yield)
