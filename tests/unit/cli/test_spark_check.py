"""`fencepost spark check`: what it says before it starts Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.cli import main


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
