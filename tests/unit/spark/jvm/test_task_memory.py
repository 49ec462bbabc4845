"""The record batches of a task in Spark's JVM: bounded in memory, which is used again, and early for an idle sender."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from fencepost.spark.jvm.jar import jar_path
from tests.engines.java import run_java

pytestmark = [pytest.mark.java, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("TaskMemory.java")
# With a heap of 256 MB: what ADR 9 allows record batches that grow, and a sixteenth of the heap for free buffers.
OPEN_MB, FREE_MB = 16, 16


class Measured(NamedTuple):
    held: int  # Megabytes at the end of the rows.
    allocated: int  # Megabytes.
    record_batches: int
    early: int  # Record batches that the sender got before the last row.


def measure(partitions: int, hot: int, rows: int, *, is_idle: bool = False) -> Measured:
    """is_idle: whether the sender has nothing else to do."""
    pyspark = pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    try:
        class_path = [str(jar_path()), str(Path(pyspark.__file__).parent / "jars" / "*")]
    except FileNotFoundError as e:
        pytest.skip(str(e))
    # Spark uses a class of Java that Java hides.
    opened = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    arguments = map(str, (partitions, hot, rows, is_idle))
    said = run_java(PROGRAM, *arguments, options=opened, class_path=os.pathsep.join(class_path))
    return Measured(*map(int, said.split()))


@pytest.mark.parametrize(("partitions", "hot"), [(400, 10), (400, 400), (20_000, 10)])
def test_a_task_holds_as_much_as_it_may_whatever_the_number_of_partitions_and_their_share(
    partitions: int, hot: int
) -> None:
    assert measure(partitions, hot, rows=400_000).held <= OPEN_MB + FREE_MB + 8, (
        "and some for the objects of the partitions"
    )


@pytest.mark.parametrize("partitions", [18, 48, 400])
def test_the_record_batches_of_many_partitions_are_large_enough_for_the_memory(partitions: int) -> None:
    share = (OPEN_MB << 20) / partitions
    assert measure(partitions, partitions, rows=400_000).record_batches < 400_000 * 1100 / share + 2 * partitions


def test_a_task_that_fills_its_record_batches_uses_their_buffers_again() -> None:
    found = measure(partitions=4, hot=4, rows=400_000)
    assert found.record_batches < 400_000 * 1100 // 1_000_000, "they are as large as they may be"
    assert found.allocated <= 16


def test_a_sender_that_has_nothing_to_do_gets_record_batches_before_they_are_full() -> None:
    rows = 2400  # Of 1 KiB: 400 KB for each partition, of the megabyte that it may have.
    assert measure(partitions=6, hot=6, rows=rows).early == 0
    idle = measure(partitions=6, hot=6, rows=rows, is_idle=True)
    assert idle.early == 18, "three of at least 128 KiB for each partition"
    assert idle.record_batches <= 24


def test_early_record_batches_go_together_so_that_a_broker_adds_their_partitions_at_once() -> None:
    # At row 4,160 the task looks at its sender. Two partitions have 127 rows then, and thus 128 KiB; the others 126.
    assert measure(partitions=33, hot=33, rows=4161, is_idle=True).early == 33
