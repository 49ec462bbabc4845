"""Permissions on a broker without sockets: a refusal changes nothing and tells nothing; ACLs take effect at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.broker.acls import change_acls
from fencepost.broker.config import STANDARD_AUTHORIZER, BadSetting, parse
from fencepost.broker.rpcs import SeenRpc
from fencepost.machines.acl.acls import Acl, Denial, Operation, PatternType, PermissionType, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    ConsumerGroupHeartbeatRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeRpcsRequest,
    FetchRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    MetadataRequest,
    OrderNodesRequest,
    ProduceRequest,
)
from fencepost.protocol.schema import Malformed
from tests.conformance.permissions import ACLS, REQUESTS, SETTINGS, Stage
from tests.group_shard import subscription
from tests.pure_broker import PureBroker

ALICE = "User:alice"
NO_USER_DATA = b"\xff\xff\xff\xff"


class Target:
    """A broker with the users of the comparison; None is a super user."""

    def __init__(self, acls: Sequence[Acl] = ACLS) -> None:
        self.broker = PureBroker(SETTINGS)
        change_acls(self.broker.cluster, frozenset(acls))

    def call(self, request: Any, version: int, user: str | None = None) -> Any:
        self.broker.principal = f"User:{user or 'ANONYMOUS'}"
        return self.broker.call(request, version)

    def wait(self) -> None:
        self.broker.advance(10)


def guarded(*acls: Acl, **settings: str) -> PureBroker:
    """A broker whose client is alice, with the topics `orders` and `secret`."""
    broker = PureBroker(SETTINGS | {name.replace("_", "."): value for name, value in settings.items()})
    for name in ("orders", "secret"):
        broker.cluster.create_topic(name, 1, {}, broker.now_ms)
    change_acls(broker.cluster, frozenset(acls))
    broker.principal = ALICE
    return broker


def allow(operation: str, kind: str, name: str, pattern: PatternType = PatternType.LITERAL) -> Acl:
    return Acl(ResourceType[kind], name, pattern, ALICE, "*", Operation[operation], PermissionType.ALLOW)


def all_that_is_stored(broker: PureBroker) -> tuple[bytes | None, dict[str, int]]:
    ends = {
        f"{topic.name}-{index}": partition.log.end_offset
        for topic in broker.cluster.topics.values()
        for index, partition in topic.partitions.items()
    }
    return broker.storage.load_metadata(), ends


# --- a refusal ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["no-acls", "elsewhere"])
def test_a_client_without_permissions_changes_nothing_with_any_request(user: str) -> None:
    target = Target()
    stage = Stage(target)
    before = all_that_is_stored(target.broker)
    for name, ask in REQUESTS.items():
        stage.call(ask.make(stage), ask.version, user)
        assert all_that_is_stored(target.broker) == before, name


def test_a_client_without_permissions_does_not_even_make_the_broker_create_its_own_topics() -> None:
    broker = guarded()
    stage = Stage.__new__(Stage)
    stage.topic_ids = {name: topic.topic_id for name, topic in broker.cluster.topics.items()}
    for ask in REQUESTS.values():
        broker.call(ask.make(stage), ask.version)
    assert set(broker.cluster.topics) == {"orders", "secret"}


@pytest.mark.parametrize("user", ["no-acls", "describe", "read", "write", "create", "delete", "elsewhere"])
def test_no_answer_has_a_name_that_the_client_may_not_see_and_did_not_send(user: str) -> None:
    target = Target()
    stage = Stage(target)
    hidden = stage.topic_ids["secret"]
    for name, ask in REQUESTS.items():
        if user in ask.not_as:
            continue
        request = ask.make(stage)
        asked = request.encode(ask.version)
        target.broker.principal = f"User:{user}"
        pending = target.broker.send(request, ask.version)
        [answer] = pending.connection.frames
        assert b"secret" in asked or b"secret" not in answer, name
        assert hidden in asked or hidden not in answer, name


def test_the_fast_paths_are_checked_too() -> None:
    """Their requests are those that a broker without an authorizer answers from their bytes."""
    batch = encode_batch([(None, b"x")], 0, 7, 0, 0, True)
    data = ProduceRequest.TopicProduceData(
        name="orders", partition_data=[ProduceRequest.PartitionProduceData(0, batch)]
    )
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("orders", [0])]
    broker = guarded(allow("WRITE", "TRANSACTIONAL_ID", "mine"))
    for name, expected in (
        ("mine", errors.TOPIC_AUTHORIZATION_FAILED),
        ("yours", errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ):
        for version in range(9, 13):
            reply = broker.call(ProduceRequest(name, -1, 1000, [data]), version)
            assert reply.responses[0].partition_responses[0].error_code == expected
        for version in range(4):
            reply = broker.call(AddPartitionsToTxnRequest((), name, 7, 0, topics), version)
            [result] = reply.results_by_topic_v3_and_below
            assert result.results_by_partition[0].partition_error_code == expected


def test_what_is_refused_is_reported_and_what_is_left_out_of_a_list_is_not() -> None:
    broker = guarded(allow("DESCRIBE", "TOPIC", "orders"))
    denials: list[Denial] = []
    broker.cluster.on_denied = denials.append
    broker.call(MetadataRequest(None), 12)
    assert denials == []
    broker.call(MetadataRequest([MetadataRequest.MetadataRequestTopic(name="secret")]), 12)
    assert denials == [Denial(ALICE, "127.0.0.1", Operation.DESCRIBE, ResourceType.TOPIC, "secret", 3)]


def test_a_fetch_waits_for_the_topics_that_it_may_read_and_not_for_those_that_it_may_not() -> None:
    broker = guarded(allow("READ", "TOPIC", "orders"))
    partitions = [FetchRequest.FetchPartition(0, -1, 0, partition_max_bytes=1000)]
    topics = [FetchRequest.FetchTopic(name, partitions=partitions) for name in ("secret", "orders")]
    waiting = broker.send(FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=-1, topics=topics), 11)
    assert not waiting.connection.is_answered
    broker.advance(500)
    codes = {topic.topic: topic.partitions[0].error_code for topic in waiting.response.responses}
    assert codes == {"orders": errors.NONE, "secret": errors.TOPIC_AUTHORIZATION_FAILED}
    denied = broker.send(FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=-1, topics=topics[:1]), 11)
    assert denied.connection.is_answered


def test_a_denied_request_without_an_answer_costs_the_connection() -> None:
    batch = encode_batch([(None, b"x")], 0)
    data = ProduceRequest.TopicProduceData(
        name="orders", partition_data=[ProduceRequest.PartitionProduceData(0, batch)]
    )
    broker = guarded()
    pending = broker.send(ProduceRequest(None, 0, 1000, [data]), 9)
    assert pending.connection.closed == "a Produce request with acks=0 failed"
    assert broker.cluster.topics["orders"].partitions[0].high_watermark == 0


# --- topics that are created on first use -------------------------------------------------------------------


def ask_for(broker: PureBroker, name: str) -> int:
    reply = broker.call(MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name)], True), 12)
    return int(reply.topics[0].error_code)


@pytest.mark.parametrize("grant", [("TOPIC", "new"), ("CLUSTER", "kafka-cluster")])
def test_a_topic_is_created_for_a_client_that_may_create_it(grant: tuple[str, str]) -> None:
    broker = guarded(allow("DESCRIBE", "TOPIC", "new"), allow("CREATE", *grant))
    assert ask_for(broker, "new") == errors.NONE
    assert "new" in broker.cluster.topics


def test_a_topic_is_not_created_for_a_client_that_may_only_see_it() -> None:
    broker = guarded(allow("DESCRIBE", "TOPIC", "new"))
    assert ask_for(broker, "new") == errors.TOPIC_AUTHORIZATION_FAILED
    assert "new" not in broker.cluster.topics


# --- ACLs ---------------------------------------------------------------------------------------------------


def creation(
    kind: int = 2, name: str = "orders", pattern: int = 3, principal: str = ALICE, operation: int = 3
) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(kind, name, pattern, principal, "*", operation, 3)


def create(broker: PureBroker, *creations: CreateAclsRequest.AclCreation) -> list[str]:
    reply = broker.call(CreateAclsRequest(list(creations)), 3)
    return [errors.name_of(result.error_code) for result in reply.results]


def described(broker: PureBroker, name: str | None = None, pattern: int = 1) -> list[str]:
    reply = broker.call(DescribeAclsRequest(1, name, pattern, None, None, 1, 1), 3)
    assert reply.error_code == 0
    return [f"{r.resource_name} {a.principal} {a.operation}" for r in reply.resources for a in r.acls]


def can_read(broker: PureBroker, topic: str = "orders") -> bool:
    partitions = [FetchRequest.FetchPartition(0, -1, 0, partition_max_bytes=1000)]
    request = FetchRequest(
        max_wait_ms=0, session_epoch=-1, topics=[FetchRequest.FetchTopic(topic, partitions=partitions)]
    )
    return not broker.call(request, 11).responses[0].partitions[0].error_code


def as_super_user(broker: PureBroker) -> PureBroker:
    broker.principal = "User:ANONYMOUS"
    return broker


def test_an_acl_counts_from_its_creation_to_its_deletion() -> None:
    broker = guarded()
    assert not can_read(broker)
    assert create(as_super_user(broker), creation(), creation()) == ["NONE", "NONE"]
    assert described(broker) == [f"orders {ALICE} 3"]
    broker.principal = ALICE
    assert can_read(broker)
    assert not can_read(broker, "secret")
    everything = DeleteAclsRequest.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    nothing = DeleteAclsRequest.DeleteAclsFilter(3, None, 1, None, None, 1, 1)
    reply = as_super_user(broker).call(DeleteAclsRequest([everything, nothing]), 3)
    assert [[acl.resource_name for acl in result.matching_acls] for result in reply.filter_results] == [["orders"], []]
    broker.principal = ALICE
    assert not can_read(broker)


def test_bad_acls_are_refused_one_by_one() -> None:
    broker = as_super_user(guarded())
    bad = [creation(name=""), creation(kind=4), creation(pattern=2), creation(principal="alice"), creation(operation=1)]
    assert create(broker, *bad, creation()) == ["INVALID_REQUEST"] * 5 + ["NONE"]
    assert described(broker) == [f"orders {ALICE} 3"]


def test_describe_acls_finds_the_acls_that_concern_a_resource() -> None:
    acls = [
        allow("READ", "TOPIC", "ord", PatternType.PREFIXED),
        allow("READ", "TOPIC", "*"),
        allow("READ", "TOPIC", "orders"),
        allow("READ", "TOPIC", "other"),
    ]
    broker = as_super_user(guarded(*acls))
    assert described(broker, "orders", PatternType.MATCH) == [f"{name} {ALICE} 3" for name in ("*", "ord", "orders")]


def test_a_number_that_kafka_does_not_know_matches_nothing_and_0_is_malformed() -> None:
    broker = as_super_user(guarded())
    with pytest.raises(Malformed, match="none may be 0"):
        create(broker, creation(operation=0))
    with pytest.raises(Malformed, match="none may be 0"):
        described(broker, pattern=0)
    broker = as_super_user(guarded(allow("READ", "TOPIC", "orders")))
    assert create(broker, creation(kind=99), creation(operation=99)) == ["INVALID_REQUEST", "INVALID_REQUEST"]
    assert described(broker, pattern=99) == []


def test_acls_survive_a_restart() -> None:
    broker = guarded()
    create(as_super_user(broker), creation(), creation(5, "t-é", 4, "User:*", 2))
    before = broker.cluster.metadata.acls
    broker.restart()
    assert broker.cluster.metadata.acls == before
    broker.principal = ALICE
    assert can_read(broker)
    assert broker.call(InitProducerIdRequest("t-é-1", 60_000), 4).error_code == errors.NONE


def test_acls_that_cannot_be_saved_do_not_count() -> None:
    broker = guarded(allow("READ", "TOPIC", "secret"))
    broker.storage.full = True
    assert create(as_super_user(broker), creation()) == ["KAFKA_STORAGE_ERROR"]
    everything = DeleteAclsRequest.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    reply = broker.call(DeleteAclsRequest([everything]), 3)
    assert [result.error_code for result in reply.filter_results] == [errors.KAFKA_STORAGE_ERROR]
    broker.storage.full = False
    broker.principal = ALICE
    assert not can_read(broker)
    assert can_read(broker, "secret")


def test_a_folder_with_acls_warns_if_nothing_checks_them() -> None:
    broker = guarded(allow("READ", "TOPIC", "orders"))
    del broker.settings["authorizer.class.name"]
    broker.restart()
    assert "the data folder has 1 ACLs, but authorizer.class.name is not set" in broker.notices[-1]
    assert can_read(broker, "secret")


def test_everybody_may_use_what_no_acl_is_about() -> None:
    broker = guarded(
        Acl(ResourceType.TOPIC, "secret", PatternType.LITERAL, "User:bob", "*", Operation.READ, PermissionType.ALLOW),
        allow_everyone_if_no_acl_found="true",
    )
    assert can_read(broker)
    assert not can_read(broker, "secret")


# --- settings -----------------------------------------------------------------------------------------------


def test_only_kafkas_standard_authorizer_can_be_named() -> None:
    with pytest.raises(BadSetting, match=r"authorizer.class.name=mine is none of \(empty\), org.apache.kafka"):
        parse({"authorizer.class.name": "mine"})
    assert parse({"authorizer.class.name": ""})["authorizer.class.name"] == ""


def test_a_super_user_that_is_no_principal_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"super.users=alice has alice, which is no principal"):
        parse({"super.users": "alice"})


def test_an_authorizer_that_denies_everything_to_every_client_is_warned_about() -> None:
    def warnings(**settings: str) -> list[str]:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return parse({"authorizer.class.name": STANDARD_AUTHORIZER} | given).warnings()

    assert any("super.users is empty" in warning for warning in warnings())
    assert warnings(super_users="User:admin") == []
    assert warnings(allow_everyone_if_no_acl_found="true") == []


# --- what only this broker has, and groups ------------------------------------------------------------------


def test_the_last_requests_of_an_id_are_shown_to_those_who_may_see_the_id() -> None:
    broker = guarded(allow("DESCRIBE", "TRANSACTIONAL_ID", "mine"))
    ended = SeenRpc(0, "EndTxn", 5, None, "10.0.0.7", 1, 7, 0, "commit", 0, 10)
    wrote = ended._replace(name="Produce", about="secret-0")
    broker.cluster.recent_rpcs = lambda transactional_id: [wrote, ended]

    def shown() -> dict[str, list[str]]:
        reply = broker.call(DescribeRpcsRequest(["mine", "yours"]), 0)
        return {found.transactional_id: [rpc.about for rpc in found.rpcs] for found in reply.transactions}

    assert shown() == {"mine": ["", "commit"]}, "without the names of topics and groups"
    change_acls(broker.cluster, broker.cluster.metadata.acls | {allow("DESCRIBE", "CLUSTER", "kafka-cluster")})
    assert shown() == {"mine": ["secret-0", "commit"]}


def test_nodes_are_shown_to_those_who_may_describe_the_cluster_and_ordered_by_those_who_may_alter_it() -> None:
    def codes(broker: PureBroker) -> list[int]:
        return [broker.call(OrderNodesRequest(order, 1), 0).error_code for order in ("describe", "stop")]

    denied, done = errors.CLUSTER_AUTHORIZATION_FAILED, errors.INVALID_REQUEST  # There is no shell to carry it out.
    assert codes(guarded()) == [denied, denied]
    assert codes(guarded(allow("DESCRIBE", "CLUSTER", "kafka-cluster"))) == [done, denied]
    assert codes(guarded(allow("ALTER", "CLUSTER", "kafka-cluster"))) == [done, done]


def test_a_pattern_matches_the_topics_that_the_member_may_see() -> None:
    def beat(epoch: int, owned: list[Any] | None = None) -> list[str]:
        request = ConsumerGroupHeartbeatRequest("g", "m", epoch, None, None, 60_000, None, ".*", None, owned or [])
        reply = broker.call(request, 1)
        assert reply.error_code == 0, reply.error_message
        found = reply.assignment.topic_partitions if reply.assignment else []
        return [broker.cluster.topics_by_id[part.topic_id].name for part in found]

    grants = [allow("READ", "GROUP", "g"), allow("DESCRIBE", "TOPIC", "orders")]
    broker = guarded(*grants, group_consumer_assignment_interval_ms="0")
    assert beat(0) == ["orders"]
    change_acls(broker.cluster, frozenset([*grants, allow("DESCRIBE", "TOPIC", "secret")]))
    assert sorted(beat(0)) == ["orders", "secret"]


def test_a_classic_member_of_a_consumer_group_matches_no_topic_that_it_may_not_see() -> None:
    """Its JoinGroup is the first request after a change of the topics, so the group's patterns are matched again."""
    broker = as_super_user(guarded(allow("READ", "GROUP", "g"), allow("DESCRIBE", "TOPIC", "orders")))
    broker.call(ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 60_000, None, ".*", None, []), 1)
    regexes = broker.cluster.groups.shard_of("g", broker.now_ms).consumer["g"].regexes
    assert regexes[".*"].topics >= {"orders", "secret"}
    broker.cluster.create_topic("third", 1, {}, broker.now_ms)
    broker.principal = ALICE
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol("range", subscription("orders") + NO_USER_DATA)]
    reply = broker.call(JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols), 3)
    assert reply.error_code == errors.NONE
    regexes = broker.cluster.groups.shard_of("g", broker.now_ms).consumer["g"].regexes
    assert regexes[".*"].topics == {"orders"}
