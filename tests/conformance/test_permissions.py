"""The same users and ACLs on this broker and on Apache Kafka: every API gives every user the same answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.acls import change_acls
from fencepost.protocol.messages import (
    CreateAclsRequest,
    DescribeAclsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from fencepost.protocol.schema import Message
from tests.conformance.permissions import ACLS, SETTINGS, USERS, Answers, Stage, collect, missing_apis, summary
from tests.engines.acls import SETTINGS as GUARDED
from tests.engines.acls import GuardedKafka
from tests.engines.apache_kafka import PASSWORD, apache_kafka
from tests.pure_broker import PureBroker
from tests.wire.raw_client import RawClient

RECORDED = Path(__file__).resolve().parents[2] / "docs/compatibility.json"


class PureTarget:
    """This broker, without sockets."""

    def __init__(self) -> None:
        self.broker = PureBroker(SETTINGS)
        change_acls(self.broker.cluster, frozenset(ACLS))

    def call(self, request: Message, version: int, user: str | None = None) -> Any:
        self.broker.principal = f"User:{user or 'ANONYMOUS'}"
        return self.broker.call(request, version)

    def wait(self) -> None:
        self.broker.advance(10)


class ApacheTarget:
    """Apache Kafka, with a connection for each user."""

    def __init__(self, kafka: GuardedKafka, cleanup: ExitStack) -> None:
        self._cleanup = cleanup
        self._clients: dict[str | None, RawClient] = {}
        self._plain = kafka.bootstrap_servers
        self._sasl = kafka.settings()["bootstrap.servers"]
        kafka.order(
            CreateAclsRequest(
                [
                    CreateAclsRequest.AclCreation(
                        a.resource_type, a.name, a.pattern_type, a.principal, a.host, a.operation, a.permission
                    )
                    for a in ACLS
                ]
            )
        )
        deadline = time.monotonic() + 60
        while self._acl_count() < len(set(ACLS)):
            assert time.monotonic() < deadline, "the broker does not have the ACLs"
            self.wait()

    def _acl_count(self) -> int:
        reply = self.call(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
        return sum(len(resource.acls) for resource in reply.resources)

    def call(self, request: Message, version: int, user: str | None = None) -> Any:
        client = self._clients.get(user)
        if client is None:
            client = self._clients[user] = self._connect(user)
        return client.call(request, version)

    def _connect(self, user: str | None) -> RawClient:
        host, _, port = (self._plain if user is None else self._sasl).rpartition(":")
        client = self._cleanup.enter_context(RawClient(host, int(port)))
        if user is not None:
            assert client.call(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
            token = f"\0{user}\0{PASSWORD}".encode()
            assert client.call(SaslAuthenticateRequest(token), 2).error_code == 0
        return client

    def wait(self) -> None:
        time.sleep(0.05)


@contextmanager
def apache_stage() -> Iterator[Stage]:
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = {"listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};"}
    with ExitStack() as cleanup:
        kafka = cleanup.enter_context(apache_kafka({**GUARDED, **SETTINGS, **login}, secured=True))
        yield Stage(ApacheTarget(GuardedKafka(kafka), cleanup))


def differences(ours: Answers, theirs: Answers) -> list[str]:
    return [
        f"{request}, {user}:\n    {ours[request][user]}\n    Apache Kafka: {theirs[request].get(user)}"
        for request in ours
        for user in ours[request]
        if ours[request][user] != theirs[request].get(user)
    ]


def test_every_api_is_asked() -> None:
    assert missing_apis() == []


def test_every_user_gets_the_answers_that_apache_kafka_gave() -> None:
    recorded = json.loads(RECORDED.read_text())["permissions"]["answers"]
    assert summary(collect(Stage(PureTarget()))) == recorded, (
        "run: .venv/bin/python scripts/compatibility.py --permissions"
    )


@pytest.mark.java
@pytest.mark.engines
@pytest.mark.timeout(600)
def test_apache_kafka_gives_every_user_the_same_answers() -> None:
    with apache_stage() as stage:
        theirs = collect(stage)
    assert differences(collect(Stage(PureTarget())), theirs) == []
