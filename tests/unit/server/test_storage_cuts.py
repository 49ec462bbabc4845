"""What recovery cuts off a log is kept in side files, and whole batches are found in them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fencepost.machines.log.interface import LogConfig
from fencepost.protocol.batch import (
    CHECKED_HEADER,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    UNCHECKED_HEADER,
    encode_batch,
    stamp,
)
from fencepost.protocol.crc import crc32c
from fencepost.server.storage import DataFolder, FileLog, searching
from fencepost.server.storage.cuts import KEPT_TORN_WRITES, cut_of, read_note, side_files
from fencepost.server.storage.searching import BLOCK_BYTES, RangeCrc, TooManyHeaders, whole_batches
from fencepost.server.storage.segment import LOOKUP_CHUNK_BYTES
from tests.simulation.disk.content import ROOT
from tests.simulation.disk.disk import Disk
from tests.simulation.disk.mounting import mounted

TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
FIRST = "00000000000000000000.log"


def open_log(folder: DataFolder) -> FileLog:
    return folder.open_log("orders", 0, TOPIC_ID, SMALL)


def batch_at(offset: int, value: bytes = b"value") -> bytes:
    return stamp(encode_batch([(None, value)], 0), offset, 0)


def put(log: FileLog, count: int = 1) -> None:
    for _ in range(count):
        log.append(batch_at(log.end_offset), log.end_offset, log.end_offset, 0)


def left_by_kill(path: Path, batches: int) -> None:
    folder = DataFolder(str(path), boot=lambda: "1")
    put(open_log(folder), batches)
    folder.abandon()


def after_power_loss(path: Path) -> tuple[FileLog, list[str]]:
    lines: list[str] = []
    return open_log(DataFolder(str(path), boot=lambda: "2", report=lines.append)), lines


def change_byte(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def names(path: Path) -> list[str]:
    return [os.path.basename(side) for side in side_files(str(path / "orders-0"))]


def test_everything_behind_a_bad_byte_is_kept_next_to_the_log_with_a_note(tmp_path: Path) -> None:
    left_by_kill(tmp_path, 14)
    directory = tmp_path / "orders-0"
    before = {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}
    size = len(batch_at(0))
    change_byte(directory / FIRST, size + 65)
    damaged = (directory / FIRST).read_bytes()
    log, lines = after_power_loss(tmp_path)
    assert log.end_offset == 1
    assert names(tmp_path) == [f"{name}.cut-1" for name in before]
    assert (directory / f"{FIRST}.cut-1").read_bytes() == damaged[size:]
    for name in list(before)[1:]:
        assert (directory / f"{name}.cut-1").read_bytes() == before[name]
    note = read_note(str(directory / f"{FIRST}.cut-1"))
    assert note is not None
    found = (note.log, note.segment, note.kind, note.position, note.bytes, note.expected_offset)
    assert found == ("orders-0", FIRST, "damaged", size, len(damaged) - size, 1)
    assert "crc is" in note.reason
    assert note.when.endswith("Z")
    cuts = {cut_of(path) for path in side_files(str(directory))}
    assert len(cuts) == 1, "all of it is one cut"
    assert [line.count(f"kept in {FIRST}.cut-1 and {len(before) - 1} more") for line in lines if "cut " in line] == [1]


def test_a_second_start_after_one_that_died_keeps_it_once(tmp_path: Path) -> None:
    left_by_kill(tmp_path, 3)
    path = tmp_path / "orders-0" / FIRST
    change_byte(path, len(batch_at(0)) + 65)
    damaged = path.read_bytes()
    after_power_loss(tmp_path)[0].files.folder.abandon()  # type: ignore[union-attr]
    path.write_bytes(damaged)  # As if the first start had died before it cut the log.
    (tmp_path / "boot-id").write_text("before")
    after_power_loss(tmp_path)
    assert names(tmp_path) == [f"{FIRST}.cut-1"]


def test_two_cuts_of_one_log_are_told_apart(tmp_path: Path) -> None:
    left_by_kill(tmp_path, 3)
    path = tmp_path / "orders-0" / FIRST
    for at in (2, 1):
        change_byte(path, at * len(batch_at(0)) + 65)
        after_power_loss(tmp_path)[0].files.folder.abandon()  # type: ignore[union-attr]
        (tmp_path / "boot-id").write_text("before")
    assert len({cut_of(side) for side in side_files(str(tmp_path / "orders-0"))}) == 2


def test_of_torn_writes_a_log_keeps_the_newest_few(tmp_path: Path) -> None:
    for number in range(KEPT_TORN_WRITES + 3):
        left_by_kill(tmp_path, 1)
        with max((tmp_path / "orders-0").glob("*.log")).open("ab") as file:
            file.write(batch_at(number + 1)[: HEADER_BYTES + number % 5])
    left_by_kill(tmp_path, 1)
    kept = names(tmp_path)
    notes = [read_note(str(tmp_path / "orders-0" / name)) for name in kept]
    assert [note.kind for note in notes if note is not None] == ["torn"] * KEPT_TORN_WRITES
    assert len(list((tmp_path / "orders-0").glob("*.json"))) == KEPT_TORN_WRITES, "notes go with their files"


def test_a_full_disk_does_not_fail_the_start(tmp_path: Path) -> None:
    disk = Disk(random.Random(1))
    with mounted(disk):
        folder = DataFolder(ROOT, pwrite=disk.descriptors.pwrite, boot=lambda: "1")
        log = open_log(folder)
        put(log, 2)
        folder.abandon()
        fd = disk.descriptors.open(
            log.files.segments[0].path if log.files.segments else f"{ROOT}/orders-0/{FIRST}", os.O_RDWR
        )
        disk.descriptors.pwrite(fd, batch_at(2)[:-1], 2 * len(batch_at(0)))
        disk.restart()
        disk.faults.full = True
        lines: list[str] = []
        log = open_log(DataFolder(ROOT, pwrite=disk.descriptors.pwrite, boot=lambda: "1", report=lines.append))
        assert log.end_offset == 2
    assert "not kept: No space left on device" in lines[0]
    assert [name for name in disk.paths.listdir(f"{ROOT}/orders-0") if "cut" in name] == []


def test_side_files_go_with_their_topic(tmp_path: Path) -> None:
    left_by_kill(tmp_path, 3)
    change_byte(tmp_path / "orders-0" / FIRST, 65)
    log, _ = after_power_loss(tmp_path)
    assert names(tmp_path) == [f"{FIRST}.cut-1"]
    folder = log.files.folder
    assert isinstance(folder, DataFolder)
    folder.delete_log("orders", 0)
    assert [path.name for path in tmp_path.rglob("*cut*")] == []


GARBAGE = random.Random(3).randbytes(300_000)


@pytest.mark.parametrize(
    "damage", [b"", b"\x02", b"\0" * 1000, b"\x02" * 1000, GARBAGE, batch_at(7)[:-3], batch_at(7)[:30]]
)
def test_whole_batches_are_found_behind_any_damage(damage: bytes) -> None:
    parts = [damage, batch_at(8, b"x" * 300_000), damage, batch_at(9), batch_at(10), damage]
    read = Reader(b"".join(parts))
    assert [placed[2] for placed in whole_batches(read, 0, len(read.data))] == [8, 9, 10]


class Reader:
    """Counts the bytes that are read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = 0

    def __call__(self, position: int, size: int) -> bytes:
        self.read_bytes += size
        return self.data[position : position + size]


