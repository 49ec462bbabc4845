"""The outcome of a salvaged transaction is that of its marker, and unknown where another marker may have been."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.protocol.batch import decode_header, encode_batch, encode_marker, stamp
from fencepost.protocol.filtering import keep_no_records
from fencepost.protocol.records import Record, encode_records
from fencepost.server.storage.salvage import Outcome, records_of, salvage

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


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("story", STORIES)
def test_the_outcome_is_known_only_if_no_marker_can_be_missing(story: str, files: int, tmp_path: Path) -> None:
    middle = len(story) // 2 if files == 2 else len(story)
    paths = []
    for number, part in enumerate((range(middle), range(middle, len(story)))):
        path = tmp_path / f"{number}.log.cut-1"
        path.write_bytes(b"".join(batch_of(story[offset], offset) for offset in part))
        paths.append(str(path))
    found = [batch.outcome.name.lower() for batch in salvage(paths) if batch.outcome is not Outcome.MARKER]
    assert " ".join(found) == STORIES[story]


def test_offsets_that_go_back_are_another_story(tmp_path: Path) -> None:
    """Two side files of the same place: the second was written after the first had been cut off."""
    for number, story in enumerate(("ab", "aA")):
        path = tmp_path / f"0.log.cut-{number}"
        path.write_bytes(b"".join(batch_of(letter, offset) for offset, letter in enumerate(story)))
    found = salvage([str(tmp_path / "0.log.cut-0"), str(tmp_path / "0.log.cut-1")])
    assert [batch.outcome.name for batch in found] == ["UNKNOWN", "UNKNOWN", "COMMITTED", "MARKER"]


@pytest.mark.parametrize("codec", range(5))
def test_records_come_back_as_they_were(codec: int, tmp_path: Path) -> None:
    records = [
        Record(7, 1_700_000_000_000, b"key", b"value", (("name", b"\xff"), ("none", None))),
        Record(8, 1_700_000_000_777, None, None),
    ]
    path = tmp_path / "0.log.cut-1"
    path.write_bytes(b"\0" * 33 + stamp(encode_records(records, codec), 7, 0) + b"\x02")
    (batch,) = salvage([str(path)])
    assert batch.position == 33
    assert records_of(batch) == records
