"""The cluster's document on disk: sealed by a checksum, and numbered.

The storage adds two fields to the JSON document when it writes it, `revision` and `crc32c`, and takes them away when it
reads it. Documents of earlier versions lack them.

An older copy of the document has a right checksum, but it lacks newer topics, and producer ids would be given out
again. So the revision is also noted in the file `metadata-revision`, after each save. The note is not synced: it may be
behind the document, never ahead of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from fencepost.protocol.crc import crc32c
from fencepost.server.storage.checkpoints import read_file, replace_file
from fencepost.server.storage.identity import DataFolderUnusable

METADATA_NAME = "fencepost.metadata"
REVISION_NAME = "metadata-revision"

_SEAL = re.compile(rb',\n "revision": (\d+),\n "crc32c": "([0-9a-f]{8})"\n}\s*\Z')


class Document:
    """The document of one folder. Nothing else may write it meanwhile."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{METADATA_NAME}"
        self._note_path = f"{folder}/{REVISION_NAME}"
        self.revision: int | None = None  # None: there is no document, or an earlier version wrote it.
        self.noted_revision = _decode_note(read_file(self._note_path))

    def load(self) -> bytes | None:
        """Raises DataFolderUnusable if it is not what was written."""
        content = read_file(self._path)
        seal = _SEAL.search(content or b"")
        if content is None or seal is None:
            return content
        checksum = _checksum(content[: seal.end(1)])
        if checksum != seal[2].decode():
            raise DataFolderUnusable(
                f"{self._path} is damaged: its checksum is {checksum}, and it was written with {seal[2].decode()}",
                "restore the newest copy of this file, and check the disk; if you changed it by hand, remove its last "
                'two fields, "revision" and "crc32c"',
            )
        self.revision = int(seal[1])
        return content[: seal.start()] + b"\n}"

    def save(self, document: bytes, at_half: Callable[[], None] | None = None) -> None:
        """Raises OSError."""
        revision = max(self.revision or 0, self.noted_revision) + 1
        body = document.rstrip().removesuffix(b"}").rstrip() + b',\n "revision": %d' % revision
        sealed = body + f',\n "crc32c": "{_checksum(body)}"\n}}'.encode()
        # It has the keys of users who log in by SCRAM.
        replace_file(self._path, sealed, durable=True, before=at_half, is_private=True)
        self.revision = self.noted_revision = revision
        with suppress(OSError):  # The next save tries again.
            replace_file(self._note_path, _encode_note(revision), durable=False)

    def describe_older_copy(self) -> str | None:
        """A line for the user if this document, or none, was there before the last one. Call after `load`."""
        if (self.revision or 0) >= self.noted_revision:
            return None
        found = "has no revision" if self.revision is None else f"is revision {self.revision}"
        return f"{METADATA_NAME}: it {found}; by {REVISION_NAME}, revision {self.noted_revision} was saved"


def _checksum(content: bytes) -> str:
    return f"{crc32c(content):08x}"


def _encode_note(revision: int) -> bytes:
    number = str(revision).encode()
    return number + b" " + _checksum(number).encode() + b"\n"


def _decode_note(content: bytes | None) -> int:
    """0 if there is none, or if it is damaged."""
    number, _, checksum = (content or b"").strip().partition(b" ")
    return int(number) if checksum and checksum.decode(errors="replace") == _checksum(number) else 0
