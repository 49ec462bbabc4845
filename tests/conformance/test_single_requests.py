"""Requests that need no story, on a real Apache Kafka: it must answer what we answer."""

from __future__ import annotations

import pytest

from tests.conformance.single_requests import FRAMES, REQUESTS, Stage
from tests.conformance.test_against_apache_kafka import ApacheTarget
from tests.wire.raw_client import Closed, RawClient

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def stage(oracle: ApacheTarget) -> Stage:
    return Stage(oracle)


@pytest.mark.parametrize("name", REQUESTS)
def test_apache_kafka_answers_as_we_do(name: str, stage: Stage) -> None:
    ask, expected = REQUESTS[name]
    assert ask(stage) == expected


@pytest.mark.parametrize("name", FRAMES)
def test_apache_kafka_closes_the_connection_where_we_do(name: str, oracle: ApacheTarget) -> None:
    frame, expected = FRAMES[name]
    with RawClient("127.0.0.1", oracle.kafka.port, timeout_s=10) as client:
        if expected is None:
            with pytest.raises(Closed):
                client.send_frame(frame)
        else:
            assert client.send_frame(frame) == expected
