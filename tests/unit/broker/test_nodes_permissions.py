"""ACLs on several nodes: every node decides by the same ACLs, and nodes may ask one another what clients may not."""

from __future__ import annotations

import pytest

from fencepost.broker.acls import change_acls
from fencepost.machines.acl.acls import Acl, Operation, PatternType, PermissionType, ResourceType
from fencepost.machines.acl.authorizer import WILDCARD_PRINCIPAL
from fencepost.protocol import errors
from fencepost.protocol.messages import WriteTxnMarkersRequest
from tests.pure_nodes import PureNodes
from tests.pure_producer import PureProducer

SETTINGS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def allow_all(resource_type: ResourceType) -> Acl:
    return Acl(resource_type, "*", PatternType.LITERAL, WILDCARD_PRINCIPAL, "*", Operation.ALL, PermissionType.ALLOW)


@pytest.fixture
def nodes() -> PureNodes:
    """Clients may use topics and transactional ids, and nothing of the cluster."""
    made = PureNodes(3, SETTINGS)
    made.clusters[1].create_topic("orders", 6, {}, made.now_ms)
    change_acls(made.clusters[1], frozenset(map(allow_all, (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID))))
    return made


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_over_three_nodes_needs_no_permission_for_what_the_nodes_ask_one_another(
    nodes: PureNodes, version: int
) -> None:
    producer = PureProducer(nodes, "t", version)
    if version == 1:
        assert producer.add("orders", *range(6)) == "NONE"
    assert [producer.produce("orders", index) for index in range(6)] == ["NONE"] * 6
    assert producer.end() == "NONE"
    asked = {type(request).__name__ for _, _, request in nodes.network.sent}
    assert asked == {"AddPartitionsToTxnRequest", "WriteTxnMarkersRequest"}


def test_a_client_may_not_send_what_nodes_send(nodes: PureNodes) -> None:
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic("orders", [0])
    request = WriteTxnMarkersRequest([WriteTxnMarkersRequest.WritableTxnMarker(7, 0, True, [topic], 0)])
    [marker] = nodes.call(nodes.leader("orders", 0), request, 1).markers
    assert marker.topics[0].partitions[0].error_code == errors.CLUSTER_AUTHORIZATION_FAILED


def test_acls_count_on_every_node_and_on_one_that_missed_their_change(nodes: PureNodes) -> None:
    nodes.pause(3)
    change_acls(nodes.clusters[1], frozenset())
    nodes.resume(3)
    nodes.stop(2)
    nodes.start(2)
    for node_id in (1, 2, 3):
        authorizer = nodes.clusters[node_id].authorizer
        assert authorizer is not None
        assert not authorizer.allows("User:alice", "127.0.0.1", Operation.WRITE, ResourceType.TOPIC, "orders"), node_id


def test_a_node_that_starts_again_decides_by_the_acls_of_the_cluster(nodes: PureNodes) -> None:
    nodes.stop(2)
    nodes.start(2)
    authorizer = nodes.clusters[2].authorizer
    assert authorizer is not None
    assert authorizer.allows("User:alice", "127.0.0.1", Operation.WRITE, ResourceType.TOPIC, "orders")


def test_a_node_that_starts_again_still_denies_what_an_acl_denies() -> None:
    nodes = PureNodes(2, SETTINGS | {"allow.everyone.if.no.acl.found": "true"})
    denied = allow_all(ResourceType.TOPIC)._replace(permission=PermissionType.DENY)
    change_acls(nodes.clusters[1], frozenset({denied}))
    nodes.stop(2)
    nodes.start(2)
    authorizer = nodes.clusters[2].authorizer
    assert authorizer is not None
    assert not authorizer.allows("User:alice", "127.0.0.1", Operation.READ, ResourceType.TOPIC, "orders")
