"""Requests of administrators, on a real Apache Kafka: it must answer what we answer."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.conformance.admin_requests import REQUESTS, Stage
from tests.conformance.test_against_apache_kafka import QUICK, ApacheTarget
from tests.engines.apache_kafka import apache_kafka

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with apache_kafka(QUICK) as kafka:
        yield Stage(ApacheTarget(kafka))


@pytest.mark.parametrize("name", REQUESTS)
def test_apache_kafka_answers_as_we_do(name: str, stage: Stage) -> None:
    ask, expected = REQUESTS[name]
    found = ask(stage)
    deadline = time.monotonic() + 10
    # A broker of Apache Kafka hears a moment later what its controller has decided.
    while found != expected and time.monotonic() < deadline:
        found = ask(stage)
    assert found == expected
