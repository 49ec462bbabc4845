"""`fencepost spark`: what `check` says before it starts Spark, and the jar."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.cli import main
from fencepost.spark.jvm import jar


def test_a_missing_id_is_said_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No Java is there: a start of Spark would fail, with another message.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["spark", "check", "--topic", "refunds", "--bootstrap", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: transactional.id is missing",
        "",
        "hint: give it with --id ID: a name that this pipeline keeps over restarts",
    ]


def test_a_bad_setting_is_said_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    words = ["--id", "refunds-1", "--set", "fencepost.plane=wood", "--bootstrap", "127.0.0.1:1"]
    assert main(["spark", "check", *words]) == 2
    assert capsys.readouterr().err.startswith("error: fencepost.plane=wood is none of ")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the jar should be: beside the module."""
    monkeypatch.setattr(jar, "__file__", str(tmp_path / "jar.py"))
    return tmp_path / "fencepost-spark.jar"


def test_it_prints_the_path_for_jars(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(b"PK")
    assert main(["spark-jar"]) == 0
    assert capsys.readouterr().out == f"{path}\n"


def test_without_the_jar_it_says_how_to_build_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark-jar"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"error: {path} is missing\n\nhint: `make setup` builds it where there is Java 17 or later\n"
