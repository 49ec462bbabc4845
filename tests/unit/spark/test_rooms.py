"""Which room of the sink may import which. Executors load `task` and what is below it, so that has to stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "src"
SPARK = SOURCE / "fencepost" / "spark"

# The modules beside `sink.py`. `settings` checks a port and knows the default size of a record batch.
ON_TOP = {"sink", "settings", "failures", "connector"}
MAY_IMPORT: dict[str, set[str]] = {
    "failures": set(),
    "connector": set(),
    "encode": set(),
    "jvm": set(),
    "lease": set(),
    "checkpoint": {"failures"},
    "settings": {"encode", "lease"},
    "task": {"encode", "lease"},
    "driver": {"checkpoint", "failures", "jvm", "lease", "settings", "task"},
    "preflight": {"checkpoint", "driver", "lease", "settings", "task"},
    "sink": {"checkpoint", "driver", "failures", "settings"},
    "format": {"checkpoint", "driver", "failures", "jvm", "sink"},
}


def rooms_imported_by(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names if name.startswith("fencepost.spark.")]
    return {found[2] for found in parts}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    files = [SPARK / f"{room}.py"] if room in ON_TOP else sorted((SPARK / room).glob("*.py"))
    for path in files:
        assert rooms_imported_by(path) <= MAY_IMPORT[room] | {room}, path.name


def test_every_room_has_a_row() -> None:
    rooms = {path.name for path in SPARK.iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in SPARK.glob("*.py")} - {"__init__"}
    assert rooms | modules == MAY_IMPORT.keys()


def test_a_task_loads_neither_the_driver_nor_an_event_loop() -> None:
    program = "import sys, fencepost.spark.task.run; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"asyncio", "pyspark", "fencepost.spark.sink", "fencepost.spark.driver"}
