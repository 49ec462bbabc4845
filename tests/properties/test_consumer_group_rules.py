"""A consumer group among members that come, go, change, crash and miss answers, while topics come and go.

No partition is ever read by two members. Once every member has sent enough heartbeats, each partition is read by one of
the members that subscribe to it. After every step the log, compacted or not, rebuilds the groups.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.consumer.assignors import ASSIGNORS
from fencepost.machines.group.consumer.group import ConsumerGroup, Place, Wanting
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult
from fencepost.protocol import errors
from tests.group_shard import GroupsInMemory, SomeTopics

CONFIG = GroupConfig(consumer_session_timeout_ms=10_000, consumer_assignment_interval_ms=0)
NAMES = ["a", "b", "c"]
REBALANCE_TIMEOUT_MS = 30_000


class Client:
    """A member as it sees itself: what it reads, until it says that it does not any more."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.reads: frozenset[Place] = frozenset()
        self.is_told_all = False
        self.last_ms = 0

    def take(self, result: HeartbeatResult) -> None:
        self.epoch = result.member_epoch
        self.is_told_all = True
        if result.assignment is not None:
            self.reads = result.assignment


class ConsumerGroupRules(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.now_ms = 1_000_000
        self.topics = SomeTopics()
        self.clients: dict[str, Client] = {}
        self.wants: dict[str, tuple[str, ...]] = {}
        self.count = 0
        self.groups = GroupsInMemory(CONFIG, topics=self.topics)

    @property
    def group(self) -> ConsumerGroup | None:
        return self.groups.shard.consumer.get("g")

    def _heartbeat(self, cmd: ConsumerHeartbeat) -> HeartbeatResult:
        result, replies = self.groups.run(self.groups.members.consumer_heartbeat(cmd, self.now_ms))
        assert replies == []
        return result

    # What happens.

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 6))
    def a_topic_comes_or_grows(self, name: str, partitions: int) -> None:
        known = self.topics.by_name(name)
        self.topics.put(name, max(partitions, known.partition_count if known else 0))

    @rule(name=st.sampled_from(NAMES))
    def a_topic_goes(self, name: str) -> None:
        gone = self.topics.by_name(name)
        self.topics.drop(name)
        for client in self.clients.values():  # There is nothing of it to read.
            client.reads = frozenset(place for place in client.reads if gone is None or place[0] != gone.topic_id)

    @rule(names=st.lists(st.sampled_from(NAMES), unique=True), instance=st.sampled_from([None, None, "i", "j"]))
    def a_member_joins(self, names: list[str], instance: str | None) -> None:
        if instance is not None and any(c.instance_id == instance for c in self.clients.values()):
            return
        self.count += 1
        client = Client(f"m{self.count}", instance)
        self.wants[client.member_id] = tuple(names)
        self.clients[client.member_id] = client
        self._beat(client)

    def _someone(self, pick: int) -> Client | None:
        names = sorted(self.clients)
        return self.clients[names[pick % len(names)]] if names else None

    @rule(pick=st.integers(min_value=0), is_lost=st.booleans())
    def a_member_shows_up(self, pick: int, is_lost: bool) -> None:
        client = self._someone(pick)
        if client is not None:
            self._beat(client, is_lost)

    @rule(pick=st.integers(min_value=0), names=st.lists(st.sampled_from(NAMES), unique=True))
    def a_member_subscribes_to_others(self, pick: int, names: list[str]) -> None:
        client = self._someone(pick)
        if client is not None:
            self.wants[client.member_id] = tuple(names)
            client.is_told_all = False
            self._beat(client)

    @rule(pick=st.integers(min_value=0))
    def a_member_leaves(self, pick: int) -> None:
        client = self._someone(pick)
        if client is not None:
            cmd = ConsumerHeartbeat(
                group_id="g", member_id=client.member_id, member_epoch=-1, instance_id=client.instance_id
            )
            result = self._heartbeat(cmd)
            if not result.error_code or result.error_code == errors.UNKNOWN_MEMBER_ID:
                del self.clients[client.member_id]

    @rule(pick=st.integers(min_value=0))
    def a_member_is_restarted(self, pick: int) -> None:
        """A static member goes for a moment, and comes back under a new id."""
        client = self._someone(pick)
        if client is None or client.instance_id is None or self.groups.append_error:
            return
        cmd = ConsumerHeartbeat(
            group_id="g", member_id=client.member_id, member_epoch=-2, instance_id=client.instance_id
        )
        result = self._heartbeat(cmd)
        del self.clients[client.member_id]
        if result.error_code:
            return
        self.count += 1
        back = Client(f"m{self.count}", client.instance_id)
        self.wants[back.member_id] = self.wants[client.member_id]
        self.clients[back.member_id] = back
        self._beat(back)

    @rule(ms=st.sampled_from([100, 4_000, 11_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        # Who was not heard of for that long has stopped by itself.
        for client in list(self.clients.values()):
            if self.now_ms - client.last_ms >= CONFIG.consumer_session_timeout_ms:
                del self.clients[client.member_id]
        members = self.groups.members
        while (due_ms := members.next_deadline_ms()) is not None and due_ms <= self.now_ms:
            self.groups.run(members.expire(self.now_ms))

    @rule(is_full=st.booleans())
    def the_disk_fills_up_or_not(self, is_full: bool) -> None:
        self.groups.append_error = errors.KAFKA_STORAGE_ERROR if is_full else errors.NONE

    @rule(is_compacted=st.booleans())
    def the_broker_is_killed(self, is_compacted: bool) -> None:
        self.groups.restart(is_compacted)
        self.groups.run(self.groups.members.resume(self.now_ms))
        for client in self.clients.values():
            client.last_ms = self.now_ms

    def _beat(self, client: Client, is_lost: bool = False) -> None:
        is_full_request = client.epoch == 0 or not client.is_told_all
        cmd = ConsumerHeartbeat(
            group_id="g",
            member_id=client.member_id,
            member_epoch=client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full_request else -1,
            topic_names=self.wants[client.member_id] if is_full_request else None,
            owned=frozenset() if client.epoch == 0 else client.reads,
        )
        result = self._heartbeat(cmd)
        if result.error_code in (errors.FENCED_MEMBER_EPOCH, errors.UNKNOWN_MEMBER_ID, errors.GROUP_ID_NOT_FOUND):
            client.epoch, client.reads = 0, frozenset()  # It gives up everything, and joins again.
            return
        if result.error_code:
            assert result.error_code in (errors.NOT_COORDINATOR, errors.UNRELEASED_INSTANCE_ID)
            client.is_told_all = False
            return
        client.last_ms = self.now_ms
        if is_lost:
            client.is_told_all = False
        else:
            client.take(result)

    # What always holds.

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        read = [place for client in self.clients.values() for place in client.reads]
        assert len(read) == len(set(read)), read

    @invariant()
    def no_partition_is_held_by_two(self) -> None:
        group = self.group
        if group is not None:
            held = [place for m in group.members.values() for place in (*m.assigned, *m.revoking)]
            assert len(held) == len(set(held))
            assert dict.fromkeys(held) == dict.fromkeys(group.owners)

    @invariant()
    def a_target_has_one_member(self) -> None:
        group = self.group
        if group is not None:
            aims = [place for target in group.targets.values() for place in target]
            assert len(aims) == len(set(aims))

    @invariant()
    def the_log_rebuilds_the_group(self) -> None:
        for is_compacted in (False, True):
            assert self.groups.replayed(is_compacted).durable() == self.groups.shard.durable()

    def teardown(self) -> None:
        """In the end every member reaches its target assignment, and every subscribed partition has a reader."""
        if not hasattr(self, "groups"):
            return
        self.groups.append_error = errors.NONE
        for _ in range(3 * (len(self.clients) + 2)):
            for client in list(self.clients.values()):
                self._beat(client)
        group = self.group
        gone = set() if group is None else {m for m in group.members if m not in self.clients}
        if gone:  # A member without a client keeps its partitions until its session expires.
            return
        wanted = {name for client in self.clients.values() for name in self.wants[client.member_id]}
        infos = [info for name in wanted if (info := self.topics.by_name(name)) is not None]
        everything = sorted((info.topic_id, i) for info in infos for i in range(info.partition_count))
        assert sorted(place for client in self.clients.values() for place in client.reads) == everything


ConsumerGroupRules.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestConsumerGroupRules = ConsumerGroupRules.TestCase


TOPIC_IDS = [bytes([i]) * 16 for i in range(4)]
places = st.frozensets(st.tuples(st.sampled_from(TOPIC_IDS), st.integers(0, 8)), max_size=12)
members = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.builds(Wanting, st.none(), st.frozensets(st.sampled_from(TOPIC_IDS)), places),
    max_size=6,
)
counts = st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(1, 9))


@given(st.sampled_from(sorted(ASSIGNORS)), members, counts)
def test_every_wanted_partition_has_one_reader_who_wants_it(
    assignor: str, members: dict[str, Wanting], counts: dict[bytes, int]
) -> None:
    assigned = ASSIGNORS[assignor](members, counts)
    assert assigned.keys() == members.keys()
    read = sorted(place for has in assigned.values() for place in has)
    wanted = {topic_id for wanting in members.values() for topic_id in wanting.topic_ids}
    assert read == sorted((topic_id, i) for topic_id in wanted & counts.keys() for i in range(counts[topic_id]))
    for member_id, has in assigned.items():
        assert {topic_id for topic_id, _ in has} <= members[member_id].topic_ids


@given(st.sets(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=6), st.data(), counts)
def test_uniform_is_even_and_moves_no_more_than_it_must(
    names: set[str], data: st.DataObject, counts: dict[bytes, int]
) -> None:
    everything = frozenset(counts)
    free = [(topic_id, i) for topic_id in counts for i in range(counts[topic_id])]
    had: dict[str, set[Place]] = {name: set() for name in names}
    for place in free:
        owner = data.draw(st.sampled_from([*sorted(names), ""]))
        if owner:
            had[owner].add(place)
    members = {name: Wanting(None, everything, frozenset(had[name])) for name in names}
    assigned = ASSIGNORS["uniform"](members, counts)
    sizes = sorted(len(has) for has in assigned.values())
    assert sizes[-1] - sizes[0] <= 1
    # A member loses a partition only if it would have too many otherwise.
    most = -(-len(free) // len(names))
    for name, has in assigned.items():
        lost = had[name] - has
        assert not lost or len(has) >= most - 1