def false_header(room: int) -> bytes:
    """Of a batch that would fill the room, with another checksum."""
    return UNCHECKED_HEADER.pack(0, room - PREFIX_BYTES, 0, MAGIC, 1) + CHECKED_HEADER.pack(0, 0, 0, 0, -1, -1, -1, 1)


@pytest.mark.parametrize("between", [b"", batch_at(1)], ids=["nothing", "a batch"])
def test_the_length_that_a_false_header_claims_costs_nothing(between: bytes) -> None:
    """Each header claims everything behind it; between two there may be a whole batch."""
    size = 1 << 19
    each = HEADER_BYTES + len(between)
    count = size // each
    parts = [false_header(size - number * each) + between for number in range(count)]
    read = Reader(b"".join(parts).ljust(size, b"\0"))
    assert len(list(whole_batches(read, 0, size))) == (count if between else 0)
    # The rest of a block at both ends, and the chunks in which the search goes on after a whole batch.
    at_once = 2 * BLOCK_BYTES + (2 * LOOKUP_CHUNK_BYTES + len(between) if between else 0)
    assert read.read_bytes <= 3 * size + count * at_once


def test_the_search_gives_up_after_so_many_false_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "MOST_FALSE_HEADERS", 100)
    read = Reader(b"\x02\0\0" * 1000 + batch_at(1))
    with pytest.raises(TooManyHeaders, match="ended at position 299: up to there, 100 places look like the header"):
        list(whole_batches(read, 0, len(read.data)))


def test_a_cut_in_which_the_search_gave_up_is_kept_as_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn write is removed after a while, and there may be whole batches in this one."""
    monkeypatch.setattr(searching, "MOST_FALSE_HEADERS", 100)
    left_by_kill(tmp_path, 1)
    with (tmp_path / "orders-0" / FIRST).open("ab") as file:
        file.write(b"\xff" + b"\x02\0\0" * 1000)
    after_power_loss(tmp_path)
    note = read_note(str(tmp_path / "orders-0" / f"{FIRST}.cut-1"))
    assert note is not None
    assert note.kind == "damaged"


@pytest.mark.parametrize("begin", [0, 1, BLOCK_BYTES, 12345])
def test_the_checksum_of_a_part_is_that_of_its_bytes(begin: int) -> None:
    rng = random.Random(begin)
    crcs = RangeCrc(Reader(GARBAGE), begin)
    for _ in range(200):
        first, last = sorted(rng.randint(begin, len(GARBAGE)) for _ in range(2))
        assert crcs.crc(first, last) == crc32c(GARBAGE[first:last])
    for blocks in range(5):
        first, last = begin + BLOCK_BYTES, begin + blocks * BLOCK_BYTES
        assert crcs.crc(first, max(first, last)) == crc32c(GARBAGE[first : max(first, last)])
