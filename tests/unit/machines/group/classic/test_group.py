"""The classic group protocol, one claim per test, on a shard in memory with a clock that jumps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from fencepost.machines.group.classic.group import (
    ClassicGroup,
    GroupState,
    decode_subscribed_topics,
)
from fencepost.machines.group.classic.requests import (
    GroupChange,
    GroupRecord,
    Heartbeat,
    Join,
    JoinResult,
    Leaver,
    LeaveResult,
    Protocols,
    Reply,
    Sync,
    SyncResult,
)
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.decision import Decision
from fencepost.protocol import errors
from tests.group_shard import GroupsInMemory

RANGE = (("range", b"r"),)
RANGE_OR_STICKY = (("range", b"r"), ("sticky", b"s"))
STICKY_OR_RANGE = (("sticky", b"s"), ("range", b"r"))
WITHOUT_DELAY = GroupConfig(group_initial_rebalance_delay_ms=0)


class JoinChanges(TypedDict, total=False):
    group_id: str
    version: int
    member_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols


class SyncChanges(TypedDict, total=False):
    group_id: str
    version: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class World:
    """A coordinator, its log, and the replies it has given by the name of the request."""

    def __init__(self, config: GroupConfig = WITHOUT_DELAY) -> None:
        self.config = config
        self.now_ms = 1_000_000
        self.replies: dict[object, JoinResult | SyncResult | LeaveResult] = {}
        self._ids = 0
        self.groups = GroupsInMemory(self.config, self._new_uuid)
        self.members = self.groups.members

    def _new_uuid(self) -> str:
        self._ids += 1
        return str(self._ids)

    @property
    def log(self) -> list[GroupRecord]:
        """The group's records, without tombstones."""
        records = self.groups.records
        return [r.record for r in records if isinstance(r, GroupChange) and r.record is not None]

    def load(self, record: GroupRecord) -> None:
        """Start with a log of one record."""
        self.groups.write([GroupChange("g", record)])
        self.take(self.members.resume(self.now_ms))

    def take(self, decision: Decision[list[Reply]]) -> None:
        for token, result in self.groups.run(decision):
            assert token not in self.replies, f"{token} was answered twice"
            self.replies[token] = result

    @property
    def group(self) -> ClassicGroup:
        return self.groups.shard.classic["g"]

    def state(self) -> GroupState:
        """A method, because a type checker assumes that an attribute stays what it was asserted to be."""
        return self.group.state

    def is_held(self, token: object) -> bool:
        return token not in self.replies

    def joined(self, token: str) -> JoinResult:
        result = self.replies[token]
        assert isinstance(result, JoinResult)
        return result

    def join(self, token: str, member_id: str = "", /, **changes: Unpack[JoinChanges]) -> JoinResult | None:
        cmd = Join(
            group_id="g",
            version=9,
            member_id=member_id,
            client_id=token.partition(".")[0],
            client_host="/127.0.0.1",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=RANGE,
        )
        self.take(self.members.join(replace(cmd, **changes), token, self.now_ms))
        return None if self.is_held(token) else self.joined(token)

    def join_new(self, name: str, **changes: Unpack[JoinChanges]) -> str:
        """Join as a dynamic member, in two requests; return its id. The second one, `name`, may still be held."""
        answer = self.join(f"{name}.first", **changes)
        assert answer is not None
        assert answer.error_code == errors.MEMBER_ID_REQUIRED
        self.join(name, answer.member_id, **changes)
        return answer.member_id

    def sync(self, token: str, member: str, **changes: Unpack[SyncChanges]) -> SyncResult | None:
        generation = self.group.generation
        cmd = Sync(group_id="g", generation_id=generation, member_id=member, assignments={})
        self.take(self.members.sync(replace(cmd, **changes), token, self.now_ms))
        if self.is_held(token):
            return None
        result = self.replies[token]
        assert isinstance(result, SyncResult)
        return result

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> int:
        generation_id = self.group.generation if generation is None else generation
        cmd = Heartbeat(group_id="g", generation_id=generation_id, member_id=member_id)
        return self.members.heartbeat(replace(cmd, group_instance_id=instance), self.now_ms)

    def leave(self, *leavers: Leaver) -> tuple[int, ...]:
        token = object()
        self.take(self.members.leave("g", list(leavers), token, self.now_ms))
        result = self.replies[token]
        assert isinstance(result, LeaveResult)
        assert not result.error_code
        return tuple(error for _, _, error in result.members)

    def wait(self, ms: int) -> None:
        """Let time pass; every deadline in it is handled at its own moment."""
        end_ms = self.now_ms + ms
        while (due_ms := self.members.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.members.expire(self.now_ms))
        self.now_ms = end_ms

    def stable_pair(self) -> tuple[str, str]:
        """A group of a leader and a follower, both with an assignment."""
        leader = self.join_new("leader")
        self.sync("leader.sync", leader, assignments={leader: b"all"})
        follower = self.join_new("follower")
        self.join("leader.again", leader)
        self.sync("follower.sync2", follower)
        self.sync("leader.sync2", leader, assignments={leader: b"half", follower: b"other"})
        assert self.state() is GroupState.STABLE
        return leader, follower


