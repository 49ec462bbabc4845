"""Which tests may run side by side (`--dist loadgroup`): files, but those with Spark one after another.

The tests of a file share what it starts. All tests with Spark share one, and several at once would starve each other.
"""

from __future__ import annotations

import pytest

SPARK = ("tests/e2e/spark/", "tests/e2e/test_refunds.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        file = item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group("spark" if file.startswith(SPARK) else file))
