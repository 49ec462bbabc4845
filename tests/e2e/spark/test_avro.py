"""The deployment guide's lines for Avro with a schema registry: the bytes that a reader of the registry expects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.java import OLDEST_JAVA, java_home

pytestmark = [pytest.mark.java, pytest.mark.engines]
ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs" / "guides" / "spark-deployment.md"


def test_a_value_begins_with_a_zero_and_the_number_of_its_schema() -> None:
    pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    if java_home() is None:
        pytest.skip(f"no Java {OLDEST_JAVA} or newer; `make setup` says how to get one")
    jars = sorted((ROOT / ".tools" / "jars").glob("spark-avro-*/spark-avro_*.jar"))
    if not jars:
        pytest.skip("no jar of spark-avro; `make test-engines` fetches it")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("avro_job.py"), jars[0], GUIDE],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "JAVA_HOME": str(java_home())},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = [bytes.fromhex(line.split()[2]) for line in done.stdout.splitlines() if line.startswith("value k")]
    # Avro: a text is its length and its bytes, a number is a zigzag varint; 1999 is 3998, which is 0x9e 0x1f.
    assert found == [b"\x00\x00\x00\x00\x2a" + b"\x06r-1" + b"\x9e\x1f", b"\x00\x00\x00\x00\x2a" + b"\x00" + b"\x01"]
