"""Permissions: the same users and ACLs on two brokers, a request of every API from each user, and all answers.

    collect(Stage(ours)) == collect(Stage(theirs))

`USERS` have the permissions that their names say. `REQUESTS` are what each of them asks; none changes anything that
another answer depends on. An answer is reduced to errors, names and permitted operations (`told`). The answers of
Apache Kafka are in docs/compatibility.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from fencepost.broker.api import APIS
from fencepost.broker.config import STANDARD_AUTHORIZER
from fencepost.machines.acl.acls import CLUSTER_NAME, Acl, Operation, PatternType, PermissionType, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeQuorumRequest,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    GetTelemetrySubscriptionsRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListConfigResourcesRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListPartitionReassignmentsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    PushTelemetryRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
    UpdateFeaturesRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.schema import NO_UUID, Message, Struct

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.consumer.session.timeout.ms": "60000",
}
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32
FOREVER_MS = 900_000


# --- who ----------------------------------------------------------------------------------------------------


def _acl(user: str, text: str) -> Acl:
    """`READ topic:orders`; `ord..` is a prefix; `deny` may come before, `@HOST` after."""
    text, _, host = text.partition(" @")
    permission = PermissionType.DENY if text.startswith("deny ") else PermissionType.ALLOW
    operation, _, resource = text.removeprefix("deny ").partition(" ")
    kind, _, name = resource.partition(":")
    pattern = PatternType.PREFIXED if name.endswith("..") else PatternType.LITERAL
    resource_type = ResourceType[kind.upper()]
    name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else name.removesuffix("..")
    return Acl(resource_type, name, pattern, f"User:{user}", host or "*", Operation[operation], permission)


# `everything-but` has everything, and is denied `secret`, which no other user has.
USERS: Mapping[str, Sequence[str]] = {
    "no-acls": (),
    "describe": ("DESCRIBE topic:orders", "DESCRIBE group:readers", "DESCRIBE transactional_id:t-orders"),
    "read": ("READ topic:orders", "READ group:read.."),
    "write": ("WRITE topic:ord..", "WRITE transactional_id:t-ord.."),
    "read-write": ("READ topic:orders", "WRITE topic:orders", "READ group:readers", "WRITE transactional_id:t-orders"),
    "id-only": ("WRITE transactional_id:*", "READ group:*"),
    "create": ("CREATE topic:new..", "DESCRIBE topic:new.."),
    "alter": ("ALTER topic:orders", "ALTER_CONFIGS topic:orders", "ALTER_CONFIGS group:readers"),
    "delete": ("DELETE topic:gone", "DELETE topic:orders", "DELETE group:gone"),
    "describe-configs": ("DESCRIBE_CONFIGS topic:orders", "DESCRIBE_CONFIGS cluster", "CREATE topic:new.."),
    "cluster-create": ("CREATE cluster", "DESCRIBE topic:new.."),
    "cluster-describe": ("DESCRIBE cluster",),
    "cluster-alter": ("ALTER cluster",),
    "cluster-alter-configs": ("ALTER_CONFIGS cluster",),
    "cluster-action": ("CLUSTER_ACTION cluster",),
    "idempotent-write": ("IDEMPOTENT_WRITE cluster",),
    "elsewhere": ("ALL topic:* @10.9.9.9", "ALL group:* @10.9.9.9", "ALL cluster @10.9.9.9"),
    "everything-but": (
        "ALL topic:*",
        "ALL group:*",
        "ALL transactional_id:*",
        "DESCRIBE cluster",
        "deny ALL topic:secret",
        "deny READ group:secrets",
        "deny ALL transactional_id:t-sec..",
    ),
}
ACLS = [_acl(user, text) for user, texts in USERS.items() for text in texts]


# --- where --------------------------------------------------------------------------------------------------


class Target(Protocol):
    """A broker on which a client can be anyone; None is a super user."""

    def call(self, request: Message, version: int, user: str | None = None) -> Any: ...

    def wait(self) -> None:
        """Called between two attempts."""
        ...


class Stage:
    """A broker with two topics, three groups and two transactions, of which users may see one each."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.topic_ids: dict[str, bytes] = {}
        kind = CreateTopicsRequest.CreatableTopic
        self._until(lambda: self._created([kind("orders", 1, 1), kind("secret", 1, 1)]))
        for topic in self.call(MetadataRequest(None), 12).topics:
            self.topic_ids[topic.name] = topic.topic_id
        for group in ("readers", "secrets"):
            self._until(partial(self._committed, group))
        self._until(self._consumer_group_is_assigned)
        for name in ("t-orders", "t-secret"):
            self._until(partial(self._begun, name))

    def call(self, request: Message, version: int, user: str | None = None) -> Any:
        return self.target.call(request, version, user)

    def _until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(300):
            if is_done():
                return
            self.target.wait()
        raise AssertionError("the broker is not ready")

    def _created(self, topics: list[CreateTopicsRequest.CreatableTopic]) -> bool:
        self.call(CreateTopicsRequest(topics, 10_000), 5)
        named = [MetadataRequest.MetadataRequestTopic(name=topic.name) for topic in topics]
        found = self.call(MetadataRequest(named), 12).topics
        return all(not topic.error_code and topic.partitions[0].leader_id >= 0 for topic in found)

    def _committed(self, group: str) -> bool:
        self.call(FindCoordinatorRequest(group, 0), 3)
        reply = self.call(_offset_commit(group), 9)
        return all(not p.error_code for topic in reply.topics for p in topic.partitions)

    def _consumer_group_is_assigned(self) -> bool:
        request = ConsumerGroupHeartbeatRequest
        epoch = getattr(self, "_epoch", 0)
        reply = self.call(request("both", "member-1", epoch, None, None, 60_000, ["orders", "secret"], "", None, []), 1)
        self._epoch = 0 if reply.error_code else reply.member_epoch
        return reply.assignment is not None and len(reply.assignment.topic_partitions) == 2

    def _begun(self, name: str) -> bool:
        self.call(FindCoordinatorRequest(name, 1), 3)
        reply = self.call(InitProducerIdRequest(name, FOREVER_MS), 4)
        if reply.error_code:
            return False
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(topic, [0]) for topic in ("orders", "secret")]
        added = self.call(AddPartitionsToTxnRequest((), name, reply.producer_id, reply.producer_epoch, topics), 3)
        return all(
            not p.partition_error_code for t in added.results_by_topic_v3_and_below for p in t.results_by_partition
        )


