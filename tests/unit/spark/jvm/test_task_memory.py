"""The memory of a task in Spark's JVM: bounded however the rows are spread, and used again for later rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fencepost.spark.jvm.jar import jar_path
from tests.engines.java import run_java

pytestmark = [pytest.mark.java, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("TaskMemory.java")
# With a heap of 256 MB: what ADR 9 allows record batches that grow, and a sixteenth of the heap for free buffers.
OPEN_MB, FREE_MB = 16, 16


def measure(partitions: int, hot: int, rows: int) -> tuple[int, int, int]:
    """Megabytes held at the end of the rows, megabytes allocated for them, and the number of record batches."""
    pyspark = pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    try:
        class_path = [str(jar_path()), str(Path(pyspark.__file__).parent / "jars" / "*")]
    except FileNotFoundError as e:
        pytest.skip(str(e))
    # Spark uses a class of Java that Java hides.
    opened = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    said = run_java(PROGRAM, *map(str, (partitions, hot, rows)), options=opened, class_path=os.pathsep.join(class_path))
    held, allocated, record_batches = map(int, said.split())
    return held, allocated, record_batches


@pytest.mark.parametrize(("partitions", "hot"), [(400, 10), (400, 400), (20_000, 10)])
def test_a_task_holds_as_much_as_it_may_whatever_the_number_of_partitions_and_their_share(
    partitions: int, hot: int
) -> None:
    held, _, _ = measure(partitions, hot, rows=400_000)
    assert held <= OPEN_MB + FREE_MB + 8, "and some for the objects of the partitions"


@pytest.mark.parametrize("partitions", [18, 48, 400])
def test_the_record_batches_of_many_partitions_are_large_enough_for_the_memory(partitions: int) -> None:
    _, _, record_batches = measure(partitions, partitions, rows=400_000)
    share = (OPEN_MB << 20) / partitions
    assert record_batches < 400_000 * 1100 / share + 2 * partitions


def test_a_task_that_fills_its_record_batches_uses_their_buffers_again() -> None:
    _, allocated, record_batches = measure(partitions=4, hot=4, rows=400_000)
    assert record_batches < 400_000 * 1100 // 1_000_000, "they are as large as they may be"
    assert allocated <= 16
