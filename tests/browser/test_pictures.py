"""The pictures of the documents. `make pictures` takes them again; other runs only check that they can be taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from playwright.sync_api import Page, expect

from fencepost.client.client import KafkaClient
from fencepost.protocol import errors
from scripts import dev
from tests.browser.conftest import PATIENCE_MS, PICTURES, Workbench
from tests.command_line import run_fencepost
from tests.txn_tools import create_topic, producer_of, write
from tests.web_server import TIMEOUT_S, web_server

ROUNDS_OF_A_PICTURE = 1500


@pytest.fixture
def busy_producers(workbench: Workbench) -> Iterator[list[Producer]]:
    """The transactions of `make dev`, and producers for more."""
    for topic, partitions in ((dev.TOPIC, 2), ("orders", 3)):
        run_fencepost("topic", "create", topic, "--partitions", str(partitions), bootstrap_servers=workbench.servers)
    with KafkaClient({"bootstrap.servers": workbench.servers}) as client:
        dev.leave_open(client, "audit-open", 0, dev.ADDS_PARTITION)
        dev.leave_open(client, "audit-hanging", 1, dev.LEAVES_PARTITION_OUT)
    producers = []
    for n in range(4):
        producer = Producer({"bootstrap.servers": workbench.servers, "transactional.id": f"orders-sink-{n}"})
        producer.init_transactions(TIMEOUT_S)
        producers.append(producer)
    reader = Consumer({"bootstrap.servers": workbench.servers, "group.id": "billing"})
    reader.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    reader.close()
    yield producers
    for producer in producers:
        producer.purge()


def test_the_overview_of_a_busy_cluster_is_a_picture(
    page: Page, workbench: Workbench, busy_producers: list[Producer], picture: Callable[[Page, str], Path]
) -> None:
    page.set_viewport_size({"width": 1280, "height": 1080})
    page.goto(workbench.url("/"))
    page.get_by_role("heading", name="Overview").wait_for()
    plot = page.locator("section", has=page.get_by_role("heading", name="Commits and aborts"))
    # The plot of a picture needs half a minute; a test only has to see that it is drawn.
    for round_ in range(ROUNDS_OF_A_PICTURE if os.environ.get(PICTURES) else 3):
        for n, producer in enumerate(busy_producers):
            producer.begin_transaction()
            producer.produce("orders", b"placed", partition=n % 3)
            if (round_ + n) % 9:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.flush(TIMEOUT_S)  # Otherwise the client forgets the record, and there is nothing to abort.
                producer.abort_transaction(TIMEOUT_S)
    for producer in busy_producers[:2]:
        producer.begin_transaction()
        producer.produce("orders", b"waits", partition=0)
        producer.flush(TIMEOUT_S)
    expect(plot.locator("canvas")).to_be_visible()
    wrong = page.locator("section", has=page.get_by_role("heading", name="What is wrong"))
    expect(wrong.get_by_text("fencepost txn abort").first).to_be_visible()
    waits = page.locator("section", has=page.get_by_role("heading", name="Where readers wait"))
    expect(waits.get_by_text("it hangs")).to_be_visible()
    expect(waits.get_by_text("orders-sink-0")).to_be_visible()
    expect(page.get_by_role("link", name="billing")).to_be_visible()
    assert picture(page, "workbench-overview").stat().st_size > 10_000


@pytest.mark.engines
def test_a_transaction_that_was_taken_over_is_a_picture(
    page: Page, workbench: Workbench, picture: Callable[[Page, str], Path]
) -> None:
    run_fencepost("topic", "create", "payments", "--partitions", "2", bootstrap_servers=workbench.servers)
    first = producer_of(workbench.servers, "payments-sink", client_id="payments-1")
    write(first, "payments", "paid")
    producer_of(workbench.servers, "payments-sink", client_id="payments-2")
    with pytest.raises(KafkaException):
        first.commit_transaction(TIMEOUT_S)
    page.set_viewport_size({"width": 1000, "height": 1800})
    page.goto(workbench.url("/txn/payments-sink"))
    expect(page.locator('.lanes-step[data-look="late"]')).to_be_visible()
    expect(page.locator('.lanes-step[data-look="takeover"]')).to_have_count(2)
    assert picture(page, "workbench-transaction").stat().st_size > 10_000


@pytest.mark.engines
def test_a_fenced_producer_on_the_wire_is_a_picture(
    page: Page, workbench: Workbench, picture: Callable[[Page, str], Path]
) -> None:
    run_fencepost("topic", "create", "refunds", bootstrap_servers=workbench.servers)
    with web_server(workbench.servers, "--tap", "127.0.0.1:0") as server:
        servers = server.document("/tap")["address"]
        first = producer_of(servers, "refunds-sink", client_id="refunds-1")
        write(first, "refunds", "paid back", partitions=(0,))
        producer_of(servers, "refunds-sink", client_id="refunds-2")
        with pytest.raises(KafkaException):
            first.commit_transaction(TIMEOUT_S)
        page.set_viewport_size({"width": 1000, "height": 1180})
        page.goto(f"{server.url}tap?search=refunds-sink")
        refused = page.locator('.lanes-step[data-look="refused"]')
        expect(refused.last).to_be_visible()
        refused.last.get_by_role("button").click()
        assert picture(page, "workbench-wire").stat().st_size > 10_000
        page.goto("about:blank")  # The stream of the page ends before its server.


@pytest.mark.engines
def test_the_playground_after_a_takeover_is_a_picture(
    page: Page, workbench: Workbench, picture: Callable[[Page, str], Path]
) -> None:
    page.set_viewport_size({"width": 1280, "height": 1080})
    page.goto(workbench.url(f"/learn/playground?error={errors.PRODUCER_FENCED}"))
    page.get_by_role("button", name="Open a playground").click()
    page.get_by_role("button", name="Start over and click this for me").locator("visible=true").click()
    expect(page.get_by_role("region", name="The last click")).to_contain_text("PRODUCER_FENCED", timeout=PATIENCE_MS)
    expect(page.get_by_text("takeover", exact=True).first).to_be_visible(timeout=PATIENCE_MS)
    page.evaluate("window.scrollTo(0, 0)")
    assert picture(page, "workbench-playground").stat().st_size > 0
    page.get_by_role("button", name="Close the playground").click()
    expect(page.get_by_role("button", name="Open a playground")).to_be_visible(timeout=PATIENCE_MS)


@pytest.mark.engines
def test_a_partition_with_every_outcome_is_a_picture(
    page: Page, workbench: Workbench, picture: Callable[[Page, str], Path]
) -> None:
    topic = create_topic(workbench.servers, "returns", 1)
    plain = Producer({"bootstrap.servers": workbench.servers})
    sinks = [producer_of(workbench.servers, f"returns-sink-{n}") for n in range(3)]

    def write(producer: Producer, count: int) -> None:
        for n in range(count):
            value = f'{{"order": {n}, "refund": 12.50}}'
            producer.produce(topic, value, key=f"order-{n}", headers={"trace": b"4bf92f35"})
        assert producer.flush(TIMEOUT_S) == 0

    for round_ in range(6):
        for n, sink in enumerate(sinks[:2]):
            sink.begin_transaction()
            write(sink, 4)
            if (round_ + n) % 3:
                sink.commit_transaction(TIMEOUT_S)
            else:
                sink.abort_transaction(TIMEOUT_S)
        write(plain, 1)
    sinks[2].begin_transaction()
    write(sinks[2], 6)
    sinks[0].begin_transaction()
    write(sinks[0], 2)
    sinks[0].commit_transaction(TIMEOUT_S)
    page.set_viewport_size({"width": 1280, "height": 980})
    page.goto(workbench.url(f"/partition/{topic}/0?offset=5"))
    expect(page.locator(".opened")).to_contain_text("Its transaction was committed. All readers get it.")
    expect(page.locator('[data-kind="open"]')).to_have_count(6)
    page.evaluate("window.scrollTo(0, 0)")
    assert picture(page, "workbench-partition").stat().st_size > 10_000
