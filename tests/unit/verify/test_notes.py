"""The notes of a client that is killed, as its successor finds them."""

from __future__ import annotations

from pathlib import Path

from fencepost.verify.history import Header as HistoryHeader
from fencepost.verify.history import TxnOutcome, decode, encode_header
from fencepost.verify.workload.notes import Notes, Unfinished


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
