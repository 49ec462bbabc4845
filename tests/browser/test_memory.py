"""A page that is left open for long: its memory stays, however often it changes."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from playwright.sync_api import CDPSession, Page

from tests.browser.conftest import Workbench
from tests.txn_tools import create_topic, producer_of, write
from tests.web_server import TIMEOUT_S

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

PATHS = ["/", "/txns", "/topics", "/partition/{topic}/0"]
WARM_UPDATES, UPDATES = 15, 60
BETWEEN_WRITES_MS = 200
MOST_HEAP_GROWTH_BYTES, MOST_NODE_GROWTH = 2 << 20, 300


class Memory(NamedTuple):
    heap_bytes: int
    nodes: int


def memory_of(session: CDPSession) -> Memory:
    """What is left after the garbage is collected."""
    session.send("HeapProfiler.collectGarbage")
    found = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return Memory(int(found["JSHeapUsedSize"]), int(found["Nodes"]))


@pytest.mark.parametrize("path", PATHS)
def test_the_memory_of_a_page_stays_over_many_live_updates(page: Page, workbench: Workbench, path: str) -> None:
    topic = create_topic(workbench.servers, f"kept-{PATHS.index(path)}", 1)
    producer = producer_of(workbench.servers, f"sink of {topic}")
    for _ in range(110):  # More than the strip shows at a time.
        write(producer, topic, "x", (0,))
        producer.commit_transaction(TIMEOUT_S)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("Network.enable")
    updates: list[object] = []
    session.on("Network.eventSourceMessageReceived", lambda message: updates.append(None))
    page.goto(workbench.url(path.format(topic=topic)))

    def follow(count: int) -> Memory:
        while len(updates) < count:
            write(producer, topic, "x", (0,))
            page.wait_for_timeout(BETWEEN_WRITES_MS)  # A page follows transactions of some length.
            producer.commit_transaction(TIMEOUT_S)
            page.wait_for_timeout(BETWEEN_WRITES_MS)
        return memory_of(session)

    before = follow(WARM_UPDATES)
    after = follow(WARM_UPDATES + UPDATES)
    print(f"{path}: {before} after {WARM_UPDATES} updates, {after} after {WARM_UPDATES + UPDATES}")
    assert after.heap_bytes - before.heap_bytes < MOST_HEAP_GROWTH_BYTES
    assert after.nodes - before.nodes < MOST_NODE_GROWTH
