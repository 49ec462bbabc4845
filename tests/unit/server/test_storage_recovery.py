"""What a start finds after a clean stop, after kill -9, after the machine went down, and after damage."""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fencepost.machines.log.interface import AbortedTxn, LogConfig
from fencepost.machines.log.memory import MemoryLog
from fencepost.protocol.batch import Buffer, encode_batch, encode_marker, stamp
from fencepost.server.storage import DataFolder, FileLog

TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=4000, index_interval_bytes=300)
FIRST_LOG = "orders-0/00000000000000000000.log"


def open_log(folder: DataFolder, config: LogConfig = SMALL) -> FileLog:
    return folder.open_log("orders", 0, TOPIC_ID, config)


def put(
    log: FileLog | MemoryLog, records: int = 1, timestamp: int = 0, value: bytes = b"value", epoch: int = 0
) -> bytes:
    base_offset = log.end_offset
    batch = stamp(encode_batch([(None, value)] * records, timestamp), base_offset, epoch)
    log.append(batch, base_offset, base_offset + records - 1, timestamp)
    return batch


def abort(log: FileLog | MemoryLog, producer_id: int) -> AbortedTxn:
    first_offset, offset = log.end_offset, log.end_offset + 1
    put(log)
    log.append(encode_marker(producer_id, 0, False, 0, 0, base_offset=offset), offset, offset, 0)
    return AbortedTxn(producer_id, first_offset, offset, offset + 1)


def everything(log: FileLog | MemoryLog) -> bytes:
    data = b""
    while len(data) < log.end_address - log.start_address:
        data += log.read(next_offset(data), 1 << 20, log.end_address)
    return data


def next_offset(data: bytes) -> int:
    offset = pos = 0
    while pos < len(data):
        base_offset, length = struct.unpack_from(">qi", data, pos)
        offset = base_offset + struct.unpack_from(">i", data, pos + 23)[0] + 1
        pos += 12 + length
    return offset


def replay_aborted(log: FileLog, entries: list[AbortedTxn]) -> None:
    """What a partition does at its start: append the entries of all abort markers after the snapshot again."""
    snapshot = log.load_snapshot()
    from_offset = snapshot[0] if snapshot is not None else log.start_offset
    for entry in entries:
        if from_offset <= entry.last_offset < log.end_offset:
            log.append_aborted(entry)


