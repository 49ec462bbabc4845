"""The files of a checkpoint, each reader rooted at the checkpoint.

LocalFiles      the disk of this machine
HadoopFiles     any file system that Hadoop can read, through the driver's JVM
SessionFiles    Spark's own file source, for a session without a Java gateway (Spark Connect)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol


class CheckpointFiles(Protocol):
    def read(self, path: str) -> str | None:
        """The text of a file under the checkpoint; None if there is no such file."""
        ...

    def exists(self, path: str) -> bool:
        """Is there such a file or folder?"""
        ...

    def write(self, path: str, text: str) -> None:
        """Create or replace a file. A crash leaves the old one, the new one, or none, but nothing half written."""
        ...


class LocalFiles:
    """A checkpoint on the disk of this machine."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    def read(self, path: str) -> str | None:
        try:
            return (self._root / path).read_bytes().decode()
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        return (self._root / path).exists()

    def write(self, path: str, text: str) -> None:
        unfinished = self._root / f".{path}.tmp"
        with unfinished.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._root / path)


class HadoopFiles:
    """A checkpoint on any file system that Hadoop can read, through the driver's JVM."""

    def __init__(self, session: Any, root: str) -> None:
        self._path = java_class(session._jvm, "org.apache.hadoop.fs.Path")
        self._root = self._path(root)
        self._files = self._root.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())

    def read(self, path: str) -> str | None:
        full = self._path(self._root, path)
        if not self._files.exists(full):
            return None
        stream = self._files.open(full)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(self._root, path)))

    def write(self, path: str, text: str) -> None:
        full, unfinished = self._path(self._root, path), self._path(self._root, f".{path}.tmp")
        stream = self._files.create(unfinished, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        self._files.delete(full, False)
        if not self._files.rename(unfinished, full):
            raise OSError(f"{full.toString()} cannot be written")


class SessionFiles:
    """A checkpoint read with Spark's own file source, for sessions without a JVM. Each read runs a small job.

    Spark cannot write a single file, so what is written lasts as long as this object.
    """

    def __init__(self, session: Any, root: str) -> None:
        self._session = session
        self._root = root.rstrip("/")
        self._written: dict[str, str] = {}

    def read(self, path: str) -> str | None:
        if path in self._written:
            return self._written[path]
        if not self.exists(path):
            return None
        rows = self._session.read.text(f"{self._root}/{path}", wholetext=True).collect()
        # An empty file gives no row.
        return str(rows[0][0]) if rows else ""

    def exists(self, path: str) -> bool:
        from pyspark.errors import AnalysisException

        try:
            # Asking for the columns makes Spark look at the path without reading the file.
            _ = self._session.read.format("binaryFile").load(f"{self._root}/{path}").columns
        except AnalysisException as e:
            if "PATH_NOT_FOUND" in str(e):
                return False
            raise
        return True

    def write(self, path: str, text: str) -> None:
        self._written[path] = text


def files_of(session: Any, root: str) -> CheckpointFiles:
    # The process of a driver, and with Spark Connect that of a foreachBatch function, shares a machine with its JVM. So
    # it can read the disk itself, which is faster. Hadoop may have written other characters than these with a `%`.
    if root.startswith("file:/") and "%" not in root:
        return LocalFiles("/" + root.removeprefix("file:").lstrip("/"))
    return HadoopFiles(session, root) if has_gateway(session) else SessionFiles(session, root)


def java_class(jvm: Any, name: str) -> Any:
    """A class of Spark's JVM, by its whole name: py4j then asks once.

    For `jvm.org.apache.spark.SparkEnv` py4j asks for each of the four parts. The JVM takes each part for the name of a
    class, and looks for it in every jar: 1.4 ms, where the whole name takes 0.1 ms.
    """
    return getattr(jvm, name)


def has_gateway(session: Any) -> bool:
    """Does the session have a JVM beside it? A classic session has; one of Spark Connect has not."""
    return hasattr(session, "_jsparkSession")
