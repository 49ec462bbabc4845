"""Requests of administrators: what is asked, and what both our broker and Apache Kafka answer.

`REQUESTS` are functions of a broker with the topics `orders` (three partitions) and `refunds` (one), and leave it as
they found it, so that their order makes no difference. Messages of errors are compared where they are Kafka's words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.messages import (
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    ApiVersionsRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    DescribeTopicPartitionsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    FindCoordinatorRequest,
    GetTelemetrySubscriptionsRequest,
    IncrementalAlterConfigsRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListConfigResourcesRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    PushTelemetryRequest,
    SyncGroupRequest,
    UpdateFeaturesRequest,
)
from tests.transcripts.target import Target

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
UPGRADE, DOWNGRADE, UNSAFE = 1, 2, 3
Op = tuple[str, int, str | None]


class Stage:
    """A broker, and the questions to it: methods that return plain values, to compare two brokers by."""

    def __init__(self, target: Target) -> None:
        self.target = target
        kind = CreateTopicsRequest.CreatableTopic
        self.call(CreateTopicsRequest([kind("orders", 3, 1), kind("refunds", 1, 1)], 10_000), 5)
        self.call(FindCoordinatorRequest("g", 0), 1)
        for _ in range(200):
            if self.commit("ready") == "NONE" and self.delete_groups("ready") == {"ready": "NONE"}:
                return
            self.target.advance(20)
        raise AssertionError("the coordinator does not come up")

    def call(self, request: Any, version: int) -> Any:
        return self.target.call(request, version)

    # --- topics ---------------------------------------------------------------------------------------------

    def create(self, *names: str, validate: bool = False, partitions: int = 1) -> dict[str, tuple[str, str | None]]:
        kind = CreateTopicsRequest.CreatableTopic
        reply = self.call(CreateTopicsRequest([kind(name, partitions, 1) for name in names], 10_000, validate), 7)
        return {t.name: (errors.name_of(t.error_code), t.error_message) for t in reply.topics}

    def delete(self, *names: str) -> list[str]:
        reply = self.call(DeleteTopicsRequest(topic_names=names, timeout_ms=10_000), 5)
        return [errors.name_of(t.error_code) for t in reply.responses]

    def find_topic(self, name: str) -> str:
        """Ask for a topic, which creates it if that is possible."""
        wanted = [MetadataRequest.MetadataRequestTopic(name=name)]
        return errors.name_of(self.call(MetadataRequest(wanted, True), 9).topics[0].error_code)

    # --- settings -------------------------------------------------------------------------------------------

    def alter(self, *ops: Op, name: str = "orders", kind: int = TOPIC, validate: bool = False) -> str:
        request = IncrementalAlterConfigsRequest
        configs = [request.AlterableConfig(*op) for op in ops]
        reply = self.call(request([request.AlterConfigsResource(kind, name, configs)], validate), 1)
        [found] = reply.responses
        assert (found.resource_type, found.resource_name) == (kind, name)
        return errors.name_of(found.error_code)

    def set(self, config: str, value: str, name: str = "orders") -> str:
        """Whether the value is taken; then the topic has its default again."""
        said = self.alter((config, SET, value), name=name)
        if said == "NONE":
            assert self.alter((config, DELETE, None), name=name) == "NONE"
        return said

    def replace(self, configs: dict[str, str | None], name: str = "orders", kind: int = TOPIC) -> str:
        request = AlterConfigsRequest
        given = [request.AlterableConfig(*config) for config in configs.items()]
        reply = self.call(request([request.AlterConfigsResource(kind, name, given)], False), 2)
        return errors.name_of(reply.responses[0].error_code)

    def own(self, name: str = "orders") -> dict[str, str]:
        """The settings that a topic has of its own."""
        request = DescribeConfigsRequest
        reply = self.call(request([request.DescribeConfigsResource(TOPIC, name, None)], False, False), 4)
        return {config.name: config.value for config in reply.results[0].configs if config.config_source == 1}

    def steps(self, config: str, *steps: tuple[int, str]) -> list[str]:
        """What a setting becomes with each step; it is reset afterwards."""
        found = []
        for operation, value in steps:
            assert self.alter((config, operation, value)) == "NONE"
            found.append(self.own().get(config, "(default)"))
        assert self.alter((config, DELETE, None)) == "NONE"
        return found

    def described(self, kind: int, name: str) -> str:
        request = DescribeConfigsRequest
        reply = self.call(request([request.DescribeConfigsResource(kind, name, None)], False, False), 4)
        return errors.name_of(reply.results[0].error_code)

    def types(self) -> dict[str, int]:
        request = DescribeConfigsRequest
        reply = self.call(request([request.DescribeConfigsResource(TOPIC, "orders", None)], False, False), 4)
        return {config.name: config.config_type for config in reply.results[0].configs}

    def resources(self, *types: int, version: int = 1) -> list[tuple[int, str]]:
        reply = self.call(ListConfigResourcesRequest(list(types)), version)
        if reply.error_code:
            return [(reply.error_code, "")]
        found = [(resource.resource_type, resource.resource_name) for resource in reply.config_resources]
        return sorted(resource for resource in found if not resource[1].startswith("__"))

    # --- features -------------------------------------------------------------------------------------------

    def feature(
        self, *updates: tuple[str, int, int], version: int = 1, validate: bool = True
    ) -> tuple[str, str | None, list[str]]:
        kind = UpdateFeaturesRequest.FeatureUpdateKey
        wanted = [kind(name, level, True, how) for name, level, how in updates]
        reply = self.call(UpdateFeaturesRequest(10_000, wanted, validate), version)
        message = reply.error_message and reply.error_message.rpartition("error: ")[2]
        return errors.name_of(reply.error_code), message, [result.feature for result in reply.results]

    def finalized(self) -> tuple[int, int]:
        """The level of transaction.version that clients see, and the epoch of it."""
        reply = self.call(ApiVersionsRequest("test", "1"), 4)
        levels = {feature.name: feature.max_version_level for feature in reply.finalized_features}
        return levels.get("transaction.version", 0), reply.finalized_features_epoch

    def levels(self, *changes: tuple[int, int]) -> list[tuple[int, bool]]:
        """The level after each change, and whether its epoch is higher than the one before."""
        found = []
        for level, how in changes:
            before = self.finalized()[1]
            assert self.feature(("transaction.version", level, how), validate=False)[0] == "NONE"
            for _ in range(200):
                now, epoch = self.finalized()
                if now == level and epoch > before:
                    break
                self.target.advance(20)
            found.append((now, epoch > before))
        return found

    # --- groups ---------------------------------------------------------------------------------------------

    def commit(self, group: str, topic: str = "orders", partition: int = 0) -> str:
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        topics = [kind(topic, partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(partition, 5)])]
        reply = self.call(OffsetCommitRequest(group, topics=topics), 8)
        return errors.name_of(reply.topics[0].partitions[0].error_code)

    def join(self, group: str, protocol_type: str = "consumer") -> str:
        """A member that subscribes to `orders`; gives its id."""
        subscription = b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\xff\xff\xff\xff"
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol("range", subscription)]
        reply = self.call(JoinGroupRequest(group, 30_000, 30_000, "", None, protocol_type, protocols), 3)
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        mine = [kind(reply.member_id, b"")]
        self.call(SyncGroupRequest(group, reply.generation_id, reply.member_id, None, assignments=mine), 3)
        return str(reply.member_id)

    def leave(self, group: str, member_id: str) -> None:
        self.call(LeaveGroupRequest(group, members=[LeaveGroupRequest.MemberIdentity(member_id)]), 4)

    def delete_groups(self, *groups: str) -> dict[str, str]:
        reply = self.call(DeleteGroupsRequest(list(groups)), 2)
        return {result.group_id: errors.name_of(result.error_code) for result in reply.results}

    def delete_offsets(self, group: str, *wanted: tuple[str, int]) -> Any:
        topics = [
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name, [OffsetDeleteRequest.OffsetDeleteRequestPartition(index)]
            )
            for name, index in wanted
        ]
        reply = self.call(OffsetDeleteRequest(group, topics), 0)
        if reply.error_code:
            return errors.name_of(reply.error_code)
        return {
            (topic.name, p.partition_index): errors.name_of(p.error_code)
            for topic in reply.topics
            for p in topic.partitions
        }

    def with_member(self, group: str, protocol_type: str, ask: Callable[[], Any]) -> Any:
        member_id = self.join(group, protocol_type)
        found = ask()
        self.leave(group, member_id)
        self.delete_groups(group)
        return found

    # --- the rest -------------------------------------------------------------------------------------------

    def elect(self, how: int, *wanted: tuple[str, list[int]], version: int = 2) -> Any:
        kind = ElectLeadersRequest.TopicPartitions
        reply = self.call(ElectLeadersRequest(how, [kind(*one) for one in wanted], 10_000), version)
        found = [(p.error_code, p.error_message) for t in reply.replica_election_results for p in t.partition_result]
        return errors.name_of(reply.error_code), [(errors.name_of(code), text) for code, text in found]

    def page(
        self, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> tuple[list[tuple[str, str, list[int]]], tuple[str, int] | None]:
        request = DescribeTopicPartitionsRequest
        start = None if cursor is None else request.Cursor(*cursor)
        reply = self.call(request([request.TopicRequest(name) for name in names], limit, start), 0)
        found = [
            (topic.name, errors.name_of(topic.error_code), [p.partition_index for p in topic.partitions])
            for topic in reply.topics
        ]
        end = reply.next_cursor
        return found, None if end is None else (end.topic_name, end.partition_index)

    def quotas(self, *filters: tuple[str, int, str | None]) -> tuple[str, Any]:
        request = DescribeClientQuotasRequest
        reply = self.call(request([request.ComponentData(*one) for one in filters], False), 1)
        return errors.name_of(reply.error_code), reply.entries

    def reassign(self, name: str, index: int, replicas: list[int] | None) -> tuple[str, str | None]:
        request = AlterPartitionReassignmentsRequest
        partition = request.ReassignablePartition(index, replicas)
        reply = self.call(request(10_000, True, [request.ReassignableTopic(name, [partition])]), 1)
        assert reply.error_code == 0
        found = reply.responses[0].partitions[0]
        return errors.name_of(found.error_code), found.error_message

    def quorum(self, topic: str, index: int) -> tuple[str, str | None, int]:
        request = DescribeQuorumRequest
        reply = self.call(request([request.TopicData(topic, [request.PartitionData(index)])]), 2)
        found = reply.topics[0].partitions[0]
        return errors.name_of(found.error_code), found.error_message, len(found.current_voters)

    def log_dirs(self, *wanted: tuple[str, list[int]]) -> Any:
        kind = DescribeLogDirsRequest.DescribableLogDirTopic
        reply = self.call(DescribeLogDirsRequest([kind(*one) for one in wanted]), 4)
        [folder] = reply.results
        return {topic.name: sorted(p.partition_index for p in topic.partitions) for topic in folder.topics}

    def scram(self, *names: str) -> dict[str, Any]:
        request = DescribeUserScramCredentialsRequest
        reply = self.call(request([request.UserName(name) for name in names]), 0)
        return {
            r.user: (errors.name_of(r.error_code), r.error_message)
            if r.error_code
            else sorted((info.mechanism, info.iterations) for info in r.credential_infos)
            for r in reply.results
        }

    def alter_scram(
        self, delete: Sequence[tuple[str, int]] = (), upsert: Sequence[tuple[str, int, int]] = ()
    ) -> dict[str, tuple[str, str]]:
        request = AlterUserScramCredentialsRequest
        deletions = [request.ScramCredentialDeletion(*one) for one in delete]
        upsertions = [request.ScramCredentialUpsertion(*one, b"salt", bytes(range(32))) for one in upsert]
        reply = self.call(request(deletions, upsertions), 0)
        return {r.user: (errors.name_of(r.error_code), r.error_message) for r in reply.results}


BAD_VALUES = {
    "retention.ms": ["x", "", "-2", "9223372036854775808"],
    "segment.bytes": ["100", "99999999999", "1.5"],
    "segment.ms": ["0"],
    "max.message.bytes": ["-1"],
    "cleanup.policy": ["foo", "compact,foo"],
    "message.timestamp.type": ["foo"],
    "min.insync.replicas": ["0"],
    "compression.type": ["foo"],
    "unclean.leader.election.enable": ["maybe"],
    "flush.ms": ["-1"],
    "min.cleanable.dirty.ratio": ["1.5", "x"],
    "remote.storage.enable": ["true"],
    "no.such.setting": ["1"],
}
GOOD_VALUES = {
    "retention.ms": ["1000", "-1", " 5 "],
    "retention.bytes": ["-1", "5000000"],
    "segment.bytes": ["1048576"],
    "segment.ms": ["1000"],
    "max.message.bytes": ["0", "1000"],
    "cleanup.policy": ["compact", "compact,delete", "delete,compact", ""],
    "message.timestamp.type": ["LogAppendTime"],
    "min.insync.replicas": ["2"],
    "compression.type": ["gzip"],
    "unclean.leader.election.enable": ["TRUE"],
    "min.cleanable.dirty.ratio": ["0.1"],
    "message.timestamp.after.max.ms": ["1000"],
    "local.retention.ms": ["5"],
}
TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: x"
NO_SUCH_USER = "Attempt to describe a user credential that does not exist: y"
NOT_NEEDED = ("ELECTION_NOT_NEEDED", "Leader election not needed for topic partition.")
BOTH = ("orders", "NONE", [0, 1, 2]), ("refunds", "NONE", [0])


def bad_update(level: int, name: str, why: str) -> tuple[str, str, list[str]]:
    return "INVALID_UPDATE_VERSION", f"Invalid update version {level} for feature {name}. {why}", []


NO_DOWNGRADE = bad_update(
    1,
    "transaction.version",
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.",
)

# Name -> (what to do, what comes back).
CREATED = ("NONE", None)


def collides(name: str) -> tuple[str, str]:
    return "INVALID_TOPIC_EXCEPTION", f"Topic '{name}' collides with existing topic: q.b_c"


REQUESTS: dict[str, tuple[Callable[[Stage], Any], Any]] = {
    "topic names that collide": (
        lambda s: [
            s.create("q.b_c"),
            s.create("q_b.c", "q-b-c", validate=True),
            s.create("q_b.c"),
            s.create("q_b_c", partitions=0),
            s.find_topic("q_b.c"),
            s.delete("q.b_c"),
            s.create("q_b.c"),
            s.delete("q_b.c"),
        ],
        [
            {"q.b_c": CREATED},
            {"q_b.c": collides("q_b.c"), "q-b-c": CREATED},
            {"q_b.c": collides("q_b.c")},
            {"q_b_c": collides("q_b_c")},
            "UNKNOWN_TOPIC_OR_PARTITION",
            ["NONE"],
            {"q_b.c": CREATED},
            ["NONE"],
        ],
    ),
    "topic names of one request that collide": (
        lambda s: [
            s.create("p.b_c", "p_b.c", validate=True),
            s.create("p.b_c", "p_b.c"),
            s.create("p_b.c")["p_b.c"][0],
            s.delete("p.b_c", "p_b.c"),
        ],
        [
            {"p.b_c": CREATED, "p_b.c": CREATED},
            {"p.b_c": CREATED, "p_b.c": CREATED},
            "TOPIC_ALREADY_EXISTS",
            ["NONE", "NONE"],
        ],
    ),
    "settings of a topic with values that cannot be": (
        lambda s: {(name, value): s.set(name, value) for name, values in BAD_VALUES.items() for value in values},
        {(name, value): "INVALID_CONFIG" for name, values in BAD_VALUES.items() for value in values},
    ),
    "settings of a topic with values that can be": (
        lambda s: {(name, value): s.set(name, value) for name, values in GOOD_VALUES.items() for value in values},
        {(name, value): "NONE" for name, values in GOOD_VALUES.items() for value in values},
    ),
    "settings that conflict": (
        lambda s: s.alter(("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")),
        "INVALID_CONFIG",
    ),
    "words are appended to a list, and taken away": (
        lambda s: s.steps(
            "cleanup.policy", (APPEND, "compact"), (APPEND, "compact"), (SUBTRACT, "delete"), (SUBTRACT, "compact")
        ),
        ["delete,compact", "delete,compact", "compact", ""],
    ),
    "only to a list": (
        lambda s: [s.alter(("retention.ms", operation, "1")) for operation in (APPEND, SUBTRACT)],
        ["INVALID_CONFIG"] * 2,
    ),
    "nothing is reset": (
        lambda s: [s.alter(("no.such.setting", DELETE, None)), s.alter(("retention.ms", DELETE, "7")), s.own()],
        ["NONE", "NONE", {}],
    ),
    "no value to set": (lambda s: s.alter(("retention.ms", SET, None)), "INVALID_REQUEST"),
    "a setting twice": (
        lambda s: s.alter(("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        "INVALID_REQUEST",
    ),
    "a resource changes as a whole": (
        lambda s: [s.alter(("retention.ms", SET, "1"), ("max.message.bytes", SET, "-1")), s.own()],
        ["INVALID_CONFIG", {}],
    ),
    "a change that is only tried": (
        lambda s: [s.alter(("retention.ms", SET, "1"), validate=True), s.own()],
        ["NONE", {}],
    ),
    "topics that are not there": (
        lambda s: [s.alter(("retention.ms", SET, "1"), name=name) for name in ("nowhere", "", "bad name")],
        ["UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST", "INVALID_TOPIC_EXCEPTION"],
    ),
    "a bad setting of a topic that is not there": (
        lambda s: s.alter(("retention.ms", SET, "x"), name="nowhere"),
        "INVALID_CONFIG",
    ),
    "nothing to change": (lambda s: s.alter(), "NONE"),
    "settings that a broker does not change": (
        lambda s: [s.alter((name, SET, "2"), name="1", kind=BROKER) for name in ("num.partitions", "broker.id")],
        ["INVALID_REQUEST"] * 2,
    ),
    "brokers that are not there": (
        lambda s: [s.alter(("num.partitions", SET, "2"), name=name, kind=BROKER) for name in ("9", "x")],
        ["INVALID_REQUEST"] * 2,
    ),
    "nothing to change of a broker": (
        lambda s: [s.alter(name=name, kind=BROKER) for name in ("1", "")],
        ["NONE", "NONE"],
    ),
    "resources that cannot be": (
        lambda s: [s.alter(kind=kind, name="x") for kind in (0, 1, 3)],
        ["INVALID_REQUEST"] * 3,
    ),
    "all settings of a topic at once": (
        lambda s: [
            s.replace({"retention.ms": "5", "segment.ms": "6"}),
            s.own(),
            s.replace({"segment.ms": "7"}),
            s.own(),
            s.replace({"retention.ms": None}),
            s.replace({"no.such.setting": "1"}),
            s.replace({"retention.ms": "1"}, name="nowhere"),
            s.replace({}),
            s.own(),
            s.replace({}, name="1", kind=LOGGER),
        ],
        [
            "NONE",
            {"retention.ms": "5", "segment.ms": "6"},
            "NONE",
            {"segment.ms": "7"},
            "INVALID_REQUEST",
            "INVALID_CONFIG",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "NONE",
            {},
            "INVALID_REQUEST",
        ],
    ),
    "settings of what is not there": (
        lambda s: [
            s.described(kind, name)
            for kind, names in ((TOPIC, ("nowhere", "")), (BROKER, ("9", "x", "")), (0, ("x",)), (1, ("x",)))
            for name in names
        ],
        [
            "UNKNOWN_TOPIC_OR_PARTITION",
            "INVALID_TOPIC_EXCEPTION",
            "INVALID_REQUEST",
            "INVALID_REQUEST",
            "NONE",
            "INVALID_REQUEST",
            "INVALID_REQUEST",
        ],
    ),
    "names and types of a topic's settings": (
        lambda s: s.types(),
        {
            "cleanup.policy": 7,
            "compression.gzip.level": 3,
            "compression.lz4.level": 3,
            "compression.type": 2,
            "compression.zstd.level": 3,
            "delete.retention.ms": 5,
            "file.delete.delay.ms": 5,
            "flush.messages": 5,
            "flush.ms": 5,
            "follower.replication.throttled.replicas": 7,
            "index.interval.bytes": 3,
            "leader.replication.throttled.replicas": 7,
            "local.retention.bytes": 5,
            "local.retention.ms": 5,
            "max.compaction.lag.ms": 5,
            "max.message.bytes": 3,
            "message.timestamp.after.max.ms": 5,
            "message.timestamp.before.max.ms": 5,
            "message.timestamp.type": 2,
            "min.cleanable.dirty.ratio": 6,
            "min.compaction.lag.ms": 5,
            "min.insync.replicas": 3,
            "preallocate": 1,
            "remote.log.copy.disable": 1,
            "remote.log.delete.on.disable": 1,
            "remote.storage.enable": 1,
            "retention.bytes": 5,
            "retention.ms": 5,
            "segment.bytes": 3,
            "segment.index.bytes": 3,
            "segment.jitter.ms": 5,
            "segment.ms": 5,
            "unclean.leader.election.enable": 1,
        },
    ),
    "what can have settings": (
        lambda s: [s.resources(), s.resources(BROKER), s.resources(METRICS, GROUP), s.resources(9)],
        [
            [(TOPIC, "orders"), (TOPIC, "refunds"), (BROKER, "1"), (LOGGER, "1")],
            [(BROKER, "1")],
            [],
            [(errors.UNSUPPORTED_VERSION, "")],
        ],
    ),
    "the first version knows only of metrics": (lambda s: s.resources(version=0), []),
    "levels of a feature": (
        lambda s: s.levels((1, DOWNGRADE), (0, DOWNGRADE), (2, UPGRADE), (0, UNSAFE), (1, UPGRADE), (2, UPGRADE)),
        [(1, True), (0, True), (2, True), (0, True), (1, True), (2, True)],
    ),
    "a level that is there already": (
        lambda s: [s.feature(("transaction.version", 2, how))[0] for how in (UPGRADE, DOWNGRADE)],
        ["NONE", "NONE"],
    ),
    "a downgrade that is not called one": (
        lambda s: [s.feature(("transaction.version", 1, UPGRADE), version=version) for version in (0, 1, 2)],
        [NO_DOWNGRADE] * 3,
    ),
    "levels that cannot be": (
        lambda s: [
            s.feature(("transaction.version", 3, UPGRADE)),
            s.feature(("transaction.version", -1, DOWNGRADE)),
            s.feature(("transaction.version", 1, 0)),
            s.feature(("transaction.version", 1, 9)),
            s.feature(("nonsense", 1, UPGRADE)),
        ],
        [
            bad_update(3, "transaction.version", "Local controller 1 only supports versions 0-2"),
            bad_update(-1, "transaction.version", "A feature version cannot be less than 0."),
            bad_update(1, "transaction.version", "The controller does not support the given upgrade type."),
            bad_update(1, "transaction.version", "The controller does not support the given upgrade type."),
            bad_update(1, "nonsense", "Local controller 1 does not support this feature."),
        ],
    ),
    "features change together": (
        lambda s: [
            s.feature(("transaction.version", 1, DOWNGRADE), ("nonsense", 1, UPGRADE), validate=False)[0],
            s.finalized()[0],
            s.feature(),
        ],
        ["INVALID_UPDATE_VERSION", 2, ("NONE", None, [])],
    ),
    "each feature had a result of its own": (
        lambda s: [s.feature(("transaction.version", 1, DOWNGRADE), version=version) for version in (1, 2)],
        [("NONE", None, ["transaction.version"]), ("NONE", None, [])],
    ),
    "groups that are not there": (
        lambda s: s.delete_groups("nobody", "", "nobody"),
        {"nobody": "GROUP_ID_NOT_FOUND", "": "GROUP_ID_NOT_FOUND"},
    ),
    "a group that only has offsets": (
        lambda s: [s.commit("offsets"), s.delete_groups("offsets"), s.delete_groups("offsets")],
        ["NONE", {"offsets": "NONE"}, {"offsets": "GROUP_ID_NOT_FOUND"}],
    ),
    "a group with members": (
        lambda s: s.with_member("live", "consumer", lambda: s.delete_groups("live")),
        {"live": "NON_EMPTY_GROUP"},
    ),
    "offsets of groups that are not there": (
        lambda s: [s.delete_offsets("nobody", ("orders", 0)), s.delete_offsets("", ("orders", 0))],
        ["GROUP_ID_NOT_FOUND", "INVALID_GROUP_ID"],
    ),
    "offsets that are not there": (
        lambda s: [
            s.commit("some"),
            s.delete_offsets("some", ("orders", 0), ("orders", 1), ("orders", 9), ("nowhere", 0)),
            s.delete_offsets("some"),
            s.delete_groups("some"),
        ],
        [
            "NONE",
            {
                ("orders", 0): "NONE",
                ("orders", 1): "NONE",
                ("orders", 9): "UNKNOWN_TOPIC_OR_PARTITION",
                ("nowhere", 0): "UNKNOWN_TOPIC_OR_PARTITION",
            },
            {},
            {"some": "NONE"},
        ],
    ),
    "offsets of a topic that members read": (
        lambda s: s.with_member(
            "readers", "consumer", lambda: s.delete_offsets("readers", ("orders", 0), ("refunds", 0))
        ),
        {("orders", 0): "GROUP_SUBSCRIBED_TO_TOPIC", ("refunds", 0): "NONE"},
    ),
    "offsets of members with unknown subscriptions": (
        lambda s: s.with_member("workers", "connect", lambda: s.delete_offsets("workers", ("orders", 0))),
        "NON_EMPTY_GROUP",
    ),
    "an election of the present leaders": (
        lambda s: [s.elect(how, ("orders", [0, 2]), version=version) for version in (0, 1, 2) for how in (0, 1)],
        [("NONE", [NOT_NEEDED, NOT_NEEDED])] * 6,
    ),
    "an election without candidates": (
        lambda s: [s.elect(0), s.elect(0, ("orders", [9]), ("nowhere", [0])), s.elect(5, ("orders", [0]))],
        [
            ("NONE", []),
            (
                "NONE",
                [
                    ("UNKNOWN_TOPIC_OR_PARTITION", "No such partition as orders-9"),
                    ("UNKNOWN_TOPIC_OR_PARTITION", "No such topic as nowhere"),
                ],
            ),
            ("INVALID_REQUEST", [("INVALID_REQUEST", "Unknown election type 5")]),
        ],
    ),
    "an election of all": (
        lambda s: [
            (topic.topic, len(topic.partition_result))
            for topic in sorted(s.call(ElectLeadersRequest(0, None), 2).replica_election_results, key=lambda t: t.topic)
            if not topic.topic.startswith("__")
        ],
        [("orders", 0), ("refunds", 0)],
    ),
    "topics by pages": (
        lambda s: [
            s.page("refunds", "orders"),
            s.page("refunds", "orders", limit=2),
            s.page("refunds", "orders", limit=3),
            s.page("refunds", "orders", limit=2, cursor=("orders", 2)),
            s.page("refunds", "orders", cursor=("refunds", 0)),
            s.page("refunds", "refunds", limit=0),
            s.page("refunds", "orders", limit=-1),
            s.page("refunds", "orders", cursor=("orders", 7)),
            s.page(cursor=("orders", 0)),
            s.page(cursor=("p", 5)),
        ],
        [
            ([*BOTH], None),
            ([("orders", "NONE", [0, 1])], ("orders", 2)),
            ([("orders", "NONE", [0, 1, 2])], ("refunds", 0)),
            ([("orders", "NONE", [2]), BOTH[1]], None),
            ([BOTH[1]], None),
            ([BOTH[1]], None),
            ([("orders", "NONE", [0])], ("orders", 1)),
            ([("orders", "NONE", []), BOTH[1]], None),
            ([*BOTH], None),
            ([BOTH[1]], None),
        ],
    ),
    "pages of topics that are not there": (
        lambda s: [
            s.page("nowhere", "bad name"),
            s.page("orders", cursor=("nowhere", 0)),
            s.page("orders", cursor=("orders", -1)),
        ],
        [
            ([("bad name", "INVALID_TOPIC_EXCEPTION", []), ("nowhere", "UNKNOWN_TOPIC_OR_PARTITION", [])], None),
            ([("orders", "INVALID_REQUEST", [])], None),
            ([("orders", "INVALID_REQUEST", [])], None),
        ],
    ),
    "quotas": (
        lambda s: [
            s.quotas(),
            s.quotas(("user", 2, None)),
            s.quotas(("user", 0, "x"), ("client-id", 1, None)),
            s.quotas(("nonsense", 2, None)),
            s.quotas(("user", 7, None)),
            s.quotas(("user", 2, None), ("user", 2, None)),
            s.quotas(("user", 2, None), ("ip", 2, None)),
            s.quotas(("user", 0, None)),
            s.quotas(("user", 2, "x")),
            s.quotas(("", 0, "x")),
        ],
        [("NONE", [])] * 3 + [("UNSUPPORTED_VERSION", None)] + [("INVALID_REQUEST", None)] * 6,
    ),
    "who may do what": (
        lambda s: [
            errors.name_of(s.call(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3).error_code),
            errors.name_of(
                s.call(CreateAclsRequest([CreateAclsRequest.AclCreation(2, "x", 3, "User:x", "*", 2, 3)]), 3)
                .results[0]
                .error_code
            ),
            errors.name_of(
                s.call(DeleteAclsRequest([DeleteAclsRequest.DeleteAclsFilter(1, None, 1, None, None, 1, 1)]), 3)
                .filter_results[0]
                .error_code
            ),
        ],
        ["SECURITY_DISABLED"] * 3,
    ),
    "who may log in": (
        lambda s: [s.scram(), s.scram("x", "y", "x")],
        [{}, {"x": ("DUPLICATE_RESOURCE", TWICE), "y": ("RESOURCE_NOT_FOUND", NO_SUCH_USER)}],
    ),
    "users that are refused": (
        lambda s: [
            s.alter_scram(delete=[("x", 1)]),
            s.alter_scram(delete=[("x", 9)]),
            s.alter_scram(delete=[("", 1)]),
            s.alter_scram(upsert=[("x", 1, 4095)]),
            s.alter_scram(upsert=[("x", 1, 16_385)]),
            s.alter_scram(upsert=[("x", 7, 4096)]),
            s.alter_scram(upsert=[("", 1, 4096)]),
            s.alter_scram(upsert=[("x", 1, 4096), ("x", 2, 4096)]),
            s.alter_scram(delete=[("x", 2)], upsert=[("x", 1, 4096)]),
            s.scram(),
        ],
        [
            {"x": ("RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist")},
            {"x": ("UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism")},
            {"": ("UNACCEPTABLE_CREDENTIAL", "Username must not be empty")},
            {"x": ("UNACCEPTABLE_CREDENTIAL", "Too few iterations")},
            {"x": ("UNACCEPTABLE_CREDENTIAL", "Too many iterations")},
            {"x": ("UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism")},
            {"": ("UNACCEPTABLE_CREDENTIAL", "Username must not be empty")},
            {"x": ("DUPLICATE_RESOURCE", "A user credential cannot be altered twice in the same request")},
            {"x": ("RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist")},
            {},
        ],
    ),
    "users that come and go": (
        lambda s: [
            s.alter_scram(),
            s.alter_scram(upsert=[("x", 1, 4096), ("y", 1, 8192), ("z", 1, 1)]),
            s.alter_scram(upsert=[("x", 2, 16_384)]),
            s.scram(),
            s.alter_scram(delete=[("x", 1), ("x", 2)]),
            s.alter_scram(delete=[("x", 1), ("y", 1)]),
            s.alter_scram(delete=[("x", 2)]),
            s.scram(),
        ],
        [
            {},
            {"x": ("NONE", None), "y": ("NONE", None), "z": ("UNACCEPTABLE_CREDENTIAL", "Too few iterations")},
            {"x": ("NONE", None)},
            {"x": [(1, 4096), (2, 16_384)], "y": [(1, 8192)]},
            {"x": ("DUPLICATE_RESOURCE", "A user credential cannot be altered twice in the same request")},
            {"x": ("NONE", None), "y": ("NONE", None)},
            {"x": ("NONE", None)},
            {},
        ],
    ),
    "partitions that move": (
        lambda s: [
            s.call(ListPartitionReassignmentsRequest(10_000, None), 0).topics,
            s.reassign("orders", 0, [1]),
            s.reassign("orders", 0, None),
            s.reassign("orders", 0, []),
            s.reassign("orders", 0, [1, 2]),
            s.reassign("orders", 9, [1]),
            s.reassign("nowhere", 0, [1]),
        ],
        [
            [],
            ("NONE", None),
            ("NO_REASSIGNMENT_IN_PROGRESS", None),
            ("INVALID_REPLICA_ASSIGNMENT", "The manual partition assignment includes an empty replica list."),
            (
                "INVALID_REPLICA_ASSIGNMENT",
                "The manual partition assignment includes broker 2, but no such broker is registered.",
            ),
            ("UNKNOWN_TOPIC_OR_PARTITION", "Unable to find partition orders:9."),
            ("UNKNOWN_TOPIC_OR_PARTITION", "Unable to find a topic named nowhere."),
        ],
    ),
    "who decides": (
        lambda s: [s.quorum("__cluster_metadata", 0), s.quorum("__cluster_metadata", 1), s.quorum("orders", 0)],
        [
            ("NONE", "", 1),
            ("UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition.", 0),
            ("UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition.", 0),
        ],
    ),
    "where partitions are": (
        lambda s: [s.log_dirs(), s.log_dirs(("orders", [0, 2, 9])), s.log_dirs(("nowhere", [0]))],
        [{}, {"orders": [0, 2]}, {}],
    ),
    "metrics of clients": (
        lambda s: [
            s.call(GetTelemetrySubscriptionsRequest(bytes(15) + b"x"), 0).requested_metrics,
            errors.name_of(s.call(PushTelemetryRequest(bytes(16), 0, False, 0, b""), 0).error_code),
        ],
        [[], "INVALID_REQUEST"],
    ),
}  # fmt: skip
