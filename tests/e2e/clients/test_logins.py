"""Clients that are not Python's log in to the broker: Java's own client and tools, franz-go and kafkajs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.testing import Broker
from tests.certificates import Authority
from tests.conformance.logins import PASSWORD, USER
from tests.e2e.clients.players import start_player
from tests.engines.apache_kafka import run_tool
from tests.engines.java import run_java
from tests.tokens import ISSUER, Provider

pytestmark = pytest.mark.engines

MODULE = "org.apache.kafka.common.security"
PLAIN_USERS = f'{MODULE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROVIDER = Provider()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logins")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def broker(folder: Path, authority: Authority) -> Iterator[Broker]:
    (folder / "jwks.json").write_bytes(PROVIDER.key_set())
    (folder / "token").write_text(PROVIDER.token(USER, aud="kafka", scope="kafka"))
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "kafka",
        "ssl.keystore.location": authority.issue("broker", "CN=broker", ("127.0.0.1",)).path,
        "ssl.truststore.location": authority.path,
        "listener.name.ssl.ssl.client.auth": "required",
    }
    with Broker(settings=settings) as broker:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            alter_user(broker, f"--add-config={mechanism}=[iterations=8192,password={PASSWORD}]")
        yield broker


def alter_user(broker: Broker, change: str) -> str:
    who = ("--entity-type", "users", "--entity-name", USER)
    return run_tool("kafka-configs", "--bootstrap-server", broker.listeners["PLAINTEXT"], "--alter", *who, change)


def jaas(mechanism: str, password: str) -> str:
    if mechanism == "OAUTHBEARER":
        return f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;"
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    return f'{MODULE}.{kind}LoginModule required username="{USER}" password="{password}";'


def properties(broker: Broker, authority: Authority, mechanism: str, password: str = PASSWORD) -> str:
    folder = authority.folder
    settings = {
        "client.id": f"{mechanism}-{'right' if password == PASSWORD else 'wrong'}",
        "bootstrap.servers": broker.listeners["SASL_SSL"],
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(mechanism, password),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.path,
    }
    if mechanism == "OAUTHBEARER":
        settings |= {
            "sasl.login.callback.handler.class": f"{MODULE}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": (folder / "token").as_uri(),
        }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@pytest.mark.java
def test_the_java_client_logs_in_by_every_mechanism(broker: Broker, authority: Authority) -> None:
    files = []
    cases = [(mechanism, PASSWORD) for mechanism in MECHANISMS] + [("PLAIN", "wrong"), ("SCRAM-SHA-512", "wrong")]
    for mechanism, password in cases:
        file = authority.folder / f"{mechanism}-{password == PASSWORD}.properties"
        file.write_text(properties(broker, authority, mechanism, password))
        files.append(str(file))
    program = Path(__file__).parent / "java" / "Logins.java"
    lines = run_java(program, (authority.folder / "token").as_uri(), *files).splitlines()
    assert dict(line.split("=", 1) for line in lines) == {
        **{f"{mechanism}-right": "orders" for mechanism in MECHANISMS},
        "PLAIN-wrong": "SaslAuthenticationException: Authentication failed: Invalid username or password",
        "SCRAM-SHA-512-wrong": "SaslAuthenticationException: Authentication failed during authentication due to "
        "invalid credentials with SASL mechanism SCRAM-SHA-512",
    }


@pytest.mark.java
def test_kafka_configs_manages_users(broker: Broker) -> None:
    def described() -> str:
        arguments = ("--describe", "--entity-type", "users", "--entity-name", USER)
        return run_tool("kafka-configs", "--bootstrap-server", broker.listeners["PLAINTEXT"], *arguments)

    assert "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192, " in described()
    alter_user(broker, "--delete-config=SCRAM-SHA-512")
    assert "SCRAM-SHA-512" not in described()
    alter_user(broker, f"--add-config=SCRAM-SHA-512=[password={PASSWORD}]")
    assert "SCRAM-SHA-512=iterations=4096" in described()


@pytest.mark.java
def test_a_java_tool_shows_a_certificate(broker: Broker, authority: Authority) -> None:
    store = authority.issue("tool", "CN=tool,O=Example")
    file = authority.folder / "tool.properties"
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store.path,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.path,
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    here = ("--bootstrap-server", broker.listeners["SSL"], "--command-config", file)
    run_tool("kafka-topics", *here, "--create", "--topic", "by-certificate")
    assert "by-certificate" in run_tool("kafka-topics", *here, "--list").split()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", ["franz-go", "kafkajs"])
def test_other_clients_log_in_by_every_mechanism(
    client: str, mechanism: str, broker: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "PLAYER_SASL_MECHANISM": mechanism,
        "PLAYER_SASL_USER": USER,
        "PLAYER_SASL_PASSWORD": PASSWORD,
        "PLAYER_SASL_TOKEN": PROVIDER.token(USER, aud="kafka"),
        "PLAYER_CA": str(authority.path),
    }
    for name, value in given.items():
        monkeypatch.setitem(os.environ, name, value)
    topic = f"{client}-{mechanism}"
    broker.create_topic(topic)
    with start_player(client, broker.listeners["SASL_SSL"]) as player:
        player.open(name="one", transactional_id=topic)
        player.begin(name="one")
        player.send(name="one", topic=topic, partition=0, values=["placed"])
        player.commit(name="one")
