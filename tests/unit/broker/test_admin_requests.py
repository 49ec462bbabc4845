"""Requests of administrators, on the pure broker; `tests/conformance` sends the same to Apache Kafka."""

from __future__ import annotations

import pytest

from tests.conformance.admin_requests import REQUESTS, Stage
from tests.pure_broker import PureBroker


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage(PureBroker())


@pytest.mark.parametrize("name", REQUESTS)
def test_the_broker_answers_as_kafka_does(name: str, stage: Stage) -> None:
    ask, expected = REQUESTS[name]
    assert ask(stage) == expected
