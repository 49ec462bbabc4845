"""The deletion of a log: its directory, and every entry of its name in the data folder's files.

The directory is renamed first, so that the next log of the same name cannot find its files, and removed later, in
another thread. A start removes directories that an earlier process renamed and did not remove.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections import deque
from collections.abc import Sequence

from fencepost.machines.log.interface import StorageFailed
from fencepost.server.storage.offset_files import OffsetsFile, RecoveryPoints
from fencepost.server.storage.syncing import Defer

_RENAMED = re.compile(r".+-\d+\.[0-9a-f]{32}-delete")
_MAX_NAME_BYTES = 255


class LogDeletion:
    """Deletes logs of the folder `path`; `offset_files` are the files that have an entry for each log."""

    def __init__(self, path: str, offset_files: Sequence[OffsetsFile | RecoveryPoints], defer: Defer) -> None:
        self._path = path
        self._offset_files = offset_files
        self._defer = defer
        # Removed one by one: commits that wait for the disk must not queue behind thousands of directories.
        self._renamed: deque[str] = deque()
        self._is_removing = False
        self._is_closed = False

    def remove_left_over(self, names: list[str]) -> None:
        """Remove those of the directories `names` that an earlier process renamed."""
        for name in names:
            if _RENAMED.fullmatch(name):
                self._remove_later(name)

    def delete(self, topic: str, partition: int) -> None:
        """Raises StorageFailed if the directory cannot be renamed; then nothing has changed."""
        name = f"{topic}-{partition}"
        try:
            renamed = self._rename(name, "delete")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StorageFailed(str(error)) from error
        else:
            self._remove_later(renamed)
        for file in self._offset_files:
            file.forget(name)

    def keep(self, name: str) -> str:
        """Rename the directory of a log that the cluster's document does not have. Raises OSError."""
        return self._rename(name, "stray")

    def _rename(self, name: str, why: str) -> str:
        """As Apache Kafka does."""
        topic, _, partition = name.rpartition("-")
        suffix = f"-{partition}.{uuid.uuid4().hex}-{why}"
        renamed = topic[: _MAX_NAME_BYTES - len(suffix)] + suffix
        os.rename(f"{self._path}/{name}", f"{self._path}/{renamed}")
        return renamed

    def before_reuse(self, name: str) -> None:
        """Call before a new log gets the name. Raises OSError."""
        for file in self._offset_files:
            file.forget_for_good(name)

    def close(self) -> None:
        """Begin no further removal; the next start does the rest."""
        self._is_closed = True

    def _remove_later(self, name: str) -> None:
        self._renamed.append(name)
        if not self._is_removing:
            self._remove_next()

    def _remove_next(self) -> None:
        path = f"{self._path}/{self._renamed.popleft()}"
        self._is_removing = True

        def done(_: BaseException | None) -> None:
            self._is_removing = False
            if self._renamed and not self._is_closed:
                self._remove_next()

        # The next start tries again to remove what is left.
        self._defer(lambda: shutil.rmtree(path, ignore_errors=True), done)
