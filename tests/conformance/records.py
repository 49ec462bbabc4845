"""The records that a broker wrote, without times and ids of producers, topics and members, which differ by broker.

    LogReader(client).states()     of `__transaction_state`
    LogReader(client).groups()     of `__consumer_offsets`
    LogReader(client).batches()    of the topics of a transcript

Every value is encoded again and must give the same bytes, so nothing in it is overlooked.
"""

from __future__ import annotations

import re
from typing import Any

from fencepost.machines.txn.records import decode_key, encode_key
from fencepost.machines.txn.states import TxnState
from fencepost.protocol.batch import HEADER_BYTES, BatchHeader, Buffer, decode_marker
from fencepost.protocol.messages import (
    FetchRequest,
    GroupMetadataKey,
    GroupMetadataValue,
    MetadataRequest,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogValue,
)
from fencepost.protocol.records import Record, iter_batches, iter_records
from tests.transcripts.client import Client
from tests.transcripts.target import Target

OFFSETS_TOPIC, STATE_TOPIC = "__consumer_offsets", "__transaction_state"
# As many as brokers have in these tests, of each.
COORDINATOR_PARTITIONS = 5
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


def group_records(target: Target, prefix: str, names: dict[int, str]) -> dict[str, list[str]]:
    """By group, the records of those that begin with `prefix`; by producer, the markers of those that have a name."""
    lines: dict[str, list[str]] = {}
    members: dict[str, str] = {}
    for index in range(COORDINATOR_PARTITIONS):
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


class LogReader:
    """The records that a broker wrote during a transcript, without times and producer ids, which differ by broker."""

    def __init__(self, client: Client) -> None:
        self._target = client.target
        self._prefix = client.names.prefix
        self._names = {number: name for name, number in client.names.producer_ids.items()}

    def states(self) -> list[str]:
        """The records of `__transaction_state`, a line each, those of one transactional id together."""
        found: dict[str, list[str]] = {}
        for index in range(COORDINATOR_PARTITIONS):
            for header, batch in iter_batches(self._read(STATE_TOPIC, index)):
                if header.is_control:
                    continue  # A client that may write markers may write them to this topic too.
                shape = (header.attributes, header.producer_id, header.producer_epoch, header.record_count)
                assert shape == (0, -1, -1, 1)
                for record in iter_records(batch):
                    transactional_id = decode_key(record.key or b"")
                    assert transactional_id is not None
                    assert record.key == encode_key(transactional_id)
                    if transactional_id.startswith(self._prefix):
                        line = f"{transactional_id} {self._state(record.value)}"
                        found.setdefault(transactional_id, []).append(line)
        return [line for transactional_id in sorted(found) for line in found[transactional_id]]

    def _state(self, value: bytes | None) -> str:
        if value is None:
            return "gone"
        version = int.from_bytes(value[:2], "big")
        stored, end = TransactionLogValue.decode(value, 2, version)
        assert end == len(value)
        # Every byte of it, in the one order that the fields have.
        assert stored.encode(version) == value[2:]
        topics = stored.transaction_partitions
        # Apache Kafka keeps them in a hash set.
        partitions = None if topics is None else sorted(f"{t.topic}-{i}" for t in topics for i in t.partition_ids)
        return (
            f"v{version} {TxnState(stored.transaction_status).kafka_name}"
            f" {self._name(stored.producer_id)}/{stored.producer_epoch}"
            f" previous={self._name(stored.previous_producer_id)} next={self._name(stored.next_producer_id)}"
            f" timeout={stored.transaction_timeout_ms} tv={stored.client_transaction_version}"
            f" updated={stored.transaction_last_update_timestamp_ms > 0}"
            f" started={stored.transaction_start_timestamp_ms > 0} {partitions}"
        )

    def _name(self, producer_id: int) -> Any:
        if producer_id < 0 or producer_id in self._names:
            return self._names.get(producer_id, producer_id)
        return "?"  # A number that the transcript never mentions.

    def groups(self) -> dict[str, list[str]]:
        """The records of `__consumer_offsets`, of each group, and the markers there, of each producer."""
        return group_records(self._target, self._prefix, self._names)

    def batches(self) -> dict[tuple[str, int], list[Any]]:
        """Everything in the topics of the transcript: data and markers."""
        found = {}
        for topic in self._target.call(MetadataRequest(None), 4).topics:
            if topic.name.startswith(self._prefix):
                for partition in topic.partitions:
                    where = (topic.name, partition.partition_index)
                    found[where] = [self._batch(*pair) for pair in iter_batches(self._read(*where))]
        return found

    def _batch(self, header: BatchHeader, batch: Buffer) -> Any:
        fixed = header._replace(
            leader_epoch=0, crc=0, base_timestamp=0, max_timestamp=0, producer_id=self._name(header.producer_id)
        )
        payload = bytes(batch[HEADER_BYTES:])
        if header.is_control:
            payload = payload[:12] + payload[16:]  # Without the coordinator's epoch, which grows with every restart.
        return fixed, payload

    def _read(self, topic: str, index: int) -> bytes:
        return b"".join(batch for _, batch in read_partition(self._target, topic, index))
