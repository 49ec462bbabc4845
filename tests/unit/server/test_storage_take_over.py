"""A log in files that another leader takes over: the old handle is fenced, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.machines.log.interface import AbortedTxn, LogConfig, LogFenced
from fencepost.protocol.batch import encode_batch, stamp
from fencepost.server.storage import DataFolder, FileLog
from tests.unit.server.later import Later

TOPIC_ID = bytes(range(16))
SMALL_SEGMENTS = LogConfig(segment_bytes=200)


def open_log(folder: DataFolder) -> FileLog:
    return folder.open_log("orders", 0, TOPIC_ID, SMALL_SEGMENTS)


def put(log: FileLog, epoch: int = 0) -> bytes:
    offset = log.end_offset
    batch = stamp(encode_batch([(None, b"value")], 0), offset, epoch)
    log.append(batch, offset, offset, 0)
    return batch


FENCED: dict[str, Callable[[FileLog], object]] = {
    "append": put,
    "read": lambda log: log.read(0, 1000, log.end_address),
    "address_of": lambda log: log.address_of(0),
    "roll": lambda log: log.roll(),
    "rewrite": lambda log: log.rewrite(0, 1),
    "append_aborted": lambda log: log.append_aborted(AbortedTxn(1, 0, 1, 2)),
    "aborted": lambda log: log.aborted(0, 1),
    "first_batch_not_before": lambda log: log.first_batch_not_before(0),
}


@pytest.mark.parametrize("name", FENCED)
def test_an_old_handle_is_fenced(name: str, tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    old = open_log(folder)
    put(old)
    folder.take_over("orders", 0)
    with pytest.raises(LogFenced, match=r"another leader has taken over .*orders-0"):
        FENCED[name](old)
    folder.close()


def test_an_old_handle_changes_nothing_where_it_cannot_refuse(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    old = open_log(folder)
    batches = [put(old) for _ in range(9)]
    new = folder.take_over("orders", 0)
    old.save_snapshot(b"stale")
    old.advance_start(5)
    old.note_clean(5)
    old.close()
    assert new.load_snapshot() is None
    assert (new.start_offset, new.clean_offset, len(new.segments())) == (0, 0, len(batches) // 2 + 1)
    folder.close()


def test_the_log_goes_on_under_the_new_handle_and_a_restart_finds_everything(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    batches = []
    for epoch in range(3):
        batches += [put(log, epoch) for _ in range(3)]
        log = folder.take_over("orders", 0)
    assert log.leader_epochs() == [(0, 0), (1, 3), (2, 6)]
    folder.close()
    again = open_log(DataFolder(str(tmp_path)))
    assert again.end_offset == 9
    assert [again.read(offset, 1, again.end_address) for offset in range(9)] == batches


def test_a_sync_that_waits_while_the_log_is_taken_over_syncs_it(tmp_path: Path) -> None:
    later = Later()
    folder = DataFolder(str(tmp_path), flush=True, defer=later)
    log = open_log(folder)
    put(log)
    done: list[str] = []
    folder.sync([log], lambda: done.append("first"))
    put(log)
    folder.sync([log], lambda: done.append("second"))  # It waits until the first sync is done.
    new = folder.take_over("orders", 0)
    put(new)
    later.run()
    assert done == ["first", "second"]
    assert new.files.synced_address == new.end_address
    folder.close()


def test_a_topic_whose_log_was_taken_over_can_be_deleted(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    put(open_log(folder))
    new = folder.take_over("orders", 0)
    folder.delete_log("orders", 0)
    assert not (tmp_path / "orders-0").exists()
    assert new.files.is_forgotten
    folder.close()
