"""The partition of each row, chosen as Java's default partitioner does, and the rows grouped by partition.

Follows Kafka's `Utils.murmur2`, `Utils.toPositive` and `BuiltInPartitioner.partitionForKey`. A partition that a row
names wins; rows without a key go to the partitions in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.encode.columns import BadRecord, BinaryColumn, Columns, Flags, Ints, binary_column

MULTIPLIER = 0x5BD1E995
SEED = 0x9747B28C
# For fewer long keys than this, a loop over Python's integers is faster than numpy.
FEW = 16

_M = np.uint32(MULTIPLIER)
# A mask for the bytes of a little-endian word that belong to a key, if 0 to 3 of them do.
_TAIL = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)

Words = npt.NDArray[np.uint32]
Partitions = npt.NDArray[np.int32]


class RowGroups(NamedTuple):
    """Rows by destination, in their order. Group g is `order[bounds[g]:bounds[g + 1]]`."""

    order: Ints
    bounds: Ints
    destinations: list[TopicPartition]


def murmur2(keys: Any) -> npt.NDArray[np.int32]:
    """Kafka's hash of each key; undefined for null."""
    column = keys if isinstance(keys, BinaryColumn) else binary_column(keys, "key")
    if not len(column):
        return np.zeros(0, np.int32)
    # words[n] is the word that begins at byte n, aligned or not.
    padded = np.concatenate((column.data, np.zeros(4, np.uint8)))
    words: Words = np.ndarray((len(column.data) + 1,), "<u4", padded, 0, (1,))

    at = column.offsets[:-1].astype(np.intp)
    lengths = np.diff(column.offsets).astype(np.uint32)
    whole = lengths >> np.uint32(2)
    shared = int(whole.min())
    # The words of keys of equal length, such as UUIDs, are at equal distances.
    distance = int(lengths[0]) if shared and (lengths == lengths[0]).all() else 0
    hashes = np.uint32(SEED) ^ lengths
    for n in range(shared):
        hashes *= _M
        hashes ^= _scrambled(words[4 * n : -1 : distance] if distance else words[at + 4 * n])
    at += 4 * shared
    _hash_longer(hashes, at, whole, words, shared)
    rest = lengths & np.uint32(3)
    if rest.any():
        hashes = np.where(rest, (hashes ^ (words[at] & _TAIL[rest])) * _M, hashes)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes.view(np.int32)


def _scrambled(k: Words) -> Words:
    k = k * _M
    k ^= k >> np.uint32(24)
    k *= _M
    return k


def _hash_longer(hashes: Words, at: Ints, whole: Words, words: Words, done: int) -> None:
    """Add the words after the first `done` to the hashes of the longer keys."""
    rows = np.flatnonzero(whole > done)
    while len(rows) > FEW:
        hashes[rows] = hashes[rows] * _M ^ _scrambled(words[at[rows]])
        at[rows] += 4
        done += 1
        rows = rows[whole[rows] > done]
    for row in rows.tolist():
        end = int(at[row]) + 4 * (int(whole[row]) - done)
        h = int(hashes[row])
        for k in _scrambled(words[int(at[row]) : end : 4]).tolist():
            h = h * MULTIPLIER & 0xFFFFFFFF ^ k
        hashes[row] = h
        at[row] = end


def _hashed(keys: BinaryColumn, count: np.int32 | Partitions) -> Partitions:
    return (murmur2(keys) & np.int32(0x7FFFFFFF)) % count


def group_rows(
    columns: Columns, topic: str | None, partition_count: Callable[[str], int], *, null_start: int = 0
) -> RowGroups:
    """Group the rows by destination. `topic` wins over the column; `partition_count` is asked once for each topic."""
    if not len(columns):
        return RowGroups(np.zeros(0, np.int64), np.zeros(1, np.int64), [])
    names, topic_of = ([topic], None) if topic is not None else _topics(columns.topic)
    topics = _Topics(names, np.array([partition_count(name) for name in names], np.int32), topic_of)
    chosen = _choose(columns, topics, null_start)
    most = int(topics.counts.max())
    group = chosen if topic_of is None else topic_of * most + chosen
    order, bounds = _sorted_by(group, len(names) * most)
    firsts = order[bounds[:-1]].tolist()
    return RowGroups(order, bounds, [(topics.at(row)[0], int(chosen[row])) for row in firsts])


