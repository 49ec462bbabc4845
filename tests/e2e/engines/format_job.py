"""The lines of a folder to a topic by `format("fencepost")`, with any version of PySpark.

    format_job.py SERVERS TOPIC LINES CHECKPOINT

Prints the version of PySpark, and number, outcome and records of each micro-batch, as JSON.
"""

from __future__ import annotations

import json
import os
import sys


def main(servers: str, topic: str, lines: str, checkpoint: str) -> None:
    stdout = os.dup(1)
    os.dup2(2, 1)  # Spark may print to stdout as well.
    import pyspark
    from pyspark.sql import SparkSession

    from fencepost.spark import configure

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    )
    spark = configure(builder).getOrCreate()
    query = (
        spark.readStream.format("text")
        .option("maxFilesPerTrigger", 2)
        .load(lines)
        .writeStream.format("fencepost")
        .option("kafka.bootstrap.servers", servers)
        .option("transactional.id", topic)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ended = [(p["batchId"], p["sink"]["metrics"]) for p in (json.loads(p.json) for p in query.recentProgress)]
    spark.createDataFrame([("of a frame",)], "value string").write.format("fencepost").mode("append").options(
        **{"kafka.bootstrap.servers": servers, "transactional.id": f"{topic}-frame", "topic": topic, "token": "once"}
    ).save()
    outcomes = [[batch_id, metrics["outcome"], int(metrics["records"])] for batch_id, metrics in ended]
    os.write(stdout, json.dumps({"pyspark": pyspark.__version__, "outcomes": outcomes}).encode())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
