"""A driver in a process of its own, to be killed: SERVERS TOPIC LINES CHECKPOINT REACHED.

It writes the lines of a folder to a topic, and in the second batch gets as far as making the file REACHED: one input
partition is written, the other is being computed, and nothing is committed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def main(servers: str, topic: str, folder: str, checkpoint: str, reached: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from fencepost.client.client import KafkaClient
    from fencepost.spark.sink import ExactlyOnceSink

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .getOrCreate()
    )

    def until_half_written() -> None:
        with KafkaClient({"bootstrap.servers": servers}) as client:
            while all(client.end_offset(topic, p, True) == client.end_offset(topic, p, False) for p in range(3)):
                time.sleep(0.02)

    def hesitate(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            if "file 4 line 0" in batch.column(0).to_pylist():
                until_half_written()
                Path(reached).touch()
                time.sleep(600)
            yield batch

    sink = ExactlyOnceSink({"bootstrap.servers": servers, "transactional.id": "driver", "topic": topic})
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(folder)
    slow = lines.mapInArrow(hesitate, "value string")
    writer = slow.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
