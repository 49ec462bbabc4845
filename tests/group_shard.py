"""Groups and offsets over a log in memory, as one partition of `__consumer_offsets` keeps them.

groups = GroupsInMemory()
replies = groups.run(groups.members.join(cmd, "token", now_ms))
groups.append_error = errors.KAFKA_STORAGE_ERROR        # From now on the disk refuses.
assert groups.replayed().durable() == groups.shard.durable()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fencepost.machines.group.classic.group import ClassicGroup, GroupState
from fencepost.machines.group.classic.requests import ClassicMemberRecord, GroupRecord
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.consumer.group import TopicInfo, TopicLookup
from fencepost.machines.group.decision import Answer, Decision, LogRecord, run
from fencepost.machines.group.members import GroupMembers
from fencepost.machines.group.offsets import CommittedOffset, OffsetRecord
from fencepost.machines.group.records import decode, encode
from fencepost.machines.group.shard import GroupShard
from fencepost.protocol import errors

Marker = tuple[int, bool]  # Producer id, commit.


class SomeTopics:
    """The topics of a cluster, which come and go."""

    def __init__(self) -> None:
        self.version = 0
        self.infos: dict[str, TopicInfo] = {}

    def by_name(self, name: str) -> TopicInfo | None:
        return self.infos.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return next((info for info in self.infos.values() if info.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.infos

    def put(self, name: str, partitions: int) -> None:
        self.version += 1
        topic_id = self.infos[name].topic_id if name in self.infos else f"{name}-{self.version}".encode().ljust(16)
        self.infos[name] = TopicInfo(name, topic_id, partitions)

    def drop(self, name: str) -> None:
        self.version += 1
        self.infos.pop(name, None)


class GroupsInMemory:
    def __init__(
        self,
        config: GroupConfig | None = None,
        new_uuid: Callable[[], str] = lambda: "uuid",
        topics: TopicLookup | None = None,
    ) -> None:
        self.config = config or GroupConfig()
        self.topics = topics or SomeTopics()
        self.append_error = errors.NONE
        self.records: list[LogRecord] = []  # All that were written, in their order.
        self._new_uuid = new_uuid
        self._log: list[tuple[bytes, bytes | None, int | None] | Marker] = []
        self._start(GroupShard())

    def _start(self, shard: GroupShard) -> None:
        self.shard = shard
        self.members = GroupMembers(shard, self.config, self.topics, self._new_uuid)

    def write(self, records: Sequence[LogRecord], producer_id: int | None = None) -> int:
        if self.append_error:
            return self.append_error
        for record in records:
            self.shard.apply(record, len(self._log), producer_id)
            self._log.append((*encode(record), producer_id))
            self.records.append(record)
        return errors.NONE

    def write_marker(self, producer_id: int, commit: bool) -> None:
        self.shard.apply_marker(producer_id, commit)
        self._log.append((producer_id, commit))

    def run(self, decision: Decision[Answer], producer_id: int | None = None) -> Answer:
        return run(decision, lambda records: self.write(records, producer_id))

    def replayed(self, is_compacted: bool = False) -> GroupShard:
        """A new shard of the same log. `is_compacted` leaves only the last record of each key, and all tombstones."""
        shard = GroupShard()
        latest = {entry[0]: i for i, entry in enumerate(self._log)}
        for i, entry in enumerate(self._log):
            if len(entry) == 2:
                shard.apply_marker(*entry)
                continue
            key, value, producer_id = entry
            record = decode(key, value, i)
            assert record is not None
            if not is_compacted or latest[key] == i:
                shard.apply(record, i, producer_id)
        return shard

    def restart(self, is_compacted: bool = False) -> None:
        """kill -9 and a new process, which has yet to resume."""
        self._start(self.replayed(is_compacted))


def decided(decision: Decision[object]) -> tuple[LogRecord, ...]:
    """The records that a decision yields first; they are not written."""
    try:
        return tuple(next(decision))
    except StopIteration:
        return ()


# Groups and records to start from.


def subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names


def stable_record(*topics: str) -> GroupRecord:
    member = ClassicMemberRecord("m", "i", "c", "/h", 60_000, 10_000, subscription(*topics), b"")
    return GroupRecord("consumer", 5, "range", "m", 1_000, (member,))


def groups_with(group: ClassicGroup | None = None) -> GroupsInMemory:
    groups = GroupsInMemory()
    if group is not None:
        groups.shard.classic["g"] = group
    return groups


def stable_group(*topics: str, state: GroupState = GroupState.STABLE) -> ClassicGroup:
    group = ClassicGroup("g")
    group.apply(stable_record(*topics))
    group.state = state
    return group


def value(offset: int, commit_timestamp: int = 0, **fields: object) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", commit_timestamp, **fields)  # type: ignore[arg-type]


def record(offset: int | None, topic: str = "t", partition: int = 0, group_id: str = "g") -> OffsetRecord:
    return OffsetRecord(group_id, topic, partition, None if offset is None else value(offset))
