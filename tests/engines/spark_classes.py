"""Loads the classes of Spark that the tests of the sink need, for `class_archive.py`.

    python -m tests.engines.spark_classes JVM_OPTION...

A small query of each kind: a shuffle, a cache, Python workers, and a stream with a function for its micro-batches.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def same(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def read(rows: Iterator[Any]) -> None:
    list(rows)


def main() -> None:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", " ".join(sys.argv[1:]))
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    gateway: Any = session.sparkContext._gateway
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "input").mkdir()
        (Path(folder) / "input" / "rows.txt").write_text("a\nb\n")
        counted = session.range(100).selectExpr("cast(id % 3 as string) as value").groupBy("value").count().persist()
        counted.select("value").mapInArrow(same, "value string").collect()
        counted.rdd.map(tuple).collect()
        counted.unpersist()
        lines = session.readStream.text(f"{folder}/input")
        query = (
            lines.groupBy("value")
            .count()
            .writeStream.outputMode("update")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .foreachBatch(lambda frame, _: frame.foreachPartition(read))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        session.stop()
    # The JVM ends with its stdin, and writes the archive then.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()
