"""What a clean stop notes about files that have no checksum, and what the next start does where they have changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.protocol.batch import encode_batch, stamp
from fencepost.server.storage import DataFolder, FileLog
from fencepost.server.storage.missing import DataMissing
from tests.unit.server.surveyed import TOPIC_ID, SurveyedFolder
from tests.unit.server.test_storage_recovery import SMALL

CLEAN, CHECKSUMS = ".kafka_cleanshutdown", "clean-stop-checksums"
EPOCHS = "orders-0/leader-epoch-checkpoint"
START_OFFSETS, CLEAN_OFFSETS = "log-start-offset-checkpoint", "cleaner-offset-checkpoint"


def same_boot() -> str:
    return "the same boot"


def stopped(path: Path) -> None:
    """A log of two leader epochs, whose first records were deleted."""
    folder = SurveyedFolder(str(path), boot=same_boot)
    log = folder.open_log("orders", 0, TOPIC_ID, SMALL)
    for offset in range(20):
        log.append(stamp(encode_batch([(None, b"value")], 0), offset, offset // 10), offset, offset, 0)
    log.save_snapshot(b"state")
    log.advance_start(7)
    log.note_clean(5)
    folder.close()


def opened(path: Path, lines: list[str], missing: str = "refuse") -> tuple[DataFolder, FileLog]:
    folder = SurveyedFolder(str(path), boot=same_boot, report=lines.append, missing=missing)
    return folder, folder.open_log("orders", 0, TOPIC_ID, SMALL)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "another digit": lambda content: content.replace(b"7", b"3").replace(b" 10", b" 14").replace(b" 5", b" 9"),
    "empty": lambda content: b"",
    "cut": lambda content: content[:-3],
    "text": lambda content: b"not a checkpoint",
}
ENDLESS: dict[str, Callable[[bytes], bytes]] = {"without its last byte": lambda content: content[:-1]}


@pytest.mark.parametrize("damage", DAMAGES | ENDLESS)
def test_a_start_offset_that_changed_is_refused_or_not_used(tmp_path: Path, damage: str) -> None:
    stopped(tmp_path)
    spoil(tmp_path / START_OFFSETS, damage)
    with pytest.raises(DataMissing, match="log-start-offset-checkpoint: it is not as the clean stop left it"):
        SurveyedFolder(str(tmp_path), boot=same_boot)
    lines: list[str] = []
    folder, log = opened(tmp_path, lines, missing="accept")
    assert (log.start_offset, log.end_offset) == (0, 20), "no record is hidden"
    assert lines == ["log-start-offset-checkpoint is not as the clean stop left it: not used"]
    folder.abandon()
    folder, log = opened(tmp_path, lines)
    assert (log.start_offset, len(lines)) == (0, 1), "not after the next start either"
    folder.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_clean_offset_that_changed_is_not_used(tmp_path: Path, damage: str) -> None:
    stopped(tmp_path)
    spoil(tmp_path / CLEAN_OFFSETS, damage)
    lines: list[str] = []
    folder, log = opened(tmp_path, lines)
    assert (log.clean_offset, log.start_offset) == (0, 7)
    assert lines == ["cleaner-offset-checkpoint is not as the clean stop left it: not used"]
    folder.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_leader_epochs_that_changed_are_made_again_from_the_log(tmp_path: Path, damage: str) -> None:
    stopped(tmp_path)
    spoil(tmp_path / EPOCHS, damage)
    lines: list[str] = []
    folder, log = opened(tmp_path, lines)
    assert log.leader_epochs() == [(0, 0), (1, 10)]
    assert (log.start_offset, log.end_offset) == (7, 20)
    assert len(lines) == 1
    assert "leader-epoch-checkpoint" in lines[0]
    folder.close()


@pytest.mark.parametrize("name", [CLEAN, CHECKSUMS])
def test_a_damaged_note_of_the_stop_vouches_for_nothing(tmp_path: Path, name: str) -> None:
    stopped(tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    for position in range(1, len(content)):  # Before it is the version: a later one is refused.
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        lines: list[str] = []
        folder, log = opened(tmp_path, lines)
        assert (log.start_offset, log.end_offset, log.leader_epochs()) == (7, 20, [(0, 0), (1, 10)])
        assert lines == [".kafka_cleanshutdown is not as the clean stop left it: the logs are checked as after a kill"]
        folder.close()
        assert path.read_bytes() == content


def test_a_stop_of_an_earlier_version_is_trusted_without_checksums(tmp_path: Path) -> None:
    stopped(tmp_path)
    (tmp_path / CHECKSUMS).unlink()
    lines: list[str] = []
    folder, log = opened(tmp_path, lines)
    assert (log.start_offset, log.end_offset, lines) == (7, 20, [])
    folder.close()


def spoil(path: Path, damage: str) -> None:
    content = path.read_bytes()
    spoilt = (DAMAGES | ENDLESS)[damage](content)
    assert spoilt != content
    path.write_bytes(spoilt)
