"""The data folder: its lock, creation and deletion of logs, and callers that wait for the disk."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.machines.log.interface import LogConfig, LogTailUnknown, StorageFailed
from fencepost.protocol.batch import encode_batch, stamp
from fencepost.server.storage import DataFolder, DataFolderUnusable, FileLog
from fencepost.server.storage.syncing import Done
from tests.unit.server.later import Later
from tests.unit.server.surveyed import SurveyedFolder

TOPIC_ID = bytes(range(16))


def put(log: FileLog) -> None:
    offset = log.end_offset
    log.append(stamp(encode_batch([(None, b"value")], 0), offset, 0), offset, offset, 0)


def test_a_second_broker_on_the_folder_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    with pytest.raises(DataFolderUnusable) as refused:
        DataFolder(str(tmp_path))
    assert str(refused.value) == (
        f"the data folder {tmp_path} is in use by process {os.getpid()}\n\n"
        "hint: stop that broker, or give this one another folder with --data"
    )
    folder.close()
    DataFolder(str(tmp_path)).close()


def test_only_the_owner_may_read_the_document_which_has_the_keys_of_users(tmp_path: Path) -> None:
    document = tmp_path / "fencepost.metadata"
    left_by_a_crash = tmp_path / "fencepost.metadata.tmp"
    left_by_a_crash.touch(mode=0o644)
    folder = DataFolder(str(tmp_path))
    folder.save_metadata(b'{"a": 1}')
    folder.close()
    assert stat.S_IMODE(document.stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_made_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderUnusable, match="is a file and not a data folder\n\nhint: "):
        DataFolder(str(tmp_path / "file"))
    with pytest.raises(DataFolderUnusable, match="cannot be made: Not a directory\n\nhint: "):
        DataFolder(str(tmp_path / "file" / "data"))


def test_a_folder_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    with pytest.raises(DataFolderUnusable, match="has version 0, expected 1"):
        DataFolder(str(tmp_path))
    (tmp_path / "meta.properties").unlink()
    DataFolder(str(tmp_path)).close()  # The lock of the refused attempt is free again.


def test_the_lock_has_the_process_id_while_the_folder_is_open_and_nothing_after_a_stop(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    folder.close()
    assert (tmp_path / ".lock").read_text() == ""


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
        ".kafka_cleanshutdown",
    ],
)
def test_a_checkpoint_of_a_later_version_is_refused_and_not_taken_for_a_damaged_one(name: str, tmp_path: Path) -> None:
    DataFolder(str(tmp_path)).close()
    (tmp_path / name).write_text("1\n0\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"}
    with pytest.raises(DataFolderUnusable, match=f"{name} has version 1, .* knows versions up to 0\n\nhint: "):
        DataFolder(str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"} == before


def test_a_log_of_a_later_version_is_refused(tmp_path: Path) -> None:
    SurveyedFolder(str(tmp_path)).close()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "partition.metadata").write_text("version: 1\ntopic_id: AAAA\n")
    with pytest.raises(DataFolderUnusable, match=r"partition\.metadata has version 1, .* up to 0\n\nhint: "):
        SurveyedFolder(str(tmp_path))


def test_the_cluster_id_stays(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    cluster_id = folder.cluster_id
    folder.close()
    folder = DataFolder(str(tmp_path))
    assert folder.cluster_id == cluster_id
    folder.note_cluster("another", node_id=7)
    folder.close()
    assert (tmp_path / "meta.properties").read_text() == "version=1\ncluster.id=another\nnode.id=7\n"


def test_metadata_is_none_until_it_is_saved(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    assert folder.load_metadata() is None
    folder.save_metadata(b'{"a": 1}')
    assert folder.load_metadata() == b'{"a": 1\n}'
    folder.close()


def test_metadata_that_cannot_be_saved_leaves_the_old(tmp_path: Path) -> None:
    full = False

    def at(point: str) -> None:
        if full and point == "metadata.save":
            raise OSError(28, "No space left on device")

    folder = DataFolder(str(tmp_path), at=at)
    folder.save_metadata(b'{"a": "old"}')
    full = True
    with pytest.raises(StorageFailed, match="No space left"):
        folder.save_metadata(b'{"a": "new"}')
    assert folder.load_metadata() == b'{"a": "old"\n}'
    assert not (tmp_path / "fencepost.metadata.tmp").exists()
    folder.close()


def test_a_deleted_log_is_gone_at_once_and_its_files_later(tmp_path: Path) -> None:
    defer = Later()
    folder = DataFolder(str(tmp_path), defer=defer)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    put(log)
    folder.delete_log("orders", 0)
    assert not (tmp_path / "orders-0").exists()
    with pytest.raises(StorageFailed):
        put(log)
    again = folder.open_log("orders", 0, bytes(16), LogConfig())
    assert again.end_offset == 0
    put(again)
    defer.run()
    assert sorted(name for name in os.listdir(tmp_path) if "orders" in name) == ["orders-0"]
    folder.close()


def test_directories_that_a_killed_process_had_not_removed_are_removed_at_the_next_start(tmp_path: Path) -> None:
    defer = Later()
    folder = DataFolder(str(tmp_path), defer=defer)
    put(folder.open_log("x" * 249, 0, TOPIC_ID, LogConfig()))
    folder.delete_log("x" * 249, 0)
    folder.abandon()
    (tmp_path / "mine-delete").mkdir()
    assert len([name for name in os.listdir(tmp_path) if name.endswith("-delete")]) == 2
    DataFolder(str(tmp_path)).close()
    assert [name for name in os.listdir(tmp_path) if name.endswith("-delete")] == ["mine-delete"]


def test_a_deleted_log_leaves_no_recovery_point(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    put(folder.open_log("orders", 0, TOPIC_ID, LogConfig()))
    folder.close()
    folder = DataFolder(str(tmp_path))
    assert "orders 0 1" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    folder.delete_log("orders", 0)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
    folder.close()


def test_logs_that_are_not_opened_are_strays(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    for partition in range(3):
        put(folder.open_log("or-ders", partition, TOPIC_ID, LogConfig()))
    folder.close()
    folder = DataFolder(str(tmp_path))
    folder.open_log("or-ders", 1, TOPIC_ID, LogConfig())
    assert folder.strays() == ["or-ders-0", "or-ders-2"]
    folder.delete_strays()
    assert folder.strays() == []
    assert [name for name in os.listdir(tmp_path) if name.startswith("or-ders")] == ["or-ders-1"]
    folder.close()


def test_a_clean_stop_vouches_for_logs_that_were_not_opened(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    put(folder.open_log("orders", 0, TOPIC_ID, LogConfig()))
    folder.close()
    DataFolder(str(tmp_path)).close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    folder = DataFolder(str(tmp_path))
    assert folder.open_log("orders", 0, TOPIC_ID, LogConfig()).end_offset == 1
    folder.close()


def test_without_flush_no_caller_waits(tmp_path: Path) -> None:
    defer = Later()
    folder = DataFolder(str(tmp_path), defer=defer)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    put(log)
    done: list[int] = []
    folder.sync([log], lambda: done.append(1))
    assert (done, defer.jobs) == ([1], [])
    folder.close()


def test_the_first_sync_of_a_log_makes_its_topic_id_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start takes a log with another topic id for one of a deleted topic, and removes it."""
    synced: set[int] = set()
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.add(os.fstat(fd).st_ino))
    defer = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=defer)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    put(log)
    done: list[int] = []
    folder.sync([log], lambda: done.append(1))
    defer.run()
    assert done == [1]
    assert {(tmp_path / "orders-0" / name).stat().st_ino for name in ("partition.metadata", f"{0:020}.log")} <= synced
    folder.close()


