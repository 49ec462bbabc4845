"""`fencepost verify cluster` on correct clusters that fail over: none is accused."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from fencepost.testing import Broker
from tests.e2e.failovers import three_nodes
from tests.e2e.verify.runs import verify_cluster
from tests.engines.apache_kafka import ApacheKafka, apache_kafka_cluster

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]
T = TypeVar("T")
SECONDS = "30"
DOWN_S = 1.5


@contextmanager
def nodes_that_fail(broker: Broker) -> Iterator[None]:
    """One node after the other stops or is paused, and comes back: others take over its coordinators and leaders."""

    def fail_next(node_id: int, over: threading.Event) -> None:
        nodes = broker.nodes
        nodes.stop(node_id)
        over.wait(DOWN_S)
        nodes.start(node_id)
        over.wait(DOWN_S)
        nodes.pause(node_id % 3 + 1)
        over.wait(DOWN_S)
        nodes.resume(node_id % 3 + 1)
        over.wait(DOWN_S)

    with _repeated(fail_next, (1, 2, 3)):
        yield


@contextmanager
def brokers_that_are_killed(brokers: Iterable[ApacheKafka]) -> Iterator[None]:
    def fail_next(broker: ApacheKafka, over: threading.Event) -> None:
        broker.kill()
        over.wait(DOWN_S)
        broker.start()
        over.wait(10 * DOWN_S)

    with _repeated(fail_next, brokers, first_after_s=10 * DOWN_S):
        yield


@contextmanager
def _repeated(
    fail_next: Callable[[T, threading.Event], None], subjects: Iterable[T], first_after_s: float = 0
) -> Iterator[None]:
    over = threading.Event()
    failures: list[BaseException] = []

    def go_on() -> None:
        over.wait(first_after_s)
        try:
            for subject in itertools.cycle(subjects):
                if over.is_set():
                    return
                fail_next(subject, over)
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not failures, failures


@pytest.mark.parametrize("seed", range(2))
def test_three_nodes_of_fencepost_that_fail_over_are_not_accused(tmp_path: Path, seed: int) -> None:
    with three_nodes(tmp_path / "data") as broker, nodes_that_fail(broker):
        verdict = verify_cluster(
            broker.bootstrap_servers, tmp_path / "history.jsonl", "--seconds", SECONDS, "--seed", str(seed)
        )
    assert (verdict.exit_code, verdict.kinds) == (0, set()), verdict.stderr
    assert verdict.report["committed"] > 0


@pytest.mark.java
def test_three_brokers_of_apache_kafka_that_are_killed_are_not_accused(tmp_path: Path) -> None:
    with apache_kafka_cluster() as cluster, brokers_that_are_killed(cluster.nodes.values()):
        verdict = verify_cluster(
            cluster.bootstrap_servers,
            tmp_path / "history.jsonl",
            *("--seconds", SECONDS, "--seed", "1", "--replication-factor", "3"),
        )
    assert (verdict.exit_code, verdict.kinds) == (0, set()), verdict.stderr
    assert verdict.report["committed"] > 0
