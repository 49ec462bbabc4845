"""The strip of a log: outcomes, runs, what readers get, one record opened, and bytes as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.diagnose.strip.strip import (
    DEEPEST_INDENTED,
    GETS,
    MOST_CHARS,
    MOST_HEX_BYTES,
    SKIPS,
    WAITS,
    Strip,
    content_of,
    diagnose_strip,
    read_committed_gets,
)
from fencepost.diagnose.strip.window import UnreadableOffsets
from fencepost.diagnose.tail.outcomes import AbortedSince, Fate
from fencepost.protocol.batch import CODECS, CONTROL
from fencepost.protocol.records import encode_records
from tests.unit.diagnose.strip.logs import data, marker, plain, read, record, window


def runs(strip: Strip) -> list[tuple[str, int, int]]:
    return [(run.kind, run.first_offset, run.last_offset) for run in strip.runs]


def readers(strip: Strip) -> list[tuple[int, str, str]]:
    return [(cell.offset, cell.read_uncommitted, cell.read_committed) for cell in strip.cells]


def test_neighbours_of_one_outcome_and_producer_are_one_run() -> None:
    log = [
        plain(0, record(), record()),
        data(2, 7, 2),
        data(4, 7),
        data(5, 8),
        marker(6, 8, False),
        marker(7, 7, True),
        data(8, 9, 3),
    ]
    strip = diagnose_strip(window(*log, last_stable_offset=8, open_since={9: 8}, transactional_ids={7: "sink"}))
    assert runs(strip) == [
        ("plain", 0, 1),
        ("committed", 2, 4),
        ("aborted", 5, 5),
        ("marker", 6, 6),
        ("marker", 7, 7),
        ("open", 8, 10),
    ]
    assert [run.transactional_id for run in strip.runs] == [None, "sink", None, None, "sink", None]
    assert [(txn.producer_id, txn.first_offset) for txn in strip.open_transactions] == [(9, 8)]


def test_an_epoch_of_its_own_is_a_run_of_its_own() -> None:
    strip = diagnose_strip(window(data(0, 7), marker(1, 7, True), data(2, 7, epoch=1), data(3, 7, epoch=2)))
    assert [run.producer_epoch for run in strip.runs] == [0, 0, 1, 2]


def test_readers_get_what_their_isolation_level_allows() -> None:
    log = [plain(0), data(1, 7), marker(2, 7, False), data(3, 8), plain(4), data(5, 7), marker(6, 7, True)]
    strip = diagnose_strip(window(*log, last_stable_offset=3, open_since={8: 3}))
    assert readers(strip) == [
        (0, GETS, GETS),
        (1, GETS, SKIPS),
        (2, SKIPS, SKIPS),
        (3, GETS, WAITS),
        (4, GETS, WAITS),
        (5, GETS, WAITS),
        (6, SKIPS, WAITS),
    ]


@pytest.mark.parametrize("fate", [Fate.ABORTED, Fate.OPEN, Fate.UNKNOWN, None])
def test_a_read_committed_reader_gets_nothing_that_is_not_committed(fate: Fate | None) -> None:
    assert read_committed_gets(fate, 4, 5) == SKIPS
    assert read_committed_gets(fate, 5, 5) == WAITS


def test_below_the_stable_end_the_aborted_index_decides_without_a_marker() -> None:
    strip = diagnose_strip(
        window(data(10, 7), data(11, 8), first_offset=10, stable_end=12, aborted=(AbortedSince(8, 3),))
    )
    assert runs(strip) == [("committed", 10, 10), ("aborted", 11, 11)]


def test_a_marker_behind_the_window_decides() -> None:
    ahead = marker(40, 7, False).batch
    strip = diagnose_strip(window(data(0, 7), data(1, 8), markers_ahead=(ahead,), open_since={8: 1}))
    assert runs(strip) == [("aborted", 0, 0), ("open", 1, 1)]


def test_what_the_leader_does_not_call_open_has_ended_with_an_unknown_outcome() -> None:
    assert runs(diagnose_strip(window(data(0, 7), open_since={}))) == [("unknown", 0, 0)]
    # The producer has another transaction since.
    assert runs(diagnose_strip(window(data(0, 7), open_since={7: 5}))) == [("unknown", 0, 0)]
    assert runs(diagnose_strip(window(data(0, 7), open_since=None))) == [("open", 0, 0)]
    assert runs(diagnose_strip(window(data(0, 7), open_since=None, has_all_markers=False))) == [("unknown", 0, 0)]


def test_offsets_that_hold_nothing_are_gaps_between_batches_inside_them_and_at_both_ends() -> None:
    sparse = bytearray(plain(10, record(b"a"), record(b"b")).content)
    sparse[23:27] = (5).to_bytes(4, "big")  # The last offset of the batch is 15, and only 10 and 11 are left.
    log = [plain(2), read(bytes(sparse)), plain(20)]
    strip = diagnose_strip(window(*log, first_offset=0, end_offset=25))
    assert runs(strip) == [
        ("gap", 0, 1),
        ("plain", 2, 2),
        ("gap", 3, 9),
        ("plain", 10, 11),
        ("gap", 12, 19),
        ("plain", 20, 20),
        ("gap", 21, 24),
    ]


def test_an_emptied_batch_is_a_gap() -> None:
    emptied = bytearray(data(0, 7, 3).content)[:61]
    emptied[8:12] = (49).to_bytes(4, "big")
    emptied[57:61] = bytes(4)
    assert runs(diagnose_strip(window(read(bytes(emptied)), plain(3)))) == [("gap", 0, 2), ("plain", 3, 3)]


def test_a_window_within_a_batch_has_its_own_offsets_only() -> None:
    strip = diagnose_strip(window(plain(0, *[record()] * 10), first_offset=3, end_offset=6))
    assert [cell.offset for cell in strip.cells] == [3, 4, 5]
    assert runs(strip) == [("plain", 3, 5)]


def test_what_cannot_be_read_is_a_run_with_its_reason() -> None:
    broken = bytearray(plain(1, record(b"x" * 100), codec=1).content)
    broken[70:90] = bytes(20)
    damage = UnreadableOffsets(2, 9, "orders-0: the record batch at offset 2 is damaged")
    strip = diagnose_strip(window(plain(0), read(bytes(broken)), plain(10), damages=(damage,)))
    assert runs(strip) == [("plain", 0, 0), ("unreadable", 1, 1), ("unreadable", 2, 9), ("plain", 10, 10)]
    assert "gzip" in (strip.runs[1].problem or "")
    assert strip.runs[2].problem == damage.problem


@pytest.mark.parametrize("codec", range(len(CODECS)), ids=CODECS)
def test_every_codec_is_opened(codec: int) -> None:
    batch = plain(0, record(b"first"), record(b"second", b"k", headers=(("trace", b"1"),)), codec=codec)
    opened = diagnose_strip(window(batch), 1).opened
    assert opened is not None
    assert (opened.cell.offset, opened.value.text, opened.key.text) == (1, "second", "k")
    assert [(header.name, header.value.text) for header in opened.headers] == [("trace", "1")]
    assert (opened.compression, opened.batch_first_offset, opened.batch_last_offset) == (CODECS[codec], 0, 1)
    assert opened.says == "It was written outside any transaction. All readers get it."


def test_an_opened_offset_says_what_readers_make_of_it() -> None:
    log = window(data(0, 7), marker(1, 7, False), data(2, 8), data(3, 8), last_stable_offset=2, open_since={8: 2})
    said = [opened.says for offset in range(4) if (opened := diagnose_strip(log, offset).opened) is not None]
    waits = "Its transaction is open. read_uncommitted readers get it; read_committed readers do not yet: it is"
    assert said == [
        "Its transaction was aborted. Only read_uncommitted readers get it.",
        "A marker: it aborts the transaction of producer 7 in this partition. No reader gets it.",
        f"{waits} at the last stable offset.",
        f"{waits} 1 offset behind the last stable offset.",
    ]
    opened = diagnose_strip(log, 1).opened
    assert opened is not None
    assert opened.coordinator_epoch == 3


def test_an_offset_without_a_record_cannot_be_opened_and_the_strip_says_so() -> None:
    strip = diagnose_strip(window(plain(0), plain(5)), 3)
    assert (strip.opened, strip.remark) == (None, "offset 3 holds no record")


def test_another_control_record_is_no_marker_and_no_reader_gets_it() -> None:
    control = read(encode_records([record(bytes(12), b"\0\0\0\2")], attributes=CONTROL))
    strip = diagnose_strip(window(control))
    assert [(cell.kind, cell.read_uncommitted, cell.read_committed) for cell in strip.cells] == [
        ("control", SKIPS, SKIPS)
    ]


def test_previews_are_short_and_safe_and_an_opened_record_has_at_most_100_headers() -> None:
    hostile = record("<b>\x1b\u202e".encode() + b"x" * 1000, b"\xff", headers=(("h", b"v"),) * 150)
    strip = diagnose_strip(window(plain(0, hostile)), 0)
    (cell,) = strip.cells
    assert cell.value.startswith("<b>\\x1b\\u202ex")
    assert cell.value.endswith("x… (1007 bytes)")
    assert cell.key == "0xff"
    assert strip.opened is not None
    assert (len(strip.opened.headers), strip.opened.header_count) == (100, 150)


def test_null_and_empty_are_told_apart() -> None:
    assert (content_of(None).format, content_of(b"").format) == ("null", "text")


def test_bytes_that_are_no_utf_8_are_lines_of_digits() -> None:
    content = content_of(b"\xff\xfe" + bytes(range(16)))
    assert content.format == "hex"
    assert content.text == "00000000  ff fe 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d\n00000010  0e 0f"


@pytest.mark.parametrize("byte", [b"x", b"\xff", "é".encode()])
def test_a_mebibyte_is_cut_and_says_its_size(byte: bytes) -> None:
    data = byte * ((1 << 20) // len(byte))
    content = content_of(data)
    assert (content.is_cut, content.size_bytes) == (True, 1 << 20)
    assert len(content.text) <= max(MOST_CHARS, 4 * MOST_HEX_BYTES)


def test_json_is_indented_and_otherwise_stays_as_it_was_written() -> None:
    content = content_of(b'{"a":1.10, "a":[ ],"b":[1e400,{"c":"x, [y]: \\"z\\""}],"d":{}}')
    assert content.format == "json"
    assert content.text == (
        '{\n  "a": 1.10,\n  "a": [],\n  "b": [\n    1e400,\n    {\n      "c": "x, [y]: \\"z\\""\n    }\n  ],\n'
        '  "d": {}\n}'
    )


def test_indented_json_means_the_same() -> None:
    document: dict[str, Any] = {
        "orders": [{"id": n, "tags": ["<b>", "\u202e"], "none": None, "nested": [[], [{}]]} for n in range(5)]
    }
    content = content_of(json.dumps(document).encode())
    assert (content.format, json.loads(content.text)) == ("json", document)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 10_000,
        b"[" * 10_000 + b"]" * 6_000,
        b"[" * (DEEPEST_INDENTED + 1) + b"]" * (DEEPEST_INDENTED + 1),
        b'{"a": ' + b"9" * 5000 + b"}",
        b"{not json}",
        b"12",
    ],
    ids=["open", "deep", "a level too deep", "a long number", "broken", "a number"],
)
def test_text_that_is_no_json_document_or_a_hostile_one_is_shown_as_it_is(data: bytes) -> None:
    content = content_of(data)
    assert (content.format, content.text) == ("text", data.decode())


def test_the_deepest_json_is_indented() -> None:
    assert content_of(b"[" * DEEPEST_INDENTED + b"]" * DEEPEST_INDENTED).format == "json"