def test_callers_that_come_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    defer = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=defer)
    logs = [folder.open_log("orders", partition, TOPIC_ID, LogConfig()) for partition in range(3)]
    done: list[str] = []
    put(logs[0])
    folder.sync([logs[0]], lambda: done.append("first"))
    for name, log in (("second", logs[0]), ("third", logs[1]), ("fourth", logs[2])):
        put(log)
        folder.sync([log], lambda name=name: done.append(name))  # type: ignore[misc]
    assert (done, len(defer.jobs)) == ([], 1)
    end_address = logs[0].end_address
    defer.run_one()
    assert done == ["first"]
    assert 0 < logs[0].files.synced_address < end_address
    assert len(defer.jobs) == 1
    defer.run_one()
    assert done == ["first", "second", "third", "fourth"]
    assert [log.files.synced_address for log in logs] == [log.end_address for log in logs]
    assert defer.jobs == []
    folder.close()


def test_a_callback_may_ask_for_the_next_sync(tmp_path: Path) -> None:
    defer = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=defer)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    put(log)
    done: list[str] = []

    def again() -> None:
        done.append("first")
        put(log)
        folder.sync([log], lambda: done.append("second"))

    folder.sync([log], again)
    defer.run_one()
    assert done == ["first"]
    defer.run_one()
    assert done == ["first", "second"]
    folder.close()


