"""The document of a partition, and what its query asks for."""

from __future__ import annotations

import json

import pytest

from fencepost.diagnose.collect.reading import Start, StartKind
from fencepost.diagnose.collect.strip import MOST_RECORDS, Side
from fencepost.web.page import PageRefused, SubjectNotFound
from fencepost.web.pages.partition import RECORDS, WindowQuery, ask, parse_query, partition_document
from tests.unit.diagnose.strip.logs import data, marker, plain, record, window


def test_without_a_query_the_page_follows_the_end() -> None:
    wanted = parse_query({})
    assert wanted == WindowQuery(Start(StartKind.LATEST), Side.BEFORE, None, RECORDS)
    assert wanted.is_following


def test_a_query_names_a_window_and_a_record() -> None:
    at_40 = Start(StartKind.OFFSET, 40)
    assert parse_query({"offset": "40"}) == WindowQuery(at_40, Side.AROUND, 40, RECORDS)
    assert parse_query({"offset": " 40 ", "record": "42"}) == WindowQuery(at_40, Side.AROUND, 42, RECORDS)
    assert parse_query({"first": "40", "count": "10"}) == WindowQuery(at_40, Side.FROM, None, 10)
    assert parse_query({"before": "40", "record": "39"}) == WindowQuery(at_40, Side.BEFORE, 39, RECORDS)
    assert parse_query({"count": "999999"}).record_count == MOST_RECORDS
    assert not parse_query({"first": "0"}).is_following


@pytest.mark.parametrize("text", ["2027-01-15T08:00:00Z", "2027-01-15T08:00:00", "2027-01-15T09:00:00+01:00"])
def test_a_time_is_in_utc_unless_it_says_otherwise(text: str) -> None:
    assert parse_query({"time": text}).start == Start(StartKind.TIME, 1_800_000_000_000)


@pytest.mark.parametrize(
    "query",
    [
        {"offset": "-1"},
        {"first": "4x"},
        {"record": "²"},
        {"before": "9" * 30},
        {"count": str(2**63)},
        {"time": "yesterday"},
        {"time": "9999999999999999"},
    ],
    ids=str,
)
def test_a_query_that_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(PageRefused):
        parse_query(query)


@pytest.mark.parametrize("partition", ["-1", "one", "99999999999", ""])
def test_a_partition_is_a_number(partition: str) -> None:
    with pytest.raises(SubjectNotFound, match="is no partition"):
        ask(None, {"topic": "orders", "partition": partition}, {})  # type: ignore[arg-type]  # It is not asked.


def test_the_windows_before_and_after_are_named_where_there_are_some() -> None:
    log = window(plain(3, *[record()] * 4), log_start_offset=0, first_offset=3, end_offset=7, high_watermark=9)
    document = partition_document(log, parse_query({"first": "3"}))
    assert (document["earlier"], document["later"], document["is_following"]) == (3, 7, False)
    whole = partition_document(window(plain(0)), parse_query({}))
    assert (whole["earlier"], whole["later"], whole["is_following"]) == (None, None, True)


def test_a_time_opens_the_record_that_it_finds() -> None:
    log = window(plain(0), plain(1), at_offset=1)
    at_a_time = parse_query({"time": "2027-01-15T08:00:00Z"})
    assert partition_document(log, at_a_time)["opened"]["cell"]["offset"] == 1
    late = window(plain(0), plain(1), at_offset=1, remark="orders-0 has no record that late")
    assert partition_document(late, at_a_time)["opened"] is None


def test_a_document_with_hostile_records_is_json_and_keeps_them_as_text() -> None:
    value = '<img src=x onerror=alert(1)>\u202e\x00\u2028"'.encode()
    log = window(plain(0, record(value, b"\xff\xfe", headers=(("<script>", None),))), data(1, 7), marker(2, 7, True))
    document = json.loads(json.dumps(partition_document(log, parse_query({"offset": "0"})), allow_nan=False))
    assert document["opened"]["value"]["text"] == value.decode()
    assert document["opened"]["key"]["format"] == "hex"
    assert document["opened"]["headers"][0]["name"] == "<script>"
