"""Stories of consumer groups, on a real Apache Kafka: it must answer, and write down, what we do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.consumer_requests import KAFKA_SETTINGS, SETTINGS, STORIES, Stage, told
from tests.conformance.test_against_apache_kafka import QUICK, ApacheTarget
from tests.engines.apache_kafka import apache_kafka
from tests.pure_broker import PureBroker

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with apache_kafka(QUICK | KAFKA_SETTINGS) as kafka:
        yield Stage(ApacheTarget(kafka))


@pytest.mark.parametrize("name", STORIES)
def test_apache_kafka_answers_and_writes_as_we_do(name: str, stage: Stage) -> None:
    assert told(stage, name) == told(Stage(PureBroker(SETTINGS)), name)
