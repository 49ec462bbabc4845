"""The Java that `make setup` finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.demo.refunds.requirements import java_version
from scripts import setup_java


def java_that_says(home: Path, line: str) -> Path:
    """A `java` whose -version prints this line."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("line", "major"),
    [
        ('openjdk version "1.8.0_392"', 8),
        ('java version "1.7.0_80"', 7),
        ('openjdk version "9"', 9),
        ('openjdk version "11.0.21" 2023-10-17', 11),
        ('openjdk version "17.0.9" 2023-10-17 LTS', 17),
        ('openjdk version "25-ea" 2025-09-16', 25),
    ],
)
def test_the_major_version_is_the_one_that_people_say(line: str, major: int, tmp_path: Path) -> None:
    home = java_that_says(tmp_path / "jdk", line)
    assert setup_java.version(home) == major
    assert java_version(home) == major


def test_a_java_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_that_says(tmp_path / "jdk", 'openjdk version "1.8.0_392"')
    monkeypatch.setattr(setup_java, "candidates", lambda: iter([home]))
    assert setup_java.find() == (None, [f"Java 8 in {home}"])
