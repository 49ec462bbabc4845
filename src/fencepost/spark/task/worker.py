"""Work that a Python worker of an executor need not repeat for each of its tasks."""

from __future__ import annotations

import sys
import zipimport
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from fencepost.malloc import keep_freed

KEPT_BYTES = 64 << 20
# A cache inside zipimport: a new finder would take the directory that an older one had read.
_directories: MutableMapping[str, Any] = getattr(zipimport, "_zip_directory_cache", {})


@contextmanager
def reused() -> Iterator[None]:
    """Wraps a task in a worker that will run other tasks after it."""
    _keep_memory()
    try:
        yield
    finally:
        forget_archives()


@cache
def _keep_memory() -> None:
    keep_freed(KEPT_BYTES)


def forget_archives() -> None:
    """Forget the archives on `sys.path`. The next import that looks into an archive reads its directory again.

    Before every task PySpark calls `importlib.invalidate_caches()`. Up to Python 3.12 that reads the directory of every
    known archive at once, Spark's own jar among them: 0.15 s for each task, longer than a small micro-batch takes.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
            _directories.pop(path, None)