def test_a_log_deleted_while_callers_wait_does_not_hold_them_up(tmp_path: Path) -> None:
    defer = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=defer)
    logs = [folder.open_log("orders", partition, TOPIC_ID, LogConfig()) for partition in range(2)]
    done: list[int] = []
    for number, log in enumerate(logs):
        put(log)
        folder.sync(list(logs), lambda number=number: done.append(number))  # type: ignore[misc]
    folder.delete_log("orders", 1)
    defer.run()
    assert done == [0, 1]
    folder.close()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    taken: list[int] = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in taken:
            os.close(fd)


def test_a_sync_works_with_hardly_any_descriptors_left(tmp_path: Path) -> None:
    stopped: list[LogTailUnknown] = []
    folder = DataFolder(str(tmp_path), flush=True, stop=stopped.append)
    logs = [folder.open_log("orders", partition, TOPIC_ID, LogConfig()) for partition in range(6)]
    for log in logs:
        put(log)
    done: list[int] = []
    with no_descriptor_left():
        folder.sync(list(logs), lambda: done.append(1))
        for log in logs:
            put(log)
    assert (done, stopped) == ([1], [])
    assert [log.end_offset for log in logs] == [2] * 6
    folder.close()


def test_callers_that_still_wait_at_a_clean_stop_are_answered(tmp_path: Path) -> None:
    defer = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=defer)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    done: list[int] = []
    for number in range(2):
        put(log)
        folder.sync([log], lambda number=number: done.append(number))  # type: ignore[misc]
    folder.close()
    assert done == [1]
    defer.run_one()
    assert done == [1, 0]


def test_nothing_is_appended_after_a_clean_stop_by_callers_that_waited_for_a_sync(tmp_path: Path) -> None:
    """The next process may have the folder by then."""
    defer = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=defer)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    refused: list[str] = []

    def go_on() -> None:
        try:
            put(log)
        except StorageFailed as e:
            refused.append(str(e))

    for _ in range(2):
        put(log)
        folder.sync([log], go_on)
    file = tmp_path / "orders-0" / f"{0:020}.log"
    size = file.stat().st_size
    folder.close()
    defer.run()
    assert file.stat().st_size == size
    assert len(refused) == 2


def test_a_failed_sync_stops_the_process_and_answers_no_caller(tmp_path: Path) -> None:
    stopped: list[LogTailUnknown] = []
    jobs: list[Done] = []
    folder = DataFolder(str(tmp_path), flush=True, defer=lambda work, done: jobs.append(done), stop=stopped.append)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    put(log)
    done: list[int] = []
    folder.sync([log], lambda: done.append(1))
    jobs[0](OSError(5, "Input/output error"))
    assert "Input/output error" in str(stopped[0])
    assert done == []
    folder.abandon()


