"""Logs on disk, in Kafka's layout. `DataFolder` is the storage of a broker; the rest serves it."""

from __future__ import annotations

from fencepost.server.storage.deferring import Defer
from fencepost.server.storage.file_log import FileLog
from fencepost.server.storage.folder import DataFolder
from fencepost.server.storage.identity import DataFolderUnusable
from fencepost.server.storage.segment import CorruptLog

__all__ = ["CorruptLog", "DataFolder", "DataFolderUnusable", "Defer", "FileLog"]