# Joining.


def test_the_first_rebalance_waits_for_more_members_and_again_while_they_come() -> None:
    world = World(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    world.join_new("a", rebalance_timeout_ms=7_000)
    world.wait(2_999)
    world.join_new("b", rebalance_timeout_ms=7_000)
    world.wait(2_999)
    assert world.is_held("a"), "b came during the first delay, so there is a second"
    world.wait(2)
    assert world.joined("a").generation_id == world.joined("b").generation_id == 1
    assert world.joined("a").members != ()
    assert world.joined("b").members == ()


def test_the_first_rebalance_waits_no_longer_than_its_timeout() -> None:
    world = World(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    for second in range(8):
        world.join_new(f"m{second}", rebalance_timeout_ms=7_000)
        if world.state() is not GroupState.PREPARING_REBALANCE:
            break
        world.wait(1_000)
    assert world.joined("m0").generation_id == 1
    assert second == 7


def test_a_member_that_got_no_reply_to_its_join_gets_the_same_one_again() -> None:
    world = World()
    member = world.join_new("a")
    assert world.join("a.retry", member) == world.joined("a")
    assert world.group.generation == 1


def test_a_follower_that_joins_a_stable_group_unchanged_starts_no_rebalance() -> None:
    world = World()
    _, follower = world.stable_pair()
    answer = world.join("again", follower)
    assert answer is not None
    assert (answer.error_code, answer.generation_id) == (errors.NONE, 2)
    assert world.state() is GroupState.STABLE


def test_a_full_group_takes_no_further_member() -> None:
    world = World(replace(WITHOUT_DELAY, group_max_size=2))
    world.stable_pair()
    answer = world.join("third")
    assert answer is not None
    assert answer.error_code == errors.GROUP_MAX_SIZE_REACHED


def test_a_group_loaded_above_its_size_sheds_who_joins_last() -> None:
    full = World()
    leader, follower = full.stable_pair()
    world = World(replace(WITHOUT_DELAY, group_max_size=1))
    world.load(full.log[-1])
    assert world.heartbeat(leader) == errors.REBALANCE_IN_PROGRESS
    world.join("first", follower)
    answer = world.join("last", leader)
    assert answer is not None
    assert answer.error_code == errors.GROUP_MAX_SIZE_REACHED
    world.wait(60_000)
    assert world.joined("first").leader == follower


# Syncing.


def test_a_sync_is_refused_for_every_reason_kafka_has() -> None:
    world = World()
    member = world.join_new("a")
    cases: list[tuple[SyncChanges, int]] = [
        ({"member_id": "made-up"}, errors.UNKNOWN_MEMBER_ID),
        ({"group_id": "unknown"}, errors.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, errors.INVALID_GROUP_ID),
        ({"group_instance_id": "i"}, errors.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, errors.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"version": 5, "protocol_type": "consumer"}, errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"version": 5, "protocol_name": "range"}, errors.INCONSISTENT_GROUP_PROTOCOL),
    ]
    for changes, error in cases:
        assert world.sync(str(changes), member, **changes) == SyncResult(error)
    assert world.sync("right", member, version=5, protocol_type="consumer", protocol_name="range") is not None


