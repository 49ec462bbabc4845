"""Nodes share the storage and the controller, and nothing else: no node touches what another node has."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.cluster import Cluster
from fencepost.broker.controller import ClusterNode
from fencepost.protocol import errors
from fencepost.protocol.messages import CreateTopicsRequest, DeleteTopicsRequest
from tests.pure_nodes import PureNodes
from tests.pure_producer import PureProducer

BROKER = Path(__file__).resolve().parents[3] / "src" / "fencepost" / "broker"
# What belongs to one node.
OWN = frozenset({"topics", "topics_by_id", "txns", "groups", "fetches", "timers", "housekeeping", "partition"})
# What the controller calls: the work is that of the node which is called.
CALLED_BY_CONTROLLER = (
    "apply",
    "begin_timers",
    "coordinate",
    "finish_recovery",
    "get_ready",
    "known_txns",
    "lead",
    "learn",
    "rejoin",
    "resign",
    "save_snapshots_of",
)


class GuardedCluster(Cluster):
    """Refuses that one node touches what belongs to another."""

    nodes: PureNodes | None = None

    def __getattribute__(self, name: str) -> Any:
        nodes = GuardedCluster.nodes
        if nodes is not None and nodes.acting is not None and name in OWN:
            own_id = object.__getattribute__(self, "node_id")
            assert nodes.acting == own_id, f"node {nodes.acting} touches `{name}` of node {own_id}"
        found = object.__getattribute__(self, name)
        if nodes is not None and name in CALLED_BY_CONTROLLER:
            return _as_own_work(nodes, object.__getattribute__(self, "node_id"), found)
        return found


def _as_own_work(nodes: PureNodes, node_id: int, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with nodes.acting_as(node_id):
            return method(*args)

    return call


@pytest.fixture
def nodes() -> Iterator[PureNodes]:
    made = GuardedCluster.nodes = PureNodes(3, cluster_class=GuardedCluster)
    yield made
    GuardedCluster.nodes = None


def test_no_node_touches_what_another_has(nodes: PureNodes) -> None:
    """Over transactions of both versions, offsets, failovers and a deleted topic."""
    request = CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 6, 3)], 1000)
    assert nodes.call(2, request, 5).topics[0].error_code == errors.NONE
    for number, version in enumerate((1, 2, 1, 2)):
        producer = PureProducer(nodes, f"t{number}", version)
        if version == 1:
            assert producer.add("orders", *range(6)) == "NONE"
        assert [producer.produce("orders", index) for index in range(6)] == ["NONE"] * 6
        if version == 2:
            assert producer.commit_offset(f"g{number}", "orders", 5) == "NONE"
        if number == 2:
            nodes.stop(3)
        if number == 3:
            nodes.start(3)
            nodes.pause(1)
        assert producer.end(commit=number < 2) == "NONE"
    nodes.resume(1)
    nodes.call(3, DeleteTopicsRequest(topic_names=["orders"]), 5)
    nodes.advance(60_000)


def test_a_node_that_touches_another_is_found(nodes: PureNodes) -> None:
    with nodes.acting_as(1):
        assert nodes.clusters[1].topics == {}
        with pytest.raises(AssertionError, match="node 1 touches `topics` of node 2"):
            _ = nodes.clusters[2].topics


def test_the_controller_is_given_nothing_of_a_node_but_what_it_may_call() -> None:
    methods = {name for name, value in vars(ClusterNode).items() if callable(value) and not name.startswith("_")}
    assert methods == set(CALLED_BY_CONTROLLER)
    assert ClusterNode.__annotations__.keys() == {"node_id"}


def test_only_the_controller_knows_the_other_nodes() -> None:
    """Everything else in `broker/` has one `Cluster`, its own."""
    users = {
        path.relative_to(BROKER).as_posix()
        for path in BROKER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "_members"
    }
    assert users == {"controller.py"}
