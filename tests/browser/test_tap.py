"""The page of a tap in a real browser: the transactions of a client appear while it runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect

from fencepost.testing import Broker
from tests.browser.conftest import Workbench, barriers, is_wider_than_the_window
from tests.readers.reading import TIMEOUT_S
from tests.web_server import web_server

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def tapped() -> Iterator[Workbench]:
    with Broker() as broker, web_server(broker.bootstrap_servers, "--tap", "127.0.0.1:0") as server:
        yield Workbench(broker, server)


def commit_one(servers: str, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "client.id": "shop"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", "placed")
    producer.commit_transaction(TIMEOUT_S)


def test_a_transaction_appears_while_it_passes_the_tap(tapped: Workbench, page: Page) -> None:
    page.goto(tapped.url("/tap"))
    expect(page.get_by_text("No client has begun a transaction yet.")).to_be_visible()
    commit_one(tapped.server.document("/tap")["address"], HOSTILE)
    steps = page.locator(".lanes-step")
    expect(page.locator(".lanes-step[data-look=committed]")).to_have_count(1)
    expect(steps.filter(has_text="InitProducerId: NONE")).to_have_count(1)
    assert page.title() != "owned"
    last = steps.last.get_by_role("button")
    last.press("Enter")
    expect(steps.last.locator("[data-field=client_id]")).to_have_text("shop")
    expect(steps.last.locator("[data-field=transactional_id]")).to_have_text(HOSTILE)
    assert barriers(page) == []
    page.set_viewport_size({"width": 360, "height": 700})
    assert not is_wider_than_the_window(page)
    page.get_by_label("Search").fill("Produce")
    expect(page.locator(".lanes-step[data-look=committed]")).to_have_count(0)
    expect(steps.filter(has_text="Produce v")).to_have_count(1)
