"""Archives the classes that Apache Kafka loads, so that its broker and tools start in half the time.

    python -m tests.engines.class_archive

`make test` starts more than a hundred of them. Does nothing where the archive is there already, or Java is not.
"""

from __future__ import annotations

from tests.engines.apache_kafka import IMPATIENT_JVM, apache_kafka
from tests.engines.java import class_archive, java_home, kafka_jars, why_no_java


def main() -> None:
    archive = class_archive()
    if why_no_java() or is_up_to_date():
        return
    archive.unlink(missing_ok=True)
    # The JVM writes it when it ends by itself.
    unfinished = archive.with_suffix(".new")
    with apache_kafka(jvm=[*IMPATIENT_JVM, f"-XX:ArchiveClassesAtExit={unfinished}", "-Xlog:disable"]) as kafka:
        kafka.run_tool("kafka-topics", "--create", "--topic", "first", "--partitions", "1")
        kafka.stop()
    if unfinished.exists():
        unfinished.rename(archive)


def is_up_to_date() -> bool:
    """Whether the archive is younger than Java and the jars. The JVM looks for itself, and ignores one that is not."""
    archive, home = class_archive(), java_home()
    assert home is not None
    made_from = (home / "bin" / "java", kafka_jars())
    return archive.exists() and all(archive.stat().st_mtime > source.stat().st_mtime for source in made_from)


if __name__ == "__main__":
    main()
