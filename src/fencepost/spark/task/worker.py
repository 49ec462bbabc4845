"""The Python worker of an executor, which runs one task after another: what it need not do again for each."""

from __future__ import annotations

import sys
import zipimport
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from fencepost.malloc import keep_freed

KEPT_BYTES = 64 << 20
# Without it a new finder would take over what an older one had read.
_directories: MutableMapping[str, Any] = getattr(zipimport, "_zip_directory_cache", {})


@contextmanager
def reused() -> Iterator[None]:
    """Around a task, in a worker that will have others."""
    _keep_memory()
    try:
        yield
    finally:
        forget_archives()


@cache
def _keep_memory() -> None:
    keep_freed(KEPT_BYTES)


def forget_archives() -> None:
    """Let what is known of the archives on `sys.path` go; an import that looks into one reads it again, as it is then.

    Before every task PySpark calls `importlib.invalidate_caches()`, which up to Python 3.12 reads the directory of
    every known archive at once, and Spark's own jar is among them: 0.15 s for each task, more than a small batch takes.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
            _directories.pop(path, None)
