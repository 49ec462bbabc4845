"""The formats of a data folder's files. A start refuses files of a later version before it changes any file.

Ignoring a file of a later version, as if it were damaged, could lose its contents. The cluster's document has a version
of its own, which stands for all other formats, such as that of record batches: `broker/metadata.py`.
"""

from __future__ import annotations

import re

from fencepost.server.storage.checkpoints import (
    CLEAN_OFFSETS_NAME,
    RECOVERY_POINTS_NAME,
    START_OFFSETS_NAME,
    read_file,
)
from fencepost.server.storage.identity import DataFolderUnusable
from fencepost.server.storage.last_stop import CLEAN_NAME

CHECKPOINTS = (RECOVERY_POINTS_NAME, START_OFFSETS_NAME, CLEAN_OFFSETS_NAME, CLEAN_NAME)
CHECKPOINT_VERSION = 0
TOPIC_ID_VERSION = 0

_TOPIC_ID_VERSION = re.compile(rb"version: *(\d+)\s")


def refuse_later_checkpoints(folder: str) -> None:
    """Raises DataFolderUnusable."""
    for name in CHECKPOINTS:
        first, newline, _ = (read_file(f"{folder}/{name}") or b"").partition(b"\n")
        if newline and first.isdigit():
            _refuse_later(f"{folder}/{name}", int(first), CHECKPOINT_VERSION)


def refuse_later_topic_id(path: str, content: bytes | None) -> None:
    """Raises DataFolderUnusable."""
    match = _TOPIC_ID_VERSION.match(content or b"")
    if match is not None:
        _refuse_later(path, int(match[1]), TOPIC_ID_VERSION)


def _refuse_later(path: str, found: int, known: int) -> None:
    if found > known:
        raise DataFolderUnusable(
            f"{path} has version {found}, and this version of Fencepost knows versions up to {known}",
            "start the version that wrote it, or restore a copy of the folder from before the upgrade",
        )
