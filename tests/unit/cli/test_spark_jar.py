"""`fencepost spark-jar`, with and without the jar."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.cli import main
from fencepost.spark.jvm import jar


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
