"""How the last process that used a data folder ended, and so which of its files can be trusted.

.kafka_cleanshutdown     written by a clean stop and removed by the next start: every log's end offset and size
clean-stop-checksums     written and removed with it: CRC-32C of the files that have Kafka's layout, and so no checksum
boot-id                  in which boot of the machine the logs were written
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from fencepost.protocol.crc import crc32c
from fencepost.server.storage.checkpoints import decode_checkpoint, encode_checkpoint, read_file, replace_file
from fencepost.server.storage.syncing import sync_directory

CLEAN_NAME = ".kafka_cleanshutdown"
CHECKSUMS_NAME = "clean-stop-checksums"
BOOT_NAME = "boot-id"


class CleanEnd(NamedTuple):
    """A log at a clean stop."""

    end_offset: int
    size_bytes: int  # Of its `.log` files.
    epochs_checksum: str | None = None  # Of its leader-epoch-checkpoint. None: an earlier version stopped.


Ends = dict[str, CleanEnd]


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
        boot_before = read_file(self._boot_path)
        clean = read_file(f"{folder}/{CLEAN_NAME}")
        self._left = [name for name in (CLEAN_NAME, CHECKSUMS_NAME) if os.path.exists(f"{folder}/{name}")]
        self._checksums = _decode_checksums(read_file(f"{folder}/{CHECKSUMS_NAME}"))
        self.is_damaged = clean is not None and not self._vouches_for(CLEAN_NAME, clean)
        self.clean_ends: Ends = {}
        if clean is not None and not self.is_damaged:
            self.clean_ends = _decode_ends(clean, self._checksums or {})
            self.trust = Trust.CLEAN
        elif boot is not None and boot_before == boot.encode():
            self.trust = Trust.SAME_BOOT
        else:
            self.trust = Trust.OTHER_BOOT
        # Where the kernel does not tell one boot from another, it was more likely the process that ended.
        self.may_have_lost_appends = self.trust is Trust.OTHER_BOOT and boot is not None and boot_before is not None

    def has_changed(self, name: str, content: bytes | None) -> bool:
        """Whether the file of the folder is not as the clean stop left it."""
        return self.trust is Trust.CLEAN and not self._vouches_for(name, content)

    def _vouches_for(self, name: str, content: bytes | None) -> bool:
        return self._checksums is None or self._checksums.get(name) == checksum(content)

    def begin(self) -> None:
        """The logs may be written from now on, so the clean stop does not vouch for them any more."""
        if self._left:
            for name in self._left:
                with suppress(FileNotFoundError):  # Called again, by `distrust`.
                    os.unlink(f"{self._folder}/{name}")
            # If a power loss brought the files back, they would vouch for logs that were written since.
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


def write_clean_stop(folder: str, ends: Ends, checked: Iterable[str]) -> None:
    """Note the ends of the logs, and the checksums of the files `checked` of the folder. Raises OSError."""
    clean = encode_checkpoint(f"{name} {end.end_offset} {end.size_bytes}" for name, end in sorted(ends.items()))
    noted = {name: end.epochs_checksum for name, end in sorted(ends.items()) if end.epochs_checksum is not None}
    noted |= {name: checksum(read_file(f"{folder}/{name}")) for name in checked}
    noted[CLEAN_NAME] = checksum(clean)
    # Not synced: if a power loss damages it, the next start checks the logs.
    replace_file(f"{folder}/{CHECKSUMS_NAME}", _encode_checksums(noted), durable=False)
    replace_file(f"{folder}/{CLEAN_NAME}", clean, durable=True)


def checksum(content: bytes | None) -> str:
    """A file that is not there counts as an empty one."""
    return f"{crc32c(content or b''):08x}"


def _decode_ends(content: bytes, checksums: Mapping[str, str]) -> Ends:
    try:
        lines = decode_checkpoint(content) or []
        return {name: CleanEnd(int(end), int(size), checksums.get(name)) for name, end, size in lines}
    except ValueError:
        return {}


def _encode_checksums(checksums: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name} {noted}\n" for name, noted in checksums.items()).encode()
    return checksum(lines).encode() + b"\n" + lines


def _decode_checksums(content: bytes | None) -> Mapping[str, str] | None:
    """None if there is no such file; empty if it is damaged, and then it vouches for nothing."""
    if content is None:
        return None
    noted, _, lines = content.partition(b"\n")
    if noted != checksum(lines).encode():
        return {}
    return dict(line.rsplit(" ", 1) for line in lines.decode().splitlines())
