"""A group whose members use the classic and the consumer protocol in turn, on a disk that sometimes fails.

Whatever they do: the group has one protocol at a time, every held request belongs to a member of it, and after every
step the log, compacted or not, rebuilds what the shard knows.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fencepost.machines.group.classic.group import PREPARING_REBALANCE
from fencepost.machines.group.classic.requests import Heartbeat, Join, JoinResult, Leaver, Reply, Sync
from fencepost.machines.group.commits import Committer, OffsetToCommit, offset_commit
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat
from fencepost.machines.group.decision import Decision
from fencepost.machines.group.deletion import clean_up, delete_group
from fencepost.protocol import errors
from fencepost.protocol.messages import ConsumerProtocolAssignment
from tests.group_shard import GroupsInMemory, SomeTopics

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xff"
PROTOCOLS = [
    (("range", SUBSCRIPTION),),
    (("range", SUBSCRIPTION), ("sticky", SUBSCRIPTION)),
    (("sticky", SUBSCRIPTION), ("range", SUBSCRIPTION)),
]
CONSUMERS = ["c1", "c2", "c3"]
INSTANCES = [None, None, "i1", "i2"]


class ProtocolChangeRules(RuleBasedStateMachine):
    @initialize(has_members=st.booleans())
    def start(self, has_members: bool) -> None:
        config = GroupConfig(
            group_initial_rebalance_delay_ms=0,
            consumer_assignment_interval_ms=0,
            consumer_session_timeout_ms=10_000,
            consumer_migration_policy="bidirectional",
        )
        self.now_ms = 1_000_000
        self.count = 0
        topics = SomeTopics()
        topics.put("a", 4)
        self.groups = GroupsInMemory(config, self._next_id, topics)
        self.asked: set[int] = set()
        self.answered: dict[int, object] = {}
        self.known_ids = ["made-up"]
        self.epochs: dict[str, int] = {}
        if has_members:
            self.a_classic_member_joins(0, True, "i1", PROTOCOLS[1])
            self.a_classic_member_joins(0, True, "i3", PROTOCOLS[2])
            self.every_classic_member_joins_and_syncs()

    def _next_id(self) -> str:
        self.count += 1
        return str(self.count)

    def _ask(self) -> int:
        self.count += 1
        self.asked.add(self.count)
        return self.count

    def _take(self, decision: Decision[list[Reply]]) -> None:
        self._note(self.groups.run(decision))

    def _note(self, replies: list[Reply]) -> None:
        for token, result in replies:
            assert isinstance(token, int)
            assert token in self.asked - self.answered.keys()
            self.answered[token] = result
            if isinstance(result, JoinResult) and result.member_id:
                self.known_ids.append(result.member_id)

    # The classic protocol.

    def _join(self, member_id: str, instance: str | None, protocols: tuple[tuple[str, bytes], ...]) -> None:
        cmd = Join(
            group_id="g",
            version=9,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        self._take(self.groups.members.join(cmd, self._ask(), self.now_ms))

    def _pick(self, pick: int) -> str:
        return self.known_ids[-1 - pick % min(len(self.known_ids), 5)]

    @rule(
        pick=st.integers(min_value=0),
        is_new=st.booleans(),
        instance=st.sampled_from(INSTANCES),
        protocols=st.sampled_from(PROTOCOLS),
    )
    def a_classic_member_joins(
        self, pick: int, is_new: bool, instance: str | None, protocols: tuple[tuple[str, bytes], ...]
    ) -> None:
        self._join("" if is_new else self._pick(pick), instance, protocols)

    @rule()
    def every_classic_member_joins_and_syncs(self) -> None:
        group = self.groups.shard.classic.get("g")
        if group is None:
            return
        for member in list(group.members.values()):
            if group.state is PREPARING_REBALANCE and member.held_join is None:
                self._join(member.member_id, member.group_instance_id, member.protocols)
        all_of_it = ConsumerProtocolAssignment.TopicPartition("a", [0, 1, 2, 3])
        assignments = {m: b"\0\0" + ConsumerProtocolAssignment([]).encode(0) for m in group.members}
        assignments |= {m: b"\0\0" + ConsumerProtocolAssignment([all_of_it]).encode(0) for m in list(group.members)[:1]}
        for member_id in sorted(group.pending_syncs):
            cmd = Sync(group_id="g", generation_id=group.generation, member_id=member_id, assignments=assignments)
            self._take(self.groups.members.sync(cmd, self._ask(), self.now_ms))

    @rule()
    def classic_members_of_the_consumer_group_take_a_step(self) -> None:
        group = self.groups.shard.consumer.get("g")
        for member in [] if group is None else group.classic_members():
            heartbeat = Heartbeat(group_id="g", generation_id=member.epoch, member_id=member.member_id)
            if self.groups.members.heartbeat(heartbeat, self.now_ms) == errors.REBALANCE_IN_PROGRESS:
                assert member.classic is not None
                self._join(member.member_id, member.instance_id, member.classic.protocols)
            now = self.groups.shard.consumer.get("g")
            if now is not None and member.member_id in now.members:
                epoch = now.members[member.member_id].epoch
                cmd = Sync(group_id="g", generation_id=epoch, member_id=member.member_id, assignments={})
                self._take(self.groups.members.sync(cmd, self._ask(), self.now_ms))

    @rule(pick=st.integers(min_value=0))
    def a_classic_member_leaves(self, pick: int) -> None:
        self._take(self.groups.members.leave("g", [Leaver(self._pick(pick))], self._ask(), self.now_ms))

    # The consumer protocol.

    @rule(member_id=st.sampled_from(CONSUMERS), instance=st.sampled_from(INSTANCES), is_lost=st.booleans())
    def a_consumer_shows_up(self, member_id: str, instance: str | None, is_lost: bool) -> None:
        epoch = self.epochs.get(member_id, 0)
        cmd = ConsumerHeartbeat(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rebalance_timeout_ms=20_000,
            topic_names=("a",),
            owned=frozenset(),
        )
        result, replies = self.groups.run(self.groups.members.consumer_heartbeat(cmd, self.now_ms))
        self._note(replies)
        if result.error_code:
            self.epochs.pop(member_id, None)
        elif not is_lost:
            self.epochs[member_id] = result.member_epoch

    @rule(member_id=st.sampled_from(CONSUMERS), epoch=st.sampled_from([-1, -1, -2]))
    def a_consumer_leaves(self, member_id: str, epoch: int) -> None:
        group = self.groups.shard.consumer.get("g")
        member = None if group is None else group.members.get(member_id)
        instance = None if member is None else member.instance_id
        cmd = ConsumerHeartbeat(group_id="g", member_id=member_id, member_epoch=epoch, instance_id=instance)
        _, replies = self.groups.run(self.groups.members.consumer_heartbeat(cmd, self.now_ms))
        self._note(replies)
        self.epochs.pop(member_id, None)

    @rule(is_full=st.booleans())
    def a_consumer_comes_and_all_consumers_leave(self, is_full: bool) -> None:
        self.a_consumer_shows_up(CONSUMERS[0], None, False)
        self.groups.append_error = errors.KAFKA_STORAGE_ERROR if is_full else errors.NONE
        for member_id in CONSUMERS:
            self.a_consumer_leaves(member_id, -1)

    # What happens to them.

    @rule()
    def an_offset_is_committed(self) -> None:
        asked = [OffsetToCommit("a", 0, 5)]
        groups = self.groups
        groups.run(offset_commit(groups.shard, groups.config, "g", Committer(), asked, version=9, now_ms=self.now_ms))

    @rule(is_deleted=st.booleans())
    def the_group_is_cleaned_up_or_deleted(self, is_deleted: bool) -> None:
        shard = self.groups.shard
        if is_deleted:
            self.groups.run(delete_group(shard, "g"))
        else:
            self.groups.run(clean_up(shard, 10_000, self.now_ms))

    @rule(ms=st.sampled_from([1, 5_000, 10_000, 20_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self._take(self.groups.members.expire(self.now_ms))

    @rule(error=st.sampled_from([errors.NONE, errors.NONE, errors.KAFKA_STORAGE_ERROR]))
    def the_disk_changes_its_mind(self, error: int) -> None:
        self.groups.append_error = error

    @rule(is_compacted=st.booleans())
    def the_broker_is_killed(self, is_compacted: bool) -> None:
        self.groups.restart(is_compacted)
        self.asked = set(self.answered)
        self._take(self.groups.members.resume(self.now_ms))

    # What is always so.

    @invariant()
    def the_log_rebuilds_the_shard(self) -> None:
        for is_compacted in (False, True):
            assert self.groups.replayed(is_compacted).durable() == self.groups.shard.durable()

    @invariant()
    def a_group_has_one_protocol(self) -> None:
        shard = self.groups.shard
        assert not shard.classic.keys() & shard.consumer.keys()
        assert all(shard.find(group_id) is not None for group_id in shard.offsets.group_ids())

    @invariant()
    def whoever_waits_is_a_member(self) -> None:
        group = self.groups.shard.classic.get("g")
        members = [] if group is None else group.members.values()
        held = {token for m in members for token in (m.held_join, m.held_sync) if token is not None}
        assert held == self.asked - self.answered.keys()

    @invariant()
    def who_waits_has_a_deadline(self) -> None:
        group = self.groups.shard.find("g")
        if group is not None and (due_ms := group.next_deadline_ms()) is not None:
            next_ms = self.groups.members.next_deadline_ms()
            assert next_ms is not None
            assert next_ms <= due_ms


ProtocolChangeRules.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
test_a_group_changes_its_protocol_by_records_only = ProtocolChangeRules.TestCase
