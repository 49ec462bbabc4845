"""The group coordinator: groups and their offsets, kept in `__consumer_offsets`, one home per partition of it.

The rules are in `machines/group/`: each request becomes a decision there. Here the home of the group is found, which
runs the decision (`group_home.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from fencepost.broker.coordinator.group_home import GroupHome, group_config, send
from fencepost.broker.coordinator.runtime import NotCoordinator, Writer
from fencepost.broker.topics import OFFSETS_TOPIC
from fencepost.machines.group import commits, deletion
from fencepost.machines.group.classic.requests import (
    Heartbeat,
    Join,
    JoinResult,
    Leaver,
    LeaveResult,
    Sync,
    SyncResult,
)
from fencepost.machines.group.commits import CommitDecision, Committer, OffsetToCommit
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult
from fencepost.machines.group.deletion import OffsetDeletion
from fencepost.machines.group.shard import DescribedGroup, GroupShard, list_groups
from fencepost.machines.log.interface import StorageFailed
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn.records import partition_for
from fencepost.protocol import errors
from fencepost.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster

# Between two partitions that are loaded after a failover, so that requests are answered in between.
LOADING_PAUSE_MS = 3
# Receives an error code and the time.
Verified = Callable[[int, int], None]
AnswerMember = Callable[[JoinResult | SyncResult | LeaveResult], None]


class GroupCoordinator:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.config = group_config(cluster.config)
        self._homes: dict[int, GroupHome] = {}  # Those that this node leads, by partition.
        self._to_load: deque[GroupHome] = deque()
        self._home_count: int = cluster.config["offsets.topic.num.partitions"]

    # --- leading ------------------------------------------------------------------------------------------

    def lead(self, index: int, partition: Partition, now_ms: int) -> None:
        """Load the groups of one partition of `__consumer_offsets`."""
        home = self._homes[index] = GroupHome(partition, self._cluster, self.config, self._new_uuid)
        home.load(now_ms)

    def lead_soon(self, partitions: Mapping[int, Partition], now_ms: int) -> None:
        """Load the groups of each partition when a client asks for them, or after a few turns.

        A failover hands over many partitions at once, and transactions must not wait until all groups are loaded.
        """
        if partitions and not self._to_load:
            self._cluster.timers.at(now_ms + LOADING_PAUSE_MS, self._load_next)
        for index, partition in partitions.items():
            home = self._homes[index] = GroupHome(partition, self._cluster, self.config, self._new_uuid)
            self._to_load.append(home)

    def _load_next(self, now_ms: int) -> None:
        home = self._to_load.popleft()
        if self._to_load:
            self._cluster.timers.at(now_ms + LOADING_PAUSE_MS, self._load_next)
        if not home.is_closed:
            try:
                home.load(now_ms)
            except StorageFailed as e:
                where = f"{OFFSETS_TOPIC}-{home.partition.index}"
                self._cluster.notice(f"the groups of {where} cannot be loaded now: {e}")

    def resign(self, index: int) -> None:
        """Another node leads the partition."""
        home = self._homes.pop(index, None)
        if home is not None:
            home.close()

    def begin_timers(self, now_ms: int) -> None:
        interval_ms = self._cluster.config["offsets.retention.check.interval.ms"]
        self._cluster.timers.every(interval_ms, now_ms, self.clean_up)

    # --- finding things -----------------------------------------------------------------------------------

    def partition_of(self, group_id: str, now_ms: int) -> int:
        """The partition of `__consumer_offsets` that keeps the group. Creates the topic when it is first needed."""
        self._cluster.ensure_internal_topic(OFFSETS_TOPIC, now_ms)
        return partition_for(group_id, self._home_count)

    def _home_of(self, group_id: str, now_ms: int) -> GroupHome:
        """Raises NotCoordinator if another node coordinates the group, or if its log cannot be read."""
        home = self._homes.get(self.partition_of(group_id, now_ms))
        if home is None:
            raise NotCoordinator
        try:
            home.load(now_ms)
        except StorageFailed as e:
            raise NotCoordinator from e
        return home

    def _loaded_homes(self) -> list[GroupHome]:
        return [home for home in self._homes.values() if home.is_loaded]

    def shard_of(self, group_id: str, now_ms: int) -> GroupShard:
        """For questions that change nothing: descriptions and committed offsets."""
        return self._home_of(group_id, now_ms).shard

    def all_groups(self, now_ms: int) -> Iterable[DescribedGroup]:
        """Raises StorageFailed."""
        for home in self._homes.values():
            home.load(now_ms)
            yield from list_groups(home.shard)

    def _new_uuid(self) -> str:
        raw = bytearray(self._cluster.rng.randbytes(16))
        raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    # --- members ------------------------------------------------------------------------------------------

    def join(self, cmd: Join, answer: AnswerMember, now_ms: int) -> None:
        home = self._home_of(cmd.group_id, now_ms)
        home.run_and_reply(home.members.join(cmd, answer, now_ms), now_ms)

    def sync(self, cmd: Sync, answer: AnswerMember, now_ms: int) -> None:
        home = self._home_of(cmd.group_id, now_ms)
        home.run_and_reply(home.members.sync(cmd, answer, now_ms), now_ms)

    def leave(self, group_id: str, leavers: list[Leaver], answer: AnswerMember, now_ms: int) -> None:
        home = self._home_of(group_id, now_ms)
        home.run_and_reply(home.members.leave(group_id, leavers, answer, now_ms), now_ms)

    def heartbeat(self, cmd: Heartbeat, now_ms: int) -> int:
        home = self._home_of(cmd.group_id, now_ms)
        error = home.members.heartbeat(cmd, now_ms)
        home.set_alarm()
        return error

    def consumer_heartbeat(self, cmd: ConsumerHeartbeat, now_ms: int) -> HeartbeatResult:
        home = self._home_of(cmd.group_id, now_ms)
        result, replies = home.run(home.members.consumer_heartbeat(cmd, now_ms), now_ms)
        send(replies)
        return result

    # --- offsets ------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        group_id: str,
        committer: Committer,
        asked: list[OffsetToCommit],
        version: int,
        retention_time_ms: int,
        now_ms: int,
    ) -> CommitDecision:
        home = self._home_of(group_id, now_ms)
        decision = commits.offset_commit(
            home.shard,
            self.config,
            group_id,
            committer,
            asked,
            version=version,
            retention_time_ms=retention_time_ms,
            now_ms=now_ms,
        )
        return home.run_commit(decision, None, now_ms)

    def commit_txn_offsets(
        self,
        group_id: str,
        committer: Committer,
        asked: list[OffsetToCommit],
        producer_id: int,
        epoch: int,
        verify: Callable[[Verified], None],
        now_ms: int,
        then: Callable[[CommitDecision], None],
    ) -> None:
        """Commit offsets that count once the transaction's marker says so.

        `verify` finds out, now or later, whether the group's partition is in the transaction: NONE or an error code. It
        is asked unless the transaction has written to the partition before.
        """
        home = self._home_of(group_id, now_ms)
        partition = home.partition

        def commit(is_unknown: bool, at_ms: int) -> CommitDecision:
            if error := partition.check_offset_commit(producer_id, epoch, is_unknown):
                return CommitDecision(error)
            decision = commits.txn_offset_commit(home.shard, self.config, group_id, committer, asked, now_ms=at_ms)
            return home.run_commit(decision, Writer(producer_id, epoch), at_ms)

        if partition.has_open_txn(producer_id, epoch):
            then(commit(False, now_ms))
            return
        verification = partition.verifications.begin(producer_id)

        def verified(error: int, at_ms: int) -> None:
            if not partition.verifications.end(producer_id, verification):
                error = error or errors.INVALID_TXN_STATE
            if home.is_closed:
                error = errors.NOT_COORDINATOR
            elif any(self._is_gone(offset) for offset in asked):
                error = error or errors.UNKNOWN_TOPIC_OR_PARTITION
            then(CommitDecision(error) if error else commit(True, at_ms))

        verify(verified)

    def _is_gone(self, offset: OffsetToCommit) -> bool:
        """Whether its topic was deleted while the offset waited; there may be a new topic of that name."""
        topic = self._cluster.topics.get(offset.topic)
        return topic is None or topic.topic_id != offset.topic_id

    # --- deletion -----------------------------------------------------------------------------------------

    def delete_group(self, group_id: str, now_ms: int) -> int:
        home = self._home_of(group_id, now_ms)
        return home.run(deletion.delete_group(home.shard, group_id), now_ms, is_limited=False)

    def delete_offsets(self, group_id: str, partitions: list[TopicPartition], now_ms: int) -> OffsetDeletion:
        home = self._home_of(group_id, now_ms)
        return home.run(deletion.delete_offsets(home.shard, group_id, partitions), now_ms, is_limited=False)

    def topics_deleted(self, topics: set[str], now_ms: int) -> None:
        """Forget the offsets of these topics. Loading skips offsets of topics that are gone."""
        for home in self._loaded_homes():
            home.run(deletion.delete_topics(home.shard, topics), now_ms, is_limited=False)

    def clean_up(self, now_ms: int) -> None:
        for home in self._loaded_homes():
            decision = deletion.clean_up(home.shard, self.config.offsets_retention_ms, now_ms)
            home.run(decision, now_ms, is_limited=False)
