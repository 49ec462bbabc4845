"""Varints and bytes, laid out record by record in one buffer, without a Python step for each record.

Numpy packs neighbouring varints of a record into one 64-bit word. Then a single `take` of Arrow copies words, keys and
values into their final order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.spark.encode.columns import BinaryColumn, Ints

WORD_BYTES = 8

Words = npt.NDArray[np.uint64]


class Packed(NamedTuple):
    """Up to eight bytes for each record, in a little-endian word; a scalar is the same for all records."""

    word: Words | np.uint64
    size: Ints | np.int64
    width: int  # The largest size.


class Taken(NamedTuple):
    """Bytes of a column, and the order in which its rows are taken."""

    column: BinaryColumn
    rows: npt.NDArray[Any]


Part = Packed | Taken


def constant(byte: int) -> Packed:
    return Packed(np.uint64(byte), np.int64(1), 1)


def zigzag(values: Ints) -> Ints:
    return (values << 1) ^ (values >> 63)


def varint_width(value: int) -> int:
    """The number of bytes of the varint of a non-negative number."""
    return max(1, -(-value.bit_length() // 7))


def varints(values: Ints) -> Packed:
    """Numbers of at most 56 bits as varints: seven bits in each byte; the eighth bit says that more bytes follow."""
    plain = values.view(np.uint64)
    width = varint_width(int(plain.max()))
    assert width <= WORD_BYTES, f"{int(plain.max())} does not fit a word"
    if width == 1:
        return Packed(plain, np.int64(1), 1)
    word = plain & np.uint64(0x7F)
    size: Ints | np.int64 = np.int64(1)
    for n in range(1, width):
        more = values >= 1 << 7 * n
        if more.all():
            word |= np.uint64(0x80 << 8 * (n - 1))
            size = size + np.int64(1)
        else:
            word |= more.astype(np.uint64) << np.uint64(8 * n - 1)
            size = size + more
        word |= (plain & np.uint64(0x7F << 7 * n)) << np.uint64(n)
    return Packed(word, size, width)


def lay_out(count: int, parts: Iterable[Part]) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """The bytes of the parts, record by record, and the offset of each record (and the end of the last)."""
    columns = [_as_taken(part, count) for part in _merged(parts)]
    everything = _concatenated([column for column, _ in columns], count * len(columns))
    picks = np.empty((count, len(columns)), np.int32)
    before = 0
    for n, (column, rows) in enumerate(columns):
        np.add(rows, before, out=picks[:, n], casting="same_kind")
        before += len(column)
    laid = pc.take(everything, pa.array(picks.reshape(-1)), boundscheck=False)
    _, offsets, data = laid.buffers()
    return memoryview(data), np.frombuffer(offsets, np.int32)[: len(laid) + 1 : len(columns)]


def _concatenated(columns: list[BinaryColumn], picks: int) -> Any:
    """One Arrow array of all rows of the columns, from which `picks` elements will be taken."""
    elements = sum(map(len, columns))
    size = sum(len(column.data) for column in columns)
    # Arrow reserves memory for the elements taken by their average length. A last element, which is never taken, raises
    # that average: otherwise Arrow might run out of space and copy everything to a larger buffer.
    spare = max(0, size * (elements + 1) // picks - size) + 1
    assert size + spare < 1 << 31, "offsets have 32 bits"
    data = np.empty(size + spare, np.uint8)
    offsets = np.empty(elements + 2, np.int32)
    at = row = 0
    for column in columns:
        data[at : at + len(column.data)] = column.data
        np.add(column.offsets, at, out=offsets[row : row + len(column.offsets)])
        at += len(column.data)
        row += len(column)
    offsets[-1] = size + spare
    return pa.Array.from_buffers(pa.binary(), elements + 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _merged(parts: Iterable[Part]) -> Iterator[Part]:
    """The same bytes in fewer parts: neighbouring varints share a word if they fit."""
    last: Packed | None = None
    for part in parts:
        if last is not None and isinstance(part, Packed) and last.width + part.width <= WORD_BYTES:
            last = _joined(last, part)
            continue
        if last is not None:
            yield last
        last = part if isinstance(part, Packed) else None
        if isinstance(part, Taken):
            yield part
    if last is not None:
        yield last


def _joined(first: Packed, second: Packed) -> Packed:
    shift = (first.size << 3).view(np.uint64)
    return Packed(first.word | second.word << shift, first.size + second.size, first.width + second.width)


def _as_taken(part: Part, count: int) -> Taken:
    """A word holds its bytes and then unused bytes: every second element of the array is the unused rest."""
    if isinstance(part, Taken):
        return part
    if part.word.ndim == 0:
        once = np.frombuffer(int(part.word).to_bytes(part.width, "little"), np.uint8)
        return Taken(BinaryColumn(once, np.array([0, part.width], np.int32)), np.zeros(count, np.int32))
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[::2] = np.arange(0, WORD_BYTES * (count + 1), WORD_BYTES)
    np.add(offsets[:-1:2], part.size, out=offsets[1::2], casting="same_kind")
    words = np.ascontiguousarray(part.word, "<u8")
    return Taken(BinaryColumn(words.view(np.uint8), offsets), np.arange(0, 2 * count, 2))