class _Topics(NamedTuple):
    names: list[str]
    counts: Partitions
    of_row: Ints | None  # None: all rows go to one topic.

    def at(self, row: int) -> tuple[str, int]:
        """The topic of a row, and how many partitions it has."""
        index = 0 if self.of_row is None else int(self.of_row[row])
        return self.names[index], int(self.counts[index])


def _topics(column: Any) -> tuple[list[str], Ints | None]:
    """The topics that the column names and, if there are several, the index of each row's topic."""
    if column is None or column.null_count:
        raise BadRecord("null topic present in the data. Use the topic option for setting a topic.")
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    names = column.dictionary.to_pylist()
    of_row = column.indices.to_numpy().astype(np.int64)
    used = np.unique(of_row)
    if len(used) < len(names):
        names, of_row = [names[n] for n in used], np.searchsorted(used, of_row)
    names = [name if isinstance(name, str) else name.decode() for name in names]
    return names, of_row if len(names) > 1 else None


def _choose(columns: Columns, topics: _Topics, null_start: int) -> Partitions:
    """The partition of each row: the one that it names, or by its key, or the next in turn."""
    count = topics.counts[0] if topics.of_row is None else topics.counts[topics.of_row]
    key = columns.key
    if key is None:
        chosen = np.zeros(len(columns), np.int32)
        settled = np.zeros(len(columns), np.bool_)
    else:
        chosen = _hashed(key, count)
        settled = np.ones(len(columns), np.bool_) if key.valid is None else key.valid.copy()
    if columns.partition is not None and columns.partition.null_count < len(columns):
        given, named = _named_partitions(columns.partition, topics, count)
        chosen = np.where(given, named, chosen)
        settled |= given
    rows = np.flatnonzero(~settled)
    if len(rows):
        turn = np.arange(len(rows)) if topics.of_row is None else _turn_within(topics.of_row[rows])
        chosen[rows] = (null_start + turn) % (count if topics.of_row is None else count[rows])
    return chosen


def _named_partitions(column: Any, topics: _Topics, count: np.int32 | Partitions) -> tuple[Flags, Partitions]:
    """Which rows name a partition, and which one."""
    if not pa.types.is_integer(column.type):
        raise TypeError(f"partition attribute type must be an int, not {column.type}")
    named = column.fill_null(0).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((named < 0) | (named >= count))
    if len(wrong):
        row = int(wrong[0])
        topic, limit = topics.at(row)
        raise BadRecord(
            f"invalid partition given with row {row}: {named[row]} is not in the range [0...{limit}) of topic {topic}"
        )
    return column.is_valid().to_numpy(zero_copy_only=False), named.astype(np.int32)


def _turn_within(group: Ints) -> Ints:
    """For each row, how many rows of its group come before it."""
    order, bounds = _sorted_by(group, int(group.max()) + 1)
    turn = np.empty(len(group), np.int64)
    turn[order] = np.arange(len(group)) - np.repeat(bounds[:-1], np.diff(bounds))
    return turn


def _sorted_by(group: npt.NDArray[Any], limit: int) -> tuple[Ints, Ints]:
    """Row numbers sorted by group, stable, and the bounds of the groups. Group numbers are below `limit`."""
    # numpy sorts 8-bit and 16-bit integers by radix, and larger ones by comparison.
    small = np.uint8 if limit <= 1 << 8 else np.uint16 if limit <= 1 << 16 else np.int64
    narrow = group.astype(small)
    order = np.argsort(narrow, kind="stable")
    sorted_ = narrow[order]
    cuts = np.flatnonzero(sorted_[1:] != sorted_[:-1]) + 1
    return order, np.concatenate(([0], cuts, [len(group)]))
