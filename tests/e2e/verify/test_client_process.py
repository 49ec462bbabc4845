"""The process of a client of `fencepost verify cluster`: how it is told to end, and what it does without its parent."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fencepost.child import child_environment, python_module
from fencepost.verify.workload.child import STOP
from fencepost.verify.workload.plan import ClientPlan
from fencepost.verify.workload.process import MODULE

TIMEOUT_S = 60.0


def started(part: Path) -> subprocess.Popen[str]:
    """A reader of a cluster that is not there."""
    plan = ClientPlan("reader", "reader", "fencepost", topics={"orders": 1}, isolation="read_committed")
    given = {
        "client": plan.document(),
        "settings": {"bootstrap.servers": "127.0.0.1:1"},
        "seed": 1,
        "part": str(part),
    }
    client = subprocess.Popen(
        python_module(MODULE), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment()
    )
    assert client.stdin is not None
    client.stdin.write(json.dumps(given) + "\n")
    client.stdin.flush()
    return client


@pytest.mark.parametrize(("last_line", "exit_code"), [(f"{STOP}\n", 0), ("", 1)], ids=["told to stop", "parent died"])
def test_a_client_ends_when_it_is_told_to_and_when_its_parent_dies(
    last_line: str, exit_code: int, tmp_path: Path
) -> None:
    client = started(tmp_path / "reader.part")
    _, said = client.communicate(last_line, timeout=TIMEOUT_S)
    assert (client.returncode, said) == (exit_code, "")
