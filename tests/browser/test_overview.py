"""The overview and the lists in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect

from fencepost.testing import Broker
from tests.browser.conftest import Workbench, barriers, is_wider_than_the_window
from tests.command_line import run_fencepost
from tests.txn_tools import producer_of
from tests.web_server import TIMEOUT_S, web_server

HOSTILE = "<img src=x onerror=\"document.title='owned'\"> '\"&amp; \u202eright-to-left"
TOPIC = "orders"


@pytest.fixture(scope="module")
def open_producer(workbench: Workbench) -> Producer:
    """One open transaction under a hostile name."""
    run_fencepost("topic", "create", TOPIC, bootstrap_servers=workbench.servers)
    producer = Producer(
        {"bootstrap.servers": workbench.servers, "transactional.id": HOSTILE, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"waits", partition=0)
    producer.flush(TIMEOUT_S)
    return producer


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.engines)])
@pytest.mark.usefixtures("open_producer")
def test_the_overview_shows_what_is_open_on_every_screen(page: Page, workbench: Workbench, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(workbench.url("/"))
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_text("● live")).to_be_visible()
    gaps = page.locator("section", has=page.get_by_role("heading", name="Where readers wait"))
    expect(gaps.get_by_role("link", name=f"{TOPIC}-0")).to_be_visible()
    expect(gaps.get_by_text("<img src=x")).to_be_visible()
    assert page.title() == "Overview · Fencepost"
    assert page.locator("img").count() == 0
    expect(page.locator(".findings, .committed", has_text="").first).to_be_visible()
    for width in (360, 1280, 2000):
        page.set_viewport_size({"width": width, "height": 900})
        assert not is_wider_than_the_window(page), width
    assert barriers(page) == []


def test_the_overview_changes_by_itself_when_a_transaction_ends(
    page: Page, workbench: Workbench, open_producer: Producer
) -> None:
    page.goto(workbench.url("/"))
    gaps = page.locator("section", has=page.get_by_role("heading", name="Where readers wait"))
    expect(gaps.get_by_role("link", name=f"{TOPIC}-0")).to_be_visible()
    open_producer.commit_transaction(TIMEOUT_S)
    expect(gaps.get_by_text("get everything")).to_be_visible()
    open_producer.begin_transaction()
    open_producer.produce(TOPIC, b"waits again", partition=0)
    open_producer.flush(TIMEOUT_S)
    expect(gaps.get_by_role("link", name=f"{TOPIC}-0")).to_be_visible()


@pytest.mark.usefixtures("open_producer")
def test_the_lists_are_searched_with_the_keyboard_alone(page: Page, workbench: Workbench) -> None:
    page.goto(workbench.url("/"))
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Transactions")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Transactional ids")).to_be_visible()
    page.get_by_role("searchbox").focus()
    page.keyboard.type("ONERROR")
    expect(page).to_have_url(workbench.url("/txns?search=ONERROR"))
    expect(page.get_by_text("1 id of 1")).to_be_visible()
    expect(page.get_by_role("cell", name="<img src=x")).to_be_visible()
    assert barriers(page) == []
    page.goto(workbench.url("/topics?waiting=1"))
    expect(page.get_by_role("link", name=f"{TOPIC}-0")).to_be_visible()
    page.get_by_role("checkbox").focus()
    page.keyboard.press("Space")
    expect(page).to_have_url(workbench.url("/topics"))
    assert barriers(page) == []
    page.set_viewport_size({"width": 360, "height": 800})
    assert not is_wider_than_the_window(page)


def test_a_cluster_that_goes_away_is_said_since_when_and_the_page_comes_back_by_itself(
    page: Page, page_troubles: list[str], tmp_path: Path
) -> None:
    with Broker(data=tmp_path / "data") as broker, web_server(broker.bootstrap_servers) as server:
        page.goto(server.url)
        expect(page.get_by_text("● live")).to_be_visible()
        broker.kill()
        expect(page.get_by_role("alert").get_by_text("The cluster has been away since")).to_be_visible()
        paragraphs = page.get_by_role("alert").locator("p")
        expect(paragraphs).to_have_count(3)
        expect(paragraphs.nth(1)).to_have_text(re.compile(r"^no broker can be reached: "))
        expect(paragraphs.nth(2)).not_to_contain_text("no broker")
        expect(page.get_by_text("✖ the cluster has been away since")).to_be_visible()
        broker.start()
        expect(page.get_by_text("● live")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        assert page_troubles == []
        server.process.kill()
        expect(page.get_by_text("✖ the workbench has not answered since")).to_be_visible()
        page_troubles.clear()  # The browser complains about the server that is gone.
        page.close()


def test_a_token_is_entered_once(page: Page, page_troubles: list[str], workbench: Workbench, tmp_path: Path) -> None:
    file = tmp_path / "token"
    with web_server(workbench.servers, "--token-file", str(file)) as server:
        page.goto(server.url + "txns")
        page.get_by_label("Token of this workbench").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("that token is not the right one")
        assert barriers(page) == []
        page.goto(server.url + "txns?token=wrong&state=open")
        expect(page.get_by_role("alert")).to_contain_text("that token is not the right one")
        expect(page.get_by_role("alert")).to_contain_text("--token-file")
        page.get_by_label("Token of this workbench").fill(file.read_text())
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Transactional ids")).to_be_visible()
        assert page.url == server.url + "txns?state=open"
        page.goto(server.url)
        expect(page.get_by_text("● live")).to_be_visible()
        assert not [trouble for trouble in page_troubles if "401" not in trouble]
        page_troubles.clear()
        page.close()


def test_an_address_without_a_page_keeps_the_navigation_and_says_what_to_do(
    page: Page, page_troubles: list[str], workbench: Workbench
) -> None:
    for path, hint in (
        ("/nowhere/<b>", "the workbench begins at /"),
        ("/tap", "start fencepost web with --tap HOST:PORT"),
    ):
        answer = page.goto(workbench.url(path))
        assert answer is not None
        assert answer.status == 404
        expect(page.get_by_role("heading", name="Not found")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text(f"there is no page {path}")
        expect(page.get_by_role("alert")).to_contain_text(hint)
        expect(page.get_by_role("status")).to_have_text("✖ not found")
        assert barriers(page) == []
        page.set_viewport_size({"width": 360, "height": 800})
        assert not is_wider_than_the_window(page)
    page.get_by_role("link", name="Transactions").click()
    expect(page.get_by_role("heading", name="Transactional ids")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("● live")
    page_troubles[:] = [trouble for trouble in page_troubles if "404" not in trouble]


def test_what_is_wider_than_the_window_shows_it_and_the_keyboard_reaches_it(page: Page, workbench: Workbench) -> None:
    producer_of(workbench.servers, "wide-table")
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(workbench.url("/txns?search=wide-table"))
    table = page.get_by_role("region", name="Transactional ids")
    frame = page.locator(".scroll-frame", has=table)
    arrows = "frame => ['::before', '::after'].map(edge => getComputedStyle(frame, edge).display !== 'none')"
    expect(frame).to_have_attribute("data-right", "more")
    assert frame.evaluate(arrows) == [False, True]
    table.focus()
    expect(table).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(frame).to_have_attribute("data-left", "more")
    table.evaluate("element => element.scrollTo(element.scrollWidth, 0)")
    expect(frame).to_have_attribute("data-right", "")
    assert frame.evaluate(arrows) == [True, False]
    assert barriers(page) == []
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(frame).to_have_attribute("data-left", "")
    assert frame.evaluate(arrows) == [False, False]
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(workbench.url("/txn/wide-table"))
    page.get_by_role("region", name="States", exact=True).locator("summary").click()
    machine = page.locator(".scroll-frame", has=page.get_by_role("region", name="State machine"))
    expect(machine).to_have_attribute("data-right", "more")
    assert machine.evaluate(arrows) == [False, True]