# --- what ---------------------------------------------------------------------------------------------------


class Ask(NamedTuple):
    """A request, and the users whose answer is not compared, because it is not about permissions."""

    version: int
    make: Callable[[Stage], Message]
    not_as: tuple[str, ...] = ()


def _offset_commit(group: str, *topics: str) -> OffsetCommitRequest:
    request = OffsetCommitRequest
    return request(
        group,
        -1,
        "",
        None,
        -1,
        [
            request.OffsetCommitRequestTopic(name=name, partitions=[request.OffsetCommitRequestPartition(0, 0, -1, "")])
            for name in topics or ("orders", "secret")
        ],
    )


def _produce(stage: Stage, version: int, transactional_id: str | None = None) -> ProduceRequest:
    request = ProduceRequest
    producer = (7_777, 0, 0, True) if transactional_id else (-1, -1, -1, False)
    records = encode_batch([(None, b"x")], 1_700_000_000_000, *producer)
    data = [request.PartitionProduceData(0, records)]
    if version >= 13:
        ids = [stage.topic_ids["orders"], stage.topic_ids["secret"], bytes([9] * 16)]
        topics = [request.TopicProduceData(topic_id=topic_id, partition_data=data) for topic_id in ids]
    else:
        topics = [request.TopicProduceData(name=name, partition_data=data) for name in ("orders", "secret", "missing")]
    return request(transactional_id, -1, 10_000, topics)


