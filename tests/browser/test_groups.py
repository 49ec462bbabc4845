"""The pages of consumer groups in a real browser."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Workbench, barriers, is_wider_than_the_window
from tests.txn_tools import commit_offsets, create_topic, producer_of
from tests.web_server import TIMEOUT_S

HOSTILE = "<img src=x onerror=\"document.title='owned'\"> \u202e/../?%20"
TOPIC = "orders"


@pytest.fixture(scope="module", autouse=True)
def groups(workbench: Workbench) -> None:
    """Two groups that read partition 0, one of them under a hostile name, and one that does not."""
    create_topic(workbench.servers, TOPIC, 2)
    commit_offsets(workbench.servers, HOSTILE, {(TOPIC, 0): 0, (TOPIC, 1): 0})
    commit_offsets(workbench.servers, "billing", {(TOPIC, 0): 0})
    commit_offsets(workbench.servers, "quiet", {(TOPIC, 1): 0})


def row_of(page: Page, partition: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=partition))


def test_a_group_shows_its_lags_and_the_offsets_in_a_transaction_until_it_ends(
    page: Page, workbench: Workbench
) -> None:
    producer = producer_of(workbench.servers, "sink")
    consumer = Consumer({"bootstrap.servers": workbench.servers, "group.id": "billing"})
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    where = TopicPartition(TOPIC, 0, 1)
    producer.send_offsets_to_transaction([where], consumer.consumer_group_metadata(), TIMEOUT_S)
    page.goto(workbench.url("/groups"))
    expect(page.get_by_text("3 groups, of which 2 wait")).to_be_visible()
    page.get_by_label("only those that wait").check()
    expect(page.get_by_role("link", name="quiet")).to_have_count(0)
    assert barriers(page) == []
    page.get_by_role("link", name="<img src=x").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Group <img src=x")
    expect(row_of(page, f"{TOPIC}-0").get_by_role("link", name="sink")).to_be_visible()
    assert page.locator("img").count() == 0
    page.goto(workbench.url("/group/billing"))
    expect(page.locator('[data-name="pending"]')).to_contain_text("1 offset in a transaction")
    row = row_of(page, f"{TOPIC}-0")
    expect(row).to_contain_text("in a transaction")
    for width in (360, 2000):
        page.set_viewport_size({"width": width, "height": 900})
        assert not is_wider_than_the_window(page), width
    assert barriers(page) == []
    producer.commit_transaction(TIMEOUT_S)
    expect(page.locator('[data-name="pending"]')).to_have_count(0)
    expect(row.get_by_role("link", name="sink")).to_have_count(0)
    consumer.close()


@pytest.mark.engines
def test_members_are_shown_with_what_they_read(page: Page, workbench: Workbench) -> None:
    consumer = Consumer({"bootstrap.servers": workbench.servers, "group.id": "readers", "client.id": "<b>shop</b>"})
    consumer.subscribe([TOPIC])
    while not consumer.assignment():
        consumer.poll(0.1)
    page.goto(workbench.url("/group/readers"))
    members = page.get_by_role("region", name="Members of the group")
    expect(members).to_contain_text("<b>shop</b>")
    expect(members.get_by_role("link", name=f"{TOPIC}-1")).to_be_visible()
    consumer.close()
    expect(page.get_by_text("no member")).to_be_visible()


def test_a_group_that_is_not_there_is_said_with_one_that_is(
    page: Page, page_troubles: list[str], workbench: Workbench
) -> None:
    page.goto(workbench.url("/group/quite"))
    expect(page.get_by_role("alert")).to_contain_text("there is no group quite")
    expect(page.get_by_role("alert")).to_contain_text("did you mean quiet")
    page_troubles[:] = [trouble for trouble in page_troubles if "404" not in trouble]
