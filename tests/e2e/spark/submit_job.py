"""A job for spark-submit: `submit_job.py SETTINGS`, the sink's as JSON. Checks the pipeline, then writes once."""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    from pyspark.sql import SparkSession

    from fencepost.spark import ExactlyOnceSink, check, configure

    spark = configure(SparkSession.builder.getOrCreate())
    settings = json.loads(sys.argv[1])
    print(check(spark, settings, tasks=8))
    sink = ExactlyOnceSink(settings)
    assert sink.write(spark.range(0, 400, 1, 4).selectExpr("cast(id AS string) AS value")) == 400
    sink.close()
    spark.stop()
