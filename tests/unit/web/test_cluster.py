"""What several pages know of the cluster together."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fencepost.client.client import KafkaClient
from fencepost.client.failures import Unreachable
from fencepost.web.cluster import WatchedCluster, _Look

SOON_S = 30.0
READERS = 5


class CountedLock:
    """A lock that says when a thread comes to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.came = threading.Semaphore(0)

    def __enter__(self) -> None:
        self.came.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def collect(client: KafkaClient) -> int:
    return 1


def test_those_who_waited_for_a_question_that_failed_get_its_error_and_the_next_asks_again() -> None:
    gate = threading.Event()
    asked: list[int] = []

    def connect() -> KafkaClient:
        asked.append(1)
        gate.wait(SOON_S)
        raise Unreachable("no broker can be reached")

    cluster = WatchedCluster(connect)
    lock: Any = CountedLock()
    cluster._looks[collect] = _Look(lock=lock)
    with ThreadPoolExecutor(READERS) as threads:
        readers = [threads.submit(cluster.recent, collect) for _ in range(READERS)]
        for _ in readers:
            assert lock.came.acquire(timeout=SOON_S)
        gate.set()
        assert {type(reader.exception(SOON_S)) for reader in readers} == {Unreachable}
    assert len(asked) == 1
    with pytest.raises(Unreachable):
        cluster.recent(collect)
    assert len(asked) == 2
