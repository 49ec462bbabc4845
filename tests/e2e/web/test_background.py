"""Answers of the cluster that pages show without a wait."""

from __future__ import annotations

import threading
import time
from typing import Any

from fencepost.client.client import KafkaClient
from fencepost.testing import Broker
from fencepost.web.cluster import WatchedCluster, _Look

EVERY_S = 600.0
SOON_S = 30.0


def wait_for_the_end(look: _Look[Any]) -> None:
    deadline = time.monotonic() + SOON_S
    while look.is_running:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_result_that_was_not_asked_for_in_a_long_time_counts_as_none(broker: Broker) -> None:
    begins, may_end = threading.Semaphore(0), threading.Semaphore(0)
    number = 0

    def collect(_: KafkaClient) -> int:
        nonlocal number
        begins.release()
        may_end.acquire()
        number += 1
        return number

    cluster = WatchedCluster(lambda: KafkaClient({"bootstrap.servers": broker.bootstrap_servers}))
    try:
        assert cluster.in_background(collect, EVERY_S) is None
        begins.acquire()
        may_end.release()
        look = cluster._look(collect)
        wait_for_the_end(look)
        assert cluster.in_background(collect, EVERY_S) == 1
        look.at -= 1.5 * EVERY_S
        assert cluster.in_background(collect, EVERY_S) == 1, "a new one is collected meanwhile"
        begins.acquire()
        look.at -= EVERY_S
        assert cluster.in_background(collect, EVERY_S) is None
        may_end.release()
        wait_for_the_end(look)
        assert cluster.in_background(collect, EVERY_S) == 2
    finally:
        cluster.close()