def _fetch(stage: Stage, version: int, replica_id: int = -1) -> FetchRequest:
    request = FetchRequest
    partitions = [request.FetchPartition(0, -1, 0, -1, -1, 1_000)]
    if version >= 13:
        ids = [stage.topic_ids["orders"], stage.topic_ids["secret"], bytes([9] * 16)]
        topics = [request.FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id in ids]
    else:
        topics = [request.FetchTopic(topic=name, partitions=partitions) for name in ("orders", "secret", "missing")]
    return request(replica_id=replica_id, max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=topics)


def _metadata(*names: str, create: bool = False, operations: bool = False) -> MetadataRequest:
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(wanted, create, operations, operations)


def _metadata_by_id(stage: Stage) -> MetadataRequest:
    ids = [stage.topic_ids["orders"], stage.topic_ids["secret"], bytes([9] * 16)]
    return MetadataRequest([MetadataRequest.MetadataRequestTopic(topic_id, None) for topic_id in ids])


def _list_offsets() -> ListOffsetsRequest:
    request = ListOffsetsRequest
    wanted = [request.ListOffsetsPartition(0, -1, -1)]
    return request(-1, 0, [request.ListOffsetsTopic(name, wanted) for name in ("orders", "secret", "missing")])


def _offset_fetch_old(*topics: str) -> OffsetFetchRequest:
    named = [OffsetFetchRequest.OffsetFetchRequestTopic(name, [0]) for name in topics]
    return OffsetFetchRequest("readers", named or None)


def _offset_fetch(stage: Stage, version: int, *topics: str) -> OffsetFetchRequest:
    request = OffsetFetchRequest
    named = [
        request.OffsetFetchRequestTopics(name, stage.topic_ids[name] if version >= 10 else NO_UUID, [0])
        for name in topics
    ]
    groups = [request.OffsetFetchRequestGroup(group_id=group, topics=named or None) for group in ("readers", "secrets")]
    return request(groups=groups)


def _join(group: str) -> JoinGroupRequest:
    request = JoinGroupRequest
    protocols = [request.JoinGroupRequestProtocol("range", b"")]
    return request(group, 10_000, 10_000, "unknown", None, "consumer", protocols)


def _leave(version: int) -> LeaveGroupRequest:
    if version < 3:
        return LeaveGroupRequest("readers", "unknown")
    return LeaveGroupRequest("readers", "", [LeaveGroupRequest.MemberIdentity("unknown", None)])


def _create_topics(*names: str) -> CreateTopicsRequest:
    topics = [CreateTopicsRequest.CreatableTopic(name, 1, 1) for name in names]
    return CreateTopicsRequest(topics, 10_000, validate_only=True)


def _delete_topics_by_id(stage: Stage) -> DeleteTopicsRequest:
    ids = [stage.topic_ids["secret"], bytes([9] * 16)]
    states = [DeleteTopicsRequest.DeleteTopicState(None, topic_id) for topic_id in ids]
    return DeleteTopicsRequest(states, (), 10_000)


def _delete_topics(*names: str) -> DeleteTopicsRequest:
    states = [DeleteTopicsRequest.DeleteTopicState(name, NO_UUID) for name in names]
    return DeleteTopicsRequest(states, (), 10_000)


def _delete_records() -> DeleteRecordsRequest:
    request = DeleteRecordsRequest
    wanted = [request.DeleteRecordsPartition(0, 0)]
    return request([request.DeleteRecordsTopic(name, wanted) for name in ("orders", "secret", "missing")], 10_000)


def _leader_epoch() -> OffsetForLeaderEpochRequest:
    request = OffsetForLeaderEpochRequest
    wanted = [request.OffsetForLeaderPartition(0, -1, 0)]
    return request(-1, [request.OffsetForLeaderTopic(name, wanted) for name in ("orders", "secret", "missing")])


def _add_partitions(name: str, *topics: str) -> AddPartitionsToTxnRequest:
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest((), name, 7_777, 0, [kind(topic, [0]) for topic in topics])


def _add_partitions_of_broker() -> AddPartitionsToTxnRequest:
    request = AddPartitionsToTxnRequest
    topics = [request.AddPartitionsToTxnTopic("orders", [0])]
    return request([request.AddPartitionsToTxnTransaction("t-orders", 7_777, 0, True, topics)])


