"""The small text files of a data folder, in Kafka's layouts, and how one is replaced."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise

from fencepost.protocol.batch import Buffer

EPOCHS_NAME = "leader-epoch-checkpoint"
TOPIC_ID_NAME = "partition.metadata"
RECOVERY_POINTS_NAME = "recovery-point-offset-checkpoint"
START_OFFSETS_NAME = "log-start-offset-checkpoint"
CLEAN_OFFSETS_NAME = "cleaner-offset-checkpoint"

_SMALL_BYTES, _LARGE_BYTES = 1 << 12, 1 << 20


class NotDurable(OSError):
    """The file was replaced, and it is unknown whether it will be after a power loss."""


def replace_file(
    path: str, content: bytes, durable: bool, before: Callable[[], None] | None = None, is_private: bool = False
) -> None:
    """Replace the content atomically, also with regard to crashes. `before` is called before the rename.

    Only its owner may read a private file.

    Raises OSError, and then the old content is still there; NotDurable if only the sync of the directory failed.
    """
    temporary = path + ".tmp"
    # Opened first, so that nothing has changed if no descriptor is left.
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if durable else -1
    try:
        try:
            _write_file(temporary, content, durable, is_private)
            if before is not None:
                before()
            os.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        if durable:
            try:
                os.fsync(directory)
            except OSError as error:
                raise NotDurable(error.errno, error.strerror, path) from error
    finally:
        if durable:
            os.close(directory)


def _write_file(path: str, content: bytes, durable: bool, is_private: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600 if is_private else 0o644)
    try:
        if is_private:
            os.fchmod(fd, 0o600)  # A crash may have left the file.
        written = 0
        while written < len(content):
            written += os.write(fd, content[written:])
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def read_file(path: str) -> bytes | None:
    # A start reads several small files of every log. This takes half as long as a file object.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = os.pread(fd, _SMALL_BYTES, 0)
        if len(content) == _SMALL_BYTES:
            while more := os.pread(fd, _LARGE_BYTES, len(content)):
                content += more
        return content
    except OSError as error:
        error.filename = path  # The call knows only the descriptor.
        raise
    finally:
        os.close(fd)


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    """Kafka's checkpoint layout: version 0, the number of lines, the lines."""
    lines = list(lines)
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_checkpoint(content: bytes | None) -> list[list[str]] | None:
    """The fields of every line; None if the file is missing or incomplete."""
    if content is None:
        return None
    lines = content.decode(errors="replace").splitlines()
    if len(lines) < 2 or lines[0] != "0" or lines[1] != str(len(lines) - 2):
        return None
    return [line.split() for line in lines[2:]]


def encode_offsets(offsets: dict[str, int]) -> bytes:
    """One offset for every log, which is named `<topic>-<partition>`."""
    lines = []
    for name, offset in sorted(offsets.items()):
        topic, _, partition = name.rpartition("-")
        lines.append(f"{topic} {partition} {offset}")
    return encode_checkpoint(lines)


def decode_offsets(content: bytes | None) -> dict[str, int] | None:
    """None if the file is missing or damaged."""
    try:
        lines = decode_checkpoint(content)
        return None if lines is None else {f"{topic}-{index}": int(offset) for topic, index, offset in lines}
    except ValueError:
        return None


def encode_leader_epochs(epochs: list[tuple[int, int]]) -> bytes:
    return encode_checkpoint(f"{epoch} {start_offset}" for epoch, start_offset in epochs)


def write_leader_epochs(directory: str, epochs: list[tuple[int, int]]) -> None:
    replace_file(f"{directory}/{EPOCHS_NAME}", encode_leader_epochs(epochs), durable=False)


def read_leader_epochs(directory: str) -> list[tuple[int, int]] | None:
    """None if the file is missing or damaged: epochs and their offsets rise."""
    lines = decode_checkpoint(read_file(f"{directory}/{EPOCHS_NAME}"))
    try:
        epochs = None if lines is None else [(int(epoch), int(start_offset)) for epoch, start_offset in lines]
    except ValueError:
        return None
    if epochs and any(after[0] <= before[0] or after[1] < before[1] for before, after in pairwise([(-1, 0), *epochs])):
        return None
    return epochs


def encode_topic_id(topic_id: bytes) -> bytes:
    return b"version: 0\ntopic_id: " + base64.urlsafe_b64encode(topic_id).rstrip(b"=")


def decode_topic_id(content: bytes | None) -> bytes | None:
    """None if the file is missing or incomplete."""
    if content is None or not content.startswith(b"version: 0\ntopic_id: "):
        return None
    try:
        topic_id = base64.urlsafe_b64decode(content.split()[-1] + b"==")
    except ValueError:
        return None
    return topic_id if len(topic_id) == 16 else None


class EpochStarts:
    """The leader epochs of a log, and the file of them: at which offset the batches of each epoch begin.

    `last` is the epoch of the last batch, as it stands in the batch header; empty if the log never had a batch.
    """

    __slots__ = ("_directory", "_starts", "last")

    def __init__(self, directory: str, starts: list[tuple[int, int]]) -> None:
        self._directory = directory
        self._starts = starts
        self.last = starts[-1][0].to_bytes(4, "big", signed=True) if starts else b""

    def all(self) -> list[tuple[int, int]]:
        """Each epoch with the offset of its first batch."""
        return list(self._starts)

    def begin(self, leader_epoch: Buffer, start_offset: int) -> None:
        """The next batch has another epoch than the last one: note it if it is new. Raises OSError."""
        epoch = int.from_bytes(leader_epoch, "big", signed=True)
        if epoch > (self._starts[-1][0] if self._starts else -1):
            starts = [*self._starts, (epoch, start_offset)]
            write_leader_epochs(self._directory, starts)
            self._starts = starts
        self.last = bytes(leader_epoch)
