"""The records of `__transaction_state`: one transactional id's state as Kafka lays it out, and back.

Key version 0 holds the transactional id. Value version 0 is for `transaction.version` 0, version 1 (flexible,
with tagged fields) from 1 on. A null value is a tombstone: the id is forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache

from fencepost.machines.txn.states import EMPTY, NO_ID, Txn, TxnState
from fencepost.protocol.messages import TransactionLogKey, TransactionLogValue
from fencepost.protocol.schema import Malformed, write_uvarint
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV0, TransactionVersion

_INT16 = struct.Struct(">h")
_FROM_WIRE = {int(state): state for state in TxnState}


def java_string_hash(text: str) -> int:
    """Java's String.hashCode, as a signed 32-bit number."""
    value = 0
    if text.isascii():
        for byte in text.encode():
            value = (31 * value + byte) & 0xFFFFFFFF
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(raw), 2):
            value = (31 * value + (raw[i] << 8 | raw[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(4096)  # Not more: a key may have 32 KB.
def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that keeps a transactional id or a group. Kafka: abs(MIN_VALUE) is 0."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


@lru_cache(1024)
def encode_key(transactional_id: str) -> bytes:
    raw = transactional_id.encode()
    return b"\0\0" + _INT16.pack(len(raw)) + raw


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


_HEAD = struct.Struct(">hqhib")
_STATE_AT = _HEAD.size - 1
_TIMES = struct.Struct(">qq")
_TAGGED_ID = struct.Struct(">bbq")
_TAGGED_VERSION = struct.Struct(">bbh")
MAX_CACHED_PARTITIONS = 64
NULL_PARTITIONS = (b"\xff\xff\xff\xff", b"\0")


@lru_cache(4096)
def _encode_partitions(partitions: frozenset[TopicPartition], version: int) -> bytes:
    """The three records of a transaction name the same partitions, so they are encoded once."""
    schema = TransactionLogValue.PartitionsSchema
    value = TransactionLogValue(
        transaction_partitions=[schema(topic, ids) for topic, ids in group_by_topic(partitions).items()]
    )
    # All other fields have their defaults, so the bytes between the fixed fields are the partitions.
    tail = _TIMES.size + (1 if version else 0)
    return value.encode(version)[_HEAD.size - 2 : -tail]


def _partitions_bytes(partitions: frozenset[TopicPartition], version: int) -> bytes:
    # The cache stays small: a transaction over very many partitions is not kept in it.
    encode = _encode_partitions if len(partitions) <= MAX_CACHED_PARTITIONS else _encode_partitions.__wrapped__
    return encode(partitions, version)


def encode_value(txn: Txn, transaction_version: TransactionVersion) -> bytes:
    """Encoded by hand, since every transaction writes three of these; a test compares it with the definition."""
    # Differs: at TV0 Kafka refuses to end a transaction of a TV2 client (UNSUPPORTED_VERSION), since the old layout of
    # the state record has no fields for it. Fencepost writes the record in the newer layout.
    version = 1 if transaction_version > TV0 or txn.client_transaction_version.bumps_epoch else 0
    partitions = NULL_PARTITIONS[version] if txn.state is EMPTY else _partitions_bytes(txn.partitions, version)
    head = _HEAD.pack(version, txn.producer_id, txn.producer_epoch, txn.timeout_ms, txn.state)
    value = head + partitions + _TIMES.pack(txn.updated_ms, txn.start_ms)
    if not version:
        return value
    tags = []
    if txn.previous_producer_id != NO_ID:
        tags.append(_TAGGED_ID.pack(0, 8, txn.previous_producer_id))
    if txn.next_producer_id != NO_ID:
        tags.append(_TAGGED_ID.pack(1, 8, txn.next_producer_id))
    if txn.client_transaction_version != TV0:
        tags.append(_TAGGED_VERSION.pack(2, 2, txn.client_transaction_version))
    return b"".join((value, write_uvarint(len(tags)), *tags))


def decode_key(key: bytes) -> str | None:
    """The transactional id, or None for a key of a later version, which loading skips."""
    if key[:2] != b"\0\0":
        return None
    return TransactionLogKey.decode(key, 2, 0)[0].transactional_id


def state_in_value(buf: bytes, at: int) -> TxnState | None:
    """The state in the value at `at`, without decoding the rest; None for a later version, which loading skips."""
    return _FROM_WIRE[buf[at + _STATE_AT]] if buf[at] == 0 and buf[at + 1] <= 1 else None


def decode_value(transactional_id: str, value: bytes) -> Txn | None:
    """The state in one record, or None for a later version, which loading skips."""
    if len(value) < 2:
        raise Malformed(f"the state of {transactional_id} has {len(value)} bytes")
    version = _INT16.unpack_from(value)[0]
    if version not in (0, 1):
        return None
    stored, _ = TransactionLogValue.decode(value, 2, version)
    return Txn(
        transactional_id=transactional_id,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=_FROM_WIRE[stored.transaction_status],
        partitions=frozenset(
            (topic.topic, partition)
            for topic in stored.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=stored.transaction_start_timestamp_ms,
        updated_ms=stored.transaction_last_update_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        client_transaction_version=TransactionVersion.of(stored.client_transaction_version),
    )
