"""What a workbench that is left open costs: the memory of `fencepost web` and of its pages, minute by minute.

    python -m benchmarks.open_pages [--minutes N] [--json]

A producer commits and aborts transactions all the time, and four pages stay open in Chromium. The memory of a page is
measured after its garbage was collected.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from contextlib import ExitStack
from typing import NamedTuple

import psutil
from playwright.sync_api import sync_playwright

from fencepost.cli.streams import say
from fencepost.testing import Broker
from tests.browser.conftest import FLAGS, ROOT
from tests.browser.test_memory import memory_of
from tests.txn_tools import create_topic, producer_of, write
from tests.web_server import TIMEOUT_S, web_server

TOPIC, IDS, PER_SECOND = "orders", 20, 5
PATHS = ["/", "/txns", "/txn/sink-0", f"/partition/{TOPIC}/0"]


class Minute(NamedTuple):
    minute: int
    server_bytes: int
    threads: int
    heap_bytes: list[int]
    nodes: list[int]
    updates: list[int]


class Load(threading.Thread):
    """Transactions of several ids, one in five aborted."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.transactions = 0
        self.stop = threading.Event()
        self._producers = [producer_of(servers, f"sink-{i}") for i in range(IDS)]

    def run(self) -> None:
        rng = random.Random(1)
        while not self.stop.wait(1 / PER_SECOND):
            producer = rng.choice(self._producers)
            write(producer, TOPIC, f"order {self.transactions}")
            self.stop.wait(rng.random())
            (producer.abort_transaction if rng.random() < 0.2 else producer.commit_transaction)(TIMEOUT_S)
            self.transactions += 1


def measure(minutes: int) -> tuple[list[Minute], int]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-bench-"))
        broker = stack.enter_context(Broker(data=folder))
        server = stack.enter_context(web_server(broker.bootstrap_servers))
        create_topic(broker.bootstrap_servers, TOPIC)
        load = Load(broker.bootstrap_servers)
        load.start()
        chromium = (ROOT / ".tools" / "chromium").read_text().strip()
        playwright = stack.enter_context(sync_playwright())
        browser = stack.enter_context(playwright.chromium.launch(executable_path=chromium, args=FLAGS))
        sessions, updates = [], [0] * len(PATHS)
        for i, path in enumerate(PATHS):
            page = browser.new_page()
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable")
            session.send("Network.enable")
            session.on("Network.eventSourceMessageReceived", lambda _, i=i: updates.__setitem__(i, updates[i] + 1))
            page.goto(server.url.rstrip("/") + path)
            sessions.append((page, session))
        process = psutil.Process(server.process.pid)
        found: list[Minute] = []
        began = time.monotonic()
        for minute in range(minutes + 1):
            while (left_s := began + 60 * minute - time.monotonic()) > 0:
                sessions[0][0].wait_for_timeout(min(left_s, 1.0) * 1000)
            memories = [memory_of(session) for _, session in sessions]
            found.append(
                Minute(
                    minute,
                    process.memory_info().rss,
                    process.num_threads(),
                    [memory.heap_bytes for memory in memories],
                    [memory.nodes for memory in memories],
                    list(updates),
                )
            )
            say(str(found[-1]))
        load.stop.set()
        load.join()
        return found, load.transactions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.open_pages", description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found, transactions = measure(options.minutes)
    if options.json:
        print(json.dumps({"minutes": [minute._asdict() for minute in found], "transactions": transactions}))
        return
    print(f"{transactions:,} transactions in {options.minutes} minutes")
    print(f"{'minute':>6}  {'server':>9}  {'threads':>7}  " + "  ".join(f"{path:>22}" for path in PATHS))
    for minute in found[:: max(1, options.minutes // 6)]:
        pages = zip(minute.heap_bytes, minute.nodes, minute.updates, strict=True)
        shown = "  ".join(f"{heap / 2**20:5.1f} MiB {nodes:5} {count:6}" for heap, nodes, count in pages)
        print(f"{minute.minute:6}  {minute.server_bytes / 2**20:5.0f} MiB  {minute.threads:7}  {shown}")
    print("for each page: its JavaScript heap, its DOM nodes, and the live updates that it has got")


if __name__ == "__main__":
    main()
