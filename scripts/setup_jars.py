"""Resolve Java jars that the tests and demos need into `.tools/jars/`: Apache Kafka's own, and Spark's Kafka connector.

PySpark ships Ivy, which fetches from Maven Central; no Maven and no tarball needed. Ivy gets its own settings and its
own cache, because with its defaults it can fail on a half-filled local repository.
Without jars the Java tests are skipped, so a failure prints one line and does not end the set-up.

python -m scripts.setup_jars [kafka] [connector]    both, unless one is named
python -m scripts.setup_jars kafka-older avro streams s3a
                                                    another Apache Kafka, Spark's Avro, Kafka Streams and Hadoop's S3A,
                                                    for `make test-engines`
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from scripts.quietly import ROOT, TOOLS, StepFailed, say, step

SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="${ivy.settings.dir}/cache"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
MODULE = """\
<ivy-module version="2.0">
  <info organisation="fencepost" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->default">
    {dependencies}
  </dependencies>
</ivy-module>
"""


class JarSet(NamedTuple):
    what: str
    folder: str
    dependencies: tuple[str, ...]  # As in an Ivy file.
    needed: tuple[str, ...]  # Without all of these the set is of no use.
    without: str  # What is skipped or slower then.


def kafka_jars(version: str, without: str) -> JarSet:
    return JarSet(
        f"Apache Kafka {version}",
        f"kafka-{version}",
        (
            f'<dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}"/>',
            f'<dependency org="org.apache.kafka" name="kafka-tools" rev="{version}"/>',
            f'<dependency org="org.apache.kafka" name="kafka-clients" rev="{version}"/>',
            # Without a library for logging, the tools do not say what went wrong.
            '<dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36"/>',
            # Kafka Connect comes with the tools and brings half a web server along: 40 jars that nothing here uses.
            '<exclude org="org.apache.kafka" module="connect-runtime"/>',
        ),
        tuple(f"{name}-{version}.jar" for name in ("kafka_2.13", "kafka-tools", "kafka-clients")),
        without,
    )


KAFKA = kafka_jars("4.3.1", "the Java tests are skipped")
# The last of the line before 4, in which transactions have version 1 only.
OLDER_KAFKA = kafka_jars("3.9.1", "the tests against that version are skipped")
# The newest of Spark's connectors that resolves. Everything else that it names is in PySpark already.
CONNECTOR_VERSION = "4.0.0"
CONNECTOR_PARTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.kafka", "kafka-clients", "3.9.0"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
CONNECTOR = JarSet(
    f"Spark's Kafka connector {CONNECTOR_VERSION}",
    f"spark-kafka-{CONNECTOR_VERSION}",
    tuple(f'<dependency org="{o}" name="{n}" rev="{v}" transitive="false"/>' for o, n, v in CONNECTOR_PARTS),
    tuple(f"{name}-{version}.jar" for _, name, version in CONNECTOR_PARTS),
    "tests with Spark's own Kafka source are skipped, and demos on Spark fetch it themselves",
)

AVRO = JarSet(
    f"Spark's Avro {CONNECTOR_VERSION}",
    f"spark-avro-{CONNECTOR_VERSION}",
    (f'<dependency org="org.apache.spark" name="spark-avro_2.13" rev="{CONNECTOR_VERSION}" transitive="false"/>',),
    (f"spark-avro_2.13-{CONNECTOR_VERSION}.jar",),
    "the test of the guide's lines for Avro is skipped",
)

STREAMS_PARTS = (("org.apache.kafka", "kafka-streams", "4.3.1"), ("org.rocksdb", "rocksdbjni", "10.1.3"))
STREAMS = JarSet(
    "Kafka Streams 4.3.1",
    "kafka-streams-4.3.1",
    tuple(f'<dependency org="{o}" name="{n}" rev="{v}" transitive="false"/>' for o, n, v in STREAMS_PARTS),
    tuple(f"{name}-{version}.jar" for _, name, version in STREAMS_PARTS),
    "the test with Kafka Streams is skipped",
)

# The Hadoop of PySpark 4.0. It names all of the AWS SDK as one jar of 560 MB, of which it uses these modules. Of the
# version that it names, the transfer manager is not on Maven Central.
HADOOP_VERSION, AWS_SDK_VERSION = "3.4.1", "2.25.53"
AWS_SDK_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
S3A = JarSet(
    f"Hadoop's S3A {HADOOP_VERSION}",
    f"hadoop-aws-{HADOOP_VERSION}",
    (
        f'<dependency org="org.apache.hadoop" name="hadoop-aws" rev="{HADOOP_VERSION}" transitive="false"/>',
        *(f'<dependency org="software.amazon.awssdk" name="{n}" rev="{AWS_SDK_VERSION}"/>' for n in AWS_SDK_MODULES),
        # PySpark has them.
        *(f'<exclude org="{org}"/>' for org in ("io.netty", "org.slf4j", "commons-codec", "commons-logging")),
    ),
    (f"hadoop-aws-{HADOOP_VERSION}.jar", *(f"{name}-{AWS_SDK_VERSION}.jar" for name in AWS_SDK_MODULES)),
    "the tests with a checkpoint on S3 are skipped",
)


def ivy_jar() -> Path:
    found = sorted((ROOT / ".venv").glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"))
    if not found:
        raise StepFailed("PySpark, which carries Ivy, is not installed")
    return found[-1]


def home_of(jars: JarSet) -> Path:
    return TOOLS / "jars" / jars.folder


def resolve(jars: JarSet, java: Path) -> None:
    work = TOOLS / "ivy"
    work.mkdir(parents=True, exist_ok=True)
    (work / "settings.xml").write_text(SETTINGS)
    (work / "ivy.xml").write_text(MODULE.format(dependencies="\n    ".join(jars.dependencies)))
    home = home_of(jars)
    incoming = home.with_name(home.name + ".incoming")
    shutil.rmtree(incoming, ignore_errors=True)
    command: list[str | Path] = [
        java,
        "-jar",
        ivy_jar(),
        "-settings",
        work / "settings.xml",
        "-ivy",
        work / "ivy.xml",
    ]
    command += ["-confs", "default", "-retrieve", f"{incoming}/[artifact]-[revision](-[classifier]).[ext]"]
    step(f"fetching the jars of {jars.what} (a minute at most, once)", command)
    missing = [name for name in jars.needed if not (incoming / name).is_file()]
    if missing:
        raise StepFailed(f"Ivy succeeded, but left out {', '.join(missing)}")
    # The folder appears whole or not at all, so its presence is the stamp.
    shutil.rmtree(home, ignore_errors=True)
    incoming.rename(home)
    shutil.rmtree(work / "cache", ignore_errors=True)


def fetch(jars: JarSet, java: Path) -> None:
    for attempt in (1, 2):
        try:
            return resolve(jars, java)
        except (StepFailed, OSError, subprocess.SubprocessError) as failure:
            if attempt == 1:
                say(f"setup: {str(failure).splitlines()[0]}; trying once more")
                # Ivy would take an incomplete download in its cache for a complete one.
                shutil.rmtree(TOOLS / "ivy" / "cache", ignore_errors=True)
            else:
                say(f"note: no jars of {jars.what}: {jars.without}; {failure}")
    return None


def java() -> Path:
    return Path((TOOLS / "java-home").read_text().strip()) / "bin" / "java"


def main() -> int:
    if not (TOOLS / "java-home").is_file():
        return 0
    wanted = {
        "kafka": KAFKA,
        "connector": CONNECTOR,
        "kafka-older": OLDER_KAFKA,
        "avro": AVRO,
        "streams": STREAMS,
        "s3a": S3A,
    }
    for name in sys.argv[1:] or ("kafka", "connector"):
        if not home_of(wanted[name]).is_dir():
            fetch(wanted[name], java())
    return 0


if __name__ == "__main__":
    sys.exit(main())