@pytest.mark.parametrize(
    ("append_error", "told"),
    [
        (errors.KAFKA_STORAGE_ERROR, errors.NOT_COORDINATOR),
        (errors.NOT_ENOUGH_REPLICAS, errors.COORDINATOR_NOT_AVAILABLE),
        (errors.MESSAGE_TOO_LARGE, errors.UNKNOWN_SERVER_ERROR),
    ],
)
def test_no_assignment_goes_out_that_was_not_written_down(append_error: int, told: int) -> None:
    world = World()
    member = world.join_new("a")
    world.groups.append_error = append_error
    assert world.sync("s", member, assignments={member: b"x"}) == SyncResult(told)
    assert world.log == []
    assert world.state() is GroupState.PREPARING_REBALANCE
    world.groups.append_error = errors.NONE
    world.join("again", member)
    assert world.sync("s2", member, assignments={member: b"x"}) == SyncResult(0, "consumer", "range", b"x")


# Sessions.


def test_a_member_whose_join_is_held_needs_no_heartbeats() -> None:
    world = World()
    leader, follower = world.stable_pair()
    world.join("held", leader)
    for _ in range(5):
        world.wait(9_000)
        world.heartbeat(follower)
    assert world.is_held("held")
    assert leader in world.group.members


def test_an_id_that_is_never_used_is_forgotten_with_its_session() -> None:
    world = World()
    answer = world.join("a")
    assert answer is not None
    world.wait(10_000)
    late = world.join("a2", answer.member_id)
    assert late is not None
    assert late.error_code == errors.UNKNOWN_MEMBER_ID


def test_a_newcomer_whose_client_is_gone_does_not_stay_for_ever() -> None:
    world = World()
    leader, follower = world.stable_pair()
    world.join("l3", leader, rebalance_timeout_ms=900_000)
    newcomer = world.join_new("gone")
    for _ in range(300):
        world.heartbeat(follower)
        world.wait(1_000)
    assert world.joined("gone").error_code == errors.UNKNOWN_MEMBER_ID
    assert newcomer not in world.group.members
    assert world.is_held("l3"), "the follower has still to join"


# Leaving.


def test_a_group_that_could_not_be_recorded_as_empty_is_empty_until_a_restart() -> None:
    world = World()
    leader, follower = world.stable_pair()
    stable = world.log[-1]
    world.groups.append_error = errors.KAFKA_STORAGE_ERROR
    assert world.leave(Leaver(leader), Leaver(follower)) == (errors.NONE, errors.NONE)
    assert (world.state(), world.group.generation, world.group.recorded) == (GroupState.EMPTY, 3, stable)
    world.groups.append_error = errors.NONE
    world.groups.restart()
    assert world.state() is GroupState.STABLE
    world.take(world.groups.members.resume(world.now_ms))
    world.members = world.groups.members
    world.wait(10_000)
    assert world.state() is GroupState.EMPTY
    assert world.log[-1].members == ()


# Static members.


def stable_static(world: World, version: int = 9) -> tuple[str, str]:
    """Two static members, `i1` leading."""
    first = world.join("one", group_instance_id="i1", version=version)
    assert first is not None
    world.sync("one.sync", first.member_id, assignments={first.member_id: b"all"}, group_instance_id="i1")
    world.join("two", group_instance_id="i2", version=version)
    world.join("one.again", first.member_id, group_instance_id="i1", version=version)
    second = world.joined("two").member_id
    world.sync("one.sync2", first.member_id, assignments={first.member_id: b"half", second: b"other"})
    world.sync("two.sync2", second)
    assert world.state() is GroupState.STABLE
    return first.member_id, second


def test_a_static_leader_that_comes_back_leads_on_but_skips_the_assignment() -> None:
    world = World()
    stable_static(world)
    answer = world.join("one.back", group_instance_id="i1")
    assert answer is not None
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert len(answer.members) == 2


def test_a_static_leader_that_cannot_skip_the_assignment_is_not_named_as_leader() -> None:
    world = World()
    first, _ = stable_static(world, version=8)
    answer = world.join("one.back", group_instance_id="i1", version=8)
    assert answer is not None
    assert answer.leader == first
    assert answer.members == ()
    assert not answer.skip_assignment
    assert world.group.leader == answer.member_id


