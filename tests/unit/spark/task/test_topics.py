"""How a task asks for a topic while brokers are down."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.client.failures import BrokerError, DeadlinePassed, Unreachable
from fencepost.protocol import errors
from fencepost.spark.task.topics import patiently


def answers(*given: object) -> Callable[[], object]:
    left = list(given)

    def ask() -> object:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_brokers_that_cannot_be_reached_are_asked_again() -> None:
    assert patiently(answers(Unreachable("down"), Unreachable("down"), 3)) == 3


def test_a_refusal_is_not_asked_again_even_if_it_is_retriable_elsewhere() -> None:
    unknown = BrokerError(errors.UNKNOWN_TOPIC_OR_PARTITION, "topic orders")
    assert unknown.is_retriable
    with pytest.raises(BrokerError, match="topic orders"):
        patiently(answers(unknown, 3))


def test_patience_ends() -> None:
    with pytest.raises(DeadlinePassed, match="no broker"):
        patiently(answers(*[Unreachable("no broker")] * 9), deadline_s=0.05)
