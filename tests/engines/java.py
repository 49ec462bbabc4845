"""Java, for tests that need it: where it is, and how to run a program against Kafka's jars.

The set-up leaves the path of a Java home in `.tools/java-home` and jars in `.tools/jars/kafka-VERSION/`;
JAVA_HOME and FENCEPOST_KAFKA_JARS name others. What is missing skips the test, with the reason. Older versions of
Apache Kafka are there for `make test-engines` only, which fetches them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KAFKA_VERSION = "4.3.1"
OLDEST_JAVA = 17

# Programs here live for seconds: a small heap and a quick compiler start sooner.
SHORT_LIVED = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
QUIET = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder of Apache Kafka's jars, whether it is there or not."""
    named = os.environ.get("FENCEPOST_KAFKA_JARS")
    if named and version == KAFKA_VERSION:
        return Path(named)
    return ROOT / ".tools" / "jars" / f"kafka-{version}"


@cache
def java_home() -> Path | None:
    """The home of a Java that is new enough, or None."""
    recorded = ROOT / ".tools" / "java-home"
    places = [recorded.read_text().strip()] if recorded.is_file() else []
    if named := os.environ.get("JAVA_HOME"):
        places.append(named)
    if on_path := shutil.which("java"):
        places.append(str(Path(on_path).resolve().parent.parent))
    return next((Path(place) for place in places if _major_version(Path(place)) >= OLDEST_JAVA), None)


def _major_version(home: Path) -> int:
    try:
        said = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)  # Java 8 says 1.8.
    return int(found.group(1)) if found else 0


def why_no_java(version: str = KAFKA_VERSION) -> str | None:
    """Why Java programs cannot run against Kafka's jars here, or None if they can."""
    if java_home() is None:
        return f"no Java {OLDEST_JAVA} or newer; `make setup` says how to get one"
    if not list(kafka_jars(version).glob("kafka-clients-*.jar")):
        fetched_by = "make setup" if version == KAFKA_VERSION else "make test-engines"
        return f"no Apache Kafka jars in {kafka_jars(version)}; `{fetched_by}` fetches them"
    return None


def why_no_compiler() -> str | None:
    """Why Java source files cannot run here, or None if they can."""
    missing = why_no_java()
    home = java_home()
    if missing is None and home is not None and not (home / "bin" / "javac").exists():
        return f"the Java in {home} has no compiler; install a JDK"
    return missing


def class_archive(version: str = KAFKA_VERSION) -> Path:
    """The archive of Kafka's classes that `class_archive.py` makes, whether it is there or not."""
    return ROOT / ".tools" / f"kafka-{version}.jsa"


def spark_archive() -> Path:
    """The archive of Spark's classes that `class_archive.py` makes, whether it is there or not."""
    return ROOT / ".tools" / "spark.jsa"


def start_spark_quickly() -> None:
    """Sparks of this process and its children use the archive of Spark's classes, if there is one."""
    archive = spark_archive()
    if archive.exists() and " " not in str(archive):
        # These come before the options that a program gives itself.
        options = f"defaultJavaOptions=-XX:SharedArchiveFile={archive} -Xlog:disable"
        settings = [f"--conf=spark.{process}.{options}" for process in ("driver", "executor")]
        os.environ.setdefault("PYSPARK_SUBMIT_ARGS", shlex.join([*settings, "pyspark-shell"]))


def quick_start(options: Sequence[str], version: str = KAFKA_VERSION) -> list[str]:
    """The options, and the archive of classes where there is one: a JVM that uses it starts in half the time."""
    archive = class_archive(version)
    # One that does not fit, after an update of Java, is left alone by the JVM, which would say so on stdout.
    return [*options, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else list(options)


def skip_without_java(version: str = KAFKA_VERSION) -> Path:
    """The home of Java. Skips the test if there is none, or no Kafka of this version to run with it."""
    if reason := why_no_java(version):
        pytest.skip(reason)
    home = java_home()
    assert home is not None
    return home


def java_command(
    *arguments: str | Path, options: Sequence[str] = (), version: str = KAFKA_VERSION, class_path: str | None = None
) -> list[str]:
    """The command line of a Java program, with Kafka's jars if no class path is given. Skips without Java."""
    home = skip_without_java(version)
    command = [str(home / "bin" / "java"), *QUIET, *options, "-cp", class_path or str(kafka_jars(version) / "*")]
    return command + [str(argument) for argument in arguments]


def compiled(source: Path, class_path: str) -> Path:
    """The folder with the classes of one `.java` file, compiled once: Java would compile the file for every run."""
    if reason := why_no_compiler():
        pytest.skip(reason)
    home = java_home()
    assert home is not None
    digest = hashlib.sha256(f"{home}\0{class_path}\0".encode())
    # Our own jar changes; Kafka's and Spark's, in folders, do not.
    for file in (source, *(Path(entry) for entry in class_path.split(os.pathsep) if Path(entry).is_file())):
        digest.update(file.read_bytes())
    classes = ROOT / ".tools" / f"java-{source.stem}-{digest.hexdigest()[:12]}"
    if not classes.exists():
        incoming = classes.with_name(f"{classes.name}.incoming-{os.getpid()}")
        command = [str(home / "bin" / "javac"), "-J-XX:TieredStopAtLevel=1", "-cp", class_path, "-d", str(incoming)]
        done = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, f"{source.name} does not compile\n{done.stderr}"
        appear_whole(incoming, classes)
    return classes


def appear_whole(incoming: Path, folder: Path) -> None:
    """Rename a finished folder. Another process may have been faster, with the same."""
    try:
        incoming.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        shutil.rmtree(incoming, ignore_errors=True)


def program_command(
    source: Path, *arguments: str | Path, options: Sequence[str] = (), class_path: str | None = None
) -> list[str]:
    """The command line of the program in one `.java` file, as one that lives for seconds. Skips without Java."""
    jars = class_path or str(kafka_jars() / "*")
    # The jars first, as the archive of classes has them.
    whole_path = os.pathsep.join([jars, str(compiled(source, jars))])
    return java_command(source.stem, *arguments, options=quick_start([*SHORT_LIVED, *options]), class_path=whole_path)


def start_java(
    source: Path, *arguments: str, options: Sequence[str] = (), class_path: str | None = None
) -> subprocess.Popen[str]:
    """Start the program in one `.java` file; its stdout and stderr are pipes. The caller ends it."""
    return subprocess.Popen(
        program_command(source, *arguments, options=options, class_path=class_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_java(
    source: Path,
    *arguments: str,
    timeout_s: float = 90,
    options: Sequence[str] = (),
    class_path: str | None = None,
) -> str:
    """Run the program in one `.java` file to its end and return its stdout. Fails if it fails."""
    program = start_java(source, *arguments, options=options, class_path=class_path)
    try:
        stdout, stderr = program.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        program.kill()
        stdout, stderr = program.communicate()
        pytest.fail(f"{source.name} did not end in {timeout_s:g} s\n{stdout}\n{stderr}")
    if program.returncode != 0:
        pytest.fail(f"{source.name} ended with {program.returncode}\n{stdout}\n{stderr}")
    return stdout
