"""How the last process that used a data folder ended, and so which of its files can be trusted.

.kafka_cleanshutdown     written by a clean stop and removed by the next start: every log's end offset and size
boot-id                  in which boot of the machine the logs were written
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum

from fencepost.server.storage.checkpoints import decode_checkpoint, encode_checkpoint, read_file, replace_file
from fencepost.server.storage.syncing import sync_directory

CLEAN_NAME = ".kafka_cleanshutdown"
BOOT_NAME = "boot-id"

# Of each log, by its name: the end offset, and the size of its `.log` files.
Ends = dict[str, tuple[int, int]]


class Trust(Enum):
    """See `recovery.py`."""

    CLEAN = "clean"
    SAME_BOOT = "same boot"
    OTHER_BOOT = "other boot"


class LastStop:
    """Read once, when the folder is opened; nothing changes until `begin`.

    `boot` is the current boot, or None if the kernel does not say.
    """

    def __init__(self, folder: str, boot: str | None) -> None:
        self._folder = folder
        self._boot_path = f"{folder}/{BOOT_NAME}"
        self._boot = boot
        clean_path = f"{folder}/{CLEAN_NAME}"
        boot_before = read_file(self._boot_path)
        self.clean_ends = _decode_ends(read_file(clean_path))
        if os.path.exists(clean_path):
            self.trust = Trust.CLEAN
        elif boot is not None and boot_before == boot.encode():
            self.trust = Trust.SAME_BOOT
        else:
            self.trust = Trust.OTHER_BOOT
        # Where the kernel does not tell one boot from another, it was more likely the process that ended.
        self.may_have_lost_appends = self.trust is Trust.OTHER_BOOT and boot is not None and boot_before is not None

    def begin(self) -> None:
        """The logs may be written from now on, so the clean stop does not vouch for them any more."""
        if self.trust is Trust.CLEAN:
            with suppress(FileNotFoundError):  # Called again, by `distrust`.
                os.unlink(f"{self._folder}/{CLEAN_NAME}")
            # If a power loss brought the file back, it would vouch for logs that were written since.
            sync_directory(self._folder)

    def distrust(self) -> None:
        """Treat this start as one after a power loss, and the next one too, unless `note_boot` comes before it."""
        replace_file(self._boot_path, b"unknown", durable=True)
        self.begin()
        self.trust = Trust.OTHER_BOOT
        self.may_have_lost_appends = True

    def note_boot(self) -> None:
        """Every log was checked since the machine started: a process that follows in this boot need not do it again."""
        if self._boot is not None and read_file(self._boot_path) != self._boot.encode():
            replace_file(self._boot_path, self._boot.encode(), durable=True)


def write_clean_stop(folder: str, ends: Ends) -> None:
    """Raises OSError."""
    lines = (f"{name} {end_offset} {size}" for name, (end_offset, size) in sorted(ends.items()))
    replace_file(f"{folder}/{CLEAN_NAME}", encode_checkpoint(lines), durable=True)


def _decode_ends(content: bytes | None) -> Ends:
    try:
        lines = decode_checkpoint(content) or []
        return {name: (int(end_offset), int(size)) for name, end_offset, size in lines}
    except ValueError:
        return {}
