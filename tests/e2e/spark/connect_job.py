"""A client of Spark Connect in a process of its own: REMOTE FOLDER CHECKPOINT SETTINGS [REACHED] [PARTITIONS] [WHERE].

SETTINGS are JSON. It writes the lines of a folder to a topic until there are no more. If the query fails, it prints
the error and exits with code 1. With REACHED it stops the query in the middle of a micro-batch: after one input
partition is written, when the other creates that file. With PARTITIONS there is a shuffle before the writes:
in the function, or with WHERE=stream before foreachBatch. With WHERE=broken too, and the first attempt is broken.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main(
    remote: str, folder: str, checkpoint: str, settings: str, reached: str = "", partitions: str = "", where: str = ""
) -> int:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    from fencepost.spark.sink import BatchBroken, ExactlyOnceSink

    spark = SparkSession.builder.remote(remote).getOrCreate()
    given = json.loads(settings)
    sink = ExactlyOnceSink(given)

    @sink.batch
    def write(frame, transaction):  # type: ignore[no-untyped-def]
        if partitions and not where:
            frame = frame.repartition(int(partitions), "value")
        if not reached:  # It waits for a write of another input partition, so it must not compute them all first.
            frame = transaction.compute_once(frame)
        transaction.write(frame)
        transaction.write(frame.selectExpr("upper(value) AS value"))
        if where == "broken":
            raise BatchBroken("as if a task were lost")

    def hesitate(batches):  # type: ignore[no-untyped-def]
        from fencepost.client.admin.partitions import end_offset
        from fencepost.client.client import KafkaClient

        servers, topic = given["bootstrap.servers"], given["topic"]
        for batch in batches:
            if "file 2 line 0" in batch.column(0).to_pylist():
                with KafkaClient({"bootstrap.servers": servers}) as client:
                    while not sum(end_offset(client, topic, p, read_committed=False) for p in range(2)):
                        time.sleep(0.02)
                Path(reached).touch()
                time.sleep(60)
            yield batch

    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(folder)
    if where:
        lines = lines.repartition(int(partitions), "value")
    if reached:
        lines = lines.mapInArrow(hesitate, "value string")
    writer = lines.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    try:
        while reached and not Path(reached).exists():
            if query.awaitTermination(1):
                return 1
        if reached:
            query.stop()
        else:
            query.awaitTermination()
    except StreamingQueryException as e:
        print(e)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
