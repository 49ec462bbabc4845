"""The records of `__consumer_offsets`: committed offsets and groups as Kafka lays them out, and back.

A key begins with its type: 0 and 1 for an offset, 2 for a classic group. The types of consumer groups are in
`consumer/records.py`. Others (share groups and more) are skipped.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from fencepost.machines.group.classic.requests import ClassicMemberRecord, GroupChange, GroupRecord
from fencepost.machines.group.consumer import records as consumer_records
from fencepost.machines.group.decision import LogRecord
from fencepost.machines.group.offsets import NO_TIMESTAMP, NO_TOPIC_ID, CommittedOffset, OffsetRecord
from fencepost.protocol.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from fencepost.protocol.schema import Malformed, write_uvarint

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_OFFSET_VALUE_HEAD = struct.Struct(">hqi")  # Version, offset and leader epoch.
_NO_TAGS = b"\0"
_TOPIC_ID_TAG = b"\1\0\x10"  # One tag, number 0, of 16 bytes.
OFFSET_KEYS = (0, 1)
GROUP_KEY = 2
OFFSET_VALUE_VERSION = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
KNOWN_VALUE_VERSIONS = range(5)


def encode_offset(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    key = _offset_key(record.group_id, record.topic, record.partition)
    value = record.value
    if value is None:
        return key, None
    offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id, _ = value
    if expire_timestamp == NO_TIMESTAMP:
        # Laid out by hand, because a transaction may commit the offsets of many partitions.
        raw = metadata.encode()
        tags = _NO_TAGS if topic_id == NO_TOPIC_ID else _TOPIC_ID_TAG + topic_id
        head = _OFFSET_VALUE_HEAD.pack(OFFSET_VALUE_VERSION, offset, leader_epoch)
        return key, head + write_uvarint(len(raw) + 1) + raw + _INT64.pack(commit_timestamp) + tags
    # Kafka: only version 1 has room for a time to expire at, which clients before v5 could ask for.
    stored = OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id)
    return key, _with_version(OFFSET_VALUE_VERSION_WITH_EXPIRY, stored.encode(OFFSET_VALUE_VERSION_WITH_EXPIRY))


@lru_cache(maxsize=4_096)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Cached, as groups commit the offsets of the same partitions again and again."""
    return _with_version(1, OffsetCommitKey(group_id, topic, partition).encode(0))


def encode_group(group_id: str, record: GroupRecord | None) -> tuple[bytes, bytes | None]:
    key = _with_version(GROUP_KEY, GroupMetadataKey(group_id).encode(0))
    if record is None:
        return key, None
    members = [GroupMetadataValue.MemberMetadata(*member) for member in record.members]
    stored = GroupMetadataValue(
        record.protocol_type, record.generation, record.protocol, record.leader, record.current_state_timestamp, members
    )
    return key, _with_version(GROUP_VALUE_VERSION, stored.encode(GROUP_VALUE_VERSION))


def _with_version(version: int, body: bytes) -> bytes:
    return _INT16.pack(version) + body


def _version_of(data: bytes) -> int:
    if len(data) < 2:
        raise Malformed(f"a record of {len(data)} bytes has no version")
    version: int = _INT16.unpack_from(data)[0]
    return version


def encode(record: LogRecord) -> tuple[bytes, bytes | None]:
    if isinstance(record, OffsetRecord):
        return encode_offset(record)
    if isinstance(record, GroupChange):
        return encode_group(record.group_id, record.record)
    return consumer_records.encode(record)


def decode(key: bytes, value: bytes | None, record_offset: int) -> LogRecord | None:
    """The record with this key and value; None for one that is to be skipped."""
    kind = _version_of(key)
    if value is not None and _version_of(value) not in KNOWN_VALUE_VERSIONS:
        return None
    if kind in OFFSET_KEYS:
        where, _ = OffsetCommitKey.decode(key, 2, 0)
        return OffsetRecord(where.group, where.topic, where.partition, _decode_offset(value, record_offset))
    if kind == GROUP_KEY:
        return GroupChange(GroupMetadataKey.decode(key, 2, 0)[0].group, _decode_group(value))
    return consumer_records.decode(kind, key, value)


def _decode_offset(value: bytes | None, record_offset: int) -> CommittedOffset | None:
    if value is None:
        return None
    stored, _ = OffsetCommitValue.decode(value, 2, _version_of(value))
    return CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
        record_offset,
    )


def _decode_group(value: bytes | None) -> GroupRecord | None:
    if value is None:
        return None
    stored, _ = GroupMetadataValue.decode(value, 2, _version_of(value))
    members = tuple(
        ClassicMemberRecord(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            m.rebalance_timeout if m.rebalance_timeout >= 0 else m.session_timeout,
            m.session_timeout,
            m.subscription,
            m.assignment,
        )
        for m in stored.members
    )
    return GroupRecord(
        stored.protocol_type, stored.generation, stored.protocol, stored.leader, stored.current_state_timestamp, members
    )
