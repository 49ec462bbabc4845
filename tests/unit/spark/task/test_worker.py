"""A Python worker that runs many tasks."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from fencepost.spark.task.worker import forget_archives, reused


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lib.zip"
    write(path, answer_one=1)
    monkeypatch.syspath_prepend(str(path))
    return path


def write(archive: Path, **modules: int) -> None:
    with zipfile.ZipFile(archive, "w") as file:
        for name, value in modules.items():
            file.writestr(f"{name}.py", f"value = {value}")


def test_archives_are_not_read_before_the_next_task(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert importlib.import_module("answer_one").value == 1
    assert str(archive) in sys.path_importer_cache
    with reused():
        pass
    read: list[str] = []
    monkeypatch.setattr("zipimport._read_directory", read.append)
    importlib.invalidate_caches()
    assert read == []


def test_modules_of_an_archive_can_be_imported_in_the_next_task(archive: Path) -> None:
    assert importlib.import_module("answer_one").value == 1
    forget_archives()
    write(archive, answer_one=1, answer_two=2)
    importlib.invalidate_caches()
    assert importlib.import_module("answer_two").value == 2


def test_a_task_that_fails_leaves_a_worker_that_works(archive: Path) -> None:
    with pytest.raises(ZeroDivisionError), reused():
        importlib.import_module("answer_one")
        _ = 1 / 0
    assert str(archive) not in sys.path_importer_cache
