"""Stories of consumer groups (KIP-848): what is asked, and what both our broker and Apache Kafka answer.

`STORIES` are functions of a stage with the topics `orders` (four partitions) and `refunds` (two); each has a group of
its own. Members keep to the protocol unless a step says otherwise: they say what they own, and own what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pprint import pformat
from typing import Any

from fencepost.machines.group.classic.requests import GroupChange
from fencepost.machines.group.consumer.group import (
    ConsumerRecord,
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
)
from fencepost.machines.group.offsets import OffsetRecord
from fencepost.machines.group.records import decode
from fencepost.machines.txn.records import partition_for
from fencepost.protocol import errors
from fencepost.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from fencepost.protocol.records import iter_batches, iter_records
from tests.transcripts.target import Target

SESSION_TIMEOUT_MS = 1500
OFFSETS_PARTITIONS = 5
# The same on both brokers, and short, so that the tests do not wait long.
SETTINGS = {
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
KAFKA_SETTINGS = SETTINGS | {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
Place = tuple[str, int]


class Member:
    """One consumer, as a client of the protocol sees itself."""

    def __init__(self, stage: Stage, group: str, name: str, **said: Any) -> None:
        self.stage = stage
        self.group = group
        self.name = name
        self.epoch = 0
        self.owned: list[Place] = []
        self.said = {"subscribed_topic_names": ["orders"]} | said

    def beat(self, **changes: Any) -> Any:
        """One heartbeat: the error, or the epoch and what it is to own now (None: as before)."""
        epoch = changes.pop("epoch", self.epoch)
        owned = changes.pop("owned", self.owned)
        fields: dict[str, Any] = {"topic_partitions": self.stage.ids(owned)}
        if epoch == 0:
            fields |= {"rebalance_timeout_ms": 5_000, "topic_partitions": []} | self.said
        self.said |= {name: value for name, value in changes.items() if name.startswith("subscribed")}
        fields |= changes
        name = fields.pop("member_id", self.name)
        version = fields.pop("version", 1)
        reply = self.stage.call(ConsumerGroupHeartbeatRequest(self.group, name, epoch, **fields), version)
        if reply.error_code:
            return errors.name_of(reply.error_code)
        self.epoch = reply.member_epoch
        given = self.stage.names(reply.assignment)
        if given is not None:
            self.owned = given
        return reply.member_epoch, given

    def settle(self, *, until: int | None = None, **changes: Any) -> list[Place]:
        """Heartbeats until nothing changes any more, or until it owns so many partitions; what it owns then."""
        before = None
        for _ in range(500):
            self.beat(**changes)
            changes = {}
            now = (self.epoch, self.owned)
            is_enough = until is None or len(self.owned) == until
            if now == before and is_enough and self.stage.is_settled(self.group):
                return self.owned
            before = now
            self.stage.target.advance(20)
        return self.owned


class Stage:
    def __init__(self, target: Target) -> None:
        self.target = target
        kind = CreateTopicsRequest.CreatableTopic
        self.call(CreateTopicsRequest([kind("orders", 4, 1), kind("refunds", 2, 1)], 10_000), 5)
        self.call(FindCoordinatorRequest("g", 0), 1)
        self.topic_ids: dict[str, bytes] = {}
        for _ in range(300):
            if self.is_ready():
                return
            self.target.advance(20)
        raise AssertionError("the coordinator does not come up")

    def is_ready(self) -> bool:
        for topic in self.call(MetadataRequest(None), 10).topics:
            self.topic_ids[topic.name] = topic.topic_id
        member = Member(self, "ready", "m", subscribed_topic_names=["orders", "refunds"])
        member.beat()
        return len(member.owned) == 6

    def call(self, request: Any, version: int) -> Any:
        return self.target.call(request, version)

    def create(self, topic: str, partitions: int = 1) -> None:
        new = CreateTopicsRequest.CreatableTopic(topic, partitions, 1)
        self.call(CreateTopicsRequest([new], 10_000), 5)
        for _ in range(200):
            found = {t.name: t for t in self.call(MetadataRequest(None), 10).topics}
            if topic in found and all(p.error_code == 0 for p in found[topic].partitions):
                self.topic_ids[topic] = found[topic].topic_id
                return
            self.target.advance(20)

    def member(self, group: str, name: str, **said: Any) -> Member:
        return Member(self, group, name, **said)

    def ids(self, places: Iterable[Place] | None) -> list[Any] | None:
        if places is None:
            return None
        kind = ConsumerGroupHeartbeatRequest.TopicPartitions
        by_topic: dict[str, list[int]] = {}
        for name, index in places:
            by_topic.setdefault(name, []).append(index)
        return [kind(self.topic_ids[name], indexes) for name, indexes in by_topic.items()]

    def name_of(self, topic_id: bytes) -> str:
        return next(name for name, known in self.topic_ids.items() if known == topic_id)

    def names(self, assignment: Any) -> list[Place] | None:
        if assignment is None:
            return None
        return sorted((self.name_of(t.topic_id), index) for t in assignment.topic_partitions for index in t.partitions)

    # --- looking --------------------------------------------------------------------------------------------

    def describe(self, group: str) -> Any:
        reply = self.call(ConsumerGroupDescribeRequest([group]), 1)
        [found] = reply.groups
        if found.error_code:
            return errors.name_of(found.error_code), found.error_message
        members = {
            m.member_id: (m.member_epoch, self.held(m.assignment), self.held(m.target_assignment), m.member_type)
            for m in found.members
        }
        return found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name, members

    def held(self, assignment: Any) -> list[Place]:
        return sorted((t.topic_name, index) for t in assignment.topic_partitions for index in t.partitions)

    def state(self, group: str) -> str:
        return str(self.describe(group)[0])

    def is_settled(self, group: str) -> bool:
        return self.state(group) == "Stable"

    def records(self, group: str) -> list[str]:
        """What was written about the group, without what cannot be the same: times, hashes and ids."""
        index = partition_for(group, OFFSETS_PARTITIONS)
        found, offset = [], 0
        while True:
            partition = FetchRequest.FetchPartition(index, -1, offset, partition_max_bytes=1 << 20)
            topics = [FetchRequest.FetchTopic("__consumer_offsets", partitions=[partition])]
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)
            fetched = self.call(request, 11).responses[0].partitions[0]
            for header, batch in iter_batches(fetched.records or b""):
                offset = header.last_offset + 1
                for record in iter_records(batch):
                    said = decode(record.key or b"", record.value, record.offset)
                    if said is not None and said.group_id == group:
                        found.append(self._line(said))
            if offset >= fetched.high_watermark:
                return found

    def _line(self, record: OffsetRecord | GroupChange | ConsumerRecord) -> str:
        kind = type(record).__name__.removesuffix("Record")
        value: Any = record.record if isinstance(record, GroupChange) else record.value
        if isinstance(record, MemberRecord | TargetRecord | CurrentRecord):
            kind += f" {record.member_id}"
        if value is None:
            return f"{kind} gone"
        if isinstance(record, EpochRecord | TargetEpochRecord):
            return f"{kind} {value[0]} {value[1] != 0}"
        if isinstance(record, RegexRecord):
            return f"{kind} {record.regex} {sorted(value.topics)}"
        if isinstance(record, TargetRecord):
            return f"{kind} {self._places(value)}"
        if isinstance(record, CurrentRecord):
            return (
                f"{kind} {value.previous_epoch} to {value.epoch} {value.state.name} "
                f"{self._places(value.assigned)} {self._places(value.revoking)}"
            )
        if isinstance(record, MemberRecord):
            said = (value.instance_id, value.rack_id, value.client_id, sorted(value.topic_names), value.topic_regex)
            classic = value.classic and (value.classic.session_timeout_ms, [p[0] for p in value.classic.protocols])
            return f"{kind} {said} {value.rebalance_timeout_ms} {value.server_assignor} {classic}"
        return kind

    def _places(self, places: Any) -> Any:
        named = {(self.name_of(topic_id), index): (topic_id, index) for topic_id, index in places}
        if isinstance(places, frozenset):
            return sorted(named)
        return [(*name, places[named[name]]) for name in sorted(named)]

    # --- the classic protocol -------------------------------------------------------------------------------

    def join(
        self,
        group: str,
        member_id: str = "",
        owned: Iterable[Place] = (),
        instance: str | None = None,
        version: int = 5,
    ) -> Any:
        kind = ConsumerProtocolSubscription
        by_topic: dict[str, list[int]] = {}
        for name, index in owned:
            by_topic.setdefault(name, []).append(index)
        parts = [kind.TopicPartition(name, indexes) for name, indexes in by_topic.items()]
        metadata = b"\0\1" + kind(["orders"], None, parts).encode(1)
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol("range", metadata)]
        request = JoinGroupRequest(group, 30_000, 30_000, member_id, instance, "consumer", protocols)
        return self.call(request, version)

    def sync(self, group: str, joined: Any, assign: dict[str, list[Place]] | None = None) -> Any:
        assignments = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id, self.encode(places))
            for member_id, places in (assign or {}).items()
        ]
        request = SyncGroupRequest(group, joined.generation_id, joined.member_id, None, assignments=assignments)
        reply = self.call(request, 3)
        return errors.name_of(reply.error_code) if reply.error_code else self.decode(reply.assignment)

    def encode(self, places: Iterable[Place]) -> bytes:
        kind = ConsumerProtocolAssignment
        by_topic: dict[str, list[int]] = {}
        for name, index in places:
            by_topic.setdefault(name, []).append(index)
        return b"\0\1" + kind([kind.TopicPartition(*part) for part in by_topic.items()]).encode(1)

    def decode(self, assignment: bytes) -> list[Place]:
        found, _ = ConsumerProtocolAssignment.decode(assignment, 2, int.from_bytes(assignment[:2], "big"))
        return sorted((t.topic, index) for t in found.assigned_partitions for index in t.partitions)

    def beat(self, group: str, joined: Any) -> str:
        reply = self.call(HeartbeatRequest(group, joined.generation_id, joined.member_id), 3)
        return errors.name_of(reply.error_code)

    def leave(self, group: str, *member_ids: str) -> list[str]:
        members = [LeaveGroupRequest.MemberIdentity(member_id) for member_id in member_ids]
        return [errors.name_of(m.error_code) for m in self.call(LeaveGroupRequest(group, members=members), 4).members]

    # --- offsets --------------------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        epoch: int = -1,
        member: str = "",
        places: Iterable[Place] = (("orders", 0),),
        version: int = 10,
    ) -> Any:
        kind = OffsetCommitRequest.OffsetCommitRequestPartition
        topics = [
            OffsetCommitRequest.OffsetCommitRequestTopic(name, self.topic_ids[name], [kind(index, 7)])
            for name, index in places
        ]
        reply = self.call(OffsetCommitRequest(group, epoch, member, topics=topics), version)
        codes = [errors.name_of(p.error_code) for t in reply.topics for p in t.partitions]
        return codes[0] if len(codes) == 1 else codes

    def fetch_offset(self, group: str, member: str | None = None, epoch: int = -1) -> str:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics("orders", partition_indexes=[0])]
        wanted = [OffsetFetchRequest.OffsetFetchRequestGroup(group, member, epoch, topics)]
        [found] = self.call(OffsetFetchRequest(groups=wanted), 9).groups
        return errors.name_of(found.error_code)


ALL = [("orders", i) for i in range(4)]
FIRST, SECOND = ALL[:2], ALL[2:]


def one_member(s: Stage) -> Any:
    m = s.member("one", "m")
    return [m.beat(), m.beat(), m.beat(owned=None), s.describe("one"), s.records("one")]


def two_members(s: Stage) -> Any:
    a = s.member("two", "a", server_assignor="range")
    b = s.member("two", "b")
    steps: list[Any] = [a.beat(), b.beat(), s.state("two"), b.beat()]
    steps += [a.beat(owned=ALL), s.describe("two"), a.beat(owned=ALL), a.beat(), b.beat(), b.beat(), s.describe("two")]
    steps += [b.beat(epoch=-1), s.state("two"), a.beat(), a.beat(), s.state("two"), a.beat(epoch=-1), s.describe("two")]
    return [*steps, s.records("two")]


def lost_answers(s: Stage) -> Any:
    a, b = s.member("lost", "a", server_assignor="range"), s.member("lost", "b")
    a.beat()
    b.beat()
    steps = [a.beat(owned=ALL), a.beat(owned=FIRST), b.beat()]
    # The answer with the new epoch did not arrive.
    return [
        *steps,
        a.beat(epoch=2, owned=FIRST),
        a.beat(epoch=2, owned=ALL),
        a.beat(epoch=2, owned=None),
        a.beat(epoch=7),
        b.beat(epoch=2),
        a.beat(epoch=0),
        a.beat(epoch=0, owned=[]),
    ]


def strangers(s: Stage) -> Any:
    m = s.member("strangers", "m")
    unknown = s.member("nowhere", "x")
    steps: list[Any] = [unknown.beat(epoch=1), unknown.beat(epoch=-1), s.describe("nowhere"), m.beat()]
    return [
        *steps,
        s.member("strangers", "x").beat(epoch=1),
        s.member("strangers", "x").beat(epoch=-1),
        m.beat(instance_id="i"),
        m.beat(epoch=-2, instance_id="i"),
    ]


def bad_requests(s: Stage) -> Any:
    m = s.member("bad", "m")
    first = {"rebalance_timeout_ms": -1}, {"topic_partitions": None}, {"topic_partitions": s.ids(ALL)}
    return [
        *(m.beat(**fields) for fields in first),
        m.beat(subscribed_topic_names=None),
        s.member("bad", "").beat(),
        s.member("", "m").beat(),
        s.member("bad", "m").beat(instance_id=""),
        s.member("bad", "m").beat(rack_id=""),
        s.member("bad", "m").beat(epoch=-2),
        s.member("bad", "m").beat(epoch=-3),
        s.member("bad", "m").beat(server_assignor="best"),
        s.member("bad", "m", subscribed_topic_regex="(").beat(),
        s.describe("bad")[0],
    ]


def old_version(s: Stage) -> Any:
    m = s.member("old", "", subscribed_topic_names=["orders"])
    reply = m.beat(version=0)
    [(name, *_)] = s.describe("old")[4].items()
    return [reply, len(name) > 20, s.member("old", name).beat(epoch=2, owned=ALL, version=0)]


def static_members(s: Stage) -> Any:
    a = s.member("static", "a", instance_id="i")
    b = s.member("static", "b", instance_id="i")
    steps: list[Any] = [a.beat(), b.beat(), a.beat(instance_id="i"), a.beat(epoch=-2, instance_id="i")]
    steps += [s.describe("static"), b.beat(), a.beat(epoch=2, instance_id="i"), s.describe("static")]
    steps += [s.member("static", "c").beat(epoch=1, instance_id="j"), b.beat(epoch=-1, instance_id="i")]
    return [*steps, s.state("static"), s.records("static")]


def subscriptions_change(s: Stage) -> Any:
    m = s.member("changes", "m")
    steps: list[Any] = [m.beat(), m.beat(subscribed_topic_names=["refunds"]), s.describe("changes")]
    steps += [m.beat(), m.beat(), s.describe("changes"), m.beat(subscribed_topic_names=["nowhere"]), m.beat(), m.beat()]
    return [*steps, m.beat(subscribed_topic_names=[]), s.state("changes"), s.records("changes")]


def topics_come(s: Stage) -> Any:
    m = s.member("come", "m", subscribed_topic_names=["later"])
    steps: list[Any] = [m.beat(), m.beat()]
    s.create("later", 2)
    return [*steps, m.settle(until=2)]


def patterns(s: Stage) -> Any:
    s.create("pattern-1")
    m = s.member("patterns", "m", subscribed_topic_names=None, subscribed_topic_regex="pattern-.*")
    steps: list[Any] = [m.settle(until=1), m.settle(until=3, subscribed_topic_names=["refunds"])]
    return [*steps, m.settle(until=2, subscribed_topic_regex=""), m.settle(until=0, subscribed_topic_names=[])]


def silent_members(s: Stage) -> Any:
    a, b = s.member("silent", "a", server_assignor="range"), s.member("silent", "b")
    steps: list[Any] = [a.settle()]
    b.beat()
    a.beat(owned=ALL)
    a.beat(owned=FIRST)
    steps += [b.settle()]
    for _ in range(10):
        s.target.advance(SESSION_TIMEOUT_MS // 4)
        b.beat()
    return [*steps, a.beat(), b.settle(), sorted(s.describe("silent")[4])]


def offsets(s: Stage) -> Any:
    a, b = s.member("offsets", "a", server_assignor="range"), s.member("offsets", "b")
    steps: list[Any] = [s.commit("offsets"), a.beat(), s.commit("offsets"), s.commit("offsets", 2, "a")]
    steps += [s.commit("offsets", 1, "a"), s.commit("offsets", 3, "a"), s.commit("offsets", 2, "x")]
    steps += [s.commit("offsets", 2, "a", version=8)]
    steps += [s.fetch_offset("offsets"), s.fetch_offset("offsets", "a", 2), s.fetch_offset("offsets", "a", 3)]
    steps += [s.fetch_offset("offsets", "x", 1), s.fetch_offset("nowhere", "x", 1)]
    b.beat()
    a.beat(owned=ALL)
    a.beat(owned=FIRST)
    b.beat()
    # One epoch late, it may still commit what has been its own all the time.
    steps += [a.epoch, s.commit("offsets", 2, "a", FIRST), s.commit("offsets", 2, "a", FIRST, version=9)]
    steps += [s.commit("offsets", 2, "a", ALL), s.commit("offsets", 2, "b", SECOND), s.commit("offsets", 3, "b")]
    request = OffsetDeleteRequest
    topics = [request.OffsetDeleteRequestTopic("orders", [request.OffsetDeleteRequestPartition(0)])]
    deleted = s.call(request("offsets", topics), 0)
    steps += [errors.name_of(deleted.topics[0].partitions[0].error_code)]
    return steps


def groups_are_listed(s: Stage) -> Any:
    m = s.member("listed", "m")
    m.beat()
    found = s.call(ListGroupsRequest([], ["consumer"]), 5).groups
    steps: list[Any] = [[(g.protocol_type, g.group_state, g.group_type) for g in found if g.group_id == "listed"]]
    steps += [[g.group_id for g in s.call(ListGroupsRequest([], ["classic"]), 5).groups if g.group_id == "listed"]]
    steps += [[g.group_id for g in s.call(ListGroupsRequest(["stable"]), 4).groups if g.group_id == "listed"]]
    for version in (5, 6):
        [seen] = s.call(DescribeGroupsRequest(["listed"]), version).groups
        steps += [(errors.name_of(seen.error_code), seen.error_message, seen.group_state)]
    kind = DeleteGroupsRequest(["listed"])
    steps += [errors.name_of(s.call(kind, 2).results[0].error_code), m.beat(epoch=-1), s.state("listed")]
    return [*steps, errors.name_of(s.call(kind, 2).results[0].error_code), s.describe("listed"), s.records("listed")]


def a_classic_group_is_upgraded(s: Stage) -> Any:
    group = "upgraded"
    asked = s.join(group)
    c = s.join(group, asked.member_id)
    steps: list[Any] = [s.sync(group, c, {c.member_id: ALL}) == ALL, s.beat(group, c)]
    m = s.member(group, "m", server_assignor="range")
    steps += [m.beat(), s.state(group), s.beat(group, c), s.beat(group, c)]
    again = s.join(group, c.member_id, ALL)
    steps += [errors.name_of(again.error_code), again.generation_id, again.protocol_name, again.leader, again.members]
    given = s.sync(group, again)
    steps += [len(given), s.beat(group, again)]
    third = s.join(group, c.member_id, given)
    steps += [third.generation_id, s.sync(group, third) == given, s.beat(group, third), m.beat() != m.owned]
    m.settle()
    steps += [sorted([*given, *m.owned]) == ALL, s.state(group)]
    types = sorted(kind for *_, kind in s.describe(group)[4].values())
    steps += [types, m.beat(epoch=-1), s.describe(group), s.beat(group, third)]
    [seen] = s.call(DescribeGroupsRequest([group]), 5).groups
    steps += [seen.group_state, len(seen.members)]
    last = s.join(group, c.member_id, given)
    steps += [errors.name_of(last.error_code), last.generation_id, len(last.members)]
    return [*steps, s.leave(group, c.member_id)]


def a_classic_member_joins(s: Stage) -> Any:
    group = "mixed"
    m = s.member(group, "m")
    m.beat()
    asked = s.join(group)
    steps: list[Any] = [errors.name_of(asked.error_code), len(asked.member_id) > 10]
    c = s.join(group, asked.member_id)
    steps += [errors.name_of(c.error_code), c.generation_id, s.sync(group, c), s.beat(group, c)]
    m.beat()
    m.beat()
    steps += [s.beat(group, c)]
    again = s.join(group, c.member_id)
    steps += [len(s.sync(group, again)), s.beat(group, again), s.state(group)]
    steps += [s.leave(group, "nobody", c.member_id), s.state(group)]
    return [*steps, len(m.settle())]


def empty_groups_change_their_protocol(s: Stage) -> Any:
    group = "empty"
    asked = s.join(group)
    c = s.join(group, asked.member_id)
    s.sync(group, c, {c.member_id: ALL})
    s.leave(group, c.member_id)
    m = s.member(group, "m")
    steps: list[Any] = [m.beat(), m.beat(epoch=-1), s.state(group)]
    asked = s.join(group)
    c = s.join(group, asked.member_id)
    return [*steps, errors.name_of(c.error_code), s.describe(group)[0], s.leave(group, c.member_id)]


def others_are_not_upgraded(s: Stage) -> Any:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol("x", b"")]
    request = JoinGroupRequest("connect", 30_000, 30_000, "", None, "connect", protocols)
    joined = s.call(request, 3)
    steps: list[Any] = [s.member("connect", "m").beat()]
    s.leave("connect", joined.member_id)
    m = s.member("consumers", "m")
    m.beat()
    refused = s.call(JoinGroupRequest("consumers", 30_000, 30_000, "", None, "connect", protocols), 3)
    return [*steps, errors.name_of(refused.error_code)]


STORIES: dict[str, Callable[[Stage], Any]] = {
    story.__name__.replace("_", " "): story
    for story in (
        one_member,
        two_members,
        lost_answers,
        strangers,
        bad_requests,
        old_version,
        static_members,
        subscriptions_change,
        topics_come,
        patterns,
        silent_members,
        offsets,
        groups_are_listed,
        a_classic_group_is_upgraded,
        a_classic_member_joins,
        empty_groups_change_their_protocol,
        others_are_not_upgraded,
    )
}


def told(stage: Stage, name: str) -> str:
    """A story as text: what came back, step by step."""
    return pformat(STORIES[name](stage), width=118)
