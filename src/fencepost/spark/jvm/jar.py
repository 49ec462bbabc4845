"""Where the jar is, and whether a Spark session has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WRITE_CLASS = "fencepost.spark.LeasedWrite"
FACTS_CLASS = "fencepost.spark.SparkFacts"


def jar_path() -> Path:
    """Raises FileNotFoundError if this is a checkout in which the jar was not built."""
    path = Path(__file__).with_name("fencepost-spark.jar")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing\n\nhint: `make setup` builds it where there is Java 17 or later")
    return path


def load_from_jar(session: Any, class_name: str) -> Any | None:
    """A new object of a class of the jar; None if a session with a Java gateway has no jar.

    By the class loader of Spark's thread: `spark.jars` and `ADD JAR` put the jar into different ones.
    """
    from py4j.protocol import Py4JJavaError

    thread = getattr(session._jvm, "java.lang.Thread").currentThread()  # By its whole name: py4j asks once.
    try:
        return thread.getContextClassLoader().loadClass(class_name).newInstance()
    except Py4JJavaError:
        return None


def why_no_jar(session: Any) -> str | None:
    """Why a session with a Java gateway has no jar, and how it gets one; None if it has it."""
    if load_from_jar(session, WRITE_CLASS) is not None:
        return None
    return (
        "the session has no fencepost-spark.jar\n\nhint: start the session with "
        "fencepost.spark.configure(SparkSession.builder), or with `spark-submit --jars $(fencepost spark-jar)`"
    )
