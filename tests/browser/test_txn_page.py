"""The page of a transactional id in a real browser: what it shows is what the broker's own log of transactions has."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from fencepost.client.client import KafkaClient
from fencepost.demo.orders import OrderProducer, records_of_order
from fencepost.demo.topics import TOPICS
from fencepost.diagnose.collect.transactions import collect_history
from fencepost.diagnose.history import History, diagnose_history
from fencepost.diagnose.words import instant
from fencepost.testing import Broker
from tests.browser.conftest import PATIENCE_MS, SETTINGS, Workbench, barriers, is_wider_than_the_window
from tests.readers.reading import TIMEOUT_S
from tests.txn_tools import producer_of, write
from tests.web_server import web_server

RECORD_STEPS = '.lanes-step[data-key^="record "]'
MARKER_STEPS = '.lanes-step[data-key^="marker "]'
BATCH_STEPS = '.lanes-step[data-key^="batch "]'
BRACKETED = re.compile(r"\((\d+)\)$")
HOSTILE = {
    "html": "<img src=x onerror=\"document.title='owned'\">",
    "long": "a-very-long-id." * 20,
    "slashes": "/shop//orders/../1/",
    "percent": "100%25 %2e%2e/?a=b#c&d",
    "unicode": "zażółć-注文-🦔-\u202egnp",
    "quotes": 'it\'s "quoted" `here` {braces} $1 \\n',
    "dots": "..",
}


ORDERS = "orders"
# Timeouts are looked for every ten seconds otherwise.
CHECKS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """A workbench whose broker writes a log of its transactions."""
    topics = {**dict.fromkeys(TOPICS, 1), ORDERS: 2}
    with (
        Broker(
            data=tmp_path_factory.mktemp("data"), settings=SETTINGS | CHECKS, topics=topics, log_txns=True
        ) as broker,
        web_server(broker.bootstrap_servers, "--allow-actions") as server,
    ):
        yield Workbench(broker, server)


def address(workbench: Workbench, transactional_id: str) -> str:
    if transactional_id in (".", ".."):
        return workbench.url(f"/txn/?transactional_id={quote(transactional_id)}")
    return workbench.url(f"/txn/{quote(transactional_id, safe='')}")


def history_of(broker: Broker, transactional_id: str) -> History:
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        return diagnose_history(collect_history(client, transactional_id, with_rpcs=True))


def opened(page: Page, key: str) -> Locator:
    """The step with this key, open."""
    step = page.locator(f'.lanes-step[data-key="{key}"]')
    button = step.locator("button.lanes-row")
    if button.get_attribute("aria-expanded") != "true":
        button.click()
    return step


def field(step: Locator, source: str, name: str) -> str:
    return step.locator(f'[data-source="{source}"] [data-field="{name}"]').first.text_content() or ""


def check_records(page: Page, broker: Broker, transactional_id: str) -> None:
    """Every record of the broker's log is a step, with its state, its sentence, its fields and its request."""
    history = history_of(broker, transactional_id)
    expect(page.locator(RECORD_STEPS)).to_have_count(len(history.transitions))
    requests = {(rpc.name, rpc.at_ms) for rpc in history.rpcs or ()}
    for transition in history.transitions:
        step = opened(page, f"record {transition.offset}")
        expect(step).to_have_attribute("data-state", transition.state)
        expect(step.locator(".lanes-sentence")).to_have_text(transition.what.replace("`", ""))
        assert field(step, "record", "state") == transition.state
        assert field(step, "record", "producer_id") == str(transition.producer_id)
        assert field(step, "record", "producer_epoch") == str(transition.producer_epoch)
        assert field(step, "record", "transaction_last_update_ms").startswith(instant(transition.at_ms))
        assert field(step, "record", "partitions") == (", ".join(map(str, transition.partitions)) or "none")
        if not transition.state.startswith("Complete"):
            arrived = BRACKETED.search(field(step, "request", "arrived_ms"))
            assert arrived is not None
            assert (step.get_attribute("data-request"), int(arrived[1])) in requests
    last = history.transitions[-1].state
    expect(page.locator(f'.machine-state[data-state="{last}"]')).to_have_attribute("data-current", "yes")
    expect(page.locator(".facts .badge")).to_contain_text(last)