def _markers() -> WriteTxnMarkersRequest:
    request = WriteTxnMarkersRequest
    topics = [request.WritableTxnMarkerTopic(name, [0]) for name in ("orders", "missing")]
    return request([request.WritableTxnMarker(8_888, 0, False, topics, 0)])


def _txn_offset_commit(name: str, group: str) -> TxnOffsetCommitRequest:
    request = TxnOffsetCommitRequest
    wanted = [request.TxnOffsetCommitRequestPartition(0, 5, -1, "")]
    topics = [request.TxnOffsetCommitRequestTopic(topic, wanted) for topic in ("orders", "secret", "missing")]
    return request(name, group, 7_777, 0, -1, "", None, topics)


def _describe_acls() -> DescribeAclsRequest:
    return DescribeAclsRequest(1, None, 1, None, None, 1, 1)


def _create_acls() -> CreateAclsRequest:
    """One is good and named twice; the others have a wrong name, none, no type of the principal, unknown numbers."""
    kind = CreateAclsRequest.AclCreation
    good = kind(2, "mallorys", 3, "User:mallory", "*", 3, 3)
    return CreateAclsRequest(
        [
            good,
            kind(4, "mallorys", 3, "User:mallory", "*", 3, 3),
            kind(2, "", 3, "User:mallory", "*", 3, 3),
            kind(2, "mallorys", 3, "mallory", "*", 3, 3),
            kind(99, "mallorys", 3, "User:mallory", "*", 3, 3),
            kind(2, "mallorys", 3, "User:mallory", "*", 99, 3),
            good,
        ]
    )


def _delete_acls() -> DeleteAclsRequest:
    kind = DeleteAclsRequest.DeleteAclsFilter
    return DeleteAclsRequest(
        [
            kind(1, None, 1, "User:mallory", None, 1, 1),
            kind(2, "mallorys-1", 2, "User:mallory", None, 1, 1),
            kind(2, "mallorys", 3, "User:mallory", None, 99, 1),
        ]
    )


def _describe_configs(kind: int, *names: str) -> DescribeConfigsRequest:
    request = DescribeConfigsRequest
    return request([request.DescribeConfigsResource(kind, name, []) for name in names])


def _alter_configs(kind: int, *names: str) -> AlterConfigsRequest:
    request = AlterConfigsRequest
    return request([request.AlterConfigsResource(kind, name, []) for name in names], True)


def _incremental_alter(kind: int, *names: str) -> IncrementalAlterConfigsRequest:
    request = IncrementalAlterConfigsRequest
    return request([request.AlterConfigsResource(kind, name, []) for name in names], True)


def _create_partitions() -> CreatePartitionsRequest:
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    return CreatePartitionsRequest([kind(name, 2, None) for name in ("orders", "secret", "missing")], 10_000, True)


def _elect() -> ElectLeadersRequest:
    return ElectLeadersRequest(0, [ElectLeadersRequest.TopicPartitions("orders", [0])], 10_000)


def _reassign() -> AlterPartitionReassignmentsRequest:
    request = AlterPartitionReassignmentsRequest
    return request(10_000, True, [request.ReassignableTopic("orders", [request.ReassignablePartition(0, None)])])


def _offset_delete(group: str) -> OffsetDeleteRequest:
    request = OffsetDeleteRequest
    wanted = [request.OffsetDeleteRequestPartition(0)]
    return request(group, [request.OffsetDeleteRequestTopic(name, wanted) for name in ("orders", "secret", "missing")])


def _alter_quotas() -> AlterClientQuotasRequest:
    request = AlterClientQuotasRequest
    entry = request.EntryData([request.EntityData("user", "alice")], [request.OpData("producer_byte_rate", 1.0, False)])
    return request([entry], True)


def _scram_credentials() -> DescribeUserScramCredentialsRequest:
    request = DescribeUserScramCredentialsRequest
    return request([request.UserName("unknown")])


