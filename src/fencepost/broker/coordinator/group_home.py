"""One partition of `__consumer_offsets`: the groups that it keeps, and how decisions about them are run.

A decision yields records (see `machines/group/decision.py`). They are appended and applied, the replies are sent, and
an alarm is set for the earliest deadline of the groups. Loading applies the records of the log, and then the sessions
of the members begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fencepost.broker.config import Config
from fencepost.broker.coordinator.runtime import StateLog, Writer
from fencepost.machines.group.classic.rebalance import release_all
from fencepost.machines.group.classic.requests import Reply
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.consumer.group import TopicInfo
from fencepost.machines.group.decision import Answer, Decision, LogRecord, run
from fencepost.machines.group.members import GroupMembers
from fencepost.machines.group.offsets import NO_TOPIC_ID, OffsetRecord
from fencepost.machines.group.records import decode, encode
from fencepost.machines.group.shard import GroupShard
from fencepost.machines.partition.partition import Partition
from fencepost.machines.timers import Timer
from fencepost.protocol import errors

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster


def group_config(settings: Config) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=settings["group.min.session.timeout.ms"],
        group_max_session_timeout_ms=settings["group.max.session.timeout.ms"],
        group_max_size=settings["group.max.size"],
        group_initial_rebalance_delay_ms=settings["group.initial.rebalance.delay.ms"],
        offset_metadata_max_bytes=settings["offset.metadata.max.bytes"],
        offsets_retention_ms=settings["offsets.retention.minutes"] * 60_000,
        consumer_session_timeout_ms=settings["group.consumer.session.timeout.ms"],
        consumer_heartbeat_interval_ms=settings["group.consumer.heartbeat.interval.ms"],
        consumer_max_size=settings["group.consumer.max.size"],
        consumer_assignors=tuple(settings["group.consumer.assignors"].split(",")),
        consumer_assignment_interval_ms=settings["group.consumer.assignment.interval.ms"],
        consumer_migration_policy=settings["group.consumer.migration.policy"],
    )


class ClusterTopics:
    """The cluster's topics, as consumer groups see them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def version(self) -> int:
        return self._cluster.topics_version

    def by_name(self, name: str) -> TopicInfo | None:
        topic = self._cluster.topics.get(name)
        return None if topic is None else TopicInfo(topic.name, topic.topic_id, topic.partition_count)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        topic = self._cluster.topics_by_id.get(topic_id)
        return None if topic is None else TopicInfo(topic.name, topic.topic_id, topic.partition_count)

    def names(self) -> Iterable[str]:
        return self._cluster.topics


class GroupHome:
    def __init__(
        self, partition: Partition, cluster: Cluster, config: GroupConfig, new_uuid: Callable[[], str]
    ) -> None:
        self.partition = partition
        self.shard = GroupShard()
        self._cluster = cluster
        self._topics = ClusterTopics(cluster)
        self.members = GroupMembers(self.shard, config, self._topics, new_uuid)
        self._log: StateLog[LogRecord] = StateLog(partition, self.shard, encode, self._decode)
        self._alarm: Timer | None = None
        self.is_loaded = False
        self.is_closed = False  # Another node leads the partition.

    # Running decisions.

    def run(self, decision: Decision[Answer], now_ms: int, is_limited: bool = True) -> Answer:
        """Append and apply the records of a decision; unless `is_limited` is False, up to `max.message.bytes`."""
        answer = run(decision, partial(self._log.write, now_ms=now_ms, is_limited=is_limited))
        self.set_alarm()
        return answer

    def run_and_reply(self, decision: Decision[list[Reply]], now_ms: int) -> None:
        send(self.run(decision, now_ms))

    def run_commit(self, decision: Decision[Answer], writer: Writer | None, now_ms: int) -> Answer:
        """As `run`, for offsets: with a `writer` they belong to its transaction. They never bring a deadline nearer."""
        return run(decision, partial(self._write_offsets, writer, now_ms))

    def _write_offsets(self, writer: Writer | None, now_ms: int, records: Sequence[LogRecord]) -> int:
        self._cluster.reach("offsets.append.before")
        error = self._log.write(records, now_ms, writer)
        if not error:
            self._cluster.reach("offsets.append.after")
        # Differs: Kafka answers UNKNOWN_SERVER_ERROR to offsets that are too many for one batch of its topic. Fencepost
        # answers INVALID_COMMIT_OFFSET_SIZE.
        return errors.INVALID_COMMIT_OFFSET_SIZE if error == errors.MESSAGE_TOO_LARGE else error

    def close(self) -> None:
        """Another node leads the partition: members that wait must go there."""
        self.is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for group in self.shard.classic.values():
            send(release_all(group, errors.NOT_COORDINATOR))

    # Time.

    def set_alarm(self) -> None:
        due_ms = self.members.next_deadline_ms()
        alarm = self._alarm
        if alarm is not None:
            if alarm.deadline_ms == due_ms and alarm.action is not None:
                return
            alarm.cancel()
            self._alarm = None
        if due_ms is not None:
            self._alarm = self._cluster.timers.at(due_ms, self._expire)

    def _expire(self, now_ms: int) -> None:
        self.run_and_reply(self.members.expire(now_ms), now_ms)

    # Loading.

    def load(self, now_ms: int) -> None:
        """Does nothing if it is loaded. Markers that were written before are in the log."""
        if self.is_loaded:
            return
        self._log.load()
        self.is_loaded = True
        self.run_and_reply(self.members.resume(now_ms), now_ms)

    def _decode(self, key: bytes, value: bytes, offset: int) -> LogRecord | None:
        record = decode(key, value, offset)
        is_obsolete = isinstance(record, OffsetRecord) and self._is_of_deleted_topic(record)
        return None if is_obsolete else record

    def _is_of_deleted_topic(self, record: OffsetRecord) -> bool:
        """Whether the topic was deleted, and the last process could not write the offset's tombstone."""
        if record.value is None or record.value.topic_id == NO_TOPIC_ID:
            return False
        topic = self._topics.by_name(record.topic)
        return topic is None or topic.topic_id != record.value.topic_id


def send(replies: list[Reply]) -> None:
    for reply in replies:
        reply.token(reply.result)  # type: ignore[operator]
