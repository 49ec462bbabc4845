"""The exporter looks at its cluster again, whatever a look ended with."""

from __future__ import annotations

import pytest

from fencepost.client.client import KafkaClient
from fencepost.client.failures import Unreachable
from fencepost.diagnose.exporter import collecting
from fencepost.diagnose.exporter.collecting import ClusterWatch


@pytest.mark.parametrize(
    ("error", "problem"),
    [(Unreachable("no broker"), "no broker"), (KeyError("orders"), "KeyError: 'orders'")],
    ids=["client", "other"],
)
def test_a_look_that_fails_is_reported_and_followed_by_another(
    error: Exception, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(client: KafkaClient) -> None:
        raise error

    monkeypatch.setattr(collecting, "collect_reading", fail)
    said: list[str] = []
    watch = ClusterWatch(KafkaClient({"bootstrap.servers": "127.0.0.1:1"}), 15, said.append)
    watch.look()
    watch.look()
    assert said == [f"the cluster does not answer as expected: {problem}"]
    _, health = watch.health()
    assert (health["problem"], health["collections"], health["cluster"]) == (problem, 2, "down")
    assert {family.name: family.samples[0].value for family in watch.collect()}["fencepost_exporter_up"] == 0
