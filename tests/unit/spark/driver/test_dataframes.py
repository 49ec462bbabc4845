"""Which columns are written, and which DataFrames are refused."""

from __future__ import annotations

import pytest

from fencepost.spark.driver.dataframes import HEADERS_TYPE, UnwritableFrame, check_frame, check_names

ALL = {
    "value": "binary",
    "headers": HEADERS_TYPE,
    "key": "string",
    "timestamp": "timestamp",
    "partition": "int",
    "topic": "string",
}


def test_columns_are_written_in_one_order_and_others_are_left_out() -> None:
    assert check_frame(ALL | {"note": "double"}, None) == [
        "topic",
        "partition",
        "key",
        "value",
        "headers",
        "timestamp",
    ]


def test_a_value_is_enough_where_the_topic_is_given() -> None:
    assert check_frame({"value": "string"}, "orders") == ["value"]


def test_the_topic_option_wins_over_the_column() -> None:
    assert check_frame({"value": "string", "topic": "string"}, "orders") == ["value"]


@pytest.mark.parametrize("type_", ["timestamp", "timestamp_ntz", "bigint"])
def test_a_timestamp_is_a_time_or_milliseconds(type_: str) -> None:
    assert check_frame({"value": "string", "timestamp": type_}, "orders") == ["value", "timestamp"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": "string"}, "Required attribute 'value' not found"),
        ({"value": "int"}, "value type must be a STRING or BINARY, but it is INT"),
        ({"value": "string", "key": "bigint"}, "key type must be a STRING or BINARY, but it is BIGINT"),
        ({"value": "string", "partition": "bigint"}, "partition type must be an INT, but it is BIGINT"),
        ({"value": "string", "topic": "binary"}, "topic type must be a STRING, but it is BINARY"),
        (
            {"value": "string", "headers": "array<string>"},
            "headers type must be array<struct<key:string,value:binary>>",
        ),
        ({"value": "string", "timestamp": "date"}, "timestamp type must be a TIMESTAMP"),
    ],
)
def test_a_wrong_column_is_named_with_the_type_it_has(columns: dict[str, str], message: str) -> None:
    with pytest.raises(UnwritableFrame) as refused:
        check_frame(columns, "orders")
    assert message in str(refused.value)


def test_a_frame_without_a_topic_is_refused() -> None:
    with pytest.raises(UnwritableFrame, match="topic option required"):
        check_frame({"value": "string"}, None)


def test_a_column_to_write_is_there_once() -> None:
    with pytest.raises(UnwritableFrame, match="the DataFrame has 2 columns with the name 'value'"):
        check_names(["key", "value"], ["key", "value", "value"])
    check_names(["key", "value"], ["topic", "key", "note", "value", "topic", "note"])
