"""Where Java and Kafka's Java library are, and the program for them, compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

PROGRAM = "TxnClient"
SOURCES = tuple(Path(__file__).with_name(f"{name}.java") for name in (PROGRAM, "TokenFile"))
# As old as kafka-clients 4 asks for.
OLDEST_JAVA = "11"
# A run has several: a small heap, and a compiler that starts quickly.
OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
COMPILE_LIMIT_S = 120.0
SAID_CHARS = 500


class NoJava(Exception):
    """Java clients cannot run here."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem, self.hint = problem, hint


def find_library(given: str | None, environment: Mapping[str, str]) -> str:
    """A class path with kafka-clients. `given`: a folder of jars, a jar, or a class path. Raises NoJava."""
    home = environment.get("KAFKA_HOME")
    place = given or (str(Path(home) / "libs") if home else None)
    if place is None:
        raise NoJava("kafka-clients is not named", "--java-clients FOLDER names the libs folder of Apache Kafka")
    parts = [f"{part}/*" if Path(part).is_dir() else part for part in place.split(os.pathsep) if part]
    for part in parts:
        folder = Path(part.removesuffix("*"))
        if not folder.exists():
            raise NoJava(f"{folder} does not exist", "--java-clients names a folder of jars, a jar, or a class path")
        if part.endswith("*") and len(parts) == 1 and not any(folder.glob("kafka-clients*.jar")):
            raise NoJava(f"there is no kafka-clients jar in {folder}", "the libs folder of Apache Kafka has one")
    return os.pathsep.join(parts)


def find_java(environment: Mapping[str, str]) -> Path:
    """The folder of `java` and `javac`. Raises NoJava."""
    home = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    java = Path(home) / "bin" / "java" if home else Path(on_path).resolve() if on_path else None
    if java is None or not java.is_file():
        where = f"{java} does not exist" if java is not None else "no Java was found"
        raise NoJava(where, f"install a JDK, version {OLDEST_JAVA} or later, and set JAVA_HOME or PATH")
    if not java.with_name("javac").is_file():
        raise NoJava(f"{java} comes without a compiler", f"install a JDK, version {OLDEST_JAVA} or later")
    return java.parent


def compiled(library: str, java: Path, folder: Path) -> list[str]:
    """The command of the program, whose class is in the folder then. Raises NoJava."""
    options = ("--release", OLDEST_JAVA, "-nowarn", "-d", str(folder), "-cp", library)
    command = [str(java / "javac"), *options, *map(str, SOURCES)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoJava(f"javac did not end within {COMPILE_LIMIT_S:g} s", "is the machine too busy?") from None
    if done.returncode:
        raise NoJava(
            f"the Java client does not compile with {library}: {done.stderr.strip()[:SAID_CHARS]}",
            "kafka-clients 3.0 or later and the jars that it needs, such as slf4j-api, must be there",
        )
    class_path = os.pathsep.join([str(folder), library])
    return [str(java / "java"), *OPTIONS, "-cp", class_path, PROGRAM]
