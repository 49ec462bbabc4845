"""Logins by OAUTHBEARER on a running broker: real clients, keys in a file and at an address, and bad tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from fencepost.testing import Broker, BrokerFailed
from tests.conformance.logins import BAD_TOKEN, bad_tokens, token_login
from tests.tokens import ISSUER, Provider

PROVIDER = Provider()


def settings_for(url: str) -> dict[str, object]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "kafka",
    }


def say_token(broker: Broker, token: str) -> tuple[list[Any], str]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return token_login((host, int(port)), token)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_bytes(PROVIDER.key_set())
    with Broker(settings=settings_for(path.as_uri()) | {"connections.max.reauth.ms": 60_000}) as broker:
        yield broker


def test_a_session_lasts_as_long_as_the_token_and_not_longer_than_the_setting(broker: Broker) -> None:
    ([answer], after) = say_token(broker, PROVIDER.token("alice", aud="kafka", lifetime_s=600))
    assert (answer, after) == (("NONE", "", 60_000), "served")
    ([(code, _, lifetime_ms)], _) = say_token(broker, PROVIDER.token("alice", aud="kafka", lifetime_s=20))
    assert code == "NONE"
    assert 0 < lifetime_ms <= 20_000


@pytest.mark.parametrize("kind", bad_tokens(PROVIDER))
def test_a_bad_token_opens_no_door_and_no_log_has_it(kind: str, broker: Broker) -> None:
    token = bad_tokens(PROVIDER)[kind]
    assert say_token(broker, token) == BAD_TOKEN
    assert len(token) < 2 or token not in broker.log


class KafkaPythonTokens(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return PROVIDER.token("alice", aud="kafka")


class AioTokens(AioTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return PROVIDER.token("alice", aud="kafka")


def confluent(servers: str) -> None:
    def new_token(_: str) -> tuple[str, float]:
        return PROVIDER.token("alice", aud="kafka"), time.time() + 600

    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": new_token,
    }
    producer = Producer(settings)
    failed: list[object] = []
    producer.produce("orders", b"placed", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None]


def kafka_python(servers: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=KafkaPythonTokens(),
    )
    producer.send("orders", b"placed").get(60)
    producer.close()


def aiokafka(servers: str) -> None:
    async def story() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=AioTokens(),
        ) as producer:
            await asyncio.wait_for(producer.send_and_wait("orders", b"placed"), 60)

    asyncio.run(story())


@pytest.mark.parametrize("client", [confluent, kafka_python, aiokafka])
def test_every_client_logs_in_with_a_token(client: Any, broker: Broker) -> None:
    client(broker.bootstrap_servers)


@contextmanager
def key_server() -> Iterator[tuple[str, list[bytes]]]:
    """An address that serves the last of the documents."""
    documents: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(documents[-1])

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/jwks", documents
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def await_served(broker: Broker, token: str) -> None:
    """A client tries again until its key has arrived."""
    deadline = time.monotonic() + 60
    while say_token(broker, token)[1] != "served":
        assert time.monotonic() < deadline, broker.log


def test_keys_come_from_an_address_and_a_new_key_is_fetched_when_a_token_names_it() -> None:
    second = Provider("second")
    with key_server() as (url, documents):
        documents.append(b"{}")
        with Broker(settings=settings_for(url)) as broker:
            first = PROVIDER.token("alice", aud="kafka")
            assert say_token(broker, first)[1] == "closed", "without keys no token is good"
            documents.append(PROVIDER.key_set())
            await_served(broker, first)
            documents.append(PROVIDER.key_set(second))
            await_served(broker, second.token("bob", aud="kafka"))
            assert any("cannot be read: it is not a key set" in line for line in broker.warnings)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is empty"),
        ("file:///no/such/file", "No such file"),
        ("http://login.example.com/jwks", "http:// is accepted for loopback only"),
        ("ftp://login.example.com/jwks", "cannot be used"),
    ],
)
def test_keys_that_cannot_be_used_are_refused_at_the_start(url: str, said: str) -> None:
    with pytest.raises(BrokerFailed, match="hint: ") as failed, Broker(settings=settings_for(url)):
        pass
    assert said in str(failed.value)
