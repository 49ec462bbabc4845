"""Logins by SASL on Apache Kafka: the answers that `tests/e2e/test_sasl.py` expects of our broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.logins import LOGINS, Stage
from tests.engines.apache_kafka import apache_kafka

pytestmark = [pytest.mark.java, pytest.mark.engines]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with apache_kafka(secured=True) as kafka:
        host, _, port = kafka.security("SASL_PLAINTEXT", "PLAIN")["bootstrap.servers"].rpartition(":")
        yield Stage(("127.0.0.1", kafka.port), (host, int(port)))


@pytest.mark.parametrize("name", LOGINS)
def test_apache_kafka_answers_a_login_so(name: str, stage: Stage) -> None:
    tell, expected = LOGINS[name]
    assert tell(stage) == expected
