"""A pytest plugin: what takes the processor's time. Times on the wall say little where several tests run at once.

    .venv/bin/python -m pytest -p tests.cpu_times -n 5 --dist loadfile -m "not engines" tests/e2e

At the end it lists the files and tests with the most CPU time, of the test's own process and of all that it started.
What a test leaves to others, such as a broker of its session, counts where it is used. A process that lost its parent
does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import psutil
import pytest

MOST = 40
CPU_S = "cpu_s"


def used_s() -> float:
    """The CPU time of this process, of its children, and of those of them that have ended."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:  # It ended meanwhile.
            continue
    return total


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    item.stash[_BEGAN] = used_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    now = used_s()
    # The worker's reports reach the process that prints them with these.
    report.user_properties = [*report.user_properties, (CPU_S, now - item.stash[_BEGAN])]
    item.stash[_BEGAN] = now
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == CPU_S:
                    files[report.nodeid.partition("::")[0]] += value
                    tests[report.nodeid] += value
    for title, found in (("files", files), ("tests", tests)):
        terminalreporter.section(f"{title} with the most CPU time, of {sum(found.values()):.0f} s")
        for name, cpu_s in found.most_common(MOST):
            terminalreporter.write_line(f"{cpu_s:8.1f} s  {name}")


_BEGAN = pytest.StashKey[float]()
