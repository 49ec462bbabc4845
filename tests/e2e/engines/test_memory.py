"""The memory of a task does not grow with the frame, nor with the number of partitions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from fencepost.child import child_environment
from fencepost.testing import Broker
from tests.e2e.spark.streams import create_topic, written
from tests.engines.java import java_home

pytestmark = pytest.mark.timeout(300)

ROWS, ROW_BYTES, PARTITIONS = 2_000_000, 1024, 400
HEAP_MB = 480  # Spark refuses less than 450.

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from fencepost.spark import configure
servers, topic, rows, row_bytes, heap, *partition = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", heap)
builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
spark = configure(builder).getOrCreate()
columns = ["cast(id AS string) AS key", f"rpad('', {row_bytes}, 'x') AS value", *partition]
frame = spark.range(0, int(rows), 1, 2).selectExpr(*columns)
write = frame.write.format("fencepost").mode("append").option("kafka.bootstrap.servers", servers)
write.option("transactional.id", topic).option("topic", topic).save()
spark.stop()
"""
# Ten partitions get 39 of 40 rows.
SKEWED = f"cast(if(id % 40 = 0, 10 + id div 40 % ({PARTITIONS} - 10), id % 10) AS int) AS partition"


@pytest.mark.usefixtures("needs_spark")
@pytest.mark.parametrize("partition", [[], [SKEWED]], ids=["by key", "skewed"])
def test_two_tasks_write_a_frame_of_four_times_the_memory_to_hundreds_of_partitions(
    broker: Broker, unique: Callable[[str], str], partition: list[str]
) -> None:
    assert ROWS * ROW_BYTES > 4 * HEAP_MB * 2**20
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("memory"), PARTITIONS)
    program = [sys.executable, "-c", PROGRAM, servers, topic, str(ROWS), str(ROW_BYTES), f"{HEAP_MB}m", *partition]
    environment = child_environment() | {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=280, check=False)

    assert done.returncode == 0, done.stderr[-6000:]
    assert written(servers, topic) == ROWS + PARTITIONS, "every row, and a marker in every partition"
