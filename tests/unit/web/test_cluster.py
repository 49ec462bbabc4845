"""What several pages know of the cluster together."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
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


def test_a_reader_that_waited_through_a_failure_gets_the_value_that_came_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The failure came first; a later question, whose reader was faster to the lock, has been answered since."""
    client = KafkaClient({"bootstrap.servers": "127.0.0.1:1"})
    cluster = WatchedCluster(None)
    monkeypatch.setattr(cluster, "client", lambda: nullcontext(client))

    class FailsAndRecovers:
        """Lets a failure and an answer happen between the look at the number of failures and the lock."""

        def __enter__(self) -> None:
            look.failures, look.failure = look.failures + 1, Unreachable("no broker can be reached")
            cluster._take(look, collect)

        def __exit__(self, *_: object) -> None:
            pass

    lock: Any = FailsAndRecovers()
    look: _Look[int] = _Look(lock=lock)
    cluster._looks[collect] = look
    assert cluster.recent(collect) == 1
