"""A topic is deleted and another one gets its name: neither affects the files or the checkpoints of the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.machines.log.interface import AbortedTxn, LogConfig, StorageFailed
from fencepost.protocol.batch import encode_batch, stamp
from fencepost.server.storage import DataFolder, FileLog
from fencepost.server.storage.syncing import Done
from tests.unit.server.later import Later

OLD_ID, NEW_ID = bytes(range(16)), bytes(range(1, 17))
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)
POINTS, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"


def put(log: FileLog, value: bytes = b"value", count: int = 1) -> None:
    for _ in range(count):
        offset = log.end_offset
        log.append(stamp(encode_batch([(None, value)], 1000 + offset), offset, 0), offset, offset, 1000 + offset)


def old_log(folder: DataFolder, count: int = 14) -> FileLog:
    log = folder.open_log("orders", 0, OLD_ID, SMALL)
    put(log, count=count)
    log.save_snapshot(b"state")
    return log


def new_log(folder: DataFolder) -> FileLog:
    return folder.open_log("orders", 0, NEW_ID, SMALL)


def content(log: FileLog) -> bytes:
    return log.read(0, 1 << 20, log.end_address) if log.end_offset else b""


@contextmanager
def refusing_to_write(path: Path, name: str) -> Iterator[None]:
    """A disk that refuses to write one of the small files."""
    (path / f"{name}.tmp").mkdir()
    yield
    (path / f"{name}.tmp").rmdir()


# --- what is noted by name ----------------------------------------------------------------------------------


def test_a_disk_that_refuses_a_checkpoint_does_not_give_the_files_to_the_next_topic(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    old_log(folder).advance_start(6)
    with refusing_to_write(tmp_path, STARTS):
        folder.delete_log("orders", 0)
        assert not (tmp_path / "orders-0").exists()
        with pytest.raises(StorageFailed):
            new_log(folder)  # After a crash its first records would be hidden.
    log = new_log(folder)
    assert (log.start_offset, log.end_offset) == (0, 0)
    put(log, b"new")
    folder.abandon()
    folder = DataFolder(str(tmp_path))
    log = new_log(folder)
    assert (log.start_offset, folder.strays()) == (0, [])
    assert b"new" in content(log)
    folder.close()


def test_files_that_could_not_be_moved_away_are_not_the_next_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    folder = DataFolder(str(tmp_path), report=lines.append)
    old_log(folder)

    def refuse(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", refuse)
        with pytest.raises(StorageFailed):
            folder.delete_log("orders", 0)
        with pytest.raises(StorageFailed):
            new_log(folder)
    log = new_log(folder)
    assert log.end_offset == 0
    assert lines[-1] == "orders-0: removed the files of a deleted topic with the same name"
    put(log, b"new")
    folder.abandon()
    assert b"new" in content(new_log(DataFolder(str(tmp_path))))


def test_the_start_offset_of_a_deleted_log_does_not_come_back_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    fsync = os.fsync

    def watched(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watched)
    folder = DataFolder(str(tmp_path))
    old_log(folder).advance_start(6)
    folder.delete_log("orders", 0)
    new_log(folder)
    assert (tmp_path / STARTS).read_text() == "0\n0\n"
    assert (tmp_path / STARTS).stat().st_ino in synced
    folder.close()


def test_a_checkpoint_under_way_does_not_vouch_for_the_next_log(tmp_path: Path) -> None:
    later = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=later)
    old_log(folder)
    ((work, done),) = later.jobs
    later.jobs.clear()
    folder.delete_log("orders", 0)
    put(new_log(folder))
    work()
    assert (tmp_path / POINTS).read_text() == "0\n0\n"
    done(None)
    folder.close()


def test_a_recovery_point_that_cannot_be_removed_keeps_its_name_from_being_used(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path), flush=True)
    old_log(folder)
    with refusing_to_write(tmp_path, POINTS):
        folder.delete_log("orders", 0)
        assert "orders 0 14" in (tmp_path / POINTS).read_text()
        with pytest.raises(StorageFailed):
            new_log(folder)
    put(new_log(folder))
    assert (tmp_path / POINTS).read_text() == "0\n0\n"
    folder.close()


# --- files, by callers that still have the old log ----------------------------------------------------------


def begin_swap(folder: DataFolder, later: Later) -> tuple[Callable[[], None], Done, list[bool]]:
    """Begin to swap in a cleaned segment; return the work for the other thread, its `done`, and the results."""
    log = old_log(folder)
    later.run()
    rewrite = log.rewrite(0, 8)
    rewrite.append(log.read(7, 1, log.end_address), 7, 1007)
    told: list[bool] = []
    rewrite.finish(told.append)
    ((work, done),) = later.jobs
    later.jobs.clear()
    return work, done, told


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("ends_with", ["an answer", "a stop"])
def test_a_cleaned_segment_of_a_deleted_log_is_not_swapped_in(
    is_made_again: bool, ends_with: str, tmp_path: Path
) -> None:
    later = Later()
    folder = DataFolder(str(tmp_path), defer=later)
    work, done, told = begin_swap(folder, later)
    work()
    folder.delete_log("orders", 0)
    if is_made_again:
        put(new_log(folder), b"new")
    before = sorted(os.listdir(tmp_path / "orders-0")) if is_made_again else []
    if ends_with == "an answer":
        done(None)
        assert told == [False]
        folder.abandon()
    else:
        folder.close()
        done(None)
    if is_made_again:
        assert set(before) <= set(os.listdir(tmp_path / "orders-0"))
        log = new_log(DataFolder(str(tmp_path)))
        assert b"new" in content(log)
        assert log.end_offset == 1
    else:
        assert not (tmp_path / "orders-0").exists()


def test_a_rewrite_of_a_deleted_log_leaves_that_of_the_next_one_alone(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = old_log(folder)
    rewrites = [log.rewrite(0, 8) for _ in range(3)]
    folder.delete_log("orders", 0)
    log = new_log(folder)
    put(log, b"new", 14)
    rewrite = log.rewrite(0, 4)
    rewrite.append(content(log)[: log.address_of(1)], 0, 1000)
    before = sorted(os.listdir(tmp_path / "orders-0"))
    for old in rewrites:
        old.append(b"old", 3, 1003)
    told: list[bool] = []
    rewrites[0].finish(told.append)
    rewrites[1].abandon()
    with pytest.raises(StorageFailed):
        for _ in range(100_000):
            rewrites[2].append(b"old", 3, 1003)
    assert told == [False]
    assert sorted(os.listdir(tmp_path / "orders-0")) == before
    rewrite.abandon()
    folder.close()


READS: dict[str, Callable[[FileLog], object]] = {
    "read": lambda log: log.read(0, 1 << 20, log.end_address),
    "address_of": lambda log: log.address_of(3),
    "scan": lambda log: list(log.scan(0)),
    "first_batch_not_before": lambda log: log.first_batch_not_before(1003),
    "aborted": lambda log: log.aborted(0, 100),
    "append_aborted": lambda log: log.append_aborted(AbortedTxn(1, 0, 13, 14)),
    "rewrite": lambda log: log.rewrite(0, 8),
    "roll": lambda log: log.roll(),
    "append": put,
}


@pytest.mark.parametrize("name", READS)
def test_a_deleted_log_does_not_read_or_write_the_files_of_the_next_one(name: str, tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = old_log(folder)
    folder.delete_log("orders", 0)
    put(new_log(folder), b"new", 14)
    before = sorted(os.listdir(tmp_path / "orders-0"))
    with pytest.raises(StorageFailed, match="is deleted"):
        READS[name](log)
    log.save_snapshot(b"old")
    assert log.segments() == []
    assert sorted(os.listdir(tmp_path / "orders-0")) == before
    folder.close()


def test_a_scan_ends_when_its_log_is_deleted(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    scan = old_log(folder).scan(0)
    next(scan)
    folder.delete_log("orders", 0)
    put(new_log(folder), b"new", 14)
    with pytest.raises(StorageFailed):
        list(scan)
    folder.close()


def test_commits_do_not_queue_behind_all_the_directories_that_are_to_be_removed(tmp_path: Path) -> None:
    later = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=later)
    for partition in range(20):
        put(folder.open_log("old", partition, OLD_ID, SMALL))
    log = new_log(folder)
    put(log)
    for partition in range(20):
        folder.delete_log("old", partition)
    done: list[int] = []
    folder.sync([log], lambda: done.append(1))
    assert len(later.jobs) <= 3, "one removal, one checkpoint, and the sync"
    later.run()
    assert done == [1]
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith(("old", "orders"))) == ["orders-0"]
    folder.close()
