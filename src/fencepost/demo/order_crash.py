"""The order service is killed between the payment and the shipment, and started again.

Without transactions the readers find half an order, and then the order and the payment twice: an idempotent
producer forgets who it was when its process ends. With transactions the same crash leaves nothing that a
read_committed reader would see, and the second run writes the order once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.demo.orders import new_run_id
from fencepost.demo.report import Check, DemoFailed, Progress, Report, Section
from fencepost.demo.topics import TOPICS, Offsets, Topics, by_topic
from fencepost.testing.child import child_environment, python_module

NOTHING, HALF, WHOLE, TWICE_CHARGED = (0, 0, 0), (1, 1, 0), (1, 1, 1), (2, 2, 1)


def play_order_crash(bootstrap_servers: str, without_transactions: bool, progress: Progress) -> Report:
    """With transactions; before that, `without_transactions`, for contrast."""
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
        title = "The same crash, with transactions"
        sentences = [
            "When its successor registers the same transactional id, the dead process's transaction is aborted:",
            "nobody who reads committed data ever sees the half order.",
            "Its records are still in the log, where read_uncommitted finds them.",
        ]
        checks = [
            Check("after the crash nothing of the order is seen", NOTHING, after_crash, evidence),
            Check("after the second run order, payment and shipment are there once", WHOLE, committed, evidence),
            Check("read_uncommitted sees the first try as well", TWICE_CHARGED, uncommitted, evidence),
        ]
    else:
        title = "Killed between payment and shipment, without transactions"
        sentences = [
            "After the crash there is an order that is paid and that nobody delivers.",
            "The restarted process begins the order anew. Its producer is idempotent, but it has a new id,",
            "so the broker cannot know that these records are there already: the customer pays twice.",
        ]
        checks = [
            Check("after the crash there is an order and a payment, and no shipment", HALF, after_crash, evidence),
            Check("after the second run order and payment are there twice", TWICE_CHARGED, committed, evidence),
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
    """The order service, once it has written the payment; it does not outlive the block."""
    arguments = [bootstrap_servers, order_id, *([transactional_id] if transactional_id is not None else [])]
    with subprocess.Popen(
        python_module("fencepost.demo.order_service", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
        # Ctrl-C is for the demo, which then ends its children.
        process_group=0,
    ) as service:
        try:
            _expect(service, "paid")
            yield service
        finally:
            service.kill()


def _expect(service: subprocess.Popen[str], word: str) -> None:
    assert service.stdout is not None
    said = service.stdout.readline().strip()
    if said != word:
        raise DemoFailed(f"the order service ended before it said `{word}`", "its own words are above")
