"""Logins by SASL on Apache Kafka: the answers that `tests/e2e/test_sasl.py` expects of our broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.logins import BAD_TOKEN, LOGINS, USER, Stage, bad_tokens, token_login
from tests.engines.apache_kafka import apache_kafka
from tests.tokens import ISSUER, Provider

pytestmark = [pytest.mark.java, pytest.mark.engines]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with apache_kafka({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}, secured=True) as kafka:
        host, _, port = kafka.security("SASL_PLAINTEXT", "PLAIN")["bootstrap.servers"].rpartition(":")
        yield Stage(("127.0.0.1", kafka.port), (host, int(port)))


@pytest.mark.parametrize("name", LOGINS)
def test_apache_kafka_answers_a_login_so(name: str, stage: Stage) -> None:
    tell, expected = LOGINS[name]
    assert tell(stage) == expected


PROVIDER = Provider()


@pytest.fixture(scope="module")
def takes_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """The address of a broker that takes tokens, for sessions of a minute."""
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_bytes(PROVIDER.key_set())
    own = "listener.name.sasl_plaintext"
    settings = {
        f"{own}.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "kafka",
        f"{own}.oauthbearer.connections.max.reauth.ms": 60_000,
    }
    with apache_kafka(settings, secured=True) as kafka:
        host, _, port = kafka.security("SASL_PLAINTEXT")["bootstrap.servers"].rpartition(":")
        yield host, int(port)


def test_apache_kafka_ends_a_session_with_the_token_or_earlier(takes_tokens: tuple[str, int]) -> None:
    assert token_login(takes_tokens, PROVIDER.token(USER, aud="kafka")) == ([("NONE", "", 60_000)], "served")
    ([(code, _, lifetime_ms)], _) = token_login(takes_tokens, PROVIDER.token(USER, aud="kafka", lifetime_s=20))
    assert code == "NONE"
    assert 0 < lifetime_ms <= 20_000


@pytest.mark.parametrize("kind", bad_tokens(PROVIDER))
def test_apache_kafka_refuses_a_bad_token_so(kind: str, takes_tokens: tuple[str, int]) -> None:
    assert token_login(takes_tokens, bad_tokens(PROVIDER)[kind]) == BAD_TOKEN
