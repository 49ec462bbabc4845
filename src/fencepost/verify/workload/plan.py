"""Which topics and clients a run has. Pure.

Each kind of client has writers, which all write to the same two topics, and copiers, which copy one of the two into a
topic of the kind. Followers read all topics, and one of them asks for the offsets of the groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

LIBRDKAFKA, JAVA, OWN_V1, OWN_V2 = KINDS = ("librdkafka", "java", "fencepost-v1", "fencepost-v2")
PARTITIONS = 2
# Consumers of a group; the group of our own client has no members, so only one may use it.
COPIERS = {LIBRDKAFKA: 2, JAVA: 1, OWN_V1: 1, OWN_V2: 1}
WRITERS = {LIBRDKAFKA: 2, JAVA: 1, OWN_V1: 1, OWN_V2: 2}
ISOLATIONS = ("read_committed", "read_uncommitted")


class ClientPlan(NamedTuple):
    """`role`: writer, copier or reader. Two clients with the same transactional id fence one another."""

    name: str
    role: str
    kind: str
    transactional_id: str = ""
    topics: Mapping[str, int] = {}  # Partitions by topic. Those of a copier: its only source.
    group_id: str = ""
    target: str = ""
    isolation: str = ""
    groups: tuple[str, ...] = ()  # Those whose committed offsets a reader asks for now and then.
    pause_s: float = 0.04  # Between two transactions, at most: the subject is order, not speed.

    def document(self) -> dict[str, Any]:
        return self._asdict()


class Plan(NamedTuple):
    topics: Mapping[str, int]
    clients: tuple[ClientPlan, ...]
    groups: Mapping[str, str]  # The source topic of each group.


def make_plan(prefix: str, writers: Mapping[str, int]) -> Plan:
    """`writers`: how many of each kind of client. `prefix` begins the name of all topics, groups and ids."""
    written = {f"{prefix}-orders": PARTITIONS, f"{prefix}-payments": PARTITIONS}
    source = f"{prefix}-orders"
    topics, clients, groups = dict(written), [], {}
    for kind, count in writers.items():
        for number in range(count):
            name = f"{kind}-writer-{number}"
            clients.append(ClientPlan(name, "writer", kind, f"{prefix}-{name}", written))
        target, group_id = f"{prefix}-copies-{kind}", f"{prefix}-{kind}"
        topics[target] = PARTITIONS
        groups[group_id] = source
        for number in range(COPIERS[kind]):
            name = f"{kind}-copier-{number}"
            id_ = f"{prefix}-{name}"
            clients.append(ClientPlan(name, "copier", kind, id_, {source: PARTITIONS}, group_id, target))
    for isolation in ISOLATIONS:
        name = f"reader-{isolation.removeprefix('read_')}"
        asked = tuple(groups) if isolation == "read_committed" else ()
        clients.append(ClientPlan(name, "reader", "fencepost", topics=topics, isolation=isolation, groups=asked))
    return Plan(topics, tuple(clients), groups)


def successor_of(client: ClientPlan, number: int) -> ClientPlan:
    """The client that takes over the transactional id of one that is still alive."""
    return client._replace(name=f"{client.name.partition('.')[0]}.{number}")
