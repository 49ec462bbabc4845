"""Logins by SASL on a running broker: each mechanism with each client, attempts that must fail, and users."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

from fencepost.client.client import KafkaClient
from fencepost.client.failures import AuthenticationFailed
from fencepost.protocol.messages import DescribeConfigsRequest, MetadataRequest
from fencepost.testing import Broker
from tests.certificates import Authority
from tests.conformance.logins import LOGINS, PASSWORD, USER, Conversation, Stage
from tests.wire.raw_client import RawClient

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = f'{MODULE} required user_{USER}="{PASSWORD}" user_bob="b";'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def address_of(broker: Broker, listener: str) -> tuple[str, int]:
    host, _, port = broker.listeners[listener].rpartition(":")
    return host, int(port)


def add_user(broker: Broker, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    admin = AdminClient({"bootstrap.servers": broker.listeners["PLAINTEXT"]})
    kind = ScramMechanism.SCRAM_SHA_256 if mechanism.endswith("256") else ScramMechanism.SCRAM_SHA_512
    change = UserScramCredentialUpsertion(name, ScramCredentialInfo(kind, 4096), password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(60)


def secured_settings(authority: Authority) -> dict[str, object]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS,
        "ssl.keystore.location": authority.issue("broker", "CN=broker", ("127.0.0.1",)).path,
    }


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    with Broker(settings=secured_settings(authority)) as broker:
        for mechanism in MECHANISMS[1:]:
            add_user(broker, USER, PASSWORD, mechanism)
        yield broker


@pytest.mark.parametrize("name", LOGINS)
def test_a_login_is_answered_as_kafka_answers_it(name: str, broker: Broker) -> None:
    tell, expected = LOGINS[name]
    assert tell(Stage(address_of(broker, "PLAINTEXT"), address_of(broker, "SASL_PLAINTEXT"))) == expected


# --- every client on every mechanism ------------------------------------------------------------------------


def confluent(servers: str, protocol: str, mechanism: str, authority: Authority, topic: str) -> bytes:
    client = {
        "bootstrap.servers": servers,
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(authority.path),
    }
    producer = Producer({**client, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"placed")
    producer.commit_transaction(60)
    consumer = Consumer({**client, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    assert not message.error()
    value = message.value()
    assert value is not None
    return value


def kafka_python(servers: str, protocol: str, mechanism: str, authority: Authority, topic: str) -> bytes:
    client = {
        "bootstrap_servers": servers,
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": str(authority.path),
    }
    producer = KafkaProducer(**client)
    producer.send(topic, b"placed").get(60)
    producer.close()
    consumer = KafkaConsumer(topic, **client, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    value: bytes = next(consumer).value
    consumer.close()
    return value


def aiokafka(servers: str, protocol: str, mechanism: str, authority: Authority, topic: str) -> bytes:
    client: dict[str, Any] = {
        "bootstrap_servers": servers,
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_context": ssl.create_default_context(cafile=str(authority.path)) if protocol == "SASL_SSL" else None,
    }

    async def story() -> bytes:
        async with AIOKafkaProducer(**client) as producer:
            await producer.send_and_wait(topic, b"placed")
        async with AIOKafkaConsumer(topic, **client, auto_offset_reset="earliest") as consumer:
            value: bytes = (await asyncio.wait_for(consumer.getone(), 60)).value
            return value

    return asyncio.run(story())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [confluent, kafka_python, aiokafka])
def test_every_client_logs_in_by_every_mechanism(
    client: Callable[[str, str, str, Authority, str], bytes], mechanism: str, broker: Broker, authority: Authority
) -> None:
    protocol = "SASL_PLAINTEXT" if mechanism == "SCRAM-SHA-512" else "SASL_SSL"
    topic = f"{client.__name__}-{mechanism}"
    assert client(broker.listeners[protocol], protocol, mechanism, authority, topic) == b"placed"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_client_logs_in_and_says_why_it_cannot(mechanism: str, broker: Broker, authority: Authority) -> None:
    settings = {
        "bootstrap.servers": broker.listeners["SASL_SSL"],
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(authority.path),
    }
    with KafkaClient(settings) as client:
        assert client.brokers()
    with (
        pytest.raises(AuthenticationFailed, match="refused user 'alice'"),
        KafkaClient(settings | {"sasl.password": "wrong"}) as client,
    ):
        client.any_broker()


# --- attempts that must fail --------------------------------------------------------------------------------


def test_a_failed_login_is_answered_late_whether_the_user_exists_or_not(broker: Broker) -> None:
    took = {}
    for user in (USER, "mallory"):
        with Conversation(address_of(broker, "SASL_PLAINTEXT")) as conversation:
            conversation.handshake("PLAIN")
            began = time.monotonic()
            assert conversation.token(f"\0{user}\0wrong".encode())[0] == "SASL_AUTHENTICATION_FAILED"
            took[user] = time.monotonic() - began
    assert min(took.values()) >= 0.1


# --- sessions -----------------------------------------------------------------------------------------------


def test_a_session_ends_unless_the_client_logs_in_again(authority: Authority) -> None:
    settings = secured_settings(authority) | {"connections.max.reauth.ms": 600_000}
    with Broker(settings=settings) as broker:
        token = f"\0{USER}\0{PASSWORD}".encode()
        with (
            Conversation(address_of(broker, "SASL_PLAINTEXT")) as late,
            Conversation(address_of(broker, "SASL_PLAINTEXT")) as prompt,
        ):
            for conversation in (late, prompt):
                conversation.handshake("PLAIN")
                assert conversation.token(token) == ("NONE", "", 600_000)
            broker.advance_clock(300_000)
            assert prompt.handshake("PLAIN")[0] == "NONE"
            assert prompt.token(token) == ("NONE", "", 600_000)
            broker.advance_clock(300_000)
            assert late.metadata() == "closed"
            assert prompt.metadata() == "served"
            broker.advance_clock(2000)
            assert prompt.handshake("PLAIN")[0] == "NONE"
            code, message, _ = prompt.token(b"\0bob\0b")
            assert code == "SASL_AUTHENTICATION_FAILED"
            assert message == "Cannot change principals during re-authentication from User:alice to User:bob"


# --- users --------------------------------------------------------------------------------------------------


def test_users_survive_a_restart_and_no_file_has_their_passwords(tmp_path: Path, authority: Authority) -> None:
    data = tmp_path / "data"
    with Broker(data=data, settings=secured_settings(authority)) as broker:
        add_user(broker, "carol", "open sesame")
        broker.kill()
        broker.start()
        client = {
            "bootstrap.servers": broker.listeners["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "carol",
            "sasl.password": "open sesame",
        }
        with KafkaClient(client) as ours:
            assert ours.brokers()
        admin = AdminClient({"bootstrap.servers": broker.listeners["PLAINTEXT"]})
        asked: Any = admin.describe_user_scram_credentials()
        described = asked.result(60)
        assert {name: len(found.scram_credential_infos) for name, found in described.items()} == {"carol": 1}
        deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
        admin.alter_user_scram_credentials([deletion])["carol"].result(60)
        with pytest.raises(AuthenticationFailed), KafkaClient(client) as ours:
            ours.any_broker()
        # The password of PLAIN is in the settings, and nowhere else.
        assert PASSWORD not in broker.log
        with RawClient(*address_of(broker, "PLAINTEXT")) as raw:
            (described_broker,) = raw.call(
                DescribeConfigsRequest([DescribeConfigsRequest.DescribeConfigsResource(4, "1", None)]), 4
            ).results
            found = {config.name: config for config in described_broker.configs}
            jaas = found["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
            assert (jaas.value, jaas.is_sensitive) == (None, True)
            assert raw.call(MetadataRequest([]), 9).brokers
    files = [path for path in data.rglob("*") if path.is_file()]
    assert files
    assert all(b"open sesame" not in path.read_bytes() for path in files)
