"""The columns of a DataFrame's rows, brought into one form for the encoder.

Keys and values come as strings or as bytes, with 32-bit or 64-bit offsets, sliced, in chunks or as dictionaries. Here
each becomes one array of bytes that starts at offset 0, mostly without a copy, with its offsets as a numpy array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# The most milliseconds that a varint of eight bytes can hold. Spark's own timestamps end earlier.
MAX_TIMESTAMP_MS = 2**54 - 1

# One call addresses all its bytes with 32-bit offsets, with room to spare. No Kafka accepts a record of this size.
MAX_COLUMN_BYTES = 1 << 28


class BadRecord(ValueError):
    """A row that cannot become a record, because of its values and not because of their types."""


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """Bytes or null, row by row: row n is `data[offsets[n]:offsets[n + 1]]`, which is empty for null."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int32]
    valid: Flags | None = None  # None: no row is null.

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self) -> Ints:
        return np.diff(self.offsets).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that make up records. None: the DataFrame does not have the column."""

    value: BinaryColumn
    key: BinaryColumn | None = None
    headers: Any = None  # list<struct<key: string, value: binary>>
    timestamp: Any = None  # timestamp of any unit, or int64 in milliseconds
    topic: Any = None
    partition: Any = None

    def __len__(self) -> int:
        return len(self.value)

    @classmethod
    def of(cls, rows: Any) -> Columns:
        """The columns of a pyarrow RecordBatch or Table, by their names in Spark's Kafka sink."""
        found = {name: _unchunked(rows.column(name)) for name in rows.schema.names if name in COLUMN_NAMES}
        if "value" not in found:
            raise TypeError("required attribute 'value' not found")
        key = found.get("key")
        return cls(
            value=binary_column(found["value"], "value"),
            key=None if key is None or key.null_count == len(key) else binary_column(key, "key"),
            headers=found.get("headers"),
            timestamp=found.get("timestamp"),
            topic=found.get("topic"),
            partition=found.get("partition"),
        )


COLUMN_NAMES = frozenset({"key", "value", "headers", "timestamp", "topic", "partition"})


def _unchunked(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def binary_column(array: Any, name: str = "column") -> BinaryColumn:
    """Any array of strings or bytes."""
    array = _unchunked(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type) or pa.types.is_fixed_size_binary(array.type) or _is_view(array.type):
        array = array.cast(pa.binary())
    if not (_is_plain(array.type) or _is_large(array.type)):
        raise TypeError(f"{name} attribute type must be a string or binary, not {array.type}")
    if len(array) == 0:
        return BinaryColumn(np.zeros(0, np.uint8), np.zeros(1, np.int32))
    data, offsets = _data_and_offsets(array)
    if len(data) > MAX_COLUMN_BYTES:
        raise BadRecord(f"{name} has {len(data)} bytes in {len(array)} rows: more than can be encoded at once")
    if not array.null_count:
        return BinaryColumn(data, offsets.astype(np.int32, copy=False))
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    if np.diff(offsets)[~valid].any():
        # Arrow allows a null to have bytes.
        data, offsets = _data_and_offsets(array.fill_null(b"" if _holds_bytes(array.type) else ""))
    return BinaryColumn(data, offsets.astype(np.int32, copy=False), valid)


def _data_and_offsets(array: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """The bytes of an array, which may be a slice of a larger one, and its offsets into these bytes."""
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64 if _is_large(array.type) else np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return np.zeros(0, np.uint8), np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(data, np.uint8)[first:last], offsets - offsets[0] if first else offsets


def _is_plain(type_: Any) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_string(type_))


def _holds_bytes(type_: Any) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _is_large(type_: Any) -> bool:
    return bool(pa.types.is_large_binary(type_) or pa.types.is_large_string(type_))


def _is_view(type_: Any) -> bool:
    return str(type_) in ("string_view", "binary_view")


def timestamps_ms(array: Any, now_ms: int) -> Ints | None:
    """The timestamp of each row, `now_ms` for null. None if all are null."""
    if array is None or array.null_count == len(array):
        return None
    if pa.types.is_timestamp(array.type):
        # Arrow's cast from seconds detects an overflow. Finer units are divided below.
        array = array.cast(pa.timestamp("ms")) if array.type.unit == "s" else array
        units_per_ms = {"ms": 1, "us": 1_000, "ns": 1_000_000}[array.type.unit]
    elif pa.types.is_integer(array.type):
        units_per_ms = 1
    else:
        raise TypeError(f"timestamp attribute type must be a timestamp, not {array.type}")
    times: Ints = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if units_per_ms > 1:
        times = times // units_per_ms
    if array.null_count:
        times = np.where(array.is_valid().to_numpy(zero_copy_only=False), times, now_ms)
    if not 0 <= int(times.min()) <= int(times.max()) <= MAX_TIMESTAMP_MS:
        row = int(np.flatnonzero((times < 0) | (times > MAX_TIMESTAMP_MS))[0])
        raise BadRecord(
            f"invalid timestamp in row {row}: {int(times[row])} ms since 1970 is not in the range "
            f"[0...{MAX_TIMESTAMP_MS}]"
        )
    return times