def _alter_scram_credentials() -> AlterUserScramCredentialsRequest:
    request = AlterUserScramCredentialsRequest
    return request([request.ScramCredentialDeletion("unknown", 1)])


def _quorum() -> DescribeQuorumRequest:
    request = DescribeQuorumRequest
    return request([request.TopicData("__cluster_metadata", [request.PartitionData(0)])])


def _features() -> UpdateFeaturesRequest:
    kind = UpdateFeaturesRequest.FeatureUpdateKey
    return UpdateFeaturesRequest(10_000, [kind("transaction.version", 2, False, 1)], True)


def _producers() -> DescribeProducersRequest:
    kind = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest([kind(name, [0]) for name in ("secret", "missing")])


def _heartbeat(group: str, *topics: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group, "unknown", 5, None, None, -1, list(topics) or None, None, None, None)


def _topic_partitions(*names: str) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest([DescribeTopicPartitionsRequest.TopicRequest(name) for name in names])


REQUESTS: Mapping[str, Ask] = {
    "Produce": Ask(9, lambda s: _produce(s, 9)),
    "Produce with topic ids": Ask(13, lambda s: _produce(s, 13)),
    "Produce in a transaction": Ask(11, lambda s: _produce(s, 11, "t-orders")),
    "Produce in a transaction of another user": Ask(11, lambda s: _produce(s, 11, "t-secret")),
    "Fetch": Ask(11, lambda s: _fetch(s, 11)),
    "Fetch with topic ids": Ask(13, lambda s: _fetch(s, 13)),
    "Fetch of a broker": Ask(11, lambda s: _fetch(s, 11, 2), ("cluster-action",)),
    "ListOffsets": Ask(8, lambda s: _list_offsets()),
    "Metadata of all topics": Ask(12, lambda s: MetadataRequest(None, False, False, True)),
    "Metadata": Ask(9, lambda s: _metadata("orders", "secret", "missing", operations=True)),
    "Metadata with topic ids": Ask(12, _metadata_by_id),
    "Metadata that would create topics": Ask(
        12, lambda s: _metadata("other", create=True), ("everything-but", "cluster-create")
    ),
    "Metadata that may not create topics": Ask(12, lambda s: _metadata("new-1", create=False)),
    "OffsetCommit": Ask(9, lambda s: _offset_commit("readers", "orders", "secret", "missing")),
    "OffsetCommit of another group": Ask(9, lambda s: _offset_commit("secrets", "orders", "secret")),
    "OffsetFetch v1": Ask(1, lambda s: _offset_fetch_old("orders", "secret")),
    "OffsetFetch v7": Ask(7, lambda s: _offset_fetch_old("orders", "secret")),
    "OffsetFetch v7 of all topics": Ask(7, lambda s: _offset_fetch_old()),
    "OffsetFetch": Ask(9, lambda s: _offset_fetch(s, 9, "orders", "secret")),
    "OffsetFetch of all topics": Ask(9, lambda s: _offset_fetch(s, 9)),
    "OffsetFetch with topic ids": Ask(10, lambda s: _offset_fetch(s, 10, "orders", "secret")),
    "FindCoordinator v3 of a group": Ask(3, lambda s: FindCoordinatorRequest("readers", 0)),
    "FindCoordinator v3 of a transactional id": Ask(3, lambda s: FindCoordinatorRequest("t-orders", 1)),
    "FindCoordinator of groups": Ask(4, lambda s: FindCoordinatorRequest("", 0, ["readers", "secrets"])),
    "FindCoordinator of transactional ids": Ask(4, lambda s: FindCoordinatorRequest("", 1, ["t-orders", "t-secret"])),
    "JoinGroup v5": Ask(5, lambda s: _join("readers")),
    "JoinGroup": Ask(9, lambda s: _join("readers")),
    "JoinGroup of another group": Ask(9, lambda s: _join("secrets")),
    "Heartbeat": Ask(4, lambda s: HeartbeatRequest("readers", 1, "unknown", None)),
    "LeaveGroup v2": Ask(2, lambda s: _leave(2)),
    "LeaveGroup": Ask(5, lambda s: _leave(5)),
    "SyncGroup": Ask(5, lambda s: SyncGroupRequest("readers", 1, "unknown", None, "consumer", "range", [])),
    "DescribeGroups": Ask(6, lambda s: DescribeGroupsRequest(["readers", "secrets"], True)),
    "ListGroups": Ask(5, lambda s: ListGroupsRequest()),
    "ApiVersions": Ask(2, lambda s: ApiVersionsRequest()),
    "CreateTopics": Ask(7, lambda s: _create_topics("new-1", "other")),
    "DeleteTopics": Ask(6, lambda s: _delete_topics("secret", "gone", "missing")),
    "DeleteTopics of a topic that exists": Ask(6, lambda s: _delete_topics("orders"), ("delete", "everything-but")),
    "DeleteTopics with topic ids": Ask(6, _delete_topics_by_id),
    "DeleteRecords": Ask(2, lambda s: _delete_records()),
    "InitProducerId": Ask(4, lambda s: InitProducerIdRequest("t-orders-2", 60_000)),
    "InitProducerId with the id of another user": Ask(
        4, lambda s: InitProducerIdRequest("t-secret", 60_000), ("id-only",)
    ),
    "InitProducerId without transactions": Ask(4, lambda s: InitProducerIdRequest(None, 60_000)),
    "OffsetForLeaderEpoch": Ask(4, lambda s: _leader_epoch()),
    "AddPartitionsToTxn": Ask(3, lambda s: _add_partitions("t-orders", "orders")),
    "AddPartitionsToTxn of several topics": Ask(
        3, lambda s: _add_partitions("t-orders", "orders", "secret", "missing")
    ),
    "AddPartitionsToTxn of another user": Ask(3, lambda s: _add_partitions("t-secret", "orders")),
    "AddPartitionsToTxn of a broker": Ask(5, lambda s: _add_partitions_of_broker()),
    "AddOffsetsToTxn": Ask(3, lambda s: AddOffsetsToTxnRequest("t-orders", 7_777, 0, "readers")),
    "AddOffsetsToTxn of another group": Ask(3, lambda s: AddOffsetsToTxnRequest("t-orders", 7_777, 0, "secrets")),
    "EndTxn": Ask(3, lambda s: EndTxnRequest("t-orders", 7_777, 0, True)),
    "EndTxn of another user": Ask(5, lambda s: EndTxnRequest("t-secret", 7_777, 0, True)),
    "WriteTxnMarkers": Ask(1, lambda s: _markers()),
    "TxnOffsetCommit": Ask(3, lambda s: _txn_offset_commit("t-orders", "readers")),
    "TxnOffsetCommit of another group": Ask(3, lambda s: _txn_offset_commit("t-orders", "secrets")),
    "TxnOffsetCommit of another user": Ask(3, lambda s: _txn_offset_commit("t-secret", "readers")),
    "DescribeAcls": Ask(3, lambda s: _describe_acls()),
    "CreateAcls": Ask(3, lambda s: _create_acls()),
    "DeleteAcls": Ask(3, lambda s: _delete_acls()),
    "DescribeConfigs of topics": Ask(4, lambda s: _describe_configs(TOPIC_RESOURCE, "orders", "secret", "missing")),
    "DescribeConfigs of a broker": Ask(4, lambda s: _describe_configs(BROKER_RESOURCE, "1")),
    "DescribeConfigs of a group": Ask(4, lambda s: _describe_configs(GROUP_RESOURCE, "readers")),
    "AlterConfigs of topics": Ask(2, lambda s: _alter_configs(TOPIC_RESOURCE, "orders", "secret", "missing")),
    "AlterConfigs of a broker": Ask(2, lambda s: _alter_configs(BROKER_RESOURCE, "1")),
    "IncrementalAlterConfigs of topics": Ask(
        1, lambda s: _incremental_alter(TOPIC_RESOURCE, "orders", "secret", "missing")
    ),
    "IncrementalAlterConfigs of a broker": Ask(1, lambda s: _incremental_alter(BROKER_RESOURCE, "1")),
    "IncrementalAlterConfigs of an unknown broker": Ask(1, lambda s: _incremental_alter(BROKER_RESOURCE, "7")),
    "IncrementalAlterConfigs of an unknown type": Ask(1, lambda s: _incremental_alter(99, "x")),
    "IncrementalAlterConfigs of groups": Ask(1, lambda s: _incremental_alter(GROUP_RESOURCE, "readers", "secrets")),
    "DescribeLogDirs": Ask(4, lambda s: DescribeLogDirsRequest(None)),
    "CreatePartitions": Ask(3, lambda s: _create_partitions()),
    "DeleteGroups": Ask(2, lambda s: DeleteGroupsRequest(["gone", "unknown"])),
    "ElectLeaders": Ask(2, lambda s: _elect()),
    "AlterPartitionReassignments": Ask(0, lambda s: _reassign()),
    "ListPartitionReassignments": Ask(0, lambda s: ListPartitionReassignmentsRequest(10_000, None)),
    "OffsetDelete": Ask(0, lambda s: _offset_delete("gone")),
    "OffsetDelete of a group that exists": Ask(0, lambda s: _offset_delete("readers")),
    "DescribeClientQuotas": Ask(1, lambda s: DescribeClientQuotasRequest([], False)),
    # Fencepost has no quotas, and refuses users that may change them.
    "AlterClientQuotas": Ask(1, lambda s: _alter_quotas(), ("cluster-alter-configs",)),
    "DescribeUserScramCredentials": Ask(0, lambda s: _scram_credentials()),
    "AlterUserScramCredentials": Ask(0, lambda s: _alter_scram_credentials()),
    "DescribeQuorum": Ask(1, lambda s: _quorum()),
    "UpdateFeatures": Ask(1, lambda s: _features()),
    "DescribeCluster": Ask(1, lambda s: DescribeClusterRequest(True)),
    "DescribeProducers": Ask(0, lambda s: _producers()),
    "DescribeTransactions": Ask(0, lambda s: DescribeTransactionsRequest(["t-orders", "t-secret", "unknown"])),
    "ListTransactions": Ask(1, lambda s: ListTransactionsRequest()),
    "ConsumerGroupHeartbeat": Ask(1, lambda s: _heartbeat("read-1")),
    "ConsumerGroupHeartbeat with topics": Ask(1, lambda s: _heartbeat("read-1", "orders", "secret")),
    "ConsumerGroupDescribe": Ask(1, lambda s: ConsumerGroupDescribeRequest(["both", "unknown"], True)),
    "GetTelemetrySubscriptions": Ask(0, lambda s: GetTelemetrySubscriptionsRequest(NO_UUID)),
    "PushTelemetry": Ask(0, lambda s: PushTelemetryRequest(NO_UUID)),
    "ListConfigResources": Ask(1, lambda s: ListConfigResourcesRequest([2])),
    "DescribeTopicPartitions": Ask(0, lambda s: _topic_partitions("orders", "secret", "missing")),
    "DescribeTopicPartitions of all topics": Ask(0, lambda s: _topic_partitions()),
}


