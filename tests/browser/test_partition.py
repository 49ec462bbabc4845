"""The page of a partition in a real browser: the strip while transactions run, records of strangers, the keyboard."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Workbench, barriers, is_wider_than_the_window
from tests.txn_tools import create_topic, producer_of
from tests.web_server import TIMEOUT_S

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
_numbers = itertools.count(1)


@pytest.fixture
def topic(workbench: Workbench) -> str:
    return create_topic(workbench.servers, f"strip-{next(_numbers)}", 1)


def write(producer: Producer, topic: str, *values: str | bytes | None, **more: Any) -> None:
    for value in values:
        producer.produce(topic, value, partition=0, **more)
    assert producer.flush(TIMEOUT_S) == 0


def plain_producer(workbench: Workbench, **more: str) -> Producer:
    return Producer({"bootstrap.servers": workbench.servers, "log_level": 0} | more)


def cell(page: Page, offset: int) -> Locator:
    return page.locator(f'.strip [data-offset="{offset}"]')


def kinds(page: Page) -> list[str]:
    """The strip from left to right: kinds of records, and the two lines."""
    found: list[str] = page.locator(".strip > *").evaluate_all("all => all.map(e => e.dataset.line ?? e.dataset.kind)")
    return found


def fact(page: Page, name: str) -> Locator:
    return page.locator(f'[data-name="{name}"]')


def test_the_strip_shows_a_transaction_while_it_runs_and_after_its_end(
    page: Page, workbench: Workbench, topic: str
) -> None:
    write(plain_producer(workbench), topic, "outside")
    producer = producer_of(workbench.servers, f"sink of {topic}")
    page.goto(workbench.url(f"/partition/{topic}/0"))
    expect(cell(page, 0)).to_have_attribute("data-kind", "plain")
    producer.begin_transaction()
    write(producer, topic, "one", "two")
    expect(cell(page, 2)).to_have_attribute("data-kind", "open")
    assert kinds(page) == ["plain", "lso", "open", "open", "hw"]
    expect(fact(page, "lso")).to_have_text("1")
    expect(fact(page, "hw")).to_have_text("3")
    expect(page.locator("figcaption").get_by_role("link", name=f"sink of {topic}")).to_be_visible()
    expect(page.locator('[data-reader-offset="1"] [data-gets="waits"]')).to_have_text("waits: open")
    producer.commit_transaction(TIMEOUT_S)
    expect(cell(page, 3)).to_have_attribute("data-kind", "marker")
    assert kinds(page) == ["plain", "committed", "committed", "marker", "lso", "hw"]
    expect(fact(page, "lso")).to_have_text("4")
    expect(page.locator('[data-reader-offset="1"] [data-gets="gets"]')).to_have_text("one")
    producer.begin_transaction()
    write(producer, topic, "three")
    expect(cell(page, 4)).to_have_attribute("data-kind", "open")
    producer.abort_transaction(TIMEOUT_S)
    expect(cell(page, 4)).to_have_attribute("data-kind", "aborted")
    expect(page.locator('[data-reader-offset="4"] [data-gets="skips"]')).to_have_text("never: aborted")
    expect(cell(page, 5)).to_have_attribute("aria-label", f"offset 5, ABORT marker, sink of {topic}")


def test_records_of_strangers_are_text(page: Page, workbench: Workbench, topic: str) -> None:
    producer = plain_producer(workbench, **{"message.max.bytes": "2000000", "compression.type": "zstd"})
    write(producer, topic, HOSTILE, key=HOSTILE, headers=[(HOSTILE, HOSTILE.encode()), ("none", None)])
    write(producer, topic, "\u202eright to left\x00\x1b[31m\u2028 and \\u202e", key=b"\xff\xfe")
    write(producer, topic, '{"total": 1.10, "lines": ["<b>"]}')
    write(producer, topic, "x" * (1 << 20))
    for offset in range(4):
        page.goto(workbench.url(f"/partition/{topic}/0?offset={offset}"))
        opened = page.locator(f'.opened[data-offset="{offset}"]')
        expect(opened).to_be_visible()
        value = opened.locator('[data-name="value"]')
        if offset == 0:
            expect(value).to_have_text(HOSTILE)
            expect(opened.locator('[data-name="key"]')).to_have_text(HOSTILE)
            expect(opened.get_by_role("row", name=HOSTILE)).to_be_visible()
            assert page.locator("img, main script").count() == 0
            assert page.title() == f"Partition {topic}-0 · Fencepost"
        if offset == 1:
            # An escape is marked, so it differs from a text with a backslash.
            assert value.locator("mark").all_inner_texts() == ["\\u{202e}", "\\x00", "\\x1b", "\\u{2028}"]
            expect(value).to_contain_text("and \\u202e")
            expect(opened.locator('[data-name="key"]')).to_have_text("00000000 ff fe")
        if offset == 2:
            assert value.inner_text() == '{\n  "total": 1.10,\n  "lines": [\n    "<b>"\n  ]\n}'
        if offset == 3:
            expect(opened).to_contain_text("Only the beginning is shown: the value has 1,048,576 bytes.")
    assert barriers(page) == []


def test_the_strip_is_walked_with_the_keyboard_alone(page: Page, workbench: Workbench, topic: str) -> None:
    write(plain_producer(workbench, **{"linger.ms": "100"}), topic, *[f"value {n}" for n in range(450)])
    page.goto(workbench.url(f"/partition/{topic}/0"))
    expect(cell(page, 449)).to_be_visible()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.offset") is not None:
            break
    expect(cell(page, 449)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(cell(page, 447)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator('.opened [data-name="value"]')).to_have_text("value 447")
    expect(cell(page, 447)).to_be_focused()
    page.keyboard.press("Home")
    expect(cell(page, 250)).to_be_focused()
    page.keyboard.press("PageUp")
    expect(fact(page, "shown")).to_have_text("offsets 50 to 249")
    page.get_by_label("Go to offset").focus()
    page.keyboard.type("17")
    page.keyboard.press("Enter")
    expect(page.locator('.opened [data-name="value"]')).to_have_text("value 17")
    assert "offset=17" in page.url
    page.go_back()
    expect(fact(page, "shown")).to_have_text("offsets 50 to 249")
    page.get_by_role("button", name="follow the end").focus()
    page.keyboard.press("Enter")
    expect(cell(page, 449)).to_be_visible()


@pytest.mark.engines
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_partition_fits_every_screen_and_has_no_barriers(
    page: Page, workbench: Workbench, topic: str, scheme: str
) -> None:
    write(plain_producer(workbench), topic, *["x" * 300] * 3, key="k" * 300, headers=[("h" * 300, b"v" * 300)])
    committed, aborted, waiting = (producer_of(workbench.servers, f"{n} of {topic}" + "-" * 200) for n in range(3))
    for producer in (committed, aborted, waiting):
        producer.begin_transaction()
        write(producer, topic, "one", "two")
    committed.commit_transaction(TIMEOUT_S)
    aborted.abort_transaction(TIMEOUT_S)
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(workbench.url(f"/partition/{topic}/0?offset=1"))
    expect(cell(page, 10)).to_have_attribute("data-kind", "marker")
    expect(page.locator(".opened")).to_be_visible()
    for width in (360, 1280, 2000):
        page.set_viewport_size({"width": width, "height": 900})
        assert not is_wider_than_the_window(page), width
        assert barriers(page) == []


@pytest.mark.engines
def test_a_place_in_the_log_is_found_by_its_time_and_what_is_not_there_is_said(
    page: Page, workbench: Workbench, topic: str
) -> None:
    write(plain_producer(workbench), topic, "old", "old", timestamp=1_700_000_000_000)
    write(plain_producer(workbench), topic, "new", timestamp=1_700_000_100_000)
    page.goto(workbench.url(f"/partition/{topic}/0"))
    local = page.evaluate("ms => { const d = new Date(ms); d.setMinutes(d.getMinutes() - d.getTimezoneOffset());"
                          " return d.toISOString().slice(0, 19); }", 1_700_000_050_000)  # fmt: skip
    page.get_by_label("Go to time").fill(local)
    page.get_by_role("search", name="Go to a time").get_by_role("button").click()
    expect(page.locator('.opened [data-name="value"]')).to_have_text("new")
    page.goto(workbench.url(f"/partition/{topic}/0?offset=99"))
    expect(page.get_by_text(f"{topic}-0 has no offset 99 yet: it ends before 3")).to_be_visible()


def test_a_partition_that_is_not_there_is_said(
    page: Page, page_troubles: list[str], workbench: Workbench, topic: str
) -> None:
    page.goto(workbench.url(f"/partition/{topic}/7"))
    expect(page.get_by_role("alert")).to_contain_text("the topic has 1 partition")
    expect(page.get_by_role("status")).to_have_text("✖ not found")
    expect(page.get_by_role("heading", name=f"Partition {topic}-7")).to_be_visible()
    assert barriers(page) == []
    page_troubles[:] = [trouble for trouble in page_troubles if "404" not in trouble]