def test_a_document_that_was_replaced_and_not_synced_stops_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal would say that nothing has changed, but the next start finds the new document: without a topic that was
    not deleted, it removes the topic's logs."""
    folder = DataFolder(str(tmp_path))
    folder.save_metadata(b'{"a": "old"}')
    fsync = os.fsync

    def fail_for_directories(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(5, "Input/output error")
        fsync(fd)

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", fail_for_directories)
        with pytest.raises(LogTailUnknown, match=r"sync failed: .*Input/output error.*fencepost\.metadata"):
            folder.save_metadata(b'{"a": "new"}')
    assert folder.load_metadata() == b'{"a": "new"\n}'
    folder.close()


def test_every_caller_that_waited_for_a_sync_is_called_whatever_the_others_raise(tmp_path: Path) -> None:
    defer = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=defer)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    done: list[str] = []

    def fail() -> None:
        raise StorageFailed("no descriptor left")

    put(log)
    folder.sync([log], lambda: done.append("alone"))
    for then in (fail, lambda: done.append("after it"), fail, lambda: folder.sync([log], lambda: done.append("next"))):
        folder.sync([log], then)
    defer.run_one()
    with pytest.raises(ExceptionGroup) as failed:
        defer.run_one()
    assert [str(error) for error in failed.value.exceptions] == ["no descriptor left"] * 2
    defer.run_one()
    assert done == ["alone", "after it", "next"]
    folder.close()


def test_a_tail_that_is_unknown_after_a_sync_stops_the_process(tmp_path: Path) -> None:
    defer = Later()
    stopped: list[LogTailUnknown] = []
    folder = DataFolder(str(tmp_path), flush=True, defer=defer, stop=stopped.append)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    done: list[int] = []

    def fail() -> None:
        raise LogTailUnknown("cutting the file failed")

    put(log)
    folder.sync([log], fail)
    folder.sync([log], lambda: done.append(1))
    defer.run_one()
    folder.sync([log], lambda: done.append(2))
    assert [str(error) for error in stopped] == ["cutting the file failed"]
    assert (done, defer.jobs) == ([], [])
    folder.abandon()


def test_a_checkpoint_is_left_out_where_no_descriptor_is_left(tmp_path: Path) -> None:
    defer = Later()
    stopped: list[LogTailUnknown] = []
    folder = DataFolder(str(tmp_path), flush=True, defer=defer, stop=stopped.append)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    put(log)
    log.save_snapshot(b"state")
    with no_descriptor_left():
        (work, done) = defer.jobs.pop()
        with pytest.raises(OSError) as failed:
            work()
    done(failed.value)
    assert (stopped, log.files.recovery_point, defer.jobs) == ([], 0, [])
    put(log)
    log.save_snapshot(b"state")
    defer.run_one()
    assert log.files.recovery_point == 2
    folder.close()


def test_with_flush_a_snapshot_moves_the_recovery_point(tmp_path: Path) -> None:
    defer = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=defer)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    for _ in range(5):
        put(log)
    log.save_snapshot(b"state")
    put(log)
    assert log.files.recovery_point == 0
    defer.run_one()
    assert log.files.recovery_point == 5
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 5\n"
    folder.close()


def test_a_checkpoint_that_comes_late_does_not_undo_a_clean_stop(tmp_path: Path) -> None:
    defer = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=defer)
    log = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    put(log)
    log.save_snapshot(b"state")
    put(log)
    folder.close()
    points = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert points == "0\n1\norders 0 2\n"
    defer.run_one()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == points
    folder = DataFolder(str(tmp_path))
    assert folder.open_log("orders", 0, TOPIC_ID, LogConfig()).end_offset == 2
    folder.close()
