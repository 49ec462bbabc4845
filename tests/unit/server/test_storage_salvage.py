"""The outcome of a salvaged transaction is that of its marker, and unknown where another marker may have been."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from fencepost.protocol.batch import decode_header, encode_batch, encode_marker, stamp
from fencepost.protocol.filtering import keep_no_records
from fencepost.protocol.records import Record, encode_records
from fencepost.server.storage import searching
from fencepost.server.storage.cuts import CutNote
from fencepost.server.storage.salvage import Outcome, SalvagedBatch, choose, records_of, salvage

# One letter for each batch: data of producer 1 or 2 in a transaction, plain data, markers, and damage.
# a, b: data of producers 1 and 2; p: data in no transaction; A, B: they commit; x, y: they abort; e: producer 1
# ends a transaction with a marker that compaction has emptied; `.`: damage.
STORIES = {
    "p": "plain",
    "aA": "committed",
    "ax": "aborted",
    "a": "unknown",
    "apA": "committed plain",
    "abAy": "committed aborted",
    "abB": "unknown committed",
    "axaA": "aborted committed",
    # In the damage, there may have been an abort of the first transaction.
    "a.aA": "unknown committed",
    "a.A": "unknown",
    "aA.bB": "committed committed",
    ".aA": "committed",
    "aeaA": "unknown committed",
    "A": "",
}


def batch_of(letter: str, offset: int) -> bytes:
    if letter == ".":
        return b"\xff" * 70
    if letter == "p":
        return stamp(encode_batch([(None, b"plain")], 0), offset, 0)
    if letter == "e":
        return stamp(keep_no_records(decode_header(encode_marker(1, 0, True, 0, 0))), offset, 0)
    producer_id = 1 if letter in "aAx" else 2
    if letter in "AxBy":
        return encode_marker(producer_id, 0, letter in "AB", 0, 0, base_offset=offset)
    return stamp(encode_batch([(None, b"data")], 0, producer_id, 0, 0, transactional=True), offset, 0)


def write_note(path: Path, cut: str) -> None:
    note = CutNote(
        log="orders-0",
        segment="0.log",
        kind="segment",
        position=0,
        bytes=0,
        expected_offset=0,
        reason="",
        when="",
        cut=cut,
    )
    Path(f"{path}.json").write_text(json.dumps(asdict(note)))


@pytest.mark.parametrize("cuts", [("one", "two"), ("one", None), (None, None), ("", "")])
def test_an_outcome_does_not_cross_from_one_cut_to_another(cuts: tuple[str | None, str | None], tmp_path: Path) -> None:
    """Between the two, the log grew again from the place of the first: other batches were at these offsets."""
    paths = []
    for offset, (letter, cut) in enumerate(zip("aA", cuts, strict=True)):
        path = tmp_path / f"{offset}.log.cut-1"
        path.write_bytes(batch_of(letter, offset))
        if cut is not None:
            write_note(path, cut)
        paths.append(str(path))
    assert [batch.outcome.name for batch in salvage(paths).batches] == ["UNKNOWN", "MARKER"]


def test_an_outcome_crosses_the_segments_of_one_log(tmp_path: Path) -> None:
    paths = [tmp_path / f"{offset:020d}.log" for offset in range(2)]
    for offset, path in enumerate(paths):
        path.write_bytes(batch_of("aA"[offset], offset))
    assert [batch.outcome.name for batch in salvage(map(str, paths)).batches] == ["COMMITTED", "MARKER"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    paths[1] = paths[1].rename(elsewhere / paths[1].name)
    assert [batch.outcome.name for batch in salvage(map(str, paths)).batches] == ["UNKNOWN", "MARKER"]


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("story", STORIES)
def test_the_outcome_is_known_only_if_no_marker_can_be_missing(story: str, files: int, tmp_path: Path) -> None:
    middle = len(story) // 2 if files == 2 else len(story)
    paths = []
    for number, part in enumerate((range(middle), range(middle, len(story)))):
        path = tmp_path / f"{number}.log.cut-1"
        path.write_bytes(b"".join(batch_of(story[offset], offset) for offset in part))
        write_note(path, cut="one")
        paths.append(str(path))
    found = [batch.outcome.name.lower() for batch in salvage(paths).batches if batch.outcome is not Outcome.MARKER]
    assert " ".join(found) == STORIES[story]


def test_offsets_that_go_back_are_another_story(tmp_path: Path) -> None:
    """Two side files of the same place: the second was written after the first had been cut off."""
    for number, story in enumerate(("ab", "aA")):
        path = tmp_path / f"0.log.cut-{number}"
        path.write_bytes(b"".join(batch_of(letter, offset) for offset, letter in enumerate(story)))
    found = salvage([str(tmp_path / "0.log.cut-0"), str(tmp_path / "0.log.cut-1")]).batches
    assert [batch.outcome.name for batch in found] == ["UNKNOWN", "UNKNOWN", "COMMITTED", "MARKER"]


@pytest.mark.parametrize("codec", range(5))
def test_records_come_back_as_they_were(codec: int, tmp_path: Path) -> None:
    records = [
        Record(7, 1_700_000_000_000, b"key", b"value", (("name", b"\xff"), ("none", None))),
        Record(8, 1_700_000_000_777, None, None),
    ]
    path = tmp_path / "0.log.cut-1"
    path.write_bytes(b"\0" * 33 + stamp(encode_records(records, codec), 7, 0) + b"\x02")
    (batch,) = salvage([str(path)]).batches
    assert batch.position == 33
    assert records_of(batch) == records


@pytest.mark.parametrize(
    ("includes_unknown", "chosen", "left_out"),
    [(False, "committed plain", (2, 1)), (True, "committed plain unknown", (2, 0))],
)
def test_a_restore_takes_what_is_committed_and_counts_the_rest(
    includes_unknown: bool, chosen: str, left_out: tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / "0.log.cut-1"
    path.write_bytes(b"".join(batch_of(letter, offset) for offset, letter in enumerate("aAaaxpa")))
    choice = choose(salvage([str(path)]).batches, includes_unknown)
    assert " ".join(batch.outcome.name.lower() for batch in choice.batches) == chosen
    assert (choice.aborted, choice.unknown) == left_out
    assert choice.record_count == len(choice.batches)


def test_what_to_restore_is_chosen_without_comparing_batches_with_each_other(tmp_path: Path) -> None:
    compared = 0

    class Position(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

        __hash__ = int.__hash__

    header = decode_header(batch_of("p", 0))
    batches = [SalvagedBatch("f", Position(at), header, None, "", Outcome.PLAIN) for at in range(2000)]
    assert choose(batches, False).batches == batches
    assert compared <= len(batches)


def test_what_was_found_before_the_search_gave_up_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "MOST_FALSE_HEADERS", 10)
    path = tmp_path / "0.log.cut-1"
    hostile = batch_of("p", 7)[:-1] + b"\xff"
    path.write_bytes(batch_of("p", 0) + hostile * 12 + batch_of("p", 1))
    found = salvage([str(path)])
    assert [batch.header.base_offset for batch in found.batches] == [0]
    (problem,) = found.problems
    assert problem.startswith(f"{path}: the search for whole batches ended at position ")
