"""One Spark for all tests of the sink: starting it takes longer than any of them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.java import OLDEST_JAVA, java_home


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    if java_home() is None:
        pytest.skip(f"no Java {OLDEST_JAVA} or newer; `make setup` says how to get one")
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Py4J logs whatever a foreachBatch function raises; the tests look at the query instead.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