def logged(broker: Broker, transactional_id: str, kind: str) -> list[str]:
    """What the broker's own log of transactions says about events of one kind."""
    lines = [line.split(maxsplit=3)[2:] for line in broker.txn_log if f" {transactional_id} " in line]
    return [rest.partition("): ")[2] for found, rest in lines if found == kind]


def test_brew_is_shown_step_by_step_as_the_broker_logs_it(page: Page, workbench: Workbench) -> None:
    id_ = "brew-order"
    page.goto(address(workbench, id_))
    expect(page.get_by_text("does not know").first).to_be_visible()
    producer = OrderProducer(workbench.servers, transactional_id=id_)

    producer.init_transactions()
    expect(page.locator(RECORD_STEPS)).to_have_count(1)
    check_records(page, workbench.broker, id_)
    assert logged(workbench.broker, id_, "init") == ["timeout 60000 ms"]
    expect(page.get_by_text("and has begun no transaction since")).to_be_visible()

    producer.begin()  # Kafka's clients send nothing: the first record begins the transaction.
    producer.send(records_of_order("order-1", random.Random(1)), "order-1")
    expect(page.locator(BATCH_STEPS)).to_have_count(3)
    check_records(page, workbench.broker, id_)
    assert sorted(logged(workbench.broker, id_, "add")) == sorted(f"{topic}-0" for topic in TOPICS)
    for topic in TOPICS:
        step = opened(page, f"batch {topic}-0 0")
        assert step.get_attribute("data-request") == "Produce"
        assert field(step, "batch", "record_count") == "1"
        assert field(step, "request", "about") == f"{topic}-0"
        expect(step.locator(".lanes-sentence")).to_have_text(f"1 record on {topic}-0 at offset 0")
    expect(page.locator('.lanes-step[data-key="readers"]')).to_contain_text("wait on")
    expect(page.get_by_text("It pins the last stable offset of")).to_be_visible()

    producer.commit()
    expect(page.locator('.lanes-step[data-state="CompleteCommit"]')).to_be_visible()
    check_records(page, workbench.broker, id_)
    markers = logged(workbench.broker, id_, "marker")
    expect(page.locator(MARKER_STEPS)).to_have_count(len(markers))
    for marker in markers:
        assert page.locator(MARKER_STEPS, has_text=marker.replace("COMMIT on", "COMMIT marker on")).count() == 1
    expect(page.locator('.lanes-step[data-key="readers"]')).to_contain_text("get the records")
    expect(page.get_by_text("its last transaction was committed")).to_be_visible()
    assert logged(workbench.broker, id_, "decide") == ["COMMIT, 3 partitions (PrepareCommit)"]
    taken = page.locator(".machine-move.taken")
    assert {taken.nth(n).get_attribute("data-move") for n in range(taken.count())} >= {
        "Empty Ongoing", "Ongoing PrepareCommit", "PrepareCommit CompleteCommit",
    }  # fmt: skip


def test_the_page_aborts_after_a_question_and_shows_what_changed(page: Page, workbench: Workbench) -> None:
    write(producer_of(workbench.servers, "to-abort"), ORDERS, "half an order")
    page.goto(address(workbench, "to-abort"))
    abort = page.get_by_role("button", name="Abort the transaction and fence its producer …")
    abort.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This aborts its open transaction and fences producer")
    expect(dialog).to_contain_text("A producer that still runs learns it from its next request, which is refused")
    expect(dialog).to_contain_text("txn abort and txn fence send the same request")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator('.machine-state[data-state="Ongoing"]')).to_have_attribute("data-current", "yes")
    abort.click()
    dialog.get_by_role("button", name="Abort the transaction and fence its producer").click()
    expect(dialog).to_contain_text("to-abort is fenced: its open transaction is aborted")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator('.machine-state[data-state="Empty"]')).to_have_attribute("data-current", "yes")
    expect(page.locator('.lanes-step[data-look="fenced"]')).to_have_count(2)
    expect(abort).to_have_count(0)
    explained = page.get_by_role("region", name="Explanation")
    expect(explained).to_contain_text("was decided by an operator, who fenced its producer")
    expect(explained.locator("[data-order]")).to_contain_text("to-abort is fenced: its open transaction is aborted")
    expect(explained).not_to_contain_text("a new producer registered the id")
    expect(explained).not_to_contain_text("two processes")
    assert barriers(page) == []


