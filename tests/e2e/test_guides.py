"""The guides: every block of Python in them is run, as a user would who copies it.

A block that begins with `# name.py` is a file which the others import; the rest are tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.test_testing import run_pytest

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


@pytest.mark.parametrize(
    ("guide", "tests"),
    [
        ("consume-process-produce", 4),
        ("faults", 6),
        ("timeouts", 1),
        ("transactional-ids", 2),
        ("when-transactions", 3),
    ],
)
def test_the_examples_of_a_guide_run(guide: str, tests: int, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (GUIDES / f"{guide}.md").read_text(), re.MULTILINE | re.DOTALL)
    for n, block in enumerate(blocks):
        named = re.match(r"# (\w+\.py)\n", block)
        (tmp_path / (named[1] if named else f"test_guide_{n}.py")).write_text(block)
    done = run_pytest(tmp_path, "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout
