"""Archives the classes that Apache Kafka and Spark load, so that a broker, a tool or a driver starts in half the time.

    python -m tests.engines.class_archive kafka|spark

`make test` starts more than a hundred of them. Does nothing where the archive is there already, or what it is made from
is not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.engines.apache_kafka import IMPATIENT_JVM, apache_kafka
from tests.engines.java import class_archive, java_home, kafka_jars, spark_archive, why_no_java


def main() -> None:
    if sys.argv[1:] == ["spark"]:
        pyspark = find_spec("pyspark")
        if pyspark is not None and not is_up_to_date(spark_archive(), Path(str(pyspark.origin)).with_name("jars")):
            archive_spark(spark_archive())
    elif why_no_java() is None and not is_up_to_date(class_archive(), kafka_jars()):
        archive_kafka(class_archive())


def archive_kafka(archive: Path) -> None:
    # The JVM writes it when it ends by itself.
    unfinished = unfinished_of(archive)
    with apache_kafka(jvm=[*IMPATIENT_JVM, f"-XX:ArchiveClassesAtExit={unfinished}", "-Xlog:disable"]) as kafka:
        kafka.run_tool("kafka-topics", "--create", "--topic", "first", "--partitions", "1")
        kafka.stop()
    if unfinished.exists():
        unfinished.rename(archive)


def archive_spark(archive: Path) -> None:
    unfinished = unfinished_of(archive)
    # Spark sets the size of the heap itself.
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={unfinished}", "-Xlog:disable"]
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.engines.spark_classes", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        # Then Spark starts as it always does.
        print(f"no archive of Spark's classes: {done.stderr.strip().splitlines()[-1]}")
    elif unfinished.exists():
        unfinished.rename(archive)


def unfinished_of(archive: Path) -> Path:
    archive.unlink(missing_ok=True)
    unfinished = archive.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    return unfinished


def is_up_to_date(archive: Path, jars: Path) -> bool:
    """Whether the archive is younger than Java and the jars. The JVM looks for itself, and ignores one that is not."""
    home = java_home()
    assert home is not None
    made_from = (home / "bin" / "java", jars)
    return archive.exists() and all(archive.stat().st_mtime > source.stat().st_mtime for source in made_from)


if __name__ == "__main__":
    main()
