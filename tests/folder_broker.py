"""A broker on a data folder without sockets or a process: what a start makes of files, in a few milliseconds.

broker = FolderBroker(path)
...
broker.kill()                # Or broker.stop().
broker = FolderBroker(path, missing="accept")
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fencepost.broker.metadata import logs_in
from fencepost.server.startup import recover
from fencepost.server.storage import DataFolder
from tests.pure_broker import START_MS, PureBroker


class FolderBroker(PureBroker):
    """Raises what the start of a process raises. `reports`: the lines that the start has for the operator's log."""

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, str] | None = None,
        missing: str = "refuse",
        now_ms: int = START_MS,
        boot: str = "this boot",
    ) -> None:
        self.reports: list[str] = []
        self.folder = DataFolder(
            str(path), boot=lambda: boot, report=self.reports.append, missing=missing, logs_in=logs_in
        )
        storage: Any = self.folder
        try:
            super().__init__(settings, storage, now_ms=now_ms)
        except BaseException:
            self.folder.abandon()
            raise

    def _recover(self) -> None:
        recover(self.folder, self.cluster, self.now_ms)

    def stop(self) -> None:
        self.cluster.stop()

    def kill(self) -> None:
        self.folder.abandon()