def test_a_clean_stop_needs_no_scan(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    written = b"".join(put(log, 2) for _ in range(200))
    log.save_snapshot(b"state")
    folder.close()
    # Damage that only a scan would find.
    last = sorted((tmp_path / "orders-0").glob("*.log"))[-1]
    last.write_bytes(last.read_bytes()[:-1] + b"\xff")
    lines: list[str] = []
    folder = DataFolder(str(tmp_path), report=lines.append)
    log = open_log(folder)
    assert (log.end_offset, log.end_address, lines) == (400, len(written), [])
    assert log.load_snapshot() == (400, b"state")
    assert not log.wants_snapshot()
    folder.close()


def test_files_that_changed_after_a_clean_stop_are_checked_all_the_same(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    batches = [put(log) for _ in range(3)]
    folder.close()
    (tmp_path / FIRST_LOG).write_bytes(b"".join(batches)[:-1])
    lines: list[str] = []
    folder = DataFolder(str(tmp_path), report=lines.append)
    log = open_log(folder)
    assert log.end_offset == 2
    size = len(batches[0])
    assert lines[0] == (
        f"orders-0: has {3 * size - 1} bytes and a recovery point at 3, "
        f"the clean stop left {3 * size}, up to offset 3: checked"
    )
    assert lines[1].startswith(f"orders-0: cut {size - 1} bytes of ")
    folder.close()


@pytest.mark.parametrize("file", [".kafka_cleanshutdown", "recovery-point-offset-checkpoint"])
def test_an_end_offset_that_a_clean_stop_noted_counts_only_if_both_notes_of_it_agree(file: str, tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    for _ in range(13):
        put(log)
    folder.close()
    (tmp_path / "clean-stop-checksums").unlink()  # An earlier version stopped.
    noted = (tmp_path / file).read_bytes()
    damaged = re.sub(rb"(orders[- ]0) 13", rb"\1 03", noted)  # One bit.
    assert damaged != noted
    (tmp_path / file).write_bytes(damaged)
    lines: list[str] = []
    folder = DataFolder(str(tmp_path), report=lines.append)
    assert open_log(folder).end_offset == 13, "no offset is given out twice"
    assert [line.rpartition(", ")[2] for line in lines] in (["up to offset 3: checked"], ["up to offset 13: checked"])
    folder.close()


@pytest.mark.parametrize("content", [None, b"", b"hello", b"0\n1\n3 0\n", b"0\n2\n1 0\n0 5\n", b"0\n1\nx 0\n"])
def test_a_damaged_file_of_leader_epochs_is_made_again_from_the_log(content: bytes | None, tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    for number in range(6):
        put(log, epoch=number // 2)
    assert log.leader_epochs() == [(0, 0), (1, 2), (2, 4)]
    folder.abandon()
    path = tmp_path / "orders-0/leader-epoch-checkpoint"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    lines: list[str] = []
    folder = DataFolder(str(tmp_path), report=lines.append)
    found = open_log(folder).leader_epochs()
    if content == b"0\n1\n3 0\n":
        assert found == [(3, 0)], "it looks like another history"
        return
    assert found == [(0, 0), (1, 2), (2, 4)]
    how = "is missing" if content is None else "is not as it was"
    assert lines == [f"orders-0: leader-epoch-checkpoint {how}: made again from the log"]
    folder.close()


def test_a_damaged_file_of_offsets_is_reported(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    put(open_log(folder))
    folder.abandon()
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"0\n1\nhello\n")
    lines: list[str] = []
    folder = DataFolder(str(tmp_path), report=lines.append)
    assert lines == ["log-start-offset-checkpoint is damaged, its offsets are not used"]
    folder.close()


def test_a_clean_stop_does_not_vouch_for_a_log_whose_index_could_not_be_written(tmp_path: Path) -> None:
    refused = "/orders-0/00000000000000000000.txnindex"

    def pwrite(fd: int, data: Buffer, at: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(refused):
            raise OSError(28, "No space left on device")
        return os.pwrite(fd, data, at)

    lines: list[str] = []
    folder = DataFolder(str(tmp_path), pwrite=pwrite, report=lines.append)
    log = open_log(folder)
    entries = []
    for producer_id in range(2):
        put(log)
        entries.append(abort(log, producer_id))
        log.append_aborted(entries[-1])
        log.roll()
    other = folder.open_log("other", 0, TOPIC_ID, SMALL)
    put(other)
    folder.close()
    assert lines == ["orders-0: an index could not be written, it is made again at the next start"]
    lines.clear()
    folder = DataFolder(str(tmp_path), report=lines.append)
    log = open_log(folder)
    replay_aborted(log, entries)
    assert log.aborted(0, 100) == entries
    assert folder.open_log("other", 0, TOPIC_ID, SMALL).end_offset == 1
    assert [line for line in lines if line.startswith("other")] == []
    folder.close()


@pytest.mark.parametrize("cut", [1, 11, 40, 61, 70])
@pytest.mark.parametrize("boot", ["the same", "another"])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(tmp_path: Path, cut: int, boot: str) -> None:
    folder = DataFolder(str(tmp_path), boot=lambda: "the same")
    log = open_log(folder, LogConfig())
    whole = b"".join(put(log) for _ in range(10))
    torn = put(log)
    folder.abandon()
    with (tmp_path / FIRST_LOG).open("r+b") as file:
        file.truncate(len(whole) + cut)
    lines: list[str] = []
    folder = DataFolder(str(tmp_path), report=lines.append, boot=lambda: boot)
    log = open_log(folder, LogConfig())
    assert cut < len(torn)
    assert log.end_offset == 10
    assert (tmp_path / FIRST_LOG).read_bytes() == whole
    assert len(lines) == 1
    assert lines[0].startswith(
        f"orders-0: cut {cut} bytes of 00000000000000000000.log after offset 9 (position {len(whole)}: "
    )
    put(log)
    assert log.end_offset == 11
    folder.close()


def test_after_another_boot_everything_past_the_recovery_point_is_checked(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path), boot=lambda: "first")
    log = open_log(folder)
    before = b"".join(put(log) for _ in range(20))
    folder.close()
    # The power fails before the other thread has synced anything.
    folder = DataFolder(str(tmp_path), boot=lambda: "first", defer=lambda work, done: None)
    log = open_log(folder)
    after = [put(log, value=b"v" * 500) for _ in range(30)]
    log.save_snapshot(b"not durable")
    folder.abandon()
    # A page in the middle never reached the disk; the batches after it did.
    segments = sorted((tmp_path / "orders-0").glob("*.log"))
    lost = segments[len(segments) // 2]
    content = bytearray(lost.read_bytes())
    content[700:1000] = bytes(300)
    lost.write_bytes(content)
    lines: list[str] = []
    folder = DataFolder(str(tmp_path), report=lines.append, boot=lambda: "second")
    log = open_log(folder)
    assert 20 < log.end_offset < 50
    assert everything(log) == before + b"".join(after[: log.end_offset - 20])
    assert log.load_snapshot() is None
    assert len(lines) == 1
    assert "bytes of" in lines[0]
    folder.close()


def test_another_boot_counts_until_it_is_dealt_with(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path), boot=lambda: "first")
    put(open_log(folder))
    assert not folder.may_have_lost_appends
    folder.abandon()
    for end in (DataFolder.abandon, DataFolder.close):
        folder = DataFolder(str(tmp_path), boot=lambda: "second")
        open_log(folder)
        assert folder.may_have_lost_appends
        end(folder)
    folder = DataFolder(str(tmp_path), boot=lambda: "second")
    open_log(folder)
    folder.note_recovered()
    folder.abandon()
    assert not DataFolder(str(tmp_path), boot=lambda: "second").may_have_lost_appends


def test_after_another_boot_a_hole_between_segments_ends_the_log(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path), boot=lambda: "first")
    log = open_log(folder, LogConfig(segment_bytes=200))
    batches = [put(log) for _ in range(10)]
    folder.abandon()
    with (tmp_path / "orders-0/00000000000000000004.log").open("r+b") as file:
        file.truncate(len(batches[0]))
    folder = DataFolder(str(tmp_path), boot=lambda: "second")
    log = open_log(folder)
    assert log.end_offset == 5
    assert everything(log) == b"".join(batches[:5])
    folder.close()


def test_a_rolled_segment_moves_the_recovery_point_and_keeps_its_snapshot(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path), boot=lambda: "first")
    log = open_log(folder)
    while log.end_offset < 200:
        put(log)
        if log.wants_snapshot():
            log.save_snapshot(b"state")
    for _ in range(5):
        put(log)
        log.save_snapshot(b"newer")
    point = log.files.recovery_point
    assert point > 100
    folder.abandon()
    folder = DataFolder(str(tmp_path), boot=lambda: "second")
    log = open_log(folder)
    assert log.end_offset == 205
    assert log.load_snapshot() == (point, b"state")
    folder.close()


@pytest.mark.parametrize("is_vouched_for", [False, True])
def test_where_leader_epochs_begin_is_known_after_a_power_loss(
    is_vouched_for: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    fdatasync = os.fdatasync

    def watched(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        fdatasync(fd)

    monkeypatch.setattr(os, "fdatasync", watched)
    folder = DataFolder(str(tmp_path), flush=True, boot=lambda: "before")
    log = open_log(folder)
    for epoch, count in ((0, 6), (1, 20)):
        for _ in range(count):
            offset = log.end_offset
            log.append(stamp(encode_batch([(None, b"value")], 0), offset, epoch), offset, offset, 0)
    if is_vouched_for:
        log.save_snapshot(b"state")
    folder.abandon()
    epochs = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    if epochs.stat().st_ino not in synced:
        epochs.write_bytes(b"")
    log = open_log(DataFolder(str(tmp_path), boot=lambda: "after"))
    assert (log.end_offset, log.leader_epochs()) == (26, [(0, 0), (1, 6)])


def test_a_boot_vouches_only_for_logs_that_were_checked_in_it(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path), boot=lambda: "first")
    for partition in range(2):
        put(folder.open_log("orders", partition, TOPIC_ID, SMALL))
    folder.abandon()
    folder = DataFolder(str(tmp_path), boot=lambda: "second")
    folder.open_log("orders", 0, TOPIC_ID, SMALL)
    folder.abandon()
    assert (tmp_path / "boot-id").read_text() == "first"
    folder = DataFolder(str(tmp_path), boot=lambda: "second")
    for partition in range(2):
        folder.open_log("orders", partition, TOPIC_ID, SMALL)
    folder.note_recovered()
    folder.abandon()
    assert (tmp_path / "boot-id").read_text() == "second"


@pytest.mark.parametrize("stop", ["close", "abandon"])
@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "garbage"])
def test_a_lost_or_damaged_index_is_made_again(tmp_path: Path, stop: str, suffix: str, damage: str) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    entries = []
    for n in range(60):
        put(log, 2, timestamp=n, value=b"v" * 100)
        entries.append(abort(log, n))
        log.append_aborted(entries[-1])
        if log.wants_snapshot():
            log.save_snapshot(b"state")
    log.save_snapshot(b"state")
    written = everything(log)
    getattr(folder, stop)()
    paths = sorted((tmp_path / "orders-0").glob(f"*.{suffix}"))
    assert len(paths) > 2
    for path in (paths[0], paths[-1]):
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "torn":
            path.write_bytes(content[:-5])
        else:
            path.write_bytes(bytes([255 - byte for byte in content]))
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    replay_aborted(log, entries)
    assert log.end_offset == 60 * 4
    for offset in range(0, 240, 3):
        assert log.read(offset, 1, log.end_address) in written
        base_offset = struct.unpack_from(">q", log.read(offset, 1, log.end_address))[0]
        assert base_offset <= offset < base_offset + 2
    assert everything(log) == written
    assert log.aborted(0, 240) == entries
    assert log.first_batch_not_before(30) == log.read(120, 1, log.end_address)
    folder.close()


TXN_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a bit of a producer id": lambda index: flipped(index, at=9),
    "a bit of a last offset": lambda index: flipped(index, at=25),
    "a bit of a last stable offset": lambda index: flipped(index, at=33),
    "without its last entry": lambda index: index[:-34],
    "without its first entry": lambda index: index[34:],
    "its last entry twice": lambda index: index + index[-34:],
    "a newer entry": lambda index: index + struct.pack(">hqqqq", 0, 7, 500, 501, 502),
    "an entry for what was not aborted": lambda index: index or struct.pack(">hqqqq", 0, 0, 0, 0, 0),
}


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("stop", ["close", "abandon"])
@pytest.mark.parametrize("segment", [0, -1])
@pytest.mark.parametrize("damage", TXN_DAMAGES)
def test_a_changed_index_of_aborted_transactions_is_made_again(
    tmp_path: Path, stop: str, segment: int, damage: str
) -> None:
    is_empty = damage == "an entry for what was not aborted"
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    entries = []
    for n in range(60):
        put(log, 2, value=b"v" * 100)
        if not is_empty:
            entries.append(abort(log, n))
            log.append_aborted(entries[-1])
        if log.wants_snapshot():
            log.save_snapshot(b"state")
    log.save_snapshot(b"state")
    getattr(folder, stop)()
    paths = sorted((tmp_path / "orders-0").glob("*.txnindex"))
    assert len(paths) > 2
    paths[segment].write_bytes(TXN_DAMAGES[damage](paths[segment].read_bytes()))
    lines: list[str] = []
    folder = DataFolder(str(tmp_path), report=lines.append)
    log = open_log(folder)
    replay_aborted(log, entries)
    assert log.aborted(0, log.end_offset) == entries
    if damage != "a newer entry":  # It is beyond the snapshot, as after a kill, and the replay makes it again.
        assert len(lines) == 1
        assert paths[segment].name in lines[0]
    folder.close()
    lines.clear()
    DataFolder(str(tmp_path), report=lines.append).open_log("orders", 0, TOPIC_ID, SMALL)
    assert lines == []


def test_snapshots_and_aborted_transactions_past_a_cut_are_dropped(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    log = open_log(folder, LogConfig())
    early = abort(log, 1)
    log.append_aborted(early)
    log.save_snapshot(b"early")
    cut_at = log.end_address
    log.append_aborted(abort(log, 2))
    log.save_snapshot(b"late")
    folder.abandon()
    with (tmp_path / FIRST_LOG).open("r+b") as file:
        file.truncate(cut_at + 20)
    folder = DataFolder(str(tmp_path))
    log = open_log(folder)
    assert log.load_snapshot() == (2, b"early")
    assert log.aborted(0, 100) == [early]
    assert not (tmp_path / "orders-0/00000000000000000004.snapshot").exists()
    folder.close()


def test_files_of_a_deleted_topic_are_not_taken_for_a_new_one(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path))
    put(open_log(folder))
    folder.close()
    lines: list[str] = []
    folder = DataFolder(str(tmp_path), report=lines.append)
    log = folder.open_log("orders", 0, bytes(16), SMALL)
    assert log.end_offset == 0
    put(log)
    assert lines == ["orders-0: removed the files of a deleted topic with the same name"]
    assert [name for name in os.listdir(tmp_path) if name.endswith("-delete")] == []
    folder.close()


def run_until_killed(path: Path, point: str, times: int, work: Callable[[DataFolder], None]) -> None:
    """Run `work` in another process, until the crash hook was called with `point` that many times."""
    pid = os.fork()
    if pid == 0:
        left = [times]

        def at(met: str) -> None:
            if met == point:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            work(DataFolder(str(path), at=at))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("point", ["segment.roll", "index.write", "snapshot.write"])
def test_a_process_killed_at_a_crash_point_loses_nothing(tmp_path: Path, point: str, times: int) -> None:
    progress = tmp_path / "progress"

    def work(folder: DataFolder) -> None:
        log = open_log(folder)
        fd = os.open(progress, os.O_WRONLY | os.O_CREAT)
        while True:
            put(log, 2, timestamp=log.end_offset)
            os.pwrite(fd, struct.pack(">q", log.end_offset), 0)
            if log.wants_snapshot():
                log.save_snapshot(struct.pack(">q", log.end_offset))

    run_until_killed(tmp_path / "data", point, times, work)
    acknowledged = int.from_bytes(progress.read_bytes(), "big")
    lines: list[str] = []
    folder = DataFolder(str(tmp_path / "data"), report=lines.append)
    log = open_log(folder)
    assert lines == []
    # The append during which the process died may be there or not.
    assert log.end_offset in (acknowledged, acknowledged + 2)
    assert next_offset(everything(log)) == log.end_offset
    snapshot = log.load_snapshot()
    if snapshot is not None:
        assert struct.unpack(">q", snapshot[1])[0] == snapshot[0] <= log.end_offset
    put(log, 2)
    folder.close()
    assert not list((tmp_path / "data").glob("**/*.tmp"))


def test_metadata_is_the_old_or_the_new_document(tmp_path: Path) -> None:
    def work(folder: DataFolder) -> None:
        for n in range(100):
            folder.save_metadata(b'{"document": %d\n}' % n)

    run_until_killed(tmp_path, "metadata.save", 3, work)
    folder = DataFolder(str(tmp_path))
    assert folder.load_metadata() == b'{"document": 1\n}'
    folder.save_metadata(b'{"document": 2\n}')
    folder.close()
    folder = DataFolder(str(tmp_path))
    assert folder.load_metadata() == b'{"document": 2\n}'
    folder.close()


class FileLogAgainstMemoryLog(RuleBasedStateMachine):
    """Whatever happens to a FileLog, it behaves like a MemoryLog of the batches that survived."""

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.batches: list[tuple[bytes, int, int, int]] = []
        self.entries: list[AbortedTxn] = []
        self.boot = 0
        self.open()

    def open(self) -> None:
        self.folder = DataFolder(self.path, boot=lambda: str(self.boot), max_open_segments=2)
        self.log = open_log(self.folder, LogConfig(segment_bytes=3000, segment_ms=500, index_interval_bytes=200))
        self.model = MemoryLog()
        for batch in self.batches:
            if batch[2] < self.log.end_offset:
                self.model.append(*batch)
        self.batches = self.batches[: len(list(self.model.scan(0)))]
        self.entries = [entry for entry in self.entries if entry.last_offset < self.log.end_offset]
        for entry in self.entries:
            self.model.append_aborted(entry)
        snapshot = self.log.load_snapshot()
        if snapshot is not None:
            assert snapshot[1] == b"%d" % snapshot[0]
            assert snapshot[0] <= self.log.end_offset
        replay_aborted(self.log, self.entries)

    def append(self, batch: bytes, last_offset: int, timestamp: int) -> None:
        place = (batch, self.log.end_offset, last_offset, timestamp)
        assert self.log.append(*place) == self.model.append(*place)
        self.batches.append(place)

    @rule(
        sizes=st.lists(st.integers(0, 900), min_size=1, max_size=30),
        records=st.integers(1, 3),
        timestamp=st.integers(-1, 2000),
    )
    def append_data(self, sizes: list[int], records: int, timestamp: int) -> None:
        for size in sizes:
            base_offset = self.log.end_offset
            batch = stamp(encode_batch([(None, b"v" * size)] * records, timestamp), base_offset, 0)
            self.append(batch, base_offset + records - 1, timestamp)

    @rule(producer_id=st.integers(0, 9), timestamp=st.integers(0, 2000))
    def append_aborted(self, producer_id: int, timestamp: int) -> None:
        offset = self.log.end_offset
        first_offset = max(0, offset - 3)
        self.append(encode_marker(producer_id, 0, False, 0, timestamp, base_offset=offset), offset, timestamp)
        entry = AbortedTxn(producer_id, first_offset, offset, offset + 1)
        self.entries.append(entry)
        self.log.append_aborted(entry)
        self.model.append_aborted(entry)

    @rule()
    def snapshot(self) -> None:
        self.log.save_snapshot(b"%d" % self.log.end_offset)

    @rule()
    def stop_and_start(self) -> None:
        end_offset = self.log.end_offset
        self.folder.close()
        self.open()
        assert self.log.end_offset == end_offset

    @rule()
    def kill_and_start(self) -> None:
        end_offset = self.log.end_offset
        self.folder.abandon()
        self.open()
        assert self.log.end_offset == end_offset

    @rule()
    def reboot_and_start(self) -> None:
        end_offset = self.log.end_offset
        self.folder.abandon()
        self.boot += 1
        self.open()
        assert self.log.end_offset == end_offset

    def expected_end(self, survived_bytes: int) -> int:
        end_offset = 0
        for batch, _, last_offset, _ in self.batches:
            survived_bytes -= len(batch)
            if survived_bytes < 0:
                break
            end_offset = last_offset + 1
        return end_offset

    def active_file(self) -> tuple[str, int]:
        """The path of the last segment, and its address."""
        bases = sorted(int(name[:20]) for name in os.listdir(f"{self.path}/orders-0") if name.endswith(".log"))
        return f"{self.path}/orders-0/{bases[-1]:020d}.log", self.model.address_of(bases[-1])

    @precondition(lambda self: self.batches)
    @rule(where=st.floats(0, 1), reboot=st.booleans())
    def tear_tail_and_start(self, where: float, reboot: bool) -> None:
        self.folder.abandon()
        path, address = self.active_file()
        keep = int(os.path.getsize(path) * where)
        os.truncate(path, keep)
        expected = self.expected_end(address + keep)
        self.boot += reboot
        self.open()
        assert self.log.end_offset == expected

    @precondition(lambda self: self.batches)
    @rule(garbage=st.binary(min_size=1, max_size=200), overwritten=st.integers(0, 150), reboot=st.booleans())
    def write_garbage_and_start(self, garbage: bytes, overwritten: int, reboot: bool) -> None:
        self.folder.abandon()
        path, address = self.active_file()
        size = os.path.getsize(path)
        last_batch = len(self.batches[-1][0]) if size else 0
        position = max(size - overwritten, size - last_batch)
        before = Path(path).read_bytes()
        after = before[:position] + garbage
        Path(path).write_bytes(after)
        # The garbage may happen to be equal to the old bytes.
        whole = size if after.startswith(before) else position
        expected = self.expected_end(address + whole)
        self.boot += reboot
        self.open()
        assert self.log.end_offset == expected

    @invariant()
    def both_answer_the_same(self) -> None:
        log, model = self.log, self.model
        assert (log.start_offset, log.end_offset, log.end_address) == (0, model.end_offset, model.end_address)
        end = log.end_offset
        for offset in {0, 1, end // 3, end // 2, max(0, end - 2), end, end + 1}:
            assert log.address_of(offset) == model.address_of(offset)
            assert list(log.scan(offset)) == list(model.scan(offset))
            assert log.aborted(offset, offset + 5) == model.aborted(offset, offset + 5)
            for max_bytes in (1, 500, 1 << 20):
                for limit in (model.end_address, model.address_of(end - 1 if end else 0)):
                    data = log.read(offset, max_bytes, limit)
                    expected = model.read(offset, max_bytes, limit)
                    # It may stop early, at the end of a segment, but never within a batch.
                    assert expected.startswith(data)
                    assert bool(data) == bool(expected)
                    if data:
                        address = model.address_of(offset) + len(data)
                        assert address == model.address_of(next_offset(data))
        for timestamp in (-1, 0, 500, 1500):
            assert log.first_batch_not_before(timestamp) == model.first_batch_not_before(timestamp)

    def teardown(self) -> None:
        self.folder.abandon()
        shutil.rmtree(self.path)


TestFileLogAgainstMemoryLog = FileLogAgainstMemoryLog.TestCase
TestFileLogAgainstMemoryLog.settings = settings(
    max_examples=60, stateful_step_count=20, suppress_health_check=list(HealthCheck)
)
