"""Which DataFrames the sink can write: those with the columns of Spark's own Kafka sink. Checked before sending.

The messages are worded like Spark's, so that a search for them finds the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLUMNS = ("topic", "partition", "key", "value", "headers", "timestamp")
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_TYPES = {
    "topic": ({"string"}, "topic type must be a STRING"),
    "partition": ({"int"}, "partition type must be an INT"),
    "key": ({"string", "binary"}, "key type must be a STRING or BINARY"),
    "value": ({"string", "binary"}, "value type must be a STRING or BINARY"),
    "headers": ({HEADERS_TYPE}, f"headers type must be {HEADERS_TYPE}"),
    "timestamp": ({"timestamp", "timestamp_ntz", "bigint"}, "timestamp type must be a TIMESTAMP or BIGINT (ms)"),
}


class UnwritableFrame(ValueError):
    """The DataFrame does not have the columns of a Kafka sink. Nothing was sent."""


def check_frame(columns: dict[str, str], topic: str | None) -> list[str]:
    """The columns to write, in order, out of `columns` (name -> simple type). Raises UnwritableFrame."""
    if topic is None and "topic" not in columns:
        raise UnwritableFrame(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in columns:
        raise UnwritableFrame("Required attribute 'value' not found")
    for name, (allowed, message) in _TYPES.items():
        if name in columns and columns[name] not in allowed:
            raise UnwritableFrame(f"{message}, but it is {columns[name].upper()}")
    return [name for name in COLUMNS if name in columns and not (name == "topic" and topic is not None)]


def check_names(columns: Sequence[str], names: Sequence[str]) -> None:
    """Raises UnwritableFrame if a column to write is there twice: it is not known which one is meant."""
    twice = next((column for column in columns if names.count(column) > 1), None)
    if twice is not None:
        raise UnwritableFrame(f"the DataFrame has {names.count(twice)} columns with the name '{twice}'")


def select_columns(frame: Any, topic: str | None) -> Any:
    fields = frame.schema.fields
    names = [f.name for f in fields]
    columns = check_frame({f.name: f.dataType.simpleString() for f in fields}, topic)
    check_names(columns, names)
    return frame if columns == names else frame.select(*columns)
