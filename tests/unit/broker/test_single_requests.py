"""Requests that need no preparation, on the pure broker; `tests/conformance` sends the same to Apache Kafka."""

from __future__ import annotations

import pytest

from fencepost.protocol.schema import Malformed
from tests.conformance.single_requests import FRAMES, REQUESTS, Stage
from tests.pure_broker import PureBroker, PureConnection


@pytest.fixture
def stage() -> Stage:
    return Stage(PureBroker())


@pytest.mark.parametrize("name", REQUESTS)
def test_the_broker_answers_as_kafka_does(name: str, stage: Stage) -> None:
    ask, expected = REQUESTS[name]
    assert ask(stage) == expected


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_answered_or_costs_the_connection(name: str) -> None:
    frame, expected = FRAMES[name]
    broker = PureBroker()
    connection = PureConnection()
    if expected is None:
        with pytest.raises(Malformed):
            broker.node.handle(frame, connection, broker.now_ms)
        assert connection.frames == []
    else:
        broker.node.handle(frame, connection, broker.now_ms)
        assert connection.frames == [expected]
