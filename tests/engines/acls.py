"""Apache Kafka with ACLs: `alice` may do what a test has granted, and a client without a password may do anything.

with guarded_kafka() as kafka:
    kafka.grant(Grant("topic", "orders", "Write"))
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from fencepost.client.client import KafkaClient
from fencepost.protocol.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.engines.apache_kafka import USER, ApacheKafka, apache_kafka

PRINCIPAL = f"User:{USER}"
RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
PATTERNS = {"literal": 3, "prefixed": 4}
OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Alter": 7, "Describe": 8, "DescribeConfigs": 10}
ANY, ALLOW = 1, 3
CLUSTER = "kafka-cluster"
TIMEOUT_S = 20.0
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # Apache Kafka waits for as long as this with the answer to a change of the ACLs, and with -1 it never answers.
    "connections.max.idle.ms": "600000",
}


class Grant(NamedTuple):
    """In the words of `kafka-acls`."""

    resource: str
    name: str
    operation: str
    pattern: str = "literal"


class GuardedKafka:
    """A broker with ACLs."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self.kafka = kafka

    @property
    def bootstrap_servers(self) -> str:
        """Where no password is asked for."""
        return self.kafka.bootstrap_servers

    def settings(self) -> Mapping[str, str]:
        """For a client that is alice."""
        return self.kafka.security("SASL_PLAINTEXT", "PLAIN")

    def grant(self, *grants: Grant) -> None:
        creations = [
            CreateAclsRequest.AclCreation(
                RESOURCES[g.resource], g.name, PATTERNS[g.pattern], PRINCIPAL, "*", OPERATIONS[g.operation], ALLOW
            )
            for g in grants
        ]
        self.order(CreateAclsRequest(creations))
        self._await(lambda found: set(grants) <= found)

    def revoke(self, *grants: Grant) -> None:
        filters = [
            DeleteAclsRequest.DeleteAclsFilter(
                RESOURCES[g.resource], g.name, PATTERNS[g.pattern], PRINCIPAL, "*", OPERATIONS[g.operation], ALLOW
            )
            for g in grants
        ]
        self.order(DeleteAclsRequest(filters))
        self._await(lambda found: not set(grants) & found)

    def order(self, request: CreateAclsRequest | DeleteAclsRequest) -> None:
        with KafkaClient({"bootstrap.servers": self.bootstrap_servers}) as client:
            client.send(client.any_broker(), request)

    def _await(self, is_there: object) -> None:
        assert callable(is_there)
        deadline = time.monotonic() + TIMEOUT_S
        while not is_there(found := self.grants()):
            assert time.monotonic() < deadline, f"the broker has {found}"
            time.sleep(0.01)

    def grants(self) -> set[Grant]:
        """All ACLs that the broker knows."""
        resources, patterns, operations = ({v: k for k, v in d.items()} for d in (RESOURCES, PATTERNS, OPERATIONS))
        request = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
        with KafkaClient({"bootstrap.servers": self.bootstrap_servers}) as client:
            response = client.send(client.any_broker(), request)
        return {
            Grant(resources[r.resource_type], r.resource_name, operations[a.operation], patterns[r.pattern_type])
            for r in response.resources
            for a in r.acls
        }


@contextmanager
def guarded_kafka(overrides: Mapping[str, str] | None = None) -> Iterator[GuardedKafka]:
    with apache_kafka({**SETTINGS, **(overrides or {})}, secured=True) as kafka:
        yield GuardedKafka(kafka)
