"""Rows go to the partitions that Java's default partitioner chooses, and stay in order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.encode.columns import BadRecord, Columns
from fencepost.spark.encode.partitioning import RowGroups, group_rows, murmur2
from tests.unit.spark.encode.partitioner import murmur2 as murmur2_of
from tests.unit.spark.encode.partitioner import partition_for

# From Apache Kafka's own test of Utils.murmur2.
KAFKAS_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def rows(**columns: Any) -> Columns:
    length = max(map(len, columns.values()))
    return Columns.of(pa.table({"value": pa.nulls(length, pa.binary()), **columns}))


def placed(groups: RowGroups) -> dict[TopicPartition, list[int]]:
    """The rows of each destination."""
    return {
        destination: groups.order[begin:end].tolist()
        for destination, begin, end in zip(groups.destinations, groups.bounds, groups.bounds[1:])
    }


def partition_of_each(columns: Columns, count: int, **options: int) -> list[int]:
    of = {
        row: p
        for (_, p), found in placed(group_rows(columns, "t", lambda _: count, **options)).items()
        for row in found
    }
    return [of[row] for row in range(len(columns))]


def test_hashes_are_those_of_kafkas_own_test() -> None:
    assert murmur2(pa.array(list(KAFKAS_VECTORS))).tolist() == list(KAFKAS_VECTORS.values())


def test_text_hashes_as_its_utf_8_bytes() -> None:
    keys = ["é", "日本", "🦆" * 5, "", "a"]
    expected = [murmur2_of(key.encode()) for key in keys]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        assert murmur2(pa.array(keys, pa.string()).cast(kind)).tolist() == expected


def test_no_keys_have_no_hashes() -> None:
    assert murmur2(pa.array([], pa.binary())).tolist() == []


@pytest.mark.parametrize("count", [1, 2, 6, 7, 1_000, 2**31 - 1])
def test_a_key_goes_where_java_sends_it(count: int) -> None:
    keys = [b"key-%d" % n for n in range(500)]
    assert partition_of_each(rows(key=pa.array(keys)), count) == [partition_for(key, count) for key in keys]


def test_null_keys_are_dealt_out_in_turn_and_an_empty_key_is_a_key() -> None:
    keys = pa.array([None, b"a", None, b"", None, None])
    a, empty = partition_for(b"a", 3), partition_for(b"", 3)
    assert partition_of_each(rows(key=keys), 3, null_start=2) == [2, a, 0, empty, 1, 2]


def test_rows_without_a_key_column_are_spread_evenly() -> None:
    found = partition_of_each(rows(value=pa.array([b"v"] * 600)), 6, null_start=4)
    assert found[:4] == [4, 5, 0, 1]
    assert set(Counter(found).values()) == {100}


def test_keyless_rows_of_interleaved_topics_are_spread_evenly_in_each() -> None:
    topics = ["a", "b"] * 300
    groups = group_rows(rows(topic=pa.array(topics)), None, {"a": 2, "b": 3}.__getitem__)
    assert {where: len(found) for where, found in placed(groups).items()} == {
        ("a", 0): 150,
        ("a", 1): 150,
        ("b", 0): 100,
        ("b", 1): 100,
        ("b", 2): 100,
    }


def test_a_named_partition_wins_over_the_key_and_null_does_not() -> None:
    keys = pa.array([b"a", b"a", None, None])
    named = pa.array([4, None, 3, None], pa.int32())
    assert partition_of_each(rows(key=keys, partition=named), 5, null_start=1) == [4, partition_for(b"a", 5), 3, 1]


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1])
def test_a_partition_that_the_topic_lacks_is_refused_by_name(wrong: int) -> None:
    columns = rows(partition=pa.array([0, wrong], pa.int32()))
    with pytest.raises(BadRecord, match=rf"row 1: {wrong} is not in the range \[0\.\.\.3\) of topic orders"):
        group_rows(columns, "orders", lambda _: 3)


def test_a_partition_may_exist_in_one_topic_and_not_in_the_other() -> None:
    columns = rows(topic=pa.array(["wide", "narrow"]), partition=pa.array([5, 5], pa.int32()))
    with pytest.raises(BadRecord, match=r"row 1: 5 .* of topic narrow"):
        group_rows(columns, None, {"wide": 6, "narrow": 2}.__getitem__)


def test_the_option_wins_over_the_topic_column() -> None:
    columns = rows(topic=pa.array(["a", None, "b"]))
    assert {topic for topic, _ in group_rows(columns, "option", lambda _: 2).destinations} == {"option"}


@pytest.mark.parametrize("columns", [{"topic": pa.array(["a", None])}, {"key": pa.array([b"k"])}])
def test_a_row_without_a_topic_is_refused_in_sparks_words(columns: dict[str, Any]) -> None:
    with pytest.raises(BadRecord, match="null topic present in the data"):
        group_rows(rows(**columns), None, lambda _: 1)


def test_only_topics_that_occur_are_asked_about() -> None:
    asked: list[str] = []

    def count(topic: str) -> int:
        asked.append(topic)
        return 2

    topics = pa.array(["a", "b", "c", "b"]).dictionary_encode().slice(1)
    groups = group_rows(rows(topic=topics), None, count)
    assert sorted(asked) == ["b", "c"]
    assert {topic for topic, _ in groups.destinations} == {"b", "c"}


def test_no_rows_make_no_groups() -> None:
    groups = group_rows(rows(key=pa.array([], pa.binary())), "t", lambda _: 1)
    assert placed(groups) == {}
