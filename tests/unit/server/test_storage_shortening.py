"""Logs in files that get shorter: deleted from the front, cleaned in the middle, and a process that dies meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from fencepost.machines.log.interface import AbortedTxn, LogConfig, StorageFailed
from fencepost.machines.partition.compaction import Policy, compact, find_dirt
from fencepost.protocol.batch import encode_batch, stamp
from fencepost.protocol.records import iter_batches
from fencepost.server.storage import DataFolder, FileLog
from tests.unit.server.later import Later
from tests.unit.server.surveyed import SurveyedFolder

TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)
COMPACT = SMALL._replace(compact=True)


class Killed(BaseException):
    pass


def open_log(folder: DataFolder, config: LogConfig = COMPACT) -> FileLog:
    return folder.open_log("orders", 0, TOPIC_ID, config)


def put(log: FileLog, timestamp: int = 0) -> bytes:
    batch = stamp(encode_batch([(None, b"value")], timestamp), log.end_offset, 0)
    log.append(batch, log.end_offset, log.end_offset, timestamp)
    return batch


def bases(log: FileLog) -> list[int]:
    return [segment.base_offset for segment in log.segments()]


def offsets(log: FileLog) -> list[int]:
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        for header, _ in iter_batches(log.read(offset, 1 << 20, log.end_address)):
            found.append(header.base_offset)
            offset = header.last_offset + 1
    return found


def keep(log: FileLog, base: int, end: int, kept: set[int]) -> list[bool]:
    """Replace the segments from `base` to `end` by those batches of them that are in `kept`."""
    rewrite = log.rewrite(base, end)
    for header, batch in [pair for segment in log.segments() for pair in iter_batches(segment.read(0, segment.size))]:
        if base <= header.base_offset < end and header.base_offset in kept:
            rewrite.append(bytes(batch), header.last_offset, header.max_timestamp)
    done: list[bool] = []
    rewrite.finish(done.append)
    return done


def files(path: Path, suffix: str) -> list[str]:
    return sorted(name for name in os.listdir(path / "orders-0") if name.endswith(suffix))


# --- deleting from the front --------------------------------------------------------------------------------


def test_whole_segments_go_and_the_rest_stays_where_it_is(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path))
    log = open_log(folder, SMALL)
    for n in range(12):
        put(log, timestamp=1000 + n)
    log.save_snapshot(b"state")
    assert bases(log) == [0, 4, 8]
    end_address = log.end_address
    log.advance_start(8)
    assert (log.start_offset, bases(log), offsets(log)) == (8, [8], [8, 9, 10, 11])
    assert log.end_address == end_address
    assert log.address_of(9) == log.start_address + log.segments()[0].size // 4
    assert files(tmp_path, ".log") == ["00000000000000000008.log"]
    assert not files(tmp_path, ".deleted")
    assert log.first_batch_not_before(0) == log.read(8, 1, log.end_address)
    folder.abandon()
    log = open_log(SurveyedFolder(str(tmp_path)), SMALL)
    assert (log.start_offset, log.end_offset, offsets(log)) == (8, 12, [8, 9, 10, 11])


def test_a_start_within_a_segment_survives_restarts(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path))
    log = open_log(folder, SMALL)
    for n in range(12):
        put(log, timestamp=1000 + n)
    log.save_snapshot(b"state")
    log.advance_start(6)
    assert (log.start_offset, bases(log), offsets(log)) == (6, [4, 8], [6, 7, 8, 9, 10, 11])
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 6\n"
    assert log.first_batch_not_before(0) == log.read(6, 1, log.end_address)
    folder.abandon()
    folder = SurveyedFolder(str(tmp_path))
    log = open_log(folder, SMALL)
    assert (log.start_offset, offsets(log)) == (6, [6, 7, 8, 9, 10, 11])
    folder.close()
    lines: list[str] = []
    log = open_log(SurveyedFolder(str(tmp_path), report=lines.append), SMALL)
    assert (log.start_offset, lines) == (6, [])


def test_the_start_of_a_deleted_topic_is_not_that_of_the_next_with_its_name(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path))
    log = open_log(folder, SMALL)
    for _ in range(12):
        put(log)
    log.save_snapshot(b"state")
    log.advance_start(6)
    log.note_clean(5)
    folder.delete_log("orders", 0)
    for name in ("log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        assert (tmp_path / name).read_text() == "0\n0\n"
    log = open_log(folder, SMALL)
    put(log)
    assert (log.start_offset, log.clean_offset, offsets(log)) == (0, 0, [0])
    folder.close()


def test_a_start_that_was_noted_for_files_that_are_gone_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    folder = SurveyedFolder(str(tmp_path))
    put(open_log(folder))
    folder.abandon()
    log = open_log(SurveyedFolder(str(tmp_path)))
    assert (log.start_offset, offsets(log)) == (0, [0])


def test_segments_whose_producers_no_snapshot_knows_stay_until_one_does(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path))
    log = open_log(folder, SMALL)
    for _ in range(12):
        put(log)
    log.advance_start(8)
    assert (log.start_offset, bases(log)) == (8, [0, 4, 8])
    folder.abandon()
    folder = SurveyedFolder(str(tmp_path))
    log = open_log(folder, SMALL)
    assert log.start_offset == 8
    log.save_snapshot(b"state")
    log.advance_start(8)
    assert bases(log) == [8]
    folder.close()


def test_a_process_that_dies_while_it_deletes_leaves_the_younger_segments(tmp_path: Path) -> None:
    def die(point: str) -> None:
        if point == "retention.delete":
            raise Killed

    folder = SurveyedFolder(str(tmp_path), at=die)
    log = open_log(folder, SMALL)
    for _ in range(12):
        put(log)
    log.save_snapshot(b"state")
    with pytest.raises(Killed):
        log.advance_start(8)
    folder.abandon()
    assert files(tmp_path, ".deleted")
    folder = SurveyedFolder(str(tmp_path))
    log = open_log(folder, SMALL)
    assert offsets(log) == list(range(4, 12))
    assert not files(tmp_path, ".deleted")
    folder.close()


def test_an_empty_segment_remembers_the_offset_of_a_log_without_records(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path))
    log = open_log(folder, SMALL)
    for _ in range(5):
        put(log)
    log.roll()
    log.roll()
    log.save_snapshot(b"state")
    log.advance_start(5)
    assert (bases(log), log.start_offset, log.end_offset) == ([5], 5, 5)
    for is_clean in (False, True, True):
        folder.close() if is_clean else folder.abandon()
        lines: list[str] = []
        folder = SurveyedFolder(str(tmp_path), report=lines.append)
        log = open_log(folder, SMALL)
        assert (bases(log), log.start_offset, log.end_offset, lines) == ([5], 5, 5, [])
    put(log)
    assert (bases(log), offsets(log)) == ([5], [5])
    folder.close()


def test_a_start_that_cannot_be_noted_does_not_move(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path))
    log = open_log(folder, SMALL)
    for _ in range(12):
        put(log)
    log.save_snapshot(b"state")
    (tmp_path / "log-start-offset-checkpoint.tmp").mkdir()  # Like a disk that refuses the write.
    with pytest.raises(StorageFailed):
        log.advance_start(6)
    assert (log.start_offset, offsets(log)) == (4, list(range(4, 12)))
    folder.close()


# --- cleaning -----------------------------------------------------------------------------------------------


def filled(folder: DataFolder, count: int = 14) -> FileLog:
    log = open_log(folder)
    for n in range(count):
        put(log, timestamp=1000 + n)
    log.save_snapshot(b"state")
    return log


def test_a_cleaned_segment_takes_the_place_of_others(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path))
    log = filled(folder)
    assert bases(log) == [0, 4, 8, 12]
    log.read(0, 1, log.end_address)  # So that the place is remembered.
    tail = log.address_of(12)
    assert keep(log, 0, 8, {1, 3, 7}) == [True]
    assert (bases(log), offsets(log)) == ([0, 8, 12], [1, 3, 7, *range(8, 14)])
    assert log.address_of(12) == tail, "batches above keep their addresses"
    assert [s.address + s.size for s in log.segments()][:-1] == [s.address for s in log.segments()][1:]
    assert log.start_address == log.segments()[0].address
    for offset, found in ((0, 1), (1, 1), (2, 3), (4, 7), (7, 7), (8, 8)):
        assert next(iter_batches(log.read(offset, 1, log.end_address)))[0].base_offset == found
    found_time = log.first_batch_not_before(1002)
    assert found_time is not None
    assert next(iter_batches(found_time))[0].base_offset == 3
    assert sorted(os.listdir(tmp_path / "orders-0")) == sorted(
        [f"{base:020d}.{suffix}" for base in (0, 8, 12) for suffix in ("log", "index", "timeindex", "txnindex")]
        + ["00000000000000000014.snapshot", "leader-epoch-checkpoint", "partition.metadata"]
    )
    put(log)
    assert offsets(log)[-1] == 14
    folder.close()


@pytest.mark.parametrize("stop", ["close", "abandon", "power"])
def test_a_cleaned_log_opens_again(stop: str, tmp_path: Path) -> None:
    boots = iter(["one", "two"] if stop == "power" else ["one", "one"])
    boot: Callable[[], str] = lambda: next(boots)  # noqa: E731
    folder = SurveyedFolder(str(tmp_path), boot=boot)
    log = filled(folder)
    keep(log, 0, 8, {1, 3, 7})
    keep(log, 8, 12, {11})
    log.note_clean(12)
    folder.close() if stop == "close" else folder.abandon()
    lines: list[str] = []
    folder = SurveyedFolder(str(tmp_path), boot=boot, report=lines.append)
    log = open_log(folder)
    assert (offsets(log), log.end_offset, log.clean_offset, lines) == ([1, 3, 7, 11, 12, 13], 14, 12, [])
    assert log.load_snapshot() == (14, b"state")
    folder.close()


def test_a_gap_that_no_cleaner_made_is_still_the_end_of_the_log(tmp_path: Path) -> None:
    boots = iter(["one", "two"])
    folder = SurveyedFolder(str(tmp_path), boot=lambda: next(boots))
    log = open_log(folder, SMALL)
    for _ in range(3):
        put(log)
    folder.abandon()
    whole = (tmp_path / "orders-0/00000000000000000000.log").read_bytes()
    third = len(whole) // 3
    (tmp_path / "orders-0/00000000000000000000.log").write_bytes(whole[:third] + whole[2 * third :])
    log = open_log(SurveyedFolder(str(tmp_path), boot=lambda: next(boots)), SMALL)
    assert log.end_offset == 1


def test_a_cleaned_segment_that_is_cut_takes_no_more_batches(tmp_path: Path) -> None:
    boots = iter(["one", "two", "two", "three"])
    boot: Callable[[], str] = lambda: next(boots)  # noqa: E731
    folder = SurveyedFolder(str(tmp_path), boot=boot)
    log = filled(folder)
    keep(log, 0, 8, {1, 3, 7})
    folder.abandon()
    # The machine went down, and the end of the cleaned segment is lost.
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    cleaned = tmp_path / "orders-0/00000000000000000000.log"
    cleaned.write_bytes(cleaned.read_bytes()[:-1])
    folder = SurveyedFolder(str(tmp_path), boot=boot)
    log = open_log(folder)
    assert (bases(log), offsets(log), log.end_offset) == ([0, 4], [1, 3], 4)
    for n in range(2):
        put(log)
        folder.abandon()
        folder = SurveyedFolder(str(tmp_path), boot=boot)
        log = open_log(folder)
        assert (bases(log), offsets(log)) == ([0, 4], [1, 3, *range(4, 5 + n)])
    folder.close()


@pytest.mark.parametrize("point", ["clean.swap.before", "clean.swap.after", "clean.install"])
def test_a_process_that_dies_while_it_swaps_leaves_the_old_or_the_new(point: str, tmp_path: Path) -> None:
    left = tmp_path / "left"

    def die(reached: str) -> None:
        if reached == point:
            shutil.copytree(tmp_path / "data", left)  # Cleanup code that runs after the crash does not count.
            raise Killed

    folder = SurveyedFolder(str(tmp_path / "data"), at=die)
    log = filled(folder)
    with pytest.raises(Killed):
        keep(log, 0, 8, {1, 3, 7})
    folder.abandon()
    lines: list[str] = []
    folder = SurveyedFolder(str(left), report=lines.append)
    log = open_log(folder)
    if point == "clean.swap.before":
        assert (bases(log), offsets(log), lines) == ([0, 4, 8, 12], list(range(14)), [])
    else:
        assert (bases(log), offsets(log)) == ([0, 8, 12], [1, 3, 7, *range(8, 14)])
        assert lines == [
            "orders-0: 00000000000000000000.log was cleaned: took the place of the segments that it was made from"
        ]
    assert not [name for name in os.listdir(left / "orders-0") if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert log.segments()[0].indexes.offsets.last() is not None
    folder.close()


def test_half_a_swap_of_the_names_is_finished(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path))
    log = filled(folder)
    keep(log, 0, 8, {1, 3, 7})
    folder.abandon()
    partition = tmp_path / "orders-0"
    # As if the process had died after the rename of the first index: indexes of an old segment may be there too.
    for suffix in ("timeindex", "txnindex", "log"):
        os.rename(partition / f"{0:020d}.{suffix}", partition / f"{0:020d}.{suffix}.swap")
    (partition / f"{0:020d}.timeindex").write_bytes(b"an old one")
    (partition / f"{4:020d}.log").write_bytes(b"not removed yet")
    (partition / f"{4:020d}.index").write_bytes(b"not removed yet")
    folder = SurveyedFolder(str(tmp_path))
    log = open_log(folder)
    assert (bases(log), offsets(log)) == ([0, 8, 12], [1, 3, 7, *range(8, 14)])
    assert (partition / f"{0:020d}.timeindex").read_bytes() != b"an old one"
    assert not (partition / f"{4:020d}.index").exists()
    folder.close()


def test_the_aborted_transactions_are_those_of_the_cleaned_segment(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path))
    log = filled(folder)
    entries = [AbortedTxn(7, n, n + 1, n + 2) for n in (0, 3, 9)]
    for entry in entries:
        log.append_aborted(entry)
    log.save_snapshot(b"newer")
    rewrite = log.rewrite(0, 8)
    rewrite.append(log.read(7, 1, log.end_address), 7, 1007)
    rewrite.append_aborted(entries[1])
    rewrite.finish(lambda done: None)
    assert log.aborted(0, 14) == entries[1:]
    folder.close()
    log = open_log(SurveyedFolder(str(tmp_path)))
    assert log.aborted(0, 14) == entries[1:]


def test_until_all_is_on_disk_the_old_segments_serve_and_none_is_deleted(tmp_path: Path) -> None:
    later = Later()
    folder = SurveyedFolder(str(tmp_path), defer=later)
    log = filled(folder)
    later.run()
    assert keep(log, 0, 8, {1, 3, 7}) == []
    log.advance_start(8)
    assert (bases(log), log.start_offset, offsets(log)) == ([0, 4, 8, 12], 8, list(range(8, 14)))
    later.run()
    assert bases(log) == [0, 8, 12]
    log.advance_start(8)
    assert bases(log) == [8, 12]
    later.run()
    assert not files(tmp_path, ".deleted")
    folder.close()


@pytest.mark.parametrize("committed", [True, False])
def test_a_folder_that_is_closed_meanwhile_is_whole(committed: bool, tmp_path: Path) -> None:
    later = Later()
    folder = SurveyedFolder(str(tmp_path), defer=later)
    log = filled(folder)
    later.run()
    keep(log, 0, 8, {1, 3, 7})
    work, done = later.jobs.pop()
    if committed:
        work()
    folder.close()
    if not committed:
        work()
    done(None)
    lines: list[str] = []
    folder = SurveyedFolder(str(tmp_path), report=lines.append)
    log = open_log(folder)
    assert lines == []
    assert offsets(log) == ([1, 3, 7, *range(8, 14)] if committed else list(range(14)))
    folder.close()


def test_a_swap_that_fails_while_the_folder_is_closed_is_finished_by_the_next_start(tmp_path: Path) -> None:
    def refuse(reached: str) -> None:
        if reached == "clean.install":
            raise OSError(5, "Input/output error")

    later = Later()
    folder = SurveyedFolder(str(tmp_path), defer=later, at=refuse)
    log = filled(folder)
    later.run()
    keep(log, 0, 8, {1, 3, 7})
    work, _ = later.jobs.pop()
    work()
    folder.close()
    folder = SurveyedFolder(str(tmp_path))
    assert offsets(open_log(folder)) == [1, 3, 7, *range(8, 14)]
    folder.close()


@pytest.mark.parametrize("field", ["length", "last offset delta", "base offset"])
def test_a_damaged_header_does_not_lead_the_cleaner_round_in_circles(field: str, tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path))
    log = filled(folder)
    damages = {"length": (8, pack(">i", -12)), "last offset delta": (23, pack(">i", -1)), "base offset": (0, bytes(8))}
    at, damage = damages[field]
    position = log.address_of(7) - log.segments()[1].address
    with open(tmp_path / "orders-0" / f"{4:020d}.log", "r+b") as file:
        file.seek(position + at)
        file.write(damage)
    rounds = compact(log, find_dirt(log, 12, 0, 0), {}, Policy(0, 1 << 20, 100, True), 0)
    with pytest.raises(StorageFailed):
        for _ in zip(range(10_000), rounds, strict=False):
            pass
    folder.close()
