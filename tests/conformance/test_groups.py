"""Stories of classic groups, on a real Apache Kafka: it must answer, and write down, what we do."""

from __future__ import annotations

import pytest

from tests.conformance.groups import SETTINGS, STORIES, told_story
from tests.conformance.test_against_apache_kafka import ApacheTarget
from tests.pure_broker import PureBroker

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.mark.parametrize("name", STORIES)
def test_apache_kafka_answers_and_writes_as_we_do(name: str, oracle: ApacheTarget) -> None:
    assert told_story(PureBroker(SETTINGS), name) == told_story(oracle, name, oracle.kafka.port)
