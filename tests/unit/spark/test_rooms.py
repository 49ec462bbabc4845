"""Which room of the sink may import which. Executors load `task` and what is below it, so that has to stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
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


def test_a_python_worker_needs_only_the_packages_that_the_guide_names() -> None:
    """Every module that the function of a task imports, now or when it runs, on a machine without other packages."""
    program = f"""
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        allowed = {sorted({"fencepost", "numpy", "pyarrow", "crc32c", "cramjam"})} + sorted(sys.stdlib_module_names)
        if name.split(".")[0] not in allowed and not name.startswith("_"):
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)

sys.meta_path.insert(0, Blocked())
import fencepost.spark.task, fencepost.spark.encode, fencepost.client, fencepost.protocol
for package in (fencepost.spark.task, fencepost.spark.encode):
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{{package.__name__}}.{{found.name}}")
from fencepost.client.transaction import ProducerIdentity
from fencepost.spark.lease.client import LeaseAddress, LeaseClient
from fencepost.client.client import KafkaClient
from fencepost.spark.encode.record_batches import encode_rows, finish_record_batch
import pyarrow as pa
rows = pa.table({{"key": ["a"] * 99, "value": ["b"] * 99}})
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    for batch in encode_rows(rows, topic="t", partition_count=lambda _: 2, now_ms=1, compression=codec):
        finish_record_batch(batch, ProducerIdentity("x", 1, 0), 0)
print(*sorted({{name.split(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = {name for name in done.stdout.split() if not name.startswith("_")}
    assert {"fencepost", "numpy", "pyarrow", "cramjam"} <= loaded
    assert not loaded & {"confluent_kafka", "uvloop", "rich", "click", "prometheus_client", "re2", "pandas", "pyspark"}


def test_the_extra_for_platforms_leaves_their_pyspark_alone() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert not any(name.startswith("pyspark") for name in [*project["dependencies"], *extras["spark"]])
    assert any(name.startswith("pyspark") for name in extras["spark-local"])


def test_a_task_loads_neither_the_driver_nor_an_event_loop() -> None:
    program = "import sys, fencepost.spark.task.run; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"asyncio", "pyspark", "fencepost.spark.sink", "fencepost.spark.driver"}