def test_a_static_member_that_changes_the_protocol_starts_a_rebalance() -> None:
    world = World()
    first = world.join("one", group_instance_id="i1", protocols=RANGE_OR_STICKY)
    assert first is not None
    world.sync("one.sync", first.member_id)
    assert world.group.protocol == "range"
    answer = world.join("one.back", group_instance_id="i1", protocols=STICKY_OR_RANGE)
    assert answer is not None
    assert (answer.generation_id, answer.protocol_name) == (2, "sticky")


def test_a_static_member_that_comes_back_during_the_sync_starts_over() -> None:
    world = World()
    first, second = stable_static(world)
    world.join("one.3", first, group_instance_id="i1")
    world.join("two.3", second, group_instance_id="i2")
    world.sync("held", second)
    assert world.state() is GroupState.COMPLETING_REBALANCE
    assert world.join("two.back", group_instance_id="i2") is None
    assert world.replies["held"] == SyncResult(errors.FENCED_INSTANCE_ID)
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_joins_twice_has_its_first_join_fenced() -> None:
    world = World(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    world.join("one", group_instance_id="i1")
    world.join("one.back", group_instance_id="i1")
    assert world.joined("one").error_code == errors.FENCED_INSTANCE_ID
    world.wait(3_000)
    assert len(world.joined("one.back").members) == 1


def test_a_successor_that_cannot_be_written_down_changes_nothing() -> None:
    world = World()
    _, second = stable_static(world)
    world.groups.append_error = errors.KAFKA_STORAGE_ERROR
    answer = world.join("two.back", group_instance_id="i2")
    assert answer is not None
    assert answer.error_code == errors.NOT_COORDINATOR
    assert world.heartbeat(second, instance="i2") == errors.NONE


def test_a_static_member_keeps_its_place_through_a_rebalance_it_misses() -> None:
    world = World()
    first, second = stable_static(world)
    world.join("one.3", first, group_instance_id="i1")
    for _ in range(10):
        world.heartbeat(second, instance="i2")
        world.wait(6_000)
    assert {member_id for member_id, _, _ in world.joined("one.3").members} == {first, second}


def test_a_group_whose_static_members_all_miss_the_rebalance_ends_with_their_sessions() -> None:
    world = World()
    first, second = stable_static(world)
    world.leave(Leaver(first, "i1"))
    assert world.state() is GroupState.PREPARING_REBALANCE
    for _ in range(20):
        world.heartbeat(second, instance="i2")
        world.wait(6_000)
    assert second in world.group.members
    world.wait(10_000)
    assert world.state() is GroupState.EMPTY


# Restarts.


def test_a_restored_group_goes_on_where_it_was() -> None:
    before = World()
    leader, follower = before.stable_pair()
    world = World()
    world.load(before.log[-1])
    assert world.state() is GroupState.STABLE
    assert world.heartbeat(leader, generation=2) == errors.NONE
    assert world.sync("s", follower) == SyncResult(0, "consumer", "range", b"other")
    world.wait(10_000)
    assert world.heartbeat(leader) == errors.UNKNOWN_MEMBER_ID


def test_a_record_of_an_old_layout_takes_the_session_timeout_for_rebalances() -> None:
    world = World()
    leader, _ = world.stable_pair()
    record = world.log[-1]
    old = record._replace(
        current_state_timestamp=-1, members=tuple(m._replace(rebalance_timeout=-1) for m in record.members)
    )
    group = ClassicGroup("g")
    group.apply(old)
    assert group.members[leader].rebalance_timeout_ms == 10_000
    assert group.state_timestamp_ms is None


# What is shown of a group.


def test_subscribed_topics_are_read_from_every_version_of_the_subscription() -> None:
    v3 = b"\x00\x03" + b"\x00\x00\x00\x02" + b"\x00\x01a" + b"\x00\x02bc" + b"anything newer"
    assert decode_subscribed_topics(v3) == ["a", "bc"]
    for broken in (
        b"",
        b"\x00\x00\x00\x00\x00",
        v3[:9],
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x7f\xff\xff\xff",
    ):
        assert decode_subscribed_topics(broken) is None
