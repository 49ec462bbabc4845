"""Kills the order service between the payment and the shipment, and starts it again.

Without transactions, readers find an incomplete order, and later the order and the payment twice: an idempotent
producer gets a new producer id after a restart. With transactions, read_committed readers see no record of the first
run, and the second run writes the order once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.child import start_module
from fencepost.demo.orders import new_run_id
from fencepost.demo.report import Check, DemoFailed, Progress, Report, Section
from fencepost.demo.topics import TOPICS, Offsets, Topics, by_topic

NOTHING, HALF, WHOLE, TWICE_CHARGED = (0, 0, 0), (1, 1, 0), (1, 1, 1), (2, 2, 1)


def play_order_crash(bootstrap_servers: str, without_transactions: bool, progress: Progress) -> Report:
    """Crash the service with transactions. If `without_transactions`, first crash it without them, for comparison."""
    run_id = new_run_id()
    topics = Topics(bootstrap_servers)
    topics.create()
    sections = []
    if without_transactions:
        progress("without transactions")
        sections.append(_crash(topics, f"{run_id}-plain", None, progress))
        progress("with transactions")
    sections.append(_crash(topics, f"{run_id}-txn", f"{run_id}-order-service", progress))
    return Report("brew", {"run": run_id, "bootstrap_servers": bootstrap_servers}, sections)


def _crash(topics: Topics, order_id: str, transactional_id: str | None, progress: Progress) -> Section:
    with_transactions = transactional_id is not None
    start = topics.await_stable()
    with order_service(topics.bootstrap_servers, order_id, transactional_id) as service:
        progress(f"  order and payment of {order_id} are written; kill -9 of process {service.pid}")
        service.kill()
        service.wait()
    after_crash = _counts(topics, start, order_id, committed=True)
    with order_service(topics.bootstrap_servers, order_id, transactional_id) as service:
        progress(f"  started again as process {service.pid}: order, payment, shipment")
        assert service.stdin is not None
        service.stdin.write("go on\n")
        service.stdin.flush()
        _expect(service, "shipped")
    topics.await_stable()
    committed = _counts(topics, start, order_id, committed=True)
    uncommitted = _counts(topics, start, order_id, committed=False)

    rows: list[tuple[str | int, ...]] = [
        ("after the crash", "read_committed", *after_crash),
        ("after the second run", "read_committed", *committed),
        ("after the second run", "read_uncommitted", *uncommitted),
    ]
    evidence = [str(record) for record in topics.read(start, committed=True) if record.key == order_id]
    if with_transactions:
        title = "Killed between payment and shipment, with transactions"
        sentences = [
            "When the second process registers the transactional id, the coordinator aborts the open transaction:",
            "no read_committed reader ever sees the incomplete order.",
            "Its records are still in the log, where read_uncommitted readers see them.",
        ]
        checks = [
            Check("after the crash, no record of the order is seen", NOTHING, after_crash, evidence),
            Check("after the second run, order, payment and shipment are seen once", WHOLE, committed, evidence),
            Check("read_uncommitted also sees the records of the first run", TWICE_CHARGED, uncommitted, evidence),
        ]
    else:
        title = "Killed between payment and shipment, without transactions"
        sentences = [
            "After the crash there is an order that is paid but has no shipment.",
            "The restarted process writes the order again. Its producer is idempotent, but has a new producer id,",
            "so the broker cannot recognise the duplicates: the customer pays twice.",
        ]
        checks = [
            Check("after the crash, there is an order and a payment, but no shipment", HALF, after_crash, evidence),
            Check("after the second run, order and payment are seen twice", TWICE_CHARGED, committed, evidence),
        ]
    return Section(title, sentences, ("moment", "reader", *TOPICS), rows, checks)


def _counts(topics: Topics, start: Offsets, order_id: str, committed: bool) -> tuple[int, int, int]:
    keys = by_topic(topics.read(start, committed))
    orders, payments, shipments = (keys[topic].count(order_id) for topic in TOPICS)
    return orders, payments, shipments


@contextmanager
def order_service(
    bootstrap_servers: str, order_id: str, transactional_id: str | None
) -> Iterator[subprocess.Popen[str]]:
    """Yield the order service after it has written the payment. The end of the block kills it."""
    arguments = [bootstrap_servers, order_id, *([transactional_id] if transactional_id is not None else [])]
    with start_module("fencepost.demo.order_service", *arguments) as service:
        try:
            _expect(service, "paid")
            yield service
        finally:
            service.kill()


def _expect(service: subprocess.Popen[str], word: str) -> None:
    assert service.stdout is not None
    said = service.stdout.readline().strip()
    if said != word:
        raise DemoFailed(f"the order service ended before it printed `{word}`", "its error output is above")
