"""A program that ends with its query, without `spark.stop()`: `ending_job.py SERVERS TOPIC LINES CHECKPOINT`."""

from __future__ import annotations

import os
import sys


def main(servers: str, topic: str, lines: str, checkpoint: str) -> None:
    from pyspark.sql import SparkSession

    from fencepost.spark import configure

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = configure(builder.config("spark.driver.host", "127.0.0.1")).getOrCreate()
    writer = spark.readStream.format("text").load(lines).writeStream.format("fencepost")
    writer = writer.option("kafka.bootstrap.servers", servers).option("transactional.id", topic).option("topic", topic)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    os._exit(0)  # At once, before Spark can report the end of the query.


if __name__ == "__main__":
    main(*sys.argv[1:])
