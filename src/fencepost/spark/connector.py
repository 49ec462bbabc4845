"""Spark's own Kafka source: four jars that PySpark does not include, and where to get them.

    builder = SparkSession.builder
    for name, value in connector_conf().items():
        builder = builder.config(name, value)

The jars come from the folder FENCEPOST_SPARK_KAFKA_JARS, or from the folder that `make setup` fills in a checkout. If
neither has them, Spark fetches them when the session starts. Jobs that read from Kafka need them; the sink does not.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

JARS_VARIABLE = "FENCEPOST_SPARK_KAFKA_JARS"
CONNECTOR = "spark-sql-kafka-0-10_2.13"
# The only version of the 4.0 line whose jars are all published, and the PySpark that it is tested with.
CONNECTOR_VERSION = "4.0.0"
TESTED_PYSPARK = "4.0.5"


def connector_version() -> str:
    """The version for the installed PySpark. The connector uses internals of Spark, which change in minor versions."""
    try:
        pyspark = version("pyspark")
    except PackageNotFoundError:
        return CONNECTOR_VERSION
    return CONNECTOR_VERSION if pyspark.startswith("4.0.") else pyspark


def connector_jars() -> list[Path] | None:
    """The connector's jars on this machine. None if there are none and Spark has to fetch them.

    Raises FileNotFoundError if FENCEPOST_SPARK_KAFKA_JARS names a folder without them.
    """
    if named := os.environ.get(JARS_VARIABLE):
        found = _jars_in(Path(named))
        if found is None:
            raise FileNotFoundError(f"{JARS_VARIABLE}={named} holds no {CONNECTOR}-*.jar")
        return found
    checkout = Path(__file__).resolve().parents[3]
    return _jars_in(checkout / ".tools" / "jars" / f"spark-kafka-{connector_version()}")


def connector_conf() -> dict[str, str]:
    """The configuration that makes `format("kafka")` known to a Spark session."""
    jars = connector_jars()
    if jars is None:
        return {"spark.jars.packages": f"org.apache.spark:{CONNECTOR}:{connector_version()}"}
    return {"spark.jars": ",".join(map(str, jars))}


def _jars_in(folder: Path) -> list[Path] | None:
    return sorted(folder.glob("*.jar")) if any(folder.glob(f"{CONNECTOR}-*.jar")) else None
