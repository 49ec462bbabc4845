"""Where Spark's own Kafka source is: four jars that PySpark does not come with.

    builder = SparkSession.builder
    for name, value in connector_conf().items():
        builder = builder.config(name, value)

The jars of FENCEPOST_SPARK_KAFKA_JARS (a folder), or of the folder that `make setup` fills in a checkout; else Spark
fetches them itself when the session starts. The sink does not need them: only jobs that read from Kafka do.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

JARS_VARIABLE = "FENCEPOST_SPARK_KAFKA_JARS"
CONNECTOR = "spark-sql-kafka-0-10_2.13"
# The one of the 4.0 line whose jars are all published.
CONNECTOR_VERSION = "4.0.0"


def connector_version() -> str:
    """The one for the PySpark that is installed: it uses Spark's internals, which change between minor versions."""
    try:
        pyspark = version("pyspark")
    except PackageNotFoundError:
        return CONNECTOR_VERSION
    return CONNECTOR_VERSION if pyspark.startswith("4.0.") else pyspark


def connector_jars() -> list[Path] | None:
    """The connector's jars on this machine; None: there are none, and Spark has to fetch them.

    Raises FileNotFoundError if the environment names a folder without them: who set it wants to know.
    """
    if named := os.environ.get(JARS_VARIABLE):
        found = _jars_in(Path(named))
        if found is None:
            raise FileNotFoundError(f"{JARS_VARIABLE}={named} holds no {CONNECTOR}-*.jar")
        return found
    checkout = Path(__file__).resolve().parents[3]
    return _jars_in(checkout / ".tools" / "jars" / f"spark-kafka-{connector_version()}")


def connector_conf() -> dict[str, str]:
    """What to add to a Spark session's configuration so that `format("kafka")` is known there."""
    jars = connector_jars()
    if jars is None:
        return {"spark.jars.packages": f"org.apache.spark:{CONNECTOR}:{connector_version()}"}
    return {"spark.jars": ",".join(map(str, jars))}


def _jars_in(folder: Path) -> list[Path] | None:
    return sorted(folder.glob("*.jar")) if any(folder.glob(f"{CONNECTOR}-*.jar")) else None
