"""A start notices what is missing by the folder's own records, and refuses or accepts the loss. No false alarms."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from fencepost.machines.log.interface import LogConfig, StorageFailed
from fencepost.protocol.batch import decode_batch, decode_header, encode_batch, stamp
from fencepost.protocol.records import iter_batches
from fencepost.server.storage import DataFolder, FileLog
from fencepost.server.storage.last_stop import CleanEnd, Trust
from fencepost.server.storage.missing import DataMissing, FoundLog, LogRecords, Proof, encode_filler, proven_end
from fencepost.server.storage.offset_files import BegunLogs
from tests.unit.server.surveyed import TOPIC_ID, SurveyedFolder

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)
BATCH_BYTES = len(encode_batch([(None, b"value")], 0))
PER_SEGMENT = 300 // BATCH_BYTES
RECORDS = 14
OTHER_TOPIC_ID = bytes(range(16, 32))
NO_DOCUMENT = r"fencepost\.metadata: there is no such file; by other files .*orders-0"
POINT = "recovery-point-offset-checkpoint"


def same_boot() -> str:
    return "1"


def other_boot() -> str:
    return "2"


def open_log(folder: DataFolder) -> FileLog:
    return folder.open_log("orders", 0, TOPIC_ID, SMALL)


def put(log: FileLog) -> None:
    batch = stamp(encode_batch([(None, b"value")], 0), log.end_offset, 0)
    log.append(batch, log.end_offset, log.end_offset, 0)


def offsets(log: FileLog) -> list[int]:
    """Of the records; a batch without records has none."""
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        for header, _ in iter_batches(log.read(offset, 1 << 20, log.end_address)):
            found += [header.base_offset] * header.record_count
            offset = header.last_offset + 1
    return found


def written(tmp_path: Path) -> FileLog:
    """A log of several segments that is checkpointed, in an open folder."""
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    log = open_log(folder)
    for _ in range(RECORDS):
        put(log)
    log.save_snapshot(b"state")
    return log


def leave(tmp_path: Path, end: str) -> None:
    """A log of several segments, and the process that wrote it was stopped or killed."""
    folder = written(tmp_path).files.folder
    assert isinstance(folder, DataFolder)
    getattr(folder, end)()


def logs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "orders-0").glob("*.log"))


def content(tmp_path: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}


def cut_off(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:-size])


def unlink(*paths: Path) -> None:
    for path in paths:
        path.unlink()


def truncate_all(tmp_path: Path) -> None:
    for path in logs(tmp_path):
        path.write_bytes(b"")


# What is lost -> what is done to the folder, and the offsets that are left.
LOSSES: dict[str, tuple[Callable[[Path], object], list[int]]] = {
    "the folder of the log": (lambda path: shutil.rmtree(path / "orders-0"), []),
    "every .log file": (lambda path: unlink(*logs(path)), []),
    "a segment in the middle": (
        lambda path: logs(path)[1].unlink(),
        [*range(PER_SEGMENT), *range(2 * PER_SEGMENT, RECORDS)],
    ),
    "the last segment": (lambda path: logs(path)[-1].unlink(), [*range(RECORDS - 1 - (RECORDS - 1) % PER_SEGMENT)]),
    "the last batch": (lambda path: cut_off(logs(path)[-1], BATCH_BYTES), [*range(RECORDS - 1)]),
    "the last byte": (lambda path: cut_off(logs(path)[-1], 1), [*range(RECORDS - 1)]),
    "the last byte of the first segment": (
        lambda path: cut_off(logs(path)[0], 1),
        [*range(PER_SEGMENT - 1), *range(PER_SEGMENT, RECORDS)],
    ),
    "the last batch of the first segment": (
        lambda path: cut_off(logs(path)[0], BATCH_BYTES),
        [*range(PER_SEGMENT - 1), *range(PER_SEGMENT, RECORDS)],
    ),
    "the content of all segments": (truncate_all, []),
}  # fmt: skip
BOOTS = {"close": same_boot, "abandon": same_boot, "power": other_boot}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("end", BOOTS)
def test_a_start_refuses_until_the_loss_is_accepted_and_says_it_once(loss: str, end: str, tmp_path: Path) -> None:
    leave(tmp_path, "close" if end == "close" else "abandon")
    lose, left = LOSSES[loss]
    lose(tmp_path)
    before = content(tmp_path)
    for _ in range(2):
        with pytest.raises(DataMissing, match=r"\norders-0: ") as refused:
            SurveyedFolder(str(tmp_path), boot=BOOTS[end])
        assert "hint: " in str(refused.value)
        assert "fencepost.recovery.missing=accept" in str(refused.value)
        assert content(tmp_path) == before, "a refused start changes nothing"
    lines: list[str] = []
    folder = SurveyedFolder(str(tmp_path), boot=BOOTS[end], missing="accept", report=lines.append)
    assert [line.split(":")[0] for line in lines] == ["orders-0"], "one line for the log"
    assert lines[0].startswith(refused.value.problem.splitlines()[1] + ": accepted")
    log = open_log(folder)
    assert folder.may_have_lost_appends, "readers get a new leader epoch"
    assert offsets(log) == left
    assert log.end_offset == RECORDS, "no offset is handed out twice"
    put(log)
    folder.note_recovered()
    # The next starts are silent, after a stop and after a kill.
    for stop in ("close", "abandon"):
        getattr(folder, stop)()
        lines.clear()
        folder = SurveyedFolder(str(tmp_path), boot=BOOTS[end], report=lines.append)
        log = open_log(folder)
        assert offsets(log) == [*left, RECORDS]
        assert lines == []


def test_the_loss_of_the_first_segment_is_noticed_after_a_clean_stop(tmp_path: Path) -> None:
    leave(tmp_path, "close")
    first = logs(tmp_path)[0]
    size = sum(path.stat().st_size for path in logs(tmp_path))
    left = size - first.stat().st_size
    first.unlink()
    with pytest.raises(DataMissing) as refused:
        SurveyedFolder(str(tmp_path), boot=same_boot)
    assert f"{left} bytes in {len(logs(tmp_path))} .log files; the clean stop left {size} bytes" in str(refused.value)
    folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept")
    assert offsets(open_log(folder)) == [*range(PER_SEGMENT, RECORDS)]
    folder.abandon()
    open_log(SurveyedFolder(str(tmp_path), boot=same_boot))


def test_the_hint_speaks_of_damage_only_if_there_is_some(tmp_path: Path) -> None:
    leave(tmp_path, "close")
    shutil.copytree(tmp_path, tmp_path / "copy")
    shutil.rmtree(tmp_path / "orders-0")
    with pytest.raises(DataMissing) as refused:
        SurveyedFolder(str(tmp_path), boot=same_boot)
    assert "damaged" not in str(refused.value)
    last = logs(tmp_path / "copy")[-1]
    last.write_bytes(last.read_bytes()[:-1] + b"?" * 100)
    with pytest.raises(DataMissing, match="which keeps the records behind a damaged batch"):
        SurveyedFolder(str(tmp_path / "copy"), boot=same_boot)


def test_a_damaged_batch_that_was_synced_is_refused_by_its_name(tmp_path: Path) -> None:
    """No crash does this. The broker does not cut off what was safe without being told to."""
    leave(tmp_path, "abandon")
    last = logs(tmp_path)[-1]
    data = bytearray(last.read_bytes())
    data[65] ^= 1
    last.write_bytes(data)
    first = int(last.stem)
    with pytest.raises(DataMissing, match=rf"\norders-0: the batch at offset {first} is damaged \(position 0: crc is "):
        SurveyedFolder(str(tmp_path), boot=other_boot)
    log = open_log(SurveyedFolder(str(tmp_path), boot=other_boot, missing="accept"))
    assert (offsets(log), log.end_offset) == ([*range(first)], RECORDS)
    assert last.with_name(f"{last.name}.cut-1").read_bytes() == data


HIDDEN = SMALL._replace(segment_bytes=100_000)


def damage_what_only_recovery_reads(tmp_path: Path) -> tuple[Path, bytes]:
    """The comparison reads the end of what is proven. A damaged index makes recovery read from the beginning."""
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    log = folder.open_log("orders", 0, TOPIC_ID, HIDDEN)
    for number in range(100):
        if number == 20:
            log.save_snapshot(b"state")
        put(log)
    log.files.settle()
    folder.abandon()
    index = tmp_path / "orders-0" / f"{0:020d}.index"
    index.write_bytes(index.read_bytes()[:-32] + b"\xff" * 32)
    path = logs(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[2 * BATCH_BYTES + 65] ^= 1
    path.write_bytes(data)
    return path, bytes(data)


def test_damage_that_only_recovery_finds_is_refused_before_it_is_cut_off(tmp_path: Path) -> None:
    path, data = damage_what_only_recovery_reads(tmp_path)
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    with pytest.raises(DataMissing, match="orders-0: the log ends at offset 2; by the records it reaches offset 20"):
        folder.open_log("orders", 0, TOPIC_ID, HIDDEN)
    folder.close()
    assert path.read_bytes() == data
    with pytest.raises(DataMissing):
        SurveyedFolder(str(tmp_path), boot=same_boot)


def test_damage_that_only_recovery_finds_is_a_reason_for_a_new_leader_epoch_if_its_loss_is_accepted(
    tmp_path: Path,
) -> None:
    damage_what_only_recovery_reads(tmp_path)
    for _ in range(2):  # A start that is interrupted is made again in full.
        folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept")
        log = folder.open_log("orders", 0, TOPIC_ID, HIDDEN)
        assert folder.may_have_lost_appends
        assert (offsets(log), log.end_offset) == ([0, 1], 20)
        folder.abandon()
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    folder.open_log("orders", 0, TOPIC_ID, HIDDEN)
    folder.note_recovered()
    folder.abandon()
    assert not SurveyedFolder(str(tmp_path), boot=same_boot).may_have_lost_appends


def test_a_process_that_dies_while_it_cuts_off_damage_uses_no_offset_twice(tmp_path: Path) -> None:
    damage_what_only_recovery_reads(tmp_path)
    folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept")
    with patch("fencepost.server.storage.recovery.skip_to", side_effect=InterruptedError), pytest.raises(OSError):
        folder.open_log("orders", 0, TOPIC_ID, HIDDEN)
    folder.abandon()
    folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept")
    assert folder.open_log("orders", 0, TOPIC_ID, HIDDEN).end_offset == 20


def test_an_accepted_loss_that_was_interrupted_is_still_a_reason_for_a_new_leader_epoch(tmp_path: Path) -> None:
    leave(tmp_path, "close")
    logs(tmp_path)[-1].unlink()
    folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept")
    open_log(folder)
    folder.abandon()  # Before `note_recovered`.
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    assert folder.may_have_lost_appends


@pytest.mark.parametrize("loss", LOSSES)
def test_an_accepted_loss_that_is_interrupted_before_the_log_is_opened_uses_no_offset_twice(
    loss: str, tmp_path: Path
) -> None:
    """Only the clean stop knew the end of this log: its last records are behind the recovery point."""
    leave(tmp_path, "close")
    (tmp_path / POINT).unlink()
    LOSSES[loss][0](tmp_path)
    SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept").abandon()
    folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept")
    assert open_log(folder).end_offset == RECORDS
    assert folder.may_have_lost_appends


def test_an_accepted_loss_of_a_folder_that_is_interrupted_while_the_log_is_opened_uses_no_offset_twice(
    tmp_path: Path,
) -> None:
    leave(tmp_path, "close")
    shutil.rmtree(tmp_path / "orders-0")
    folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept")
    died = patch("fencepost.server.storage.folder.open_file_log", side_effect=InterruptedError)
    with died, pytest.raises(InterruptedError):
        open_log(folder)
    folder.abandon()
    with pytest.raises(DataMissing, match=f"{POINT} says that the log reaches offset {RECORDS}"):
        SurveyedFolder(str(tmp_path), boot=same_boot)
    assert open_log(SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept")).end_offset == RECORDS


# --- a log that is shorter than its indexes -----------------------------------------------------------------------


def indexed(tmp_path: Path) -> Path:
    """A log of one segment whose only record are its indexes, left by a kill."""
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    log = folder.open_log("orders", 0, TOPIC_ID, HIDDEN)
    for number in range(100):
        batch = stamp(encode_batch([(None, b"value")], number), number, 0)
        log.append(batch, number, number, number)
    log.files.settle()
    folder.abandon()
    return logs(tmp_path)[0]


@pytest.mark.parametrize("left", [0, 10 * BATCH_BYTES, 10 * BATCH_BYTES + 7, 90 * BATCH_BYTES])
def test_a_log_that_is_shorter_than_its_indexes_is_missed_after_a_kill(left: int, tmp_path: Path) -> None:
    path = indexed(tmp_path)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DataMissing, match="the index of its last segment says that the log reaches offset 99"):
        SurveyedFolder(str(tmp_path), boot=same_boot)
    folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept")
    log = folder.open_log("orders", 0, TOPIC_ID, HIDDEN)
    assert (offsets(log), log.end_offset) == ([*range(left // BATCH_BYTES)], 99)


def test_a_power_loss_may_keep_an_index_and_lose_the_log(tmp_path: Path) -> None:
    path = indexed(tmp_path)
    path.write_bytes(path.read_bytes()[: 10 * BATCH_BYTES])
    folder = SurveyedFolder(str(tmp_path), boot=other_boot)
    assert folder.open_log("orders", 0, TOPIC_ID, HIDDEN).end_offset == 10


@pytest.mark.parametrize("seed", range(30))
def test_damaged_indexes_prove_nothing(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = indexed(tmp_path)
    spoilt = rng.choice([["index"], ["timeindex"], ["index", "timeindex"]])
    for suffix in spoilt:
        index = path.with_suffix(f".{suffix}")
        content = bytearray(index.read_bytes())
        if len(spoilt) == 2 or rng.random() < 0.5:
            content[:] = rng.randbytes(len(content))
        else:
            content[-rng.randint(1, 8)] ^= 1 << rng.randrange(8)
        index.write_bytes(content)
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    assert folder.open_log("orders", 0, TOPIC_ID, HIDDEN).end_offset == 100


def test_the_document_is_missed_too(tmp_path: Path) -> None:
    leave(tmp_path, "close")
    shutil.rmtree(tmp_path / "orders-0")
    (tmp_path / "fencepost.metadata").unlink()
    with pytest.raises(DataMissing, match=NO_DOCUMENT) as refused:
        SurveyedFolder(str(tmp_path), boot=same_boot)
    lines: list[str] = []
    folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept", report=lines.append)
    assert lines == [f"{refused.value.problem.splitlines()[1]}: accepted, this is a new cluster"]
    assert folder.may_have_lost_appends, "clients of the lost cluster may be alive"
    assert open_log(folder).end_offset == 0
    folder.note_recovered()
    folder.abandon()
    assert not SurveyedFolder(str(tmp_path), boot=same_boot).may_have_lost_appends


def test_an_accepted_loss_of_the_document_is_not_forgotten_before_there_is_a_new_one(tmp_path: Path) -> None:
    leave(tmp_path, "close")
    shutil.rmtree(tmp_path / "orders-0")
    (tmp_path / "fencepost.metadata").unlink()
    for _ in range(2):
        folder = DataFolder(str(tmp_path), boot=same_boot, missing="accept", logs_in=lambda document: [])
        assert folder.may_have_lost_appends
        folder.abandon()
    unlink(tmp_path / POINT, tmp_path / "metadata-revision")
    assert DataFolder(str(tmp_path), boot=same_boot, logs_in=lambda document: []).may_have_lost_appends


def test_a_new_folder_has_lost_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept", report=lines.append)
    assert (folder.may_have_lost_appends, lines) == (False, [])


# --- a log that no record but `logs-of-this-boot` names -----------------------------------------------------------


def begun(tmp_path: Path) -> None:
    """A small log: no recovery point, no snapshot, no index. Its process was killed."""
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    put(open_log(folder))
    folder.abandon()


SMALL_LOSSES: dict[str, tuple[Callable[[Path], object], str]] = {
    "the folder": (lambda path: shutil.rmtree(path / "orders-0"), "there is no such folder"),
    "the .log file": (lambda path: unlink(*logs(path)), "there is no .log file"),
    "the content of the folder": (lambda path: unlink(*(path / "orders-0").iterdir()), "there is no .log file"),
}


@pytest.mark.parametrize("starts", [0, 2])
@pytest.mark.parametrize("loss", SMALL_LOSSES)
def test_a_small_log_is_missed_after_a_kill_until_its_loss_is_accepted(loss: str, starts: int, tmp_path: Path) -> None:
    begun(tmp_path)
    for _ in range(starts):  # The note outlives processes that only read the log.
        folder = SurveyedFolder(str(tmp_path), boot=same_boot)
        open_log(folder)
        folder.abandon()
    lose, found = SMALL_LOSSES[loss]
    lose(tmp_path)
    before = content(tmp_path)
    for _ in range(2):
        with pytest.raises(DataMissing) as refused:
            SurveyedFolder(str(tmp_path), boot=same_boot)
        assert f"\norders-0: {found}; by logs-of-this-boot it had one\n" in str(refused.value)
        assert content(tmp_path) == before, "a refused start changes nothing"
    lines: list[str] = []
    folder = SurveyedFolder(str(tmp_path), boot=same_boot, missing="accept", report=lines.append)
    assert lines == [f"orders-0: {found}; by logs-of-this-boot it had one: accepted, its offsets are used again"]
    assert open_log(folder).end_offset == 0
    assert folder.may_have_lost_appends, "readers get a new leader epoch"
    folder.note_recovered()
    folder.abandon()
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    put(open_log(folder))
    folder.abandon()
    assert offsets(open_log(SurveyedFolder(str(tmp_path), boot=same_boot))) == [0]


def test_the_document_is_missed_by_the_note_of_a_small_log(tmp_path: Path) -> None:
    begun(tmp_path)
    shutil.rmtree(tmp_path / "orders-0")
    (tmp_path / "fencepost.metadata").unlink()
    before = content(tmp_path)
    with pytest.raises(DataMissing, match=NO_DOCUMENT):
        SurveyedFolder(str(tmp_path), boot=same_boot)
    assert content(tmp_path) == before, "a refused start changes nothing"


def test_a_small_log_is_missed_after_a_second_kill_in_another_boot(tmp_path: Path) -> None:
    begun(tmp_path)
    folder = SurveyedFolder(str(tmp_path), boot=other_boot)
    open_log(folder)
    folder.note_recovered()
    folder.abandon()
    shutil.rmtree(tmp_path / "orders-0")
    with pytest.raises(DataMissing, match="by logs-of-this-boot it had one"):
        SurveyedFolder(str(tmp_path), boot=other_boot)


@pytest.mark.parametrize("loss", SMALL_LOSSES)
def test_a_power_loss_may_take_a_small_log_and_keep_its_note(loss: str, tmp_path: Path) -> None:
    begun(tmp_path)
    SMALL_LOSSES[loss][0](tmp_path)
    folder = SurveyedFolder(str(tmp_path), boot=other_boot)
    assert open_log(folder).end_offset == 0
    folder.note_recovered()
    folder.abandon()
    SurveyedFolder(str(tmp_path), boot=other_boot)


def test_a_start_that_counts_as_one_after_another_boot_does_not_believe_the_note(tmp_path: Path) -> None:
    begun(tmp_path)
    shutil.rmtree(tmp_path / "orders-0")
    (tmp_path / "boot-id").write_text("restored")
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    assert open_log(folder).end_offset == 0
    folder.note_recovered()
    folder.abandon()
    SurveyedFolder(str(tmp_path), boot=same_boot)


@pytest.mark.parametrize("torn", [1, 2, 31, 32])
def test_a_note_that_was_not_written_to_its_end_proves_nothing_and_hides_nothing(torn: int, tmp_path: Path) -> None:
    begun(tmp_path)
    note = tmp_path / "logs-of-this-boot"
    whole = note.read_bytes()
    note.write_bytes(whole + b"\nt-0 " + TOPIC_ID.hex().encode()[:-torn])
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    put(folder.open_log("t", 0, TOPIC_ID, SMALL))
    folder.abandon()
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(DataMissing, match="\nt-0: there is no such folder"):
        SurveyedFolder(str(tmp_path), boot=same_boot)


@pytest.mark.parametrize("written", [-1, 0, 1, 20])
def test_a_note_that_the_disk_refused_is_made_up_for_with_the_next_one(written: int, tmp_path: Path) -> None:
    """The disk took so many bytes of it, or none and an error."""
    begun(tmp_path)
    write = os.write

    def write_part(fd: int, data: bytes) -> int:
        if written < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:written])

    noted = BegunLogs(str(tmp_path), same_boot())
    with patch("os.write", write_part):
        noted.add("t-0", TOPIC_ID)
    noted.add("u-0", OTHER_TOPIC_ID)
    found = BegunLogs(str(tmp_path), same_boot())
    assert found.has("orders-0", TOPIC_ID)
    assert found.has("t-0", TOPIC_ID)
    assert found.has("u-0", OTHER_TOPIC_ID)
    assert sorted(found.names()) == ["orders-0", "t-0", "u-0"]


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_a_start_on_a_whole_folder_does_not_change_the_note(end: str, tmp_path: Path) -> None:
    leave(tmp_path, end)
    before = (tmp_path / "logs-of-this-boot").read_bytes()
    open_log(SurveyedFolder(str(tmp_path), boot=same_boot))
    assert (tmp_path / "logs-of-this-boot").read_bytes() == before


@pytest.mark.parametrize("starts", [1, 10])
@pytest.mark.parametrize("names", [1, 100])
def test_the_note_does_not_grow_with_every_topic_that_was_deleted(names: int, starts: int, tmp_path: Path) -> None:
    begun(tmp_path)
    with patch("fencepost.server.storage.offset_files._MOST_OLD_LINES", 20):
        for start in range(starts):
            folder = SurveyedFolder(str(tmp_path), boot=same_boot)
            open_log(folder)
            for number in range(start, 100, starts):
                topic = f"deleted-{number % names}"
                put(folder.open_log(topic, 0, number.to_bytes(16, "big"), SMALL))
                folder.delete_log(topic, 0)
            folder.abandon()
    assert len((tmp_path / "logs-of-this-boot").read_text().splitlines()) < 30
    shutil.rmtree(tmp_path / "orders-0")
    with pytest.raises(DataMissing, match="by logs-of-this-boot it had one"):
        SurveyedFolder(str(tmp_path), boot=same_boot)


@pytest.mark.parametrize("point", ["segment.roll", "pwrite"])
def test_a_process_that_dies_before_its_first_record_leaves_nothing_to_miss(point: str, tmp_path: Path) -> None:
    """Whatever it left of the folder, the note is not before it."""

    def die(*_: object) -> int:
        raise InterruptedError

    def die_at(reached: str) -> None:
        if reached == point:
            raise InterruptedError

    folder = SurveyedFolder(str(tmp_path), boot=same_boot, at=die_at, pwrite=die)
    with pytest.raises(StorageFailed):
        put(open_log(folder))
    folder.abandon()
    assert open_log(SurveyedFolder(str(tmp_path), boot=same_boot)).end_offset == 0


def test_a_kernel_without_a_boot_id_has_no_note(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path), boot=lambda: None)
    put(open_log(folder))
    folder.abandon()
    assert not (tmp_path / "logs-of-this-boot").exists()
    shutil.rmtree(tmp_path / "orders-0")
    SurveyedFolder(str(tmp_path), boot=lambda: None)


# --- no false alarm -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\xff" * 10, encode_batch([(None, b"value")], 0)[:-1]])
@pytest.mark.parametrize("boot", [same_boot, other_boot])
def test_a_torn_tail_is_cut_and_not_missed(tail: bytes, boot: Callable[[], str], tmp_path: Path) -> None:
    leave(tmp_path, "abandon")
    with logs(tmp_path)[-1].open("ab") as file:
        file.write(tail)
    log = open_log(SurveyedFolder(str(tmp_path), boot=boot))
    assert offsets(log) == [*range(RECORDS)]


def test_a_power_loss_may_take_what_was_not_synced(tmp_path: Path) -> None:
    log = written(tmp_path)
    folder = log.files.folder
    assert isinstance(folder, DataFolder)
    for _ in range(3 * PER_SEGMENT):
        put(log)
    folder.abandon()
    for path in logs(tmp_path):
        if int(path.stem) > RECORDS:
            path.unlink()
    log = open_log(SurveyedFolder(str(tmp_path), boot=other_boot))
    assert log.end_offset >= RECORDS


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_power_loss_may_take_the_records_before_the_start_of_a_log(end: str, tmp_path: Path) -> None:
    """DeleteRecords notes where a log begins; the note may outlive the records before it."""
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    log = open_log(folder)
    for _ in range(PER_SEGMENT):
        put(log)
    log.advance_start(PER_SEGMENT)
    folder.abandon()
    (file,) = tmp_path.glob("orders-0/*.log")
    file.write_bytes(file.read_bytes()[:BATCH_BYTES])
    folder = SurveyedFolder(str(tmp_path), boot=other_boot)
    log = open_log(folder)
    assert (log.start_offset, log.end_offset) == (1, 1)
    put(log)
    folder.close() if end == "stop" else folder.abandon()
    log = open_log(SurveyedFolder(str(tmp_path), boot=other_boot))
    assert (log.start_offset, log.end_offset) == (1, 2)


def test_a_power_loss_may_take_a_log_that_was_never_synced(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    log = open_log(folder)
    put(log)
    put(log)
    log.advance_start(1)
    folder.abandon()
    shutil.rmtree(tmp_path / "orders-0")
    assert (tmp_path / "log-start-offset-checkpoint").exists()
    log = open_log(SurveyedFolder(str(tmp_path), boot=other_boot))
    assert (log.start_offset, log.end_offset) == (0, 0)


def test_the_recovery_point_of_a_deleted_topic_is_no_loss(tmp_path: Path) -> None:
    folder = SurveyedFolder(str(tmp_path), boot=same_boot)
    gone = folder.open_log("gone", 0, TOPIC_ID, SMALL)
    put(gone)
    folder.close()
    shutil.rmtree(tmp_path / "gone-0")
    assert "gone 0 1" in (tmp_path / POINT).read_text()
    SurveyedFolder(str(tmp_path), boot=same_boot).close()


def test_a_topic_that_was_made_anew_under_the_same_name_is_whole(tmp_path: Path) -> None:
    log = written(tmp_path)
    folder = log.files.folder
    assert isinstance(folder, DataFolder)
    folder.delete_log("orders", 0)
    folder.open_log("orders", 0, OTHER_TOPIC_ID, SMALL)
    folder.abandon()
    folder = SurveyedFolder(str(tmp_path), topic_id=OTHER_TOPIC_ID, boot=same_boot)
    assert folder.open_log("orders", 0, OTHER_TOPIC_ID, SMALL).end_offset == 0


@pytest.mark.parametrize("end", BOOTS)
def test_retention_and_deleted_records_are_no_loss(end: str, tmp_path: Path) -> None:
    log = written(tmp_path)
    folder = log.files.folder
    assert isinstance(folder, DataFolder)
    log.advance_start(RECORDS - 1)
    getattr(folder, "close" if end == "close" else "abandon")()
    log = open_log(SurveyedFolder(str(tmp_path), boot=BOOTS[end]))
    assert (log.start_offset, log.end_offset) == (RECORDS - 1, RECORDS)


# --- the rules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trust", "proof"),
    [
        (Trust.OTHER_BOOT, Proof(5, POINT)),
        (Trust.SAME_BOOT, Proof(8, "the index of its last segment")),
        (Trust.CLEAN, Proof(9, "the clean stop")),
    ],
)
def test_what_proves_the_end_of_a_log_depends_on_how_the_last_process_ended(trust: Trust, proof: Proof) -> None:
    found = FoundLog(True, [], newest_snapshot=7, indexed_end=8)
    assert proven_end(LogRecords(trust, CleanEnd(9, 100), recovery_point=5, start_offset=6), found) == proof


def test_the_batch_that_skips_missing_offsets_is_whole_and_empty() -> None:
    batch = encode_filler(41)
    header, end = decode_batch(batch)
    assert (header.base_offset, header.last_offset, header.record_count, end) == (41, 41, 0, len(batch))
    assert decode_header(batch).leader_epoch == -1
