"""Stories of classic groups: members that join, leave, stall and lie, and the answers and records of both brokers.

    assert told_story(theirs, "leaving") == told_story(ours, "leaving")

`STORIES` are functions of a stage; each has groups of its own, and no story says how many milliseconds anything takes.
Member ids are made by the broker: in the text of a story each is a number, in the order in which they turn up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pprint import pformat
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from fencepost.protocol.schema import Message
from tests.conformance.records import MEMBER_ID, group_records
from tests.pure_broker import PureBroker
from tests.transcripts.target import Target
from tests.wire.raw_client import RawClient

# The same on both brokers: a member may be missed soon.
SETTINGS = {"group.min.session.timeout.ms": "500"}
TOPIC = "topic-of-groups"
LONG_MS = 60_000
SHORT_MS = 1000
PATIENCE = 1500
RANGE, STICKY = ("range", b"r"), ("sticky", b"s")


class GroupStage:
    """One run of one story."""

    def __init__(self, target: Target, story: str, port: int | None) -> None:
        self.target = target
        self.prefix = f"{story}."
        self.group = self.prefix + "g"
        self._port = port
        self._threads = ThreadPoolExecutor(8)

    def close(self) -> None:
        self._threads.shutdown()

    def prepare(self) -> None:
        self.target.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(TOPIC, 2, 1)], 10_000), 5)
        for _ in range(PATIENCE):
            found = self.target.call(FindCoordinatorRequest(self.group, 0), 1)
            # Its coordinator has loaded, and the topic has come to it.
            if found.error_code == 0 and self.commit(group=self.prefix + "ready") == "NONE":
                return
            self.target.advance(20)
        raise AssertionError("the coordinator does not come up")

    def hold(self, request: Message, version: int) -> Callable[[], Any]:
        """Send a request that may be answered later; call what comes back for the answer."""
        if isinstance(self.target, PureBroker):
            broker, pending = self.target, self.target.send(request, version)

            def answer() -> Any:
                for _ in range(PATIENCE):
                    if pending.response is not None:
                        return pending.response
                    broker.advance(20)
                raise AssertionError(f"{type(request).__name__} is not answered")

            return answer
        assert self._port is not None
        client = RawClient("127.0.0.1", self._port, timeout_s=60)
        future = self._threads.submit(client.call, request, version)

        def wait() -> Any:
            try:
                return future.result()
            finally:
                client.close()

        return wait

    # --- requests -------------------------------------------------------------------------------------------

    def joining(
        self,
        member: str = "",
        instance: str | None = None,
        protocols: Iterable[tuple[str, bytes]] = (RANGE,),
        version: int = 5,
        kind: str = "consumer",
        session_ms: int = LONG_MS,
        rebalance_ms: int = LONG_MS,
        group: str | None = None,
    ) -> Callable[[], Any]:
        listed = [JoinGroupRequest.JoinGroupRequestProtocol(*protocol) for protocol in protocols]
        name = self.group if group is None else group
        request = JoinGroupRequest(name, session_ms, rebalance_ms, member, instance, kind, listed)
        return self.hold(request, version)

    def join(self, member: str = "", **how: Any) -> Any:
        """Join, and again with the id that newcomers are sent back with from v4 on."""
        reply = self.joining(member, **how)()
        if reply.error_code == errors.MEMBER_ID_REQUIRED:
            reply = self.joining(reply.member_id, **how)()
        return reply

    def syncing(
        self, joined: Any, assign: dict[str, bytes] | None = None, version: int = 3, **fields: Any
    ) -> Callable[[], Any]:
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        said = {
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
        } | fields
        given = [kind(*pair) for pair in (assign or {}).items()]
        return self.hold(SyncGroupRequest(self.group, assignments=given, **said), version)

    def sync(self, joined: Any, assign: dict[str, bytes] | None = None, version: int = 3, **fields: Any) -> Any:
        return synced(self.syncing(joined, assign, version, **fields)())

    def beat(self, member: str, generation: int, instance: str | None = None, version: int = 3, **more: Any) -> str:
        request = HeartbeatRequest(more.get("group", self.group), generation, member, instance)
        return errors.name_of(self.target.call(request, version).error_code)

    def leave(self, *members: tuple[str, str | None], version: int = 4, group: str | None = None) -> Any:
        name = self.group if group is None else group
        if version < 3:
            return errors.name_of(self.target.call(LeaveGroupRequest(name, members[0][0]), version).error_code)
        listed = [LeaveGroupRequest.MemberIdentity(*member) for member in members]
        reply = self.target.call(LeaveGroupRequest(name, members=listed), version)
        each = [(m.member_id, m.group_instance_id, errors.name_of(m.error_code)) for m in reply.members]
        return errors.name_of(reply.error_code), each

    def commit(
        self,
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        group: str | None = None,
        version: int = 7,
        offset: int = 7,
    ) -> str:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, committed_metadata="")
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(TOPIC, partitions=[partition])]
        name = self.group if group is None else group
        reply = self.target.call(OffsetCommitRequest(name, generation, member, instance, topics=topics), version)
        return errors.name_of(reply.topics[0].partitions[0].error_code)

    def offset(self) -> int:
        wanted = [OffsetFetchRequest.OffsetFetchRequestTopic(TOPIC, [0])]
        found = self.target.call(OffsetFetchRequest(self.group, wanted), 7).topics[0].partitions[0]
        return int(found.committed_offset)

    # --- looking --------------------------------------------------------------------------------------------

    def describe(self, version: int = 5) -> Any:
        [found] = self.target.call(DescribeGroupsRequest([self.group]), version).groups
        members = [
            (m.member_id, m.group_instance_id, m.client_id, m.client_host, m.member_metadata, m.member_assignment)
            for m in found.members
        ]
        return (
            errors.name_of(found.error_code),
            found.group_state,
            found.protocol_type,
            found.protocol_data,
            sorted(members, key=lambda m: (m[4], m[1] or "")),
        )

    def state(self) -> str:
        return str(self.describe()[1])

    def until(self, *states: str) -> str:
        """Wait for a state: the broker may still be handling the last request."""
        for _ in range(PATIENCE):
            if self.state() in states:
                return self.state()
            self.target.advance(20)
        return self.state()

    def until_gone(self, member: str) -> None:
        """Wait for a session, or a rebalance, that ends without this member."""
        for _ in range(PATIENCE):
            if all(m[0] != member for m in self.describe()[4]):
                return
            self.target.advance(20)
        raise AssertionError(f"{member} is still there")

    def listed(self) -> list[Any]:
        reply = self.target.call(ListGroupsRequest(), 5)
        return sorted(
            (g.group_id, g.protocol_type, g.group_state, g.group_type)
            for g in reply.groups
            if g.group_id.startswith(self.prefix)
        )

    def records(self) -> dict[str, list[str]]:
        return group_records(self.target, self.group, {})


def joined(reply: Any) -> Any:
    """What a JoinGroup reply says."""
    members = sorted(((m.member_id, m.group_instance_id, m.metadata) for m in reply.members), key=lambda m: m[2])
    return (
        errors.name_of(reply.error_code),
        reply.generation_id,
        reply.protocol_type,
        reply.protocol_name,
        reply.leader,
        reply.skip_assignment,
        reply.member_id,
        members,
    )


def synced(reply: Any) -> Any:
    return errors.name_of(reply.error_code), reply.protocol_type, reply.protocol_name, reply.assignment


# --- stories ------------------------------------------------------------------------------------------------


def every_version(s: GroupStage) -> Any:
    """One member alone, who does everything in every version."""
    steps: list[Any] = []
    member = ""
    for version in range(10):
        first = s.joining(member, version=version, rebalance_ms=LONG_MS)()
        steps.append((version, joined(first)))
        member = first.member_id
        if first.error_code:
            first = s.joining(member, version=version)()
            steps.append((version, joined(first)))
        for other in range(6):
            steps.append(("sync", other, s.sync(first, {member: b"all"}, other)))
        steps += [("beat", v, s.beat(member, first.generation_id, version=v)) for v in range(5)]
        steps += [("commit", v, s.commit(member, first.generation_id, version=v)) for v in range(2, 10)]
        steps += [("describe", v, s.describe(v)) for v in range(7)]
        if version >= 4:
            steps.append(("leave", s.leave((member, None), version=version - 4), s.state()))
            member = ""
    return [*steps, s.listed(), s.records()]


def bad_joins(s: GroupStage) -> Any:
    steps = [
        joined(s.joining(group="")()),
        joined(s.joining(session_ms=499)()),
        joined(s.joining(session_ms=1_800_001)()),
        joined(s.joining(session_ms=-1)()),
        joined(s.joining(protocols=())()),
        joined(s.joining(kind="")()),
        joined(s.joining("nobody")()),
        joined(s.joining("nobody", version=0)()),
        joined(s.joining("nobody", instance="i")()),
        s.describe(),
        s.listed(),
    ]
    first = s.join()
    s.sync(first, {first.member_id: b"all"})
    return [
        *steps,
        joined(first),
        joined(s.joining("nobody")()),
        joined(s.joining(kind="connect", version=3)()),
        joined(s.joining(protocols=(STICKY,), version=3)()),
        joined(s.joining(protocols=(), version=3)()),
        joined(s.joining(first.member_id, kind="connect")()),
        joined(s.joining(first.member_id, protocols=(STICKY,))()),
        s.describe(),
        s.records(),
    ]


def lies(s: GroupStage) -> Any:
    """To an empty group, to one that waits for its leader, and to a stable one."""
    steps: list[Any] = [
        s.beat("nobody", 1),
        s.beat("", -1),
        s.beat("x", 1, group=""),
        s.commit("nobody", 1),
        s.commit("nobody", -1),
        s.leave(("nobody", None)),
        s.leave(("nobody", None), version=2),
        s.leave(("x", None), group=""),
        s.describe(),
    ]
    first = s.join()
    who, now = first.member_id, first.generation_id
    steps += [
        s.state(),
        s.beat(who, now),
        s.commit(who, now),
        s.commit(who, now - 1),
        s.commit("", -1),
        s.sync(first, generation_id=now + 1),
        s.sync(first, generation_id=now - 1),
        s.sync(first, member_id="nobody"),
        s.sync(first, version=5, protocol_name="sticky"),
        s.sync(first, version=5, protocol_type="connect"),
        s.sync(first, version=5, protocol_type=None, protocol_name=None),
        s.sync(first, {"nobody": b"x", who: b"mine"}, version=5),
        s.state(),
    ]
    steps += [
        s.beat(who, now),
        s.beat(who, now + 1),
        s.beat(who, now - 1),
        s.beat("nobody", now),
        s.beat(who, now, instance="i"),
        s.sync(first),
        s.sync(first, {who: b"other"}),
        s.sync(first, version=5, protocol_name="sticky"),
        s.sync(first, generation_id=now + 1),
        s.commit(who, now, offset=1),
        s.commit(who, now + 1),
        s.commit(who, now - 1),
        s.commit(who, -1),
        s.commit("nobody", now),
        s.commit("", now),
        s.commit("", -1),
        s.commit(who, now, instance="i"),
        s.offset(),
    ]
    steps += [s.leave((who, None)), s.leave((who, None)), s.leave((who, None), version=1), s.state()]
    steps += [s.beat(who, now), s.sync(first), s.commit(who, now), s.commit("", now), s.commit("", -1, offset=9)]
    return [*steps, s.offset(), s.describe(), s.listed(), s.records()]


def rebalance(s: GroupStage) -> Any:
    """A second member comes and goes; both keep to the protocol."""
    a = s.join(protocols=(RANGE, STICKY))
    steps: list[Any] = [joined(a), s.sync(a, {a.member_id: b"all"})]
    b_joins = s.joining(protocols=(("range", b"b"), ("sticky", b"t")), version=3)
    steps += [
        s.until("PreparingRebalance"),
        s.beat(a.member_id, a.generation_id),
        s.commit(a.member_id, a.generation_id),
        s.sync(a),
        s.commit("", -1),
    ]
    a = s.joining(a.member_id, protocols=(("range", b"a"), STICKY))()
    b = b_joins()
    steps += [joined(a), joined(b), s.state(), s.commit(a.member_id, a.generation_id), s.beat(b.member_id, 2)]
    b_syncs = s.syncing(b)
    steps.append(s.sync(a, {a.member_id: b"first", b.member_id: b"second"}))
    steps += [synced(b_syncs()), s.state(), s.beat(a.member_id, 2), s.beat(b.member_id, 2), s.describe()]
    # The leader goes.
    steps += [s.leave((a.member_id, None)), s.until("PreparingRebalance"), s.beat(b.member_id, 2)]
    b = s.joining(b.member_id, protocols=(("range", b"b"),))()
    steps += [joined(b), s.sync(b, {b.member_id: b"all"}), s.beat(a.member_id, 2), s.beat(b.member_id, 2)]
    return [*steps, s.beat(b.member_id, 3), s.describe(), s.leave((b.member_id, None)), s.records()]


def followers(s: GroupStage) -> Any:
    """A follower that joins unchanged starts no rebalance, nor does any member before the leader has synced."""
    a = s.join(protocols=(("range", b"a"),))
    s.sync(a, {a.member_id: b"all"})
    b_joins = s.joining(protocols=(("range", b"b"),), version=3)
    s.until("PreparingRebalance")
    a = s.joining(a.member_id, protocols=(("range", b"a"),))()
    b = b_joins()
    steps: list[Any] = [joined(s.joining(b.member_id, protocols=(("range", b"b"),))()), s.state()]
    steps += [joined(s.joining(a.member_id, protocols=(("range", b"a"),))()), s.state()]
    steps.append(s.sync(a, {a.member_id: b"first", b.member_id: b"second"}))
    steps += [s.sync(b), s.state(), joined(s.joining(b.member_id, protocols=(("range", b"b"),))()), s.state()]
    # A follower with new metadata starts one.
    b_joins = s.joining(b.member_id, protocols=(("range", b"b2"),))
    steps.append(s.until("PreparingRebalance"))
    a = s.joining(a.member_id, protocols=(("range", b"a"),))()
    steps += [joined(a), joined(b_joins()), s.state()]
    # The leader, which may know of new partitions, always starts one.
    s.sync(a, {a.member_id: b"first", b.member_id: b"second"})
    a_joins = s.joining(a.member_id, protocols=(("range", b"a"),))
    steps.append(s.until("PreparingRebalance"))
    b_joins = s.joining(b.member_id, protocols=(("range", b"b2"),))
    return [*steps, joined(a_joins()), joined(b_joins()), s.records()]


def static_members(s: GroupStage) -> Any:
    a = s.join(instance="i", protocols=(("range", b"a"),))
    steps: list[Any] = [joined(a), s.sync(a, {a.member_id: b"all"}, group_instance_id="i")]
    # The member restarts, and continues with the same assignment under another member id.
    again = s.joining(instance="i", protocols=(("range", b"a"),))()
    steps += [joined(again), s.state(), s.describe()]
    old, new, now = a.member_id, again.member_id, again.generation_id
    steps += [
        s.beat(old, now, "i"),
        s.beat(old, now),
        s.beat(new, now, "i"),
        s.beat(new, now, "j"),
        s.sync(a, group_instance_id="i"),
        s.sync(again, group_instance_id="i"),
        s.sync(again, group_instance_id="j"),
        s.commit(old, now, "i"),
        s.commit(old, now),
        s.commit(new, now, "i"),
        s.commit(new, now, "j"),
        s.commit("", -1, "i"),
        s.commit("", now, "i"),
        s.leave((old, "i")),
        joined(s.joining(old, instance="i", protocols=(("range", b"a"),))()),
        joined(s.joining(new, instance="j", protocols=(("range", b"a"),))()),
        s.state(),
    ]
    # v9 says it in so many words.
    newest = s.joining(instance="i", protocols=(("range", b"a"),), version=9)()
    steps += [joined(newest), s.sync(newest, {newest.member_id: b"other"}, group_instance_id="i")]
    # What it reads has changed: a new generation.
    changed = s.joining(instance="i", protocols=(("range", b"c"),))()
    steps += [joined(changed), s.state(), s.sync(changed, {changed.member_id: b"all"}, group_instance_id="i")]
    steps += [
        s.leave(("", "j"), ("", "i"), ("nobody", None), ("nobody", "i")),
        s.state(),
        s.leave(("", "i")),
        s.describe(),
    ]
    return [*steps, s.records()]


def sleepers(s: GroupStage) -> Any:
    """One that is silent loses its place; one that does not come back to a rebalance does too."""
    a = s.join(session_ms=SHORT_MS, protocols=(("range", b"a"),))
    steps: list[Any] = [joined(a), s.sync(a, {a.member_id: b"all"})]
    s.until_gone(a.member_id)
    steps += [s.until("Empty"), s.beat(a.member_id, 1), s.commit(a.member_id, 1), s.commit("", -1), s.describe()]
    a = s.join(rebalance_ms=SHORT_MS, protocols=(("range", b"a"),))
    steps += [joined(a), s.sync(a, {a.member_id: b"all"})]
    b = s.joining(version=3, protocols=(("range", b"b"),), rebalance_ms=SHORT_MS)()
    steps += [joined(b), s.beat(a.member_id, a.generation_id), s.describe()]
    # The leader joins and never sends the assignments: every member has to join again.
    s.until_gone(b.member_id)
    return [*steps, s.until("Empty"), s.beat(b.member_id, b.generation_id), s.describe(), s.records()]


def reserved_places(s: GroupStage) -> Any:
    """From v4 on a newcomer has an id before it has a place."""
    first = s.joining(version=4)()
    # Apache Kafka shows the group once the records that others wrote to its partition before are committed.
    s.until("Empty")
    steps = [joined(first), s.describe(), s.listed(), s.beat(first.member_id, 0), s.commit(first.member_id, 0)]
    steps += [s.leave((first.member_id, None)), joined(s.joining(first.member_id, version=4)()), s.describe()]
    second = s.joining(version=4)()
    third = s.joining(second.member_id, version=4)()
    return [*steps, joined(third), s.sync(third, {third.member_id: b"x"}), s.describe(), s.records()]


def votes(s: GroupStage) -> Any:
    """The protocol that all have, and most like best."""
    a = s.join(protocols=(RANGE, STICKY, ("third", b"3")))
    s.sync(a, {a.member_id: b"x"})
    b_joins = s.joining(protocols=(STICKY, RANGE), version=3)
    s.until("PreparingRebalance")
    c_joins = s.joining(protocols=(STICKY, ("third", b"3"), RANGE), version=3)
    for _ in range(PATIENCE):
        if len(s.describe()[4]) == 3:
            break
        s.target.advance(20)
    a = s.joining(a.member_id, protocols=(RANGE, STICKY, ("third", b"3")))()
    b, c = b_joins(), c_joins()
    return [[reply.protocol_name for reply in (a, b, c)], a.generation_id, len(a.members), len(b.members), s.state()]


STORIES: dict[str, Callable[[GroupStage], Any]] = {
    story.__name__.replace("_", " "): story
    for story in (
        every_version,
        bad_joins,
        lies,
        rebalance,
        followers,
        static_members,
        sleepers,
        reserved_places,
        votes,
    )
}


def told_story(target: Target, name: str, port: int | None = None) -> str:
    """A story as text, with a number for each member id."""
    stage = GroupStage(target, name.replace(" ", "-"), port)
    try:
        stage.prepare()
        text = pformat(STORIES[name](stage), width=160)
    finally:
        stage.close()
    numbers: dict[str, str] = {}
    return MEMBER_ID.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), text)
