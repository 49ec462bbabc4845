"""The wheel carries the jar and the pages of the workbench. Without Java there is no jar, and then no wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import build_jar, setup_java
from scripts.quietly import ROOT, TOOLS, StepFailed

UV = TOOLS / "uv" / "bin" / "uv"
IN_WHEEL = "fencepost/spark/jvm/fencepost-spark.jar"


@pytest.mark.java
@pytest.mark.slow
def test_the_wheel_carries_the_jar_that_was_built(tmp_path: Path) -> None:
    if not build_jar.JAR.is_file() or not UV.is_file():
        pytest.skip("no jar or no uv; `make setup` gets them")
    built = subprocess.run(
        [UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode and "ailed to fetch" in built.stderr:
        pytest.skip(f"no network for what builds a wheel: {built.stderr.splitlines()[0]}")
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(IN_WHEEL) == build_jar.JAR.read_bytes()
        # And the browser's side of the workbench, with the licences of its libraries.
        static = ROOT / "src" / "fencepost" / "web" / "static"
        expected = {file.relative_to(ROOT / "src").as_posix() for file in static.rglob("*") if file.is_file()}
        assert expected <= set(archive.namelist())
        assert "fencepost/web/static/vendor/uplot/LICENSE" in expected


def test_a_jar_that_is_needed_fails_without_java_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_jar, "TOOLS", tmp_path)
    jar = tmp_path / "fencepost-spark.jar"
    monkeypatch.setattr(sys, "argv", ["build_jar", "--needed", str(jar)])
    assert build_jar.main() == 1
    assert capsys.readouterr().err == "error: no fencepost-spark.jar: there is no Java\n"
    assert not jar.exists()
    monkeypatch.setattr(sys, "argv", ["build_jar", str(jar)])
    assert build_jar.main() == 0, "the set-up goes on"
    assert capsys.readouterr().err.startswith("note: no fencepost-spark.jar, so Spark's tasks run in Python: ")


def test_java_that_is_needed_and_cannot_be_installed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def install(names: object) -> None:
        raise StepFailed("no right to install packages\nand more")

    monkeypatch.setattr(setup_java, "TOOLS", tmp_path)
    monkeypatch.setattr(setup_java, "find", lambda: (None, ["Java 8 in /opt/jdk8"]))
    monkeypatch.setattr(setup_java, "install", install)
    monkeypatch.setattr(sys, "argv", ["setup_java", "--needed"])
    assert setup_java.main() == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no Java 17 or newer (found only Java 8 in /opt/jdk8), and Spark needs one; install")
    assert line.endswith("not installed for you: no right to install packages")


def test_make_wheel_stops_before_the_wheel_where_there_is_no_java(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "uv.lock", "scripts/setup_python.py", ".venv/stamps/env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    programs = {"bin/python": 'echo "$@" >> calls; exit 1', ".tools/uv/bin/uv": "echo uv >> calls"}
    for name, lines in programs.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["make", "-f", ROOT / "Makefile", "BIN=bin", "wheel"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert (tmp_path / "calls").read_text().splitlines() == ["-m scripts.setup_java --needed"]
