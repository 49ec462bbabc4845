"""Resolve Apache Kafka's jars (broker, tools, clients) into `.tools/jars/kafka-VERSION/`.

PySpark ships Ivy, which fetches from Maven Central; no Maven and no tarball needed. The Ivy settings are our
own, with a cache of our own, because Ivy's defaults can trip over a half-filled local repository.
Without jars the Java tests are skipped, so a failure here is one line and not the end of the set-up.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from quietly import ROOT, TOOLS, StepFailed, say, step

KAFKA_VERSION = "4.3.1"
JARS = TOOLS / "jars" / f"kafka-{KAFKA_VERSION}"
NEEDED = [f"{name}-{KAFKA_VERSION}.jar" for name in ("kafka_2.13", "kafka-tools", "kafka-clients")]

SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="${ivy.settings.dir}/cache"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
# Kafka Connect comes with the tools and brings half a web server along: 40 jars that nothing here uses.
# The tools are silent about what went wrong unless there is something to log with.
MODULE = f"""\
<ivy-module version="2.0">
  <info organisation="fencepost" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->default">
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="{KAFKA_VERSION}"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36"/>
    <exclude org="org.apache.kafka" module="connect-runtime"/>
  </dependencies>
</ivy-module>
"""


def ivy_jar() -> Path:
    found = sorted((ROOT / ".venv").glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"))
    if not found:
        raise StepFailed("PySpark, which carries Ivy, is not installed")
    return found[-1]


def resolve(java: Path) -> None:
    work = TOOLS / "ivy"
    work.mkdir(parents=True, exist_ok=True)
    (work / "settings.xml").write_text(SETTINGS)
    (work / "ivy.xml").write_text(MODULE)
    incoming = JARS.with_name(JARS.name + ".incoming")
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
    step(f"fetching the jars of Apache Kafka {KAFKA_VERSION} (about a minute, once)", command)
    missing = [name for name in NEEDED if not (incoming / name).is_file()]
    if missing:
        raise StepFailed(f"Ivy succeeded, but left out {', '.join(missing)}")
    # The folder appears whole or not at all, so its presence is the stamp.
    shutil.rmtree(JARS, ignore_errors=True)
    incoming.rename(JARS)
    shutil.rmtree(work / "cache", ignore_errors=True)


def main() -> int:
    record = TOOLS / "java-home"
    if not record.is_file() or JARS.is_dir():
        return 0
    java = Path(record.read_text().strip()) / "bin" / "java"
    for attempt in (1, 2):
        try:
            resolve(java)
            return 0
        except (StepFailed, OSError, subprocess.SubprocessError) as failure:
            if attempt == 1:
                say(f"setup: {str(failure).splitlines()[0]}; trying once more")
                # A download that broke off stays in Ivy's cache and would be believed.
                shutil.rmtree(TOOLS / "ivy" / "cache", ignore_errors=True)
            else:
                say(f"note: no jars of Apache Kafka {KAFKA_VERSION}: the Java tests are skipped; {failure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
