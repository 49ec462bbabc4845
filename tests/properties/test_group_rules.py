"""A group among members that come, go, fall silent and lie, on a disk that sometimes fails.

Whatever they do: at most one leader, generations only grow, every request is answered exactly once, and after every
step the log rebuilds what the shard knows.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.machines.group.classic.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    LEGAL,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    GroupState,
)
from fencepost.machines.group.classic.requests import (
    GroupChange,
    Heartbeat,
    Join,
    JoinResult,
    Leaver,
    LeaveResult,
    Reply,
    Sync,
    SyncResult,
)
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.decision import Decision
from fencepost.machines.group.deletion import clean_up
from fencepost.protocol import errors
from tests.group_shard import GroupsInMemory

PROTOCOLS = [
    (("range", b"r"),),
    (("range", b"r"),),
    (("range", b"r"), ("sticky", b"s")),
    (("range", b"r"), ("sticky", b"s")),
    (("sticky", b"s"), ("range", b"r2")),
    (("sticky", b"s"),),
    (("range", b"r"), ("range", b"again")),
    (),
]
INSTANCES = [None, None, None, "i1", "i2"]


class GroupRules(RuleBasedStateMachine):
    """One group, its members, and what the log and the clock do to it."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size=st.sampled_from([2, 4, 1_000]))
    def start(self, delay_ms: int, size: int) -> None:
        self.config = GroupConfig(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size)
        self.now_ms = 0
        self.asked: set[int] = set()
        self.answered: dict[int, JoinResult | SyncResult | LeaveResult] = {}
        self.known_ids: list[str] = ["made-up"]
        self.generation = 0
        self.state = EMPTY
        self.count = 0
        self.groups = GroupsInMemory(self.config, self._next_id)
        self.members = self.groups.members

    def _next_id(self) -> str:
        self.count += 1
        return str(self.count)

    def _ask(self) -> int:
        self.count += 1
        self.asked.add(self.count)
        return self.count

    def _take(self, decision: Decision[list[Reply]]) -> None:
        for token, result in self.groups.run(decision):
            assert isinstance(token, int)
            assert token in self.asked
            assert token not in self.answered
            self.answered[token] = result
            if isinstance(result, JoinResult) and result.member_id:
                self.known_ids.append(result.member_id)

    @property
    def group(self) -> ClassicGroup | None:
        return self.groups.shard.classic.get("g")

    def _pick(self, pick: int) -> str:
        """Mostly a member that joined lately, sometimes one that left long ago."""
        return self.known_ids[-1 - pick % min(len(self.known_ids), 6 if pick % 5 else 1_000)]

    def _generation(self, lie: int) -> int:
        return (self.group.generation if self.group else 0) + lie

    # What members do.

    @rule(
        pick=st.integers(min_value=0),
        is_new=st.booleans(),
        instance=st.sampled_from(INSTANCES),
        protocols=st.sampled_from(PROTOCOLS),
        protocol_type=st.sampled_from(["consumer", "consumer", "consumer", "connect"]),
        version=st.sampled_from([3, 5, 9]),
        rebalance_timeout_ms=st.sampled_from([-1, 0, 5_000, 60_000]),
    )
    def join(
        self,
        pick: int,
        is_new: bool,
        instance: str | None,
        protocols: tuple[tuple[str, bytes], ...],
        protocol_type: str,
        version: int,
        rebalance_timeout_ms: int,
    ) -> None:
        cmd = Join(
            group_id="g",
            version=version,
            member_id="" if is_new else self._pick(pick),
            group_instance_id=instance,
            client_id="c",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=protocols,
        )
        self._take(self.members.join(cmd, self._ask(), self.now_ms))

    @precondition(lambda self: self.group is not None)
    @rule()
    def everybody_joins_as_asked(self) -> None:
        assert self.group is not None
        for member in list(self.group.members.values()):
            if self.group.state is PREPARING_REBALANCE and member.held_join is None:
                cmd = Join(
                    group_id="g",
                    version=9,
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=60_000,
                    protocol_type=self.group.protocol_type or "",
                    protocols=member.protocols,
                )
                self._take(self.members.join(cmd, self._ask(), self.now_ms))

    @rule(
        pick=st.integers(min_value=0),
        lie=st.sampled_from([0, 0, 0, -1, 1]),
        instance=st.sampled_from(INSTANCES),
    )
    def sync(self, pick: int, lie: int, instance: str | None) -> None:
        member_id = self._pick(pick)
        cmd = Sync(
            group_id="g",
            generation_id=self._generation(lie),
            member_id=member_id,
            group_instance_id=instance,
            assignments={m: m.encode() for m in self.known_ids},
        )
        self._take(self.members.sync(cmd, self._ask(), self.now_ms))

    @precondition(lambda self: self.group is not None)
    @rule()
    def everybody_syncs_as_asked(self) -> None:
        assert self.group is not None
        for member_id in sorted(self.group.pending_syncs):
            self._sync_rightly(member_id)

    def _sync_rightly(self, member_id: str) -> None:
        assert self.group is not None
        cmd = Sync(
            group_id="g",
            generation_id=self.group.generation,
            member_id=member_id,
            assignments={m: m.encode() for m in self.group.members},
        )
        self._take(self.members.sync(cmd, self._ask(), self.now_ms))

    @rule(pick=st.integers(min_value=0), lie=st.sampled_from([0, 0, 0, -1, 1]))
    def heartbeat(self, pick: int, lie: int) -> None:
        member_id = self._pick(pick)
        cmd = Heartbeat(group_id="g", generation_id=self._generation(lie), member_id=member_id)
        self.members.heartbeat(cmd, self.now_ms)

    @rule(picks=st.lists(st.integers(min_value=0), max_size=3), instance=st.sampled_from(INSTANCES))
    def leave(self, picks: list[int], instance: str | None) -> None:
        leavers = [Leaver(self._pick(pick)) for pick in picks]
        leavers += [] if instance is None else [Leaver("", instance)]
        token = self._ask()
        self._take(self.members.leave("g", leavers, token, self.now_ms))
        assert token in self.answered

    # What happens to them.

    @rule(ms=st.sampled_from([1, 1_000, 5_000, 10_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self._take(self.members.expire(self.now_ms))

    @rule(error=st.sampled_from([errors.NONE, errors.KAFKA_STORAGE_ERROR]))
    def the_disk_changes_its_mind(self, error: int) -> None:
        self.groups.append_error = error

    @rule()
    def somebody_cleans_up(self) -> None:
        had_group = self.group is not None
        was_empty = self.group is not None and self.group.state is EMPTY
        self.groups.run(clean_up(self.groups.shard, self.config.offsets_retention_ms, self.now_ms))
        if self.group is None:
            assert was_empty or not had_group
            self.generation = 0
            self.state = EMPTY

    @rule()
    def the_broker_is_killed(self) -> None:
        """Held requests are never answered. The group goes back to its last record, and members to what they know."""
        self.groups.restart()
        self.members = self.groups.members
        self.asked = set(self.answered)
        self._take(self.members.resume(self.now_ms))
        self.generation = 0 if self.group is None else self.group.generation
        self.state = EMPTY if self.group is None else self.group.state

    # What is always so.

    @invariant()
    def the_group_is_in_order(self) -> None:
        group = self.group
        if group is None:
            return
        members = group.members
        assert all(member_id == member.member_id for member_id, member in members.items())
        assert not group.pending_members & members.keys()
        assert group.pending_syncs <= members.keys()
        assert group.session_deadlines.keys() <= members.keys() | group.pending_members
        statics = {m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id}
        assert group.static_members == statics
        assert group.leader in members if members else group.leader is None
        assert bool(members) or group.state in (EMPTY, PREPARING_REBALANCE)
        assert not members or group.state is not EMPTY

    @invariant()
    def generations_only_grow(self) -> None:
        if self.group is not None:
            assert self.group.generation >= self.generation
            self.generation = self.group.generation

    @invariant()
    def only_legal_moves_are_made(self) -> None:
        # One rule may make several moves, so what is checked is that the new state can be reached.
        if self.group is not None:
            assert self.group.state in _reachable(self.state)
            self.state = self.group.state

    @invariant()
    def requests_are_held_only_where_the_protocol_waits(self) -> None:
        group = self.group
        held: set[object] = set()
        if group is not None:
            for member in group.members.values():
                assert member.held_join is None or group.state is PREPARING_REBALANCE
                assert member.held_sync is None or group.state is COMPLETING_REBALANCE
                held |= {member.held_join, member.held_sync} - {None}
        assert held == self.asked - self.answered.keys()

    @invariant()
    def who_waits_has_a_deadline(self) -> None:
        group = self.group
        if group is not None and group.state is PREPARING_REBALANCE:
            assert group.join_deadline_ms is not None
        if group is not None and group.state is COMPLETING_REBALANCE:
            assert group.sync_deadline_ms is not None
        if group is not None and (due_ms := group.next_deadline_ms()) is not None:
            shard_due_ms = self.members.next_deadline_ms()
            assert shard_due_ms is not None
            assert shard_due_ms <= due_ms

    @invariant()
    def the_log_rebuilds_the_shard(self) -> None:
        for is_compacted in (False, True):
            assert self.groups.replayed(is_compacted).durable() == self.groups.shard.durable()

    @invariant()
    def the_last_record_rebuilds_the_stable_group(self) -> None:
        group = self.group
        if group is None or group.state is not STABLE:
            return
        last = self.groups.records[-1]
        assert isinstance(last, GroupChange)
        assert last.record is not None
        restored = ClassicGroup("g")
        restored.apply(last.record)
        assert restored.state is STABLE
        for name in (
            "recorded",
            "generation",
            "protocol_type",
            "protocol",
            "leader",
            "static_members",
            "subscribed_topics",
            "state_timestamp_ms",
        ):
            assert getattr(restored, name) == getattr(group, name), name
        assert list(restored.members) == list(group.members)
        assert group.protocol is not None
        for member_id, member in group.members.items():
            offered = ((group.protocol, member.metadata(group.protocol)),)
            assert restored.members[member_id] == replace(member, protocols=offered)

    def teardown(self) -> None:
        if not hasattr(self, "groups"):
            return
        for _ in range(1_000):
            due_ms = self.members.next_deadline_ms()
            if due_ms is None:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self._take(self.members.expire(self.now_ms))
        assert self.asked == self.answered.keys(), "left alone, a group answers every request in the end"
        assert self.group is None or self.group.state is EMPTY


def _reachable(state: GroupState) -> set[GroupState]:
    reached: set[GroupState] = {state}
    while (wider := reached | {after for before in reached for after in LEGAL[before]}) != reached:
        reached = wider
    return reached


GroupRules.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
test_a_group_keeps_its_promises = GroupRules.TestCase
