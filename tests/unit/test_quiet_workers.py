"""What the workers of `make test` write to the terminal between two tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OVER = "%3|1795135299.715|FAIL|billing#producer-14| [thrd:127.0.0.1:1/bootstrap]: Connection refused"
PROGRAM = f"""
import atexit
import os


def test_it():
    os.write(2, b"in the test {LEFT_OVER}\\n{LEFT_OVER}\\n")
    atexit.register(os.write, 2, b"{LEFT_OVER}\\nFatal Python error: what a crash says\\n")
    assert False
"""


def test_a_worker_leaves_out_lines_of_librdkafka_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "test_left_over.py").write_text(PROGRAM)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.quiet_workers", "-n", "1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        (*command, "--rootdir", tmp_path, tmp_path), cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert "1 failed" in done.stdout
    assert f"\n{LEFT_OVER}\n" in done.stdout, "what the test captured"
    assert done.stderr.splitlines() == ["Fatal Python error: what a crash says"]
