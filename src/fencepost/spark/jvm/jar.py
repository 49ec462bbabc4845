"""Where the jar is, and how a Spark session gets it.

    from fencepost.spark import configure
    spark = configure(SparkSession.builder).getOrCreate()

Spark loads the jar when it starts. A session that already runs cannot get it any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SINK_CLASS = "fencepost.spark.LeasedSink"
JARS = "spark.jars"


def jar_path() -> Path:
    """Raises FileNotFoundError if this is a checkout in which the jar was not built."""
    path = Path(__file__).with_name("fencepost-spark.jar")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing\n\nhint: `make setup` builds it where there is Java 17 or later")
    return path


def configure(builder: Any) -> Any:
    """Add the jar to a SparkSession builder, next to the jars that it has. With spark-submit, use `--jars` instead."""
    jar = str(jar_path())
    # PySpark's builder has no question for what it was told.
    jars = [given for given in str(getattr(builder, "_options", {}).get(JARS, "")).split(",") if given]
    return builder.config(JARS, ",".join([*jars, *([jar] if jar not in jars else [])]))
