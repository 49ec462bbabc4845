"""Asks a cluster for the permissions that the sink needs, before the sink needs them.

Brokers tell which operations on a topic and on a group they allow (`authorized_operations`). For a transactional id
there is no such question: InitProducerId tells, which changes nothing if it is denied. Where the sink has to know
without InitProducerId, it asks to end a transaction of a producer that cannot exist. A broker checks the permission
first, and then refuses the producer, so this request changes nothing either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from fencepost.client.client import GROUP as GROUP_COORDINATOR
from fencepost.client.client import TRANSACTION as TRANSACTION_COORDINATOR
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeGroupsRequest, EndTxnRequest, MetadataRequest
from fencepost.spark.driver.permissions import (
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Permission,
    by_kind,
    describe_missing,
    is_allowed,
    principal_of,
    without_implied,
)
from fencepost.spark.failures import AccessDenied
from fencepost.spark.task.topics import patiently

NO_PRODUCER = (1 << 63) - 1  # No coordinator gives out this producer id.
DENIED = frozenset(
    {
        errors.TOPIC_AUTHORIZATION_FAILED,
        errors.GROUP_AUTHORIZATION_FAILED,
        errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Access:
    """What the cluster allows this client. Every permission is asked for once."""

    def __init__(self, client: KafkaClient, bootstrap_servers: str) -> None:
        self._client = client
        self._bootstrap_servers = bootstrap_servers
        self._granted: set[Permission] = set()

    def require(self, permissions: Iterable[Permission]) -> None:
        """Raises AccessDenied, which names all missing permissions. That for the id alone is left to InitProducerId."""
        asked = [permission for permission in permissions if permission not in self._granted]
        if not asked:
            return
        if find_missing(self._client, (one for one in asked if one.resource != TRANSACTIONAL_ID)):
            self._deny(find_missing(self._client, asked))
        self._granted.update(asked)

    def explain(self, denied: Iterable[Permission] = ()) -> None:
        """A broker has denied something. Raises AccessDenied if it is one of these, or was granted before."""
        if missing := find_missing(self._client, sorted({*self._granted, *denied})):
            self._deny(missing)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """For requests that the cluster may deny: AccessDenied takes the place of the error of the broker."""
        try:
            yield
        except BrokerError as e:
            if e.code in DENIED:
                self.explain()
            raise

    def _deny(self, missing: list[Permission]) -> NoReturn:
        raise AccessDenied(describe_missing(missing, principal_of(self._client.settings), self._bootstrap_servers))


def find_missing(client: KafkaClient, permissions: Iterable[Permission]) -> list[Permission]:
    """Those of the permissions that the cluster does not grant. A topic that does not exist is not judged."""
    kinds = by_kind(without_implied(permissions))
    missing: list[Permission] = []
    for name, wanted in kinds[TRANSACTIONAL_ID].items():
        missing += wanted if _is_id_denied(client, name) else []
    topics = _topic_operations(client, kinds[TOPIC])
    for name, wanted in kinds[TOPIC].items():
        missing += [one for one in wanted if not is_allowed(one.operation, topics[name])]
    for name, wanted in kinds[GROUP].items():
        operations = _group_operations(client, name)
        missing += [one for one in wanted if not is_allowed(one.operation, operations)]
    return missing


def _topic_operations(client: KafkaClient, topics: Iterable[str]) -> dict[str, int]:
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    if not wanted:
        return {}
    request = MetadataRequest(wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    response = patiently(lambda: client.send(client.any_broker(), request))
    return {
        topic.name: 0 if topic.error_code in DENIED else topic.topic_authorized_operations for topic in response.topics
    }


def _group_operations(client: KafkaClient, group_id: str) -> int:
    try:
        response = client.ask_coordinator(
            group_id,
            GROUP_COORDINATOR,
            DescribeGroupsRequest([group_id], include_authorized_operations=True),
            lambda r: int(r.groups[0].error_code),
            at_most=5,  # Kafka: later versions do not show the operations on a group that does not exist yet.
        )
    except BrokerError as e:
        if e.code in DENIED:
            return 0
        raise
    described = response.groups[0]
    return 0 if described.error_code in DENIED else int(described.authorized_operations)


def _is_id_denied(client: KafkaClient, transactional_id: str) -> bool:
    try:
        response = client.ask_coordinator(
            transactional_id,
            TRANSACTION_COORDINATOR,
            EndTxnRequest(transactional_id, NO_PRODUCER, 0, False),
            lambda r: int(r.error_code),
            at_most=4,
        )
    except BrokerError as e:
        if e.code in DENIED:
            return True
        raise
    return response.error_code in DENIED
