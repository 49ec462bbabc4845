"""Build the jar of Spark's JVM plane from the sources in `java/`: `src/fencepost/spark/jvm/fencepost-spark.jar`.

    python -m scripts.build_jar [--needed] [FILE]

The compiler is always the same version of Eclipse's, which needs only a Java runtime; it compiles against PySpark's
own jars. The same sources give the same bytes: entries are sorted and have a fixed time. What Python knows about error
codes goes into the jar as a table, so that it is written down once.
Without Java there is no jar and Spark's Python plane does the work, so a failure prints one line and does not end the
set-up. With `--needed` it does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from inspect import getfile
from pathlib import Path

from fencepost.protocol import errors
from fencepost.spark.task.produce_answer import judge
from scripts.quietly import ROOT, TOOLS, StepFailed, say
from scripts.setup_jars import JarSet, home_of, java, resolve

ECJ_VERSION = "3.40.0"
ECJ = JarSet(
    f"Eclipse's Java compiler {ECJ_VERSION}",
    f"ecj-{ECJ_VERSION}",
    (f'<dependency org="org.eclipse.jdt" name="ecj" rev="{ECJ_VERSION}" transitive="false"/>',),
    (f"ecj-{ECJ_VERSION}.jar",),
    "the jar of Spark's JVM plane cannot be built",
)
SOURCES = ROOT / "java"
JAR = ROOT / "src" / "fencepost" / "spark" / "jvm" / "fencepost-spark.jar"
RELEASE = "17"
# A warning is an error here, so only those that find mistakes are on.
WARNINGS = ("unusedImport", "unusedLocal", "unusedPrivate", "raw", "unchecked", "hiding", "over-ann", "static-access")
# Entries of a zip file have a time, and no earlier one than this.
EPOCH = (1980, 1, 1, 0, 0, 0)
MANIFEST = "META-INF/MANIFEST.MF"
ERRORS = "fencepost/spark/kafka/errors.txt"
# Spark finds `format("fencepost")` by this entry.
SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
PROVIDER = "fencepost.spark.format.FencepostProvider"


def error_table() -> str:
    """A line for each error code: the code, its name, and what it means as the answer to a Produce request."""
    codes = sorted(errors.NAMES)
    return "".join(f"{code} {errors.name_of(code)} {judge(code).name}\n" for code in codes)


def compile_sources(classes: Path) -> None:
    pyspark = sorted((ROOT / ".venv").glob("lib/python*/site-packages/pyspark/jars"))
    if not pyspark:
        raise StepFailed("PySpark, against which the jar is compiled, is not installed")
    if not home_of(ECJ).is_dir():
        resolve(ECJ, java())
    sources = sorted(SOURCES.rglob("*.java"))
    command: list[str | Path] = [java(), "-jar", home_of(ECJ) / ECJ.needed[0], "--release", RELEASE]
    command += ["-g", "-encoding", "UTF-8", "-proc:none", "-failOnWarning"]
    command += [f"-warn:-all,+{','.join(WARNINGS)}"]
    command += ["-cp", ":".join(map(str, sorted(pyspark[-1].glob("*.jar")))), "-d", classes, *sources]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=SOURCES)
    if done.returncode:
        raise StepFailed(f"the Java sources do not compile\n{(done.stdout + done.stderr).strip()}")


def write_jar(entries: dict[str, bytes], jar: Path) -> None:
    jar.parent.mkdir(parents=True, exist_ok=True)
    unfinished = jar.with_suffix(".incoming")
    # Not compressed: what deflate makes depends on the version of zlib.
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(entries, key=lambda name: (name != MANIFEST, name)):
            info = zipfile.ZipInfo(name, EPOCH)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, entries[name])
    unfinished.rename(jar)


def build(jar: Path = JAR) -> None:
    """Raises StepFailed."""
    with tempfile.TemporaryDirectory(prefix="fencepost-classes-") as folder:
        classes = Path(folder)
        compile_sources(classes)
        entries = {path.relative_to(classes).as_posix(): path.read_bytes() for path in classes.rglob("*.class")}
    entries[MANIFEST] = b"Manifest-Version: 1.0\r\n\r\n"
    entries[ERRORS] = error_table().encode()
    entries[SERVICE] = f"{PROVIDER}\n".encode()
    write_jar(entries, jar)


def is_fresh(jar: Path) -> bool:
    """Is the jar newer than everything that it was made from?"""
    tables = [Path(errors.__file__ or ""), Path(getfile(judge))]
    made_from = [*SOURCES.rglob("*.java"), Path(__file__), *tables, ROOT / "uv.lock"]
    return jar.is_file() and all(path.stat().st_mtime <= jar.stat().st_mtime for path in made_from)


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--needed"]
    is_needed = "--needed" in sys.argv[1:]
    jar = Path(arguments[0]) if arguments else JAR
    if is_fresh(jar):
        return 0
    try:
        if not (TOOLS / "java-home").is_file():
            raise StepFailed("there is no Java")
        build(jar)
    except (StepFailed, OSError, subprocess.SubprocessError) as failure:
        so = "" if is_needed else ", so Spark's tasks run in Python"
        say(f"{'error' if is_needed else 'note'}: no fencepost-spark.jar{so}: {failure}")
        return 1 if is_needed else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
