"""One log in files: appending, finding, rolling, and a disk that fails."""

from __future__ import annotations

import errno
import os
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from fencepost.machines.log.interface import AbortedTxn, CorruptLog, LogConfig, LogTailUnknown, StorageFailed
from fencepost.protocol.batch import Buffer, encode_batch, encode_marker, stamp
from fencepost.server.storage import DataFolder, FileLog
from fencepost.server.storage.open_files import LEAST_MAPPED_BYTES, MOST_MAPPINGS, Mappings

TOPIC_ID = bytes(range(16))
DEFAULTS = LogConfig()


def open_log(folder: DataFolder, config: LogConfig = DEFAULTS) -> FileLog:
    return folder.open_log("orders", 0, TOPIC_ID, config)


def put(log: FileLog, records: int = 1, timestamp: int = 0, value: bytes = b"value", epoch: int = 0) -> bytes:
    base_offset = log.end_offset
    batch = stamp(encode_batch([(None, value)] * records, timestamp), base_offset, epoch)
    log.append(batch, base_offset, base_offset + records - 1, timestamp)
    return batch


def files(path: Path) -> list[str]:
    return sorted(os.listdir(path / "orders-0"))


def test_a_batch_can_be_appended_from_memory_that_is_used_for_something_else_later(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    batch = stamp(encode_batch([(None, b"value")], 0), 0, 7)
    memory = memoryview(bytearray(b"before" + batch + b"after"))
    log.append(memory[6:-5], 0, 0, 0)
    memory[:] = bytes(len(memory))
    assert log.read(0, 1000, log.end_address) == batch
    assert log.leader_epochs() == [(7, 0)]
    second = put(log, epoch=7)
    folder.close()
    again = open_log(DataFolder(str(tmp_path)))
    assert again.read(0, 1000, again.end_address) == batch + second
    assert again.leader_epochs() == [(7, 0)]


def test_the_directory_is_laid_out_as_kafkas(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path), cluster_id="a-cluster", node_id=3)
    log = open_log(folder)
    batches = [put(log, 3) for _ in range(4)]
    log.save_snapshot(b"state")
    folder.close()
    assert files(tmp_path) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000012.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    partition = tmp_path / "orders-0"
    assert (partition / "00000000000000000000.log").read_bytes() == b"".join(batches)
    assert (partition / "00000000000000000012.snapshot").read_bytes() == b"state"
    assert (partition / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert (partition / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert (tmp_path / "meta.properties").read_text() == "version=1\ncluster.id=a-cluster\nnode.id=3\n"
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 12\n"


def test_an_index_entry_is_the_last_offset_and_the_position_of_one_batch(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder, LogConfig(index_interval_bytes=200))
    sizes = [len(put(log, 2, timestamp=1000 + n)) for n in range(10)]
    folder.close()
    entries = list(struct.iter_unpack(">ii", (tmp_path / "orders-0/00000000000000000000.index").read_bytes()))
    assert len(entries) >= 2
    for last_offset, position in entries:
        assert position == sum(sizes[: (last_offset - 1) // 2])
    times = list(struct.iter_unpack(">qi", (tmp_path / "orders-0/00000000000000000000.timeindex").read_bytes()))
    assert times[-1] == (1009, 19)  # A stop writes the highest timestamp of the segment.
    assert times == sorted(times)


def test_a_new_leader_epoch_is_noted_with_its_first_offset(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    put(log, 5, epoch=0)
    put(log, 5, epoch=2)
    folder.close()
    assert (tmp_path / "orders-0/leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n2 5\n"


def test_a_new_age_of_segments_counts_for_the_one_that_is_written_to(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder, LogConfig(segment_ms=100_000))
    put(log, timestamp=1000)
    log.configure(LogConfig(segment_ms=500))
    for timestamp in (1500, 1501):
        put(log, timestamp=timestamp)
    log.configure(LogConfig(segment_ms=100_000))
    put(log, timestamp=50_000)
    assert [int(name[:20]) for name in files(tmp_path) if name.endswith(".log")] == [0, 2]
    folder.close()


@pytest.mark.parametrize("reopened", [False, True])
def test_every_read_is_whole_batches_from_the_right_one(tmp_path: Path, reopened: bool) -> None:
    folder = DataFolder(str(tmp_path))
    config = LogConfig(segment_bytes=40_000, index_interval_bytes=512)
    log = open_log(folder, config)
    batches = [put(log, 1 + n % 3, value=b"v" * (n * 37 % 400)) for n in range(600)]
    if reopened:
        folder.close()
        log = open_log(folder := DataFolder(str(tmp_path)), config)
    bases = [struct.unpack_from(">q", batch)[0] for batch in batches]
    for number in range(0, 600, 7):
        for max_bytes in (1, 700, 5000, 1 << 20):
            data = log.read(bases[number], max_bytes, log.end_address)
            count = 0
            while sum(map(len, batches[number : number + count])) < len(data):
                count += 1
            assert data == b"".join(batches[number : number + count])
            assert count == 1 or len(data) <= max_bytes
            following = number + count
            # It stopped at the limit, or at the end of a segment.
            if following < 600 and f"{bases[following]:020d}.log" not in files(tmp_path):
                assert len(data) + len(batches[following]) > max_bytes
    folder.close()


def test_a_read_in_place_has_the_bytes_of_a_read(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder, LogConfig(segment_bytes=2_000_000))
    for n in range(60):
        put(log, 1 + n % 3, value=b"%d" % n * (n * 7919 % 100_000))
    mapped = 0
    for offset in range(log.end_offset):
        for max_bytes in (1, 1000, 300_000, 1 << 30):
            for end_address in (log.end_address, log.end_address // 2):
                data = log.read_in_place(offset, max_bytes, end_address)
                assert data == log.read(offset, max_bytes, end_address)
                assert (len(data) >= LEAST_MAPPED_BYTES) == isinstance(data, memoryview)
                mapped += isinstance(data, memoryview)
    assert mapped > 100
    folder.close()


def test_a_read_in_place_outlives_its_segment(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder, LogConfig(segment_bytes=300_000))
    first = put(log, value=b"first" * 50_000)
    put(log, value=b"second" * 50_000)
    data = log.read_in_place(0, 1 << 20, log.end_address)
    assert isinstance(data, memoryview)
    log.save_snapshot(b"state")
    log.advance_start(1)
    folder.close()
    assert files(tmp_path) == [name for name in files(tmp_path) if not name.startswith("0" * 20)]
    assert data == first


def test_a_file_that_was_cut_is_not_read_in_place(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    put(log, value=b"v" * 500_000)
    (segment,) = log.segments()
    os.truncate(segment.path, 400_000)
    with pytest.raises(StorageFailed, match=f"{log.end_address} bytes expected at 0, 400000 are there"):
        log.read_in_place(0, 1 << 20, log.end_address)
    folder.close()


def test_mappings_are_bounded_and_end_with_their_last_view(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(LEAST_MAPPED_BYTES))
    mappings = Mappings()
    most = min(MOST_MAPPINGS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 16)
    with path.open("rb") as file:
        before = len(os.listdir("/proc/self/fd"))
        found = [mappings.pread(file.fileno(), LEAST_MAPPED_BYTES, 0) for _ in range(most + 10)]
        assert len(mappings) == most
        assert len(os.listdir("/proc/self/fd")) == before + most
        assert [isinstance(data, memoryview) for data in found] == [True] * most + [False] * 10
        part = found[0][1000:]
        found.clear()
        assert len(mappings) == 1
        assert part == bytes(LEAST_MAPPED_BYTES - 1000)
        del part
        assert len(mappings) == 0
        assert len(os.listdir("/proc/self/fd")) == before


def test_mappings_that_are_kept_leave_descriptors_for_others(tmp_path: Path) -> None:
    """Clients that read slowly keep them, and a low limit of open files is common."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        folder = DataFolder(str(tmp_path))
        log = open_log(folder)
        put(log, value=b"v" * LEAST_MAPPED_BYTES)
        kept = [log.read_in_place(0, 1 << 20, log.end_address) for _ in range(MOST_MAPPINGS)]
        assert any(isinstance(data, memoryview) for data in kept)
        connections = [os.dup(0) for _ in range(100)]
        for fd in connections:
            os.close(fd)
        folder.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_open_files_are_bounded(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path), max_open_segments=4)
    logs = [folder.open_log("orders", partition, TOPIC_ID, LogConfig()) for partition in range(20)]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        for log in logs:
            put(log)
            assert len(log.read(0, 1 << 20, log.end_address)) == log.end_address
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    scans = [log.scan(0) for log in logs]
    for _ in range(3):  # A scan that pauses while others use its descriptor continues in its own file.
        assert {next(scan).head[:8] for scan in scans} <= {struct.pack(">q", n) for n in range(3)}
    folder.close()


def test_the_first_batch_that_reaches_a_timestamp_is_found(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    config = LogConfig(segment_bytes=2000, index_interval_bytes=200)
    log = open_log(folder, config)
    timestamps = [(n * 7919) % 1000 + n for n in range(100)]
    batches = [put(log, timestamp=timestamp) for timestamp in timestamps]
    for _ in range(2):
        for timestamp in range(0, 1200, 9):
            expected = next((b for b, t in zip(batches, timestamps, strict=True) if t >= timestamp), None)
            assert log.first_batch_not_before(timestamp) == expected
        folder.close()
        log = open_log(folder := DataFolder(str(tmp_path)), config)
    folder.close()


def test_aborted_transactions_are_found_over_segments_and_starts(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    config = LogConfig(segment_bytes=300)
    log = open_log(folder, config)
    entries = []
    for producer_id in range(200):
        first_offset = log.end_offset
        put(log)
        offset = log.end_offset
        log.append(encode_marker(producer_id, 0, False, 0, 0, base_offset=offset), offset, offset, 0)
        entries.append(AbortedTxn(producer_id, first_offset, offset, offset + 1))
        log.append_aborted(entries[-1])
    for _ in range(2):
        for from_offset in range(0, 401, 13):
            for upper in (from_offset + 1, from_offset + 50, 400):
                expected = [e for e in entries if e.last_offset >= from_offset and e.first_offset < upper]
                assert log.aborted(from_offset, upper) == expected
        log.save_snapshot(b"state")  # Without it, the partition adds all entries again.
        folder.close()
        log = open_log(folder := DataFolder(str(tmp_path)), config)
    log.append_aborted(entries[-1])
    assert log.aborted(0, 400) == entries
    folder.close()
    packed = b"".join((tmp_path / "orders-0" / n).read_bytes() for n in files(tmp_path) if n.endswith("txnindex"))
    assert packed == b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)


def test_a_scan_gives_headers_and_whole_control_batches(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder, LogConfig(segment_bytes=400_000))
    expected = []
    for n in range(20):
        data = put(log, value=b"v" * 60_000)
        expected.append((log.end_address - len(data), len(data), data[:61]))
        marker = encode_marker(n, 0, True, 0, 0, base_offset=log.end_offset)
        address = log.append(marker, log.end_offset, log.end_offset, 0)
        expected.append((address, len(marker), marker))
    assert list(log.scan(0)) == expected
    assert list(log.scan(7)) == expected[7:]
    assert list(log.scan(40)) == []
    folder.close()


def test_bit_rot_is_read_as_it_is_and_named_by_a_scan(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    batches = [put(log) for _ in range(3)]
    path = tmp_path / "orders-0/00000000000000000000.log"
    with path.open("r+b") as file:
        file.seek(len(batches[0]) + 65)
        file.write(b"\xff")
    assert len(log.read(0, 1 << 20, log.end_address)) == log.end_address
    scan = log.scan(0)
    next(scan)
    with pytest.raises(CorruptLog, match=rf"{path}: position {len(batches[0])}: crc is 0x"):
        next(scan)
    folder.close()


@pytest.mark.parametrize(("snapshots", "kept"), [(1, [1]), (2, [1, 2]), (5, [4, 5])])
def test_the_last_two_snapshots_are_kept(tmp_path: Path, snapshots: int, kept: list[int]) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    for n in range(snapshots):
        put(log)
        log.save_snapshot(b"state %d" % (n + 1))
    assert [int(name[:20]) for name in files(tmp_path) if name.endswith(".snapshot")] == kept
    assert log.load_snapshot() == (snapshots, b"state %d" % snapshots)
    folder.close()


def test_a_snapshot_is_wanted_by_bytes_by_batches_and_after_a_roll(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    by_bytes = folder.open_log("orders", 0, TOPIC_ID, LogConfig())
    while by_bytes.end_address < 8 << 20:
        assert not by_bytes.wants_snapshot()
        put(by_bytes, value=b"v" * 100_000)
    assert by_bytes.wants_snapshot()
    by_bytes.save_snapshot(b"state")
    assert not by_bytes.wants_snapshot()
    by_batches = folder.open_log("orders", 1, TOPIC_ID, LogConfig())
    while by_batches.end_offset < 1024:
        assert not by_batches.wants_snapshot()
        put(by_batches)
    assert by_batches.wants_snapshot()
    # After a large snapshot, the next one is due later.
    by_batches.save_snapshot(bytes(32 << 10))
    while by_batches.end_offset < 1024 + 2048:
        assert not by_batches.wants_snapshot()
        put(by_batches)
    assert by_batches.wants_snapshot()
    rolled = folder.open_log("orders", 2, TOPIC_ID, LogConfig(segment_bytes=100))
    put(rolled)
    assert not rolled.wants_snapshot()
    put(rolled)
    assert rolled.wants_snapshot()
    folder.close()


class FailingDisk:
    """os.pwrite, until a test makes it fail: then it writes `part` bytes and refuses the rest."""

    def __init__(self) -> None:
        self.error: int | None = None
        self.part = 0

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        if self.error is None:
            return os.pwrite(fd, data, position)
        written = os.pwrite(fd, data[: self.part], position)
        if self.error == 0:
            return written
        raise OSError(self.error, os.strerror(self.error))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, 0], ids=["full", "broken", "short write"])
def test_a_refused_append_leaves_the_log_as_it_was(tmp_path: Path, error: int) -> None:
    disk = FailingDisk()
    folder = DataFolder(str(tmp_path), pwrite=disk.pwrite)
    log = open_log(folder)
    first = put(log)
    disk.error, disk.part = error, 30
    with pytest.raises(StorageFailed, match=r"00000000000000000000\.log: "):
        put(log)
    assert (log.end_offset, log.end_address) == (1, len(first))
    assert (tmp_path / "orders-0/00000000000000000000.log").read_bytes() == first
    disk.error = None
    second = put(log)
    assert log.read(0, 1 << 20, log.end_address) == first + second
    folder.close()


def test_an_append_that_cannot_be_taken_back_stops_the_process(tmp_path: Path) -> None:
    def pwrite(fd: int, data: Buffer, position: int) -> int:
        os.close(fd)  # So that the truncation fails too.
        raise OSError(errno.EIO, "broken")

    folder = DataFolder(str(tmp_path), pwrite=pwrite)
    with pytest.raises(LogTailUnknown, match="cutting the file at 0 failed too"):
        put(open_log(folder))


def test_a_full_disk_during_a_roll_refuses_and_the_next_append_succeeds(tmp_path: Path) -> None:
    points: list[str] = []

    def at(point: str) -> None:
        points.append(point)
        if len([p for p in points if p == "segment.roll"]) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    folder = DataFolder(str(tmp_path), at=at)
    log = open_log(folder, LogConfig(segment_bytes=100))
    first = put(log)
    with pytest.raises(StorageFailed, match="No space left"):
        put(log)
    assert (log.end_offset, log.end_address) == (1, len(first))
    second = put(log)
    assert log.read(1, 1 << 20, log.end_address) == second
    folder.close()
    log = open_log(folder := DataFolder(str(tmp_path)))
    assert log.end_offset == 2
    folder.close()


def test_a_disk_too_full_for_indexes_and_snapshots_still_serves(tmp_path: Path) -> None:
    def pwrite(fd: int, data: Buffer, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("index"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.pwrite(fd, data, position)

    folder = DataFolder(str(tmp_path), pwrite=pwrite)
    log = open_log(folder, LogConfig(index_interval_bytes=100, segment_bytes=20_000))
    batches = [put(log, timestamp=n) for n in range(500)]
    log.append_aborted(AbortedTxn(1, 0, 3, 4))
    log.save_snapshot(b"state")
    assert log.load_snapshot() is None  # A snapshot would vouch for an aborted transaction that is not on disk.
    assert log.read(123, 1, log.end_address) == batches[123]
    assert log.first_batch_not_before(77) == batches[77]
    assert log.aborted(0, 500) == [AbortedTxn(1, 0, 3, 4)]
    folder.abandon()


def test_a_file_size_limit_of_the_system_is_a_refused_append(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:  # The limit is one of the process, so a child process sets it.
        status = 1
        try:
            import signal

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            folder = DataFolder(str(tmp_path))
            log = open_log(folder)
            put(log, value=b"v" * 1000)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
            before = (log.end_offset, log.end_address)
            with pytest.raises(StorageFailed):
                put(log, value=b"v" * 1000)
            assert (log.end_offset, log.end_address) == before
            put(log)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    folder = DataFolder(str(tmp_path))
    assert open_log(folder).end_offset == 2
    folder.close()


def test_a_log_that_cannot_be_read_says_so_and_forgets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    put(log)
    log.append_aborted(AbortedTxn(1, 0, 0, 1))
    log.save_snapshot(b"state")
    folder.close()
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    (segment,) = log.segments()

    def refuse(*args: object) -> NoReturn:
        raise OSError(5, "Input/output error")

    asked: list[Callable[[], object]] = [
        lambda: log.aborted(0, 10),
        lambda: log.append_aborted(AbortedTxn(2, 0, 5, 6)),
        segment.first_timestamp,
        segment.largest_timestamp,
    ]
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", refuse)
        for ask in asked:
            with pytest.raises(StorageFailed, match="Input/output error"):
                ask()
    assert log.aborted(0, 10) == [AbortedTxn(1, 0, 0, 1)]
    assert segment.largest_timestamp() == segment.first_timestamp() == 0
    folder.close()


def test_appends_with_earlier_timestamps_do_not_read_the_time_index_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when old data is copied: the greatest timestamp is in the file, and no entry waits in memory."""
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    for _ in range(3):
        put(log, timestamp=1_000, value=bytes(5_000))
    log.save_snapshot(b"state")  # This writes the indexes.
    opened: list[str] = []
    open_file = os.open

    def noted(path: str, *rest: int) -> int:
        opened.append(str(path))
        return open_file(path, *rest)

    monkeypatch.setattr(os, "open", noted)
    for _ in range(20):
        put(log, timestamp=500, value=bytes(5_000))
    assert not [path for path in opened if path.endswith(".timeindex")]
    folder.close()
    again = open_log(DataFolder(str(tmp_path)))
    found = again.first_batch_not_before(1_000)
    assert found is not None
    assert struct.unpack_from(">q", found)[0] == 0