def test_what_to_do_comes_first_and_the_states_are_small_until_opened(page: Page, workbench: Workbench) -> None:
    write(producer_of(workbench.servers, "to-do"), ORDERS, "half an order", (0,))
    page.goto(address(workbench, "to-do"))
    expect(page.locator("h2").first).to_have_text("What to do")
    to_do = page.get_by_role("region", name="What to do")
    actions = workbench.server.document("/txn/to-do")["explanation"]["actions"]
    steps = to_do.get_by_role("listitem")
    expect(steps).to_have_count(len(actions))
    for step, action in zip(steps.all(), actions, strict=True):
        expect(step).to_contain_text(action["advice"])
        expect(step.locator(".command")).to_have_text([action["command"]] if action["command"] else [])
    expect(to_do.get_by_role("button", name="Abort the transaction and fence its producer …")).to_be_visible()
    states = page.get_by_role("region", name="States", exact=True)
    expect(states.locator("summary .badge")).to_have_text([re.compile("Empty"), re.compile("Ongoing")])
    expect(states.locator("svg")).to_be_hidden()
    states.locator("summary").click()
    expect(states.locator("svg")).to_be_visible()
    assert barriers(page) == []


def test_nothing_is_drawn_without_its_style(page: Page, workbench: Workbench) -> None:
    held: list[Route] = []
    page.route("**/lanes.css", lambda route: held.append(route))
    with page.expect_request("**/lanes.css"):
        page.goto(workbench.url("/txn/styled"))
    assert page.get_by_role("heading", level=1).count() == 0
    [route] = held
    route.continue_()
    expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=PATIENCE_MS)


def test_an_aborted_record_is_called_one(page: Page, workbench: Workbench) -> None:
    producer = producer_of(workbench.servers, "called-aborted")
    write(producer, ORDERS, "half an order", (0,))
    producer.abort_transaction(TIMEOUT_S)
    page.goto(address(workbench, "called-aborted"))
    step = page.locator(BATCH_STEPS)
    expect(step.locator("strong")).to_have_text("1 aborted record")
    expect(step.locator(".lanes-sentence")).to_contain_text(f"1 aborted record on {ORDERS}-0 at offset")


@pytest.mark.engines
def test_without_permission_the_page_only_reads(page: Page, workbench: Workbench) -> None:
    producer_of(workbench.servers, "only-read")
    with web_server(workbench.servers) as server:
        page.goto(address(Workbench(workbench.broker, server), "only-read"))
        expect(page.get_by_text("--allow-actions")).to_be_visible()
        expect(page.get_by_role("button", name="Fence the producer …")).to_have_count(0)
        page.goto("about:blank")


@pytest.mark.engines
def test_a_takeover_and_a_late_request_look_different(page: Page, workbench: Workbench) -> None:
    first = producer_of(workbench.servers, "zombie")
    write(first, ORDERS, "half an order")
    page.goto(address(workbench, "zombie"))
    expect(page.locator('.lanes-step[data-look="open"]').first).to_be_visible()
    producer_of(workbench.servers, "zombie")
    expect(page.locator('.lanes-step[data-look="takeover"]')).to_have_count(2)
    with pytest.raises(Exception, match=r"(?i)fence|epoch"):
        first.commit_transaction(TIMEOUT_S)
    late = page.locator('.lanes-step[data-look="late"]')
    expect(late.first).to_be_visible()
    expect(late.first.locator(".lanes-look")).to_have_text("late")
    expect(page.locator('.lanes-step[data-look="takeover"] .lanes-look').first).to_have_text("takeover")
    expect(page.locator(".lanes-title", has_text="producer, epoch 0")).to_have_count(1)
    expect(page.locator(".lanes-title", has_text="producer, epoch 2")).to_have_count(1)


@pytest.mark.engines
def test_a_timeout_is_shown_while_the_page_is_open(page: Page, workbench: Workbench) -> None:
    write(producer_of(workbench.servers, "slow", timeout_ms=2000), ORDERS, "half an order")
    page.goto(address(workbench, "slow"))
    timeout = page.locator('.lanes-step[data-look="timeout"]')
    expect(timeout.locator(".lanes-look")).to_have_text("timeout")
    expect(timeout).to_contain_text("because it was open for longer than its timeout")
    expect(page.get_by_text("its client did not finish in time")).to_be_visible()


