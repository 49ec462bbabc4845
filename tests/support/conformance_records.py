"""The records of `__consumer_offsets`, without what cannot be the same on two brokers: times, ids of topics, members.

    group_records(target, "prefix.", {producer_id: "1"})

Every value is encoded again and must give the same bytes, so nothing in it is overlooked.
"""

from __future__ import annotations

import re
from typing import Any

from fencepost.protocol.batch import BatchHeader, Buffer, decode_marker
from fencepost.protocol.messages import (
    FetchRequest,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from fencepost.protocol.records import Record, iter_batches, iter_records
from tests.support.transcripts import Target

OFFSETS_TOPIC = "__consumer_offsets"
OFFSET_KEY, GROUP_KEY = 1, 2
MEMBER_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def read_partition(target: Target, topic: str, index: int) -> list[tuple[BatchHeader, Buffer]]:
    """All batches of a partition."""
    found: list[tuple[BatchHeader, Buffer]] = []
    offset = 0
    while True:
        partition = FetchRequest.FetchPartition(index, -1, offset, partition_max_bytes=1 << 20)
        topics = [FetchRequest.FetchTopic(topic, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)
        fetched = target.call(request, 11).responses[0].partitions[0]
        if fetched.error_code:
            return found  # No group has been looked for yet, and the topic is not there.
        for header, batch in iter_batches(fetched.records or b""):
            found.append((header, batch))
            offset = header.last_offset + 1
        if offset >= fetched.high_watermark:
            return found


def group_records(target: Target, prefix: str, names: dict[int, str], partitions: int = 5) -> dict[str, list[str]]:
    """By group, the records of those that begin with `prefix`; by producer, the markers of those that have a name."""
    lines: dict[str, list[str]] = {}
    members: dict[str, str] = {}
    for index in range(partitions):
        for header, batch in read_partition(target, OFFSETS_TOPIC, index):
            who = names.get(header.producer_id, "nobody" if header.producer_id < 0 else "?")
            shape = f"attributes={header.attributes} {who}/{header.producer_epoch}/{header.base_sequence}"
            marker = decode_marker(batch) if header.is_control else None
            if marker is not None:
                if header.producer_id in names:
                    lines.setdefault(f"markers of {who}", []).append(f"{index}: {shape} commit={marker.commit}")
                continue
            for record in iter_records(batch):
                group, line = describe(record, header.is_transactional) or ("", "")
                if group and group.startswith(prefix):
                    line = MEMBER_ID.sub(lambda found: members.setdefault(found[0], f"#{len(members)}"), line)
                    lines.setdefault(group, []).append(f"{index}: {shape} of {header.record_count} {line}")
    return {name: lines[name] for name in sorted(lines)}


def describe(record: Record, is_transactional: bool) -> tuple[str, str] | None:
    """The group that a record is about, and what it says; None for records of other kinds."""
    key = record.key or b""
    kind = int.from_bytes(key[:2], "big")
    if kind == OFFSET_KEY:
        where, end = OffsetCommitKey.decode(key, 2, 0)
        assert end == len(key)
        value = decoded(OffsetCommitValue, record.value)
        if value is not None:
            version, stored = value
            expires = stored.expire_timestamp
            lives_ms = expires - stored.commit_timestamp if expires >= 0 else expires
            said = (
                f"v{version} offset={stored.offset} epoch={stored.leader_epoch} metadata={len(stored.metadata)}"
                f" at={stored.commit_timestamp > 0} lives={lives_ms}"
                # In a transaction only we give the id of the topic; see deviations.md.
                f" id={is_transactional or any(stored.topic_id)}"
            )
        return where.group, f"{where.topic}-{where.partition} {said if value is not None else 'gone'}"
    if kind == GROUP_KEY:
        about, end = GroupMetadataKey.decode(key, 2, 0)
        assert end == len(key)
        value = decoded(GroupMetadataValue, record.value)
        if value is None:
            return about.group, "group gone"
        version, stored = value
        if stored.generation == 0 and not stored.members:
            return None  # Apache Kafka writes down that a group was asked for; see deviations.md.
        listed = [
            (
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout,
                m.session_timeout,
                m.subscription,
                m.assignment,
            )
            for m in stored.members
        ]
        # Member ids have no order that two brokers share.
        listed.sort(key=lambda member: (member[6], str(member[1])))
        return about.group, (
            f"group v{version} {stored.protocol_type!r} generation={stored.generation} {stored.protocol}"
            f" leader={stored.leader} at={stored.current_state_timestamp > 0} {listed}"
        )
    return None


def decoded(kind: Any, value: bytes | None) -> tuple[int, Any] | None:
    if value is None:
        return None
    version = int.from_bytes(value[:2], "big")
    stored, end = kind.decode(value, 2, version)
    assert end == len(value)
    assert stored.encode(version) == value[2:], "a value that we would write in another way"
    return version, stored
