"""Every block of Python in the guides runs as it is, copied into a file.

A block that begins with `# name.py` is a file that the others import; the rest are tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.test_testing import run_pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"


def blocks_of(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


# Each guide with the number of its tests.
COUNTS = {
    "consume-process-produce": 4,
    "failover": 1,
    "faults": 6,
    "tap": 1,
    "timeouts": 1,
    "transactional-ids": 2,
    "when-transactions": 3,
}
# Guides whose blocks other files run: tests/e2e/test_testing.py, tests/e2e/test_moving.py and the Spark sink's tests.
ELSEWHERE = {"testing", "spark", "moving-to-apache-kafka"}


def test_no_guide_with_python_is_left_out() -> None:
    assert {page.stem for page in GUIDES.glob("*.md") if blocks_of(page)} == {*COUNTS, *ELSEWHERE}


@pytest.mark.parametrize(("guide", "tests"), COUNTS.items())
def test_the_examples_of_a_guide_run(guide: str, tests: int, tmp_path: Path) -> None:
    for n, block in enumerate(blocks_of(GUIDES / f"{guide}.md")):
        named = re.match(r"# (\w+\.py)\n", block)
        (tmp_path / (named[1] if named else f"test_guide_{n}.py")).write_text(block)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout


def test_the_test_in_the_readme_runs(tmp_path: Path) -> None:
    [block] = [block for block in blocks_of(ROOT / "README.md") if "def test_" in block]
    (tmp_path / "test_readme.py").write_text(block)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
