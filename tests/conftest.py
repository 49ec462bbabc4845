"""Which tests may run side by side with `--dist loadfile`: those of different files, and those with Spark never.

The tests of a file share what it starts. All tests with Spark share one, and several at once would starve each other.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

SPARK = ("tests/e2e/spark/", "tests/e2e/test_refunds.py")


class ByFile(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if file.startswith(SPARK) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None
