"""Runs the guide's lines about Avro: `avro_job.py JAR GUIDE`. Prints the values as hexadecimal numbers."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path


def main(jar: str, guide: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import struct

    builder = SparkSession.builder.master("local[1]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    section = Path(guide).read_text().partition("## Avro with a schema registry")[2]
    refunds = spark.createDataFrame([("k", "r-1", 1999), ("k", "", -1)], "key string, id string, cents long")
    names = {"refunds": refunds, "struct": struct}
    for block in re.findall(r"```py\n(.*?)```", section, re.DOTALL):
        exec(block, names)
    for row in names["rows"].collect():  # type: ignore[attr-defined]
        print("value", row["key"], bytes(row["value"]).hex())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