Answers = dict[str, dict[str, Any]]

# --- answers ------------------------------------------------------------------------------------------------

NAMES = frozenset({"name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "key"})
ACL_FIELDS = frozenset({"principal", "host", "operation", "permission_type", "pattern_type", "resource_type"})
INTERNAL = "__"
NOTHING: tuple[Any, ...] = ("NONE", "", None, [], {}, -(2**31))  # -2^31: the client did not ask for the operations.
# Both brokers have these, but not the same ones.
UNLIKE = frozenset({"configs", "api_keys", "brokers", "nodes", "supported_features", "finalized_features"})


def told(stage: Stage, value: Any) -> Any:
    """What an answer tells: errors by name, names, permitted operations, and nothing that two brokers do not share."""
    is_acl = hasattr(value, "permission_type") or hasattr(value, "acls")
    by_id = {topic_id: name for name, topic_id in stage.topic_ids.items()}
    found: dict[str, Any] = {}
    for name in value.__slots__:
        part = getattr(value, name)
        if name in UNLIKE:
            continue
        if name.endswith("error_code"):
            found[name] = errors.name_of(part)
        elif name == "topic_id":
            found[name] = by_id.get(part, "")
        elif name in NAMES or name.endswith("authorized_operations") or (is_acl and name in ACL_FIELDS):
            found[name] = part
        elif isinstance(part, Struct) and (inner := told(stage, part)):
            found[name] = inner
        elif isinstance(part, list | tuple) and part and isinstance(part[0], Struct):
            found[name] = _listed(stage, part)
    return {name: part for name, part in found.items() if part not in NOTHING}


def _listed(stage: Stage, items: Sequence[Struct]) -> list[Any]:
    every = [told(stage, item) for item in items]
    visible = [one for one in every if not any(str(one.get(name, "")).startswith(INTERNAL) for name in NAMES)]
    return sorted(visible, key=repr)


def collect(stage: Stage) -> Answers:
    """The answer to every request of every user."""
    found: Answers = {}
    for name, ask in REQUESTS.items():
        for user in USERS:
            if user not in ask.not_as:
                reply = stage.call(ask.make(stage), ask.version, user)
                found.setdefault(name, {})[user] = told(stage, reply)
    return found


def summary(found: Answers) -> dict[str, list[list[str]]]:
    """For each request, who gets which answer: [users, answer], the answer of most users last."""
    rows: dict[str, list[list[str]]] = {}
    for name, by_user in found.items():
        users: dict[str, list[str]] = {}
        for user, answer in by_user.items():
            users.setdefault(in_words(answer), []).append(user)
        grouped = sorted(users.items(), key=lambda group: len(group[1]))
        rows[name] = [[", ".join(who), answer] for answer, who in grouped]
    return rows


def in_words(answer: Any) -> str:
    """`TOPIC_AUTHORIZATION_FAILED: secret; NONE: orders`."""
    by_outcome: dict[str, list[str]] = {}
    for outcome, name in _outcomes(answer, ""):
        by_outcome.setdefault(outcome, []).append(name)
    parts = []
    for outcome, names in sorted(by_outcome.items()):
        distinct = ", ".join(dict.fromkeys(name for name in names if name))
        parts.append(f"{outcome}: {distinct}" if distinct else outcome)
    return "; ".join(parts) or "NONE"


def _outcomes(answer: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    """(error, name) of all parts of an answer that have no parts themselves."""
    if "permission_type" in answer:
        return
    name = next((str(answer[key]) for key in (*sorted(NAMES), "topic_id") if answer.get(key)), above)
    error = answer.get("error_code") or answer.get("partition_error_code") or "NONE"
    bits = next((part for key, part in answer.items() if key.endswith("authorized_operations")), None)
    if "topic_config_error_code" in answer:
        name = f"{name} (settings: {answer['topic_config_error_code']})"
    is_cluster = bits is not None and not name
    if is_cluster:
        yield f"cluster ({_operations(bits)})", ""
    elif bits is not None:
        name = f"{name} ({_operations(bits)})"
    parts = [one for part in answer.values() if isinstance(part, list) for one in part]
    inner = [found for one in parts for found in _outcomes(one, name)]
    if error != "NONE" or not (inner or is_cluster):
        yield error, name
    yield from (found for found in inner if error == "NONE" or found[0] not in (error, "NONE"))


def _operations(bits: int | None) -> str:
    return " ".join(operation.name for operation in Operation if (bits or 0) & 1 << operation) or "none"


def api_of(name: str) -> str:
    return name.split(" ")[0]


def missing_apis() -> list[str]:
    """The APIs of Kafka that no request is sent to. Those of the login need no permission."""
    asked = {api_of(name) for name in REQUESTS} | {"SaslHandshake", "SaslAuthenticate"}
    return sorted(api.name for api in APIS.values() if api.key < 10_000 and api.name not in asked)
