"""The jar of Spark's JVM plane: built the same from the same sources, in agreement with Python, added to a session."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark import configure
from fencepost.spark.jvm import jar
from fencepost.spark.lease.wire import MAX_FRAME_BYTES, PROTOCOL_VERSION
from fencepost.spark.task.produce_answer import ProduceVerdict
from scripts import build_jar
from scripts.quietly import TOOLS, StepFailed

JAVA = Path(__file__).resolve().parents[4] / "java"


class Builder:
    """What `configure` uses of PySpark's SparkSession.Builder."""

    def __init__(self, **options: str) -> None:
        self._options = {name.replace("_", "."): value for name, value in options.items()}

    def config(self, name: str, value: str) -> Builder:
        self._options[name] = value
        return self

    def getOrCreate(self) -> None:  # noqa: N802 - the name in PySpark.
        raise AssertionError("the test starts no Spark")

    @property
    def jars(self) -> list[str]:
        return self._options["spark.jars"].split(",")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "fencepost-spark.jar"
    path.touch()
    monkeypatch.setattr(jar, "__file__", str(tmp_path / "jar.py"))
    return path


def test_a_session_gets_the_jar_next_to_those_that_it_has(built: Path) -> None:
    assert configure(Builder()).jars == [str(built)]
    builder: Any = Builder(spark_jars="a.jar,b.jar")
    assert configure(configure(builder)).jars == ["a.jar", "b.jar", str(built)]


def test_a_missing_jar_is_named_with_what_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "__file__", str(tmp_path / "jar.py"))
    with pytest.raises(FileNotFoundError, match=r"fencepost-spark\.jar is missing\n\nhint: `make setup`"):
        configure(Builder())


def test_both_sides_speak_the_same_version_of_the_lease_protocol() -> None:
    source = (JAVA / "fencepost/spark/lease/LeaseConnection.java").read_text()
    assert re.findall(r"PROTOCOL_VERSION = (\d+);", source) == [str(PROTOCOL_VERSION)]
    assert re.findall(r"MAX_FRAME_BYTES = (\d+) << (\d+);", source) == [("4", "20")]
    assert MAX_FRAME_BYTES == 4 << 20


def test_the_verdicts_on_error_codes_have_the_same_names() -> None:
    source = (JAVA / "fencepost/spark/kafka/ErrorCode.java").read_text()
    body = re.sub(r"/\*\*.*?\*/", "", source[source.index("enum Verdict {") + 14 :].partition("}")[0], flags=re.DOTALL)
    assert {word.strip() for word in body.split(",")} == set(ProduceVerdict.__members__)


def test_every_java_class_is_where_its_package_says() -> None:
    for path in JAVA.rglob("*.java"):
        package = ".".join(path.relative_to(JAVA).parts[:-1])
        assert f"package {package};" in path.read_text(), path


@pytest.mark.java
@pytest.mark.slow
def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    if not (TOOLS / "java-home").is_file():
        pytest.skip("no Java; `make setup` says how to get one")
    first, second = build_jar.JAR, tmp_path / "second.jar"
    try:
        if not build_jar.is_fresh(first):
            first = tmp_path / "first.jar"
            build_jar.build(first)
        build_jar.build(second)
    except StepFailed as failure:
        pytest.skip(str(failure).splitlines()[0])
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(second) as archive:
        names = archive.namelist()
        assert names[1:] == sorted(names[1:])
        assert {info.date_time for info in archive.infolist()} == {build_jar.EPOCH}
        assert "7 REQUEST_TIMED_OUT AGAIN" in archive.read(build_jar.ERRORS).decode().splitlines()
