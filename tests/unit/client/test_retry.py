"""Retries: until the deadline, or as long as the error is worth another attempt."""

from __future__ import annotations

import pytest

from fencepost.client.client import KafkaClient, retry
from fencepost.client.failures import DeadlinePassed, Refused, Unreachable


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s


def waited_s(error: Unreachable, deadline_s: float) -> float:
    clock = Clock()

    def attempt() -> None:
        raise error

    with pytest.raises(DeadlinePassed):
        retry(attempt, deadline_s, clock=lambda: clock.now_s, sleep=clock.sleep)
    return clock.now_s


def test_an_error_is_retried_no_longer_than_its_patience() -> None:
    impatient = Unreachable("nothing listens")
    impatient.patience_s = 1.0
    assert waited_s(impatient, 10) <= 1 < waited_s(Unreachable("no route"), 10) <= 10
    assert waited_s(impatient, 0.5) <= 0.5


@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2"])
def test_a_new_client_has_little_patience_with_ports_where_nothing_listens(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Refused("cannot connect")

    monkeypatch.setattr("fencepost.client.client.BrokerConnection", refuse)
    with pytest.raises(Unreachable) as refused:
        KafkaClient({"bootstrap.servers": bootstrap}, first_patience_s=1.0).any_broker()
    assert refused.value.patience_s == 1.0
