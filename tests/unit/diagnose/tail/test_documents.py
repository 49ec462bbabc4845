"""Lines for a terminal: whatever bytes a record has, no control character reaches the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.collect.reading import Start, StartKind, start_offset
from fencepost.diagnose.tail.documents import (
    EndedOffsets,
    ReadMarker,
    ReadRecord,
    document_of,
    line_of,
    safe_text,
    shown_bytes,
    text_or_base64,
)
from fencepost.diagnose.tail.outcomes import Fate, OpenOffsets
from fencepost.protocol.batch import TRANSACTIONAL, BatchHeader, Marker
from fencepost.protocol.records import Record

ORDERS = NamedPartition("orders", 0)
HEADER = BatchHeader(5, 100, 0, 2, 0, TRANSACTIONAL, 0, 0, 0, 7, 4, 0, 1)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, "null"),
        (b"", ""),
        (b"plain", "plain"),
        ("grün €".encode(), "grün €"),
        (b"\x1b[2J", "\\x1b[2J"),
        (b"a\nb\tc\\", "a\\nb\\tc\\\\"),
        ("\u202egnp.exe".encode(), "\\u202egnp.exe"),
        (b"\xff\x00", "0xff00"),
        (b"x" * 150, "x" * 100 + "… (150 bytes)"),
    ],
)
def test_bytes_are_shown_safely(data: bytes | None, shown: str) -> None:
    assert shown_bytes(data) == shown


def test_full_shows_long_values_whole() -> None:
    assert shown_bytes(b"x" * 150, None) == "x" * 150


@given(key=st.none() | st.binary(), value=st.none() | st.binary(), name=st.text(), id_=st.none() | st.text())
def test_a_line_is_one_printable_line_whatever_a_record_holds(
    key: bytes | None, value: bytes | None, name: str, id_: str | None
) -> None:
    record = Record(5, 0, key, value, ((name, value),))
    assert line_of(ReadRecord(ORDERS, record, HEADER, Fate.OPEN, id_), None).isprintable()


@given(st.text())
def test_two_texts_are_never_shown_alike(text: str) -> None:
    restored = safe_text(text).encode("ascii", "backslashreplace").decode("unicode_escape")
    assert restored == text or any(0xD800 <= ord(c) <= 0xDFFF for c in text)


@given(st.binary())
def test_json_has_text_or_base64_and_never_both(data: bytes) -> None:
    text, encoded = text_or_base64(data)
    assert (text is None) is not (encoded is None)


def test_each_kind_of_event_has_a_line_and_a_document() -> None:
    record = ReadRecord(ORDERS, Record(5, 1000, b"k", b"v", (("trace", b"1"),)), HEADER, Fate.ABORTED, "sink")
    assert line_of(record, None) == (
        "orders-0         5  1970-01-01 00:00:01.000Z  aborted    sink (producer 7, epoch 4)"
        "  key=k  value=v  header:trace=1"
    )
    marker = ReadMarker(ORDERS, 6, Marker(7, 5, False, 0, 6, 2000), None)
    assert line_of(marker, None) == (
        "orders-0         6  1970-01-01 00:00:02.000Z  marker     ABORT of (unknown id) (producer 7, epoch 5)"
    )
    end = EndedOffsets(ORDERS, OpenOffsets(7, 4, 3, 5, 3), Fate.COMMITTED, 6, "sink")
    assert line_of(end, None) == ("orders-0  offsets 3-5 of sink (producer 7, epoch 4): committed by the marker at 6")
    lost = EndedOffsets(ORDERS, OpenOffsets(7, 4, 3, 3, 1), Fate.UNKNOWN, None, "sink")
    assert line_of(lost, None) == (
        "orders-0  offset 3 of sink (producer 7, epoch 4): "
        "unknown: it has ended, but its marker was deleted before it was read"
    )
    assert [document_of(event).type for event in (record, marker, end, lost)] == ["record", "marker", "end", "end"]


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (Start(StartKind.EARLIEST), 10),
        (Start(StartKind.LATEST), 50),
        (Start(StartKind.OFFSET, 20), 20),
        (Start(StartKind.OFFSET, 50), 50),
        (Start(StartKind.LAST, 5), 45),
        (Start(StartKind.LAST, 500), 10),
        (Start(StartKind.TIME, 1), 30),
    ],
)
def test_reading_starts_where_it_should(start: Start, offset: int) -> None:
    assert start_offset(start, ORDERS, 10, 50, by_time=30) == (offset, "")


def test_an_offset_that_does_not_exist_is_remarked() -> None:
    offset, remark = start_offset(Start(StartKind.OFFSET, 3), ORDERS, 10, 50)
    assert (offset, remark) == (10, "orders-0 has no offset 3 any more: it starts at 10")
    offset, remark = start_offset(Start(StartKind.OFFSET, 99), ORDERS, 10, 50)
    assert (offset, remark) == (50, "orders-0 has no offset 99 yet: it ends before 50")


def test_no_record_after_a_time_means_the_end() -> None:
    assert start_offset(Start(StartKind.TIME, 1), ORDERS, 10, 50, by_time=-1) == (50, "")
