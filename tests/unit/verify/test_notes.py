"""The notes of a client that is killed, as its successor finds them."""

from __future__ import annotations

from pathlib import Path

from fencepost.verify.history import Header as HistoryHeader
from fencepost.verify.history import Poll, TxnOutcome, decode, encode_header
from fencepost.verify.workload.notes import Notes, Unfinished, now
from fencepost.verify.workload.producer import key_of


def test_a_successor_finds_the_transaction_that_was_left_unfinished(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "part", "w")
    assert notes.left_behind is None
    txn = notes.begin()
    notes.send(txn, "tea", 0)
    assert Notes(tmp_path / "part", "w").left_behind == Unfinished(0, TxnOutcome.ABORTED, "KILLED")


def test_a_transaction_that_was_asked_to_commit_is_in_doubt(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "part", "w")
    notes.end(notes.begin(), True)
    assert Notes(tmp_path / "part", "w").left_behind == Unfinished(0, TxnOutcome.UNKNOWN, "KILLED")


def test_a_transaction_that_is_over_is_not_left_behind_and_its_number_is_not_used_again(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "part", "w")
    txn = notes.begin()
    notes.end(txn, True)
    notes.ended(txn, TxnOutcome.COMMITTED)
    successor = Notes(tmp_path / "part", "w")
    assert successor.left_behind is None
    assert successor.begin() == 1


def test_values_are_writer_transaction_and_place(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "part", "w")
    txn = notes.begin()
    assert [notes.send(txn, "tea", 0), notes.send(txn, "tea", 1)] == ["w:0:0", "w:0:1"]
    assert notes.send(notes.begin(), "tea", 0) == "w:1:0"


def test_a_successor_continues_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "part"
    Notes(path, "w").begin()
    with path.open("ab") as part:
        part.write(b'{"event":"send","at"')
    Notes(path, "w").begin()
    header = encode_header(HistoryHeader(1, {}, {})).encode()
    _, events = decode([header, *path.read_bytes().splitlines(keepends=True)])
    assert [event.txn for event in events] == [0, 1]  # type: ignore[union-attr]


def test_a_reader_that_was_killed_is_continued_behind_its_last_record(tmp_path: Path) -> None:
    reader = Notes(tmp_path / "part", "r")
    for offset in (4, 7):
        reader.note(Poll(now(), "r", "tea", 1, [(offset, "w:0:0"), (offset + 1, "w:0:1")]))
    reader.note(Poll(now(), "r", "cup", 0, []))
    assert Notes(tmp_path / "part", "r").last_read == {("tea", 1): 9}


def test_each_writer_has_keys_of_its_own() -> None:
    assert [key_of(f"w:7:{place}") for place in (0, 5, 6)] == ["w/0", "w/5", "w/0"]
    assert key_of("v:7:0") != key_of("w:7:0")