@pytest.mark.parametrize("name", [n if n == "html" else pytest.param(n, marks=pytest.mark.engines) for n in HOSTILE])
def test_a_hostile_id_is_text_and_nothing_else(page: Page, workbench: Workbench, name: str) -> None:
    id_ = HOSTILE[name]
    write(producer_of(workbench.servers, id_), ORDERS, "an order", (0,))
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(address(workbench, id_))
    expect(page.locator(RECORD_STEPS)).to_have_count(2)
    shown = id_.replace("\u202e", "\\u202e")
    expect(page.locator("h1 .name")).to_have_text(shown)
    step = page.locator(RECORD_STEPS).last
    step.locator("button").click()
    assert field(step, "record", "transactional_id") == shown
    if name != "unicode":
        expect(page.locator(".explained")).to_contain_text(id_)
    assert page.locator("img").count() == 0
    assert "owned" not in page.title() or name == "html"
    assert page.evaluate("document.title") == f"Transactional id {id_} · Fencepost"
    assert not is_wider_than_the_window(page)


def test_the_keyboard_opens_a_step_and_fences_a_producer(page: Page, workbench: Workbench) -> None:
    write(producer_of(workbench.servers, "keyboard"), ORDERS, "half an order", (0,))
    page.goto(address(workbench, "keyboard"))
    row = page.locator(f"{RECORD_STEPS} button").last
    expect(row).to_be_visible()
    for _ in range(60):
        page.keyboard.press("Tab")
        if row.evaluate("element => element === document.activeElement"):
            break
    expect(row).to_be_focused()
    assert row.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(row).to_have_attribute("aria-expanded", "true")
    expect(page.locator('[data-source="record"]')).to_be_visible()
    page.keyboard.press("Space")
    expect(row).to_have_attribute("aria-expanded", "false")
    fence = page.get_by_role("button", name="Abort the transaction and fence its producer …")
    fence.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Abort the transaction and fence its producer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(fence).to_be_focused()


@pytest.mark.engines
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_every_screen_and_has_no_barriers(page: Page, workbench: Workbench, scheme: str) -> None:
    id_ = f"screens-{scheme}"
    producer = producer_of(workbench.servers, id_)
    write(producer, ORDERS, "an order")
    producer.commit_transaction(TIMEOUT_S)
    write(producer, ORDERS, "half an order")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(address(workbench, id_))
    expect(page.locator(BATCH_STEPS)).to_have_count(2)
    page.locator(f"{RECORD_STEPS} button").first.click()
    for width in (360, 1280, 2000):
        page.set_viewport_size({"width": width, "height": 900})
        assert not is_wider_than_the_window(page), width
        assert barriers(page) == []


@pytest.mark.engines
def test_an_earlier_transaction_has_an_address_that_can_be_shared(page: Page, workbench: Workbench) -> None:
    producer = producer_of(workbench.servers, "rounds")
    for value in ("one", "two"):
        write(producer, ORDERS, value, (0,))
        producer.commit_transaction(TIMEOUT_S)
    page.goto(address(workbench, "rounds"))
    rounds = page.get_by_label("Transaction", exact=True)
    expect(rounds.locator("option")).to_have_count(2)
    expect(page.locator(BATCH_STEPS)).to_have_count(1)
    latest = page.locator(BATCH_STEPS).get_attribute("data-key")
    rounds.select_option(index=1)
    expect(page).to_have_url(re.compile(r"\?round=\d+$"))
    expect(page.locator(BATCH_STEPS)).not_to_have_attribute("data-key", latest or "")
    earlier = page.locator(BATCH_STEPS).get_attribute("data-key")
    page.reload()
    expect(page.locator(BATCH_STEPS)).to_have_attribute("data-key", earlier or "")


def test_errors_are_searched_and_explained(page: Page, workbench: Workbench) -> None:
    page.goto(workbench.url("/errors"))
    page.get_by_role("searchbox").fill("producer_fenced")
    expect(page).to_have_url(re.compile(r"search=producer_fenced"))
    assert barriers(page) == []
    page.get_by_role("link", name="PRODUCER_FENCED", exact=True).click()
    expect(page.get_by_role("heading", name="PRODUCER_FENCED (90)")).to_be_visible()
    expect(page.get_by_text("ProducerFencedException")).to_be_visible()
    assert barriers(page) == []
    page.set_viewport_size({"width": 360, "height": 800})
    assert not is_wider_than_the_window(page)
