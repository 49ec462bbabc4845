"""Learn in a browser: brew from its first step to Complete, and a walk through the playground; no cluster is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import PATIENCE_MS, barriers, is_wider_than_the_window
from tests.web_server import WebServer, web_server

expect.set_options(timeout=PATIENCE_MS)
# The registration, and begin, produce and end of three orders.
STEPS_OF_BREW = 10


@pytest.fixture(scope="module")
def learning() -> Iterator[WebServer]:
    """A workbench without a cluster."""
    with web_server(None) as server:
        yield server


def address(server: WebServer, path: str) -> str:
    return server.url.rstrip("/") + path


def steps(page: Page) -> Locator:
    return page.get_by_role("list", name="Steps").locator("> li")


def details(page: Page, number: int) -> Locator:
    """The tables of the newest step."""
    return page.get_by_role("region", name=f"Step {number} in detail")


def first_cells(step: Locator, table: str) -> list[str]:
    rows = step.get_by_role("region", name=table).locator("tbody tr")
    return rows.locator("td:first-child").all_inner_texts()


def close_run(page: Page) -> None:
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_visible()


def open_playground(page: Page, learning: WebServer) -> None:
    """With all its buttons."""
    page.goto(address(learning, "/learn/playground"))
    page.get_by_role("button", name="Open a playground").click()
    page.get_by_role("button", name="Skip the guide").click()
    expect(page.get_by_role("region", name="The last click")).to_be_visible()


def close_playground(page: Page) -> None:
    page.get_by_role("button", name="Close the playground").click()
    expect(page.get_by_role("button", name="Open a playground")).to_be_visible()


def is_in_sight(what: Locator) -> bool:
    """Whether its middle is inside the window, and nothing covers it. The page does not scroll for this."""
    return bool(
        what.evaluate("""element => {
            const box = element.getBoundingClientRect();
            const found = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
            return found !== null && (element.contains(found) || found.contains(element));
        }""")
    )


def run_id(page: Page) -> str:
    return page.url.partition("?")[2]


def test_brew_is_walked_from_its_registration_to_complete(page: Page, learning: WebServer) -> None:
    page.goto(address(learning, "/"))
    page.get_by_role("link", name="brew", exact=True).click()
    page.get_by_role("button", name="Start", exact=True).click()
    next_ = page.get_by_role("button", name="Next")
    for number in range(1, 5):
        next_.click()
        expect(steps(page)).to_have_count(number)
        expect(next_).to_be_enabled()
        shown = details(page, number)
        # The page shows what its JSON twin says, and that is what the broker's transaction log has.
        twin = learning.document(f"/learn/brew?{run_id(page)}")["run"]["steps"][number - 1]
        expect(steps(page).nth(number - 1)).to_contain_text(twin["sentence"])
        if twin["rpcs"]:
            expected = [f"{rpc['name']} v{rpc['version']}" for rpc in twin["rpcs"]]
            assert first_cells(shown, "Requests") == expected
        if twin["records"]:
            records = "Records in __transaction_state"
            assert first_cells(shown, records) == [str(record["offset"]) for record in twin["records"]]
            states = shown.get_by_role("region", name=records).locator(".badge")
            expect(states).to_have_text([re.compile(rf"{record['state']}$") for record in twin["records"]])
        expect(shown.locator(".learn-txns")).to_contain_text(twin["txns"][0]["state"])
        for table in shown.locator(".learn-scroll").all():
            assert table.evaluate("table => table.scrollWidth <= table.clientWidth"), table.get_attribute("aria-label")
    last = details(page, 4)
    expect(last.locator(".learn-txns")).to_contain_text("CompleteCommit")
    assert [cell.split(" ")[0] for cell in first_cells(last, "Requests")] == ["EndTxn"]
    steps(page).nth(2).locator("summary").click()
    expect(steps(page).nth(2).get_by_role("region", name="Requests")).to_contain_text("Produce")
    expect(page.locator('.machine-state[data-state="CompleteCommit"]')).to_have_attribute("data-current", "yes")
    expect(page.get_by_text("readers get the records", exact=True)).to_be_visible()
    assert barriers(page) == []
    close_run(page)


def measure(text: Locator) -> float:
    """The width that a text has, in characters."""
    return float(
        text.evaluate("""element => {
            const digit = document.createElement("span");
            digit.textContent = "0";
            element.append(digit);
            const width = digit.getBoundingClientRect().width;
            digit.remove();
            return element.getBoundingClientRect().width / width;
        }""")
    )


def test_the_words_of_a_step_have_room_and_on_a_phone_the_drawing_comes_before_the_tables(
    page: Page, learning: WebServer
) -> None:
    page.goto(address(learning, "/learn/brew"))
    page.get_by_role("button", name="Start", exact=True).click()
    for number in range(1, 5):
        page.get_by_role("button", name="Next").click()
        expect(steps(page)).to_have_count(number)
        expect(page.get_by_role("button", name="Next")).to_be_enabled()
    assert 45 <= measure(steps(page).last) <= 75
    for text in page.locator(".lanes-text").all():
        assert 45 <= measure(text) <= 75
    page.set_viewport_size({"width": 390, "height": 844})
    words, drawing, tables = (
        page.locator(part).bounding_box() for part in (".learn-step-now", ".learn-drawing", ".learn-now")
    )
    assert words is not None
    assert drawing is not None
    assert tables is not None
    assert words["y"] < drawing["y"] < tables["y"]
    assert not is_wider_than_the_window(page)
    for table in page.locator(".learn-now .learn-scroll").all():
        assert table.evaluate("table => table.scrollWidth <= table.clientWidth"), table.get_attribute("aria-label")
    assert barriers(page) == []
    close_run(page)


@pytest.mark.engines
def test_a_demo_plays_by_itself_to_its_report(page: Page, learning: WebServer) -> None:
    page.goto(address(learning, "/learn/brew"))
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play")).to_be_enabled()
    for number in range(steps(page).count() + 1, STEPS_OF_BREW + 1):
        page.get_by_role("button", name="Next").click()
        expect(steps(page)).to_have_count(number)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("heading", name="What came out")).to_be_visible()
    assert page.locator(".learn-fails").count() == 0
    assert page.locator(".learn-holds").count() > 0
    close_run(page)


def test_the_playground_shows_a_commit_and_a_fenced_zombie(page: Page, learning: WebServer) -> None:
    open_playground(page, learning)
    latest = page.get_by_role("region", name="The last click")

    def click(name: str, answer: str) -> None:
        page.get_by_role("button", name=name, exact=True).click()
        expect(latest).to_contain_text(answer)

    click("Register", "InitProducerId v5 of A: NONE")
    click("Begin", "A client sends nothing for this.")
    click("Produce", "Produce v12 of A: NONE")
    expect(page.locator(".learn-entry-open")).to_have_count(1)
    expect(page.locator('.machine-state[data-state="Ongoing"]')).to_have_attribute("data-current", "yes")
    click("Commit", "EndTxn v5 of A: NONE")
    expect(page.locator(".learn-entry-committed")).to_have_count(1)
    expect(page.locator(".learn-entry-marker")).to_have_count(1)
    page.get_by_role("radio", name=re.compile("^B ")).check()
    click("Register", "InitProducerId v5 of B: NONE")
    page.get_by_role("radio", name=re.compile("^A ")).check()
    click("Commit", "PRODUCER_FENCED (90)")
    expect(latest).to_contain_text("this producer is a zombie")
    assert barriers(page) == []
    page.get_by_role("button", name="Close the playground").click()
    expect(page.get_by_role("button", name="Open a playground")).to_be_visible()


def test_a_guide_leads_from_the_first_producer_to_a_fenced_one_and_then_to_all_buttons(
    page: Page, learning: WebServer
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(address(learning, "/learn/playground"))
    page.get_by_role("button", name="Open a playground").click()
    guide = page.get_by_role("region", name="The first minute")
    next_ = guide.locator(".learn-primary")
    expect(next_).to_have_text("Register A")
    expect(page.locator(".learn-primary")).to_have_count(1)
    expect(page.get_by_role("button", name="Kill the broker")).to_have_count(0)
    steps_ = learning.document("/learn/playground")["guide"]
    next_.focus()
    for number, step in enumerate(steps_):
        expect(next_).to_have_attribute("data-step", str(number))
        expect(guide).to_contain_text(step["ask"])
        page.keyboard.press("Enter")  # The button keeps the focus.
        expect(guide.locator(".learn-happened")).to_have_text(step["happened"])
        assert is_in_sight(next_), step["label"]
    expect(page.locator(".learn-entry")).to_have_text([
        re.compile("committed"), re.compile("COMMIT marker"), re.compile("aborted"), re.compile("ABORT marker"),
    ])  # fmt: skip
    assert not is_wider_than_the_window(page)
    assert barriers(page) == []
    guide.get_by_role("button", name="Go on alone").click()
    expect(page.get_by_role("button", name="Kill the broker")).to_be_visible()
    expect(page.get_by_role("region", name="The last click")).to_contain_text("PRODUCER_FENCED (90)")
    page.get_by_role("button", name="Guide me from the start").click()
    expect(next_).to_have_text("Register A")
    close_playground(page)


def test_the_guide_starts_over_after_another_click(page: Page, learning: WebServer) -> None:
    page.goto(address(learning, "/learn/playground"))
    page.get_by_role("button", name="Open a playground").click()
    guide = page.get_by_role("region", name="The first minute")
    guide.get_by_role("button", name="Skip the guide").click()
    page.get_by_role("button", name="Kill the broker").click()
    expect(page.get_by_role("region", name="The last click")).to_contain_text("Kill the broker")
    page.go_back()
    guide.get_by_role("button", name="Start over").click()
    expect(guide.locator(".learn-primary")).to_have_text("Register A")
    close_playground(page)


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.engines)])
def test_the_answer_is_in_sight_of_the_button_that_was_pressed(page: Page, learning: WebServer, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    open_playground(page, learning)
    latest = page.get_by_role("region", name="The last click")
    for number, name in enumerate(("Begin", "Register", "Commit", "Mend the network", "Allow everything"), 1):
        button = page.get_by_role("button", name=name, exact=True)
        button.click()
        answer = latest.locator(".learn-said")
        expect(answer).to_contain_text(f"{number}.")
        assert is_in_sight(button), name
        assert is_in_sight(answer), name
    recipe = page.locator(".learn-recipes > li", has_text="INVALID_REQUEST (42)")
    recipe.locator("summary").first.click()
    press = recipe.get_by_role("button", name="Start over and click this for me")
    press.click()
    answer = recipe.locator(".learn-answer")
    expect(answer).to_have_text("INVALID_REQUEST (42)")
    assert is_in_sight(press)
    assert is_in_sight(answer)
    assert not is_wider_than_the_window(page)
    assert barriers(page) == []
    close_playground(page)


def test_a_chosen_mistake_is_made_once_and_a_step_that_was_left_out_is_named(page: Page, learning: WebServer) -> None:
    open_playground(page, learning)
    latest = page.get_by_role("region", name="The last click")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(latest).to_contain_text("PRODUCER_FENCED (90)")
    expect(latest).to_contain_text("producer A has not registered yet")
    expect(latest).to_contain_text("click Register, then Begin, Produce and Commit")
    expect(latest).not_to_contain_text("zombie")
    page.get_by_role("button", name="Register", exact=True).click()
    expect(latest).to_contain_text("InitProducerId v5 of A: NONE")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(latest).to_contain_text("it has not begun one since it registered")
    mistake = page.get_by_label("Produce: how")
    mistake.select_option("with a wrong checksum")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(latest).to_contain_text("CORRUPT_MESSAGE (2)")
    expect(mistake).to_have_value("")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(latest).to_contain_text("Produce v12 of A: NONE")
    close_playground(page)


@pytest.mark.engines
def test_a_closed_tab_frees_its_place_and_a_full_workbench_says_so(
    page: Page, page_troubles: list[str], learning: WebServer
) -> None:
    tabs = [page.context.new_page() for _ in range(4)]
    for tab in tabs:
        open_playground(tab, learning)
    page.goto(address(learning, "/learn/playground"))
    page.get_by_role("button", name="Open a playground").click()
    refused = page.get_by_role("alert")
    expect(refused).to_contain_text("4 playgrounds are open, and this workbench runs no more at once")
    expect(refused).to_contain_text("close one, or the tab that shows it")
    tabs[0].close()
    opened = page.get_by_role("region", name="The first minute")
    while not opened.is_visible():  # The word of a tab that closes takes a moment.
        page.get_by_role("button", name="Open a playground").click()
        expect(opened.or_(refused)).to_be_visible()
    for tab in (page, *tabs[1:]):
        close_playground(tab)
    page_troubles[:] = [trouble for trouble in page_troubles if "400" not in trouble]


@pytest.mark.engines
def test_a_playground_survives_a_reload_and_a_look_at_another_page(page: Page, learning: WebServer) -> None:
    open_playground(page, learning)
    page.get_by_role("button", name="Register", exact=True).click()
    latest = page.get_by_role("region", name="The last click")
    expect(latest).to_contain_text("InitProducerId v5 of A: NONE")
    page.reload()
    expect(latest).to_contain_text("InitProducerId v5 of A: NONE")
    page.get_by_role("link", name="Errors").click()
    expect(page.get_by_role("heading", name="Errors")).to_be_visible()
    page.go_back()
    expect(latest).to_contain_text("InitProducerId v5 of A: NONE")
    close_playground(page)


def test_a_recipe_clicks_by_itself_and_says_what_the_error_means(page: Page, learning: WebServer) -> None:
    page.goto(address(learning, "/learn/playground?error=48"))
    page.get_by_role("button", name="Open a playground").click()
    recipe = page.locator(".learn-recipes > li", has_text="INVALID_TXN_STATE (48)")
    recipe.get_by_role("button", name="Start over and click this for me").click()
    expect(page.get_by_role("region", name="The last click")).to_contain_text("INVALID_TXN_STATE (48)")
    page.get_by_role("button", name="Close the playground").click()
    expect(page.get_by_role("button", name="Open a playground")).to_be_visible()


@pytest.mark.engines
def test_learn_can_be_used_with_the_keyboard_alone(page: Page, learning: WebServer) -> None:
    page.goto(address(learning, "/learn/brew"))
    page.get_by_role("button", name="Start", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Next")).to_be_visible()
    for _ in range(40):
        if page.evaluate("document.activeElement?.textContent") == "Next":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(steps(page)).to_have_count(1)
    page.get_by_role("button", name="Next").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    close_run(page)


@pytest.mark.engines
@pytest.mark.parametrize("width", [360, 2000])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_learn_fits_narrow_and_wide_screens(page: Page, learning: WebServer, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(address(learning, "/learn"))
    expect(page.get_by_role("heading", name="Learn", exact=True)).to_be_visible()
    assert not is_wider_than_the_window(page)
    assert barriers(page) == []
    page.goto(address(learning, "/learn/playground"))
    page.get_by_role("button", name="Open a playground").click()
    expect(page.get_by_role("button", name="Register A")).to_be_visible()
    assert not is_wider_than_the_window(page)
    assert barriers(page) == []
    page.get_by_role("button", name="Skip the guide").click()
    recipe = page.locator(".learn-recipes > li", has_text="CONCURRENT_TRANSACTIONS (51)")
    recipe.locator("summary").click()
    recipe.get_by_role("button", name="Start over and click this for me").click()
    expect(page.get_by_role("region", name="The last click")).to_contain_text("CONCURRENT_TRANSACTIONS (51)")
    assert not is_wider_than_the_window(page)
    assert barriers(page) == []
    page.get_by_role("button", name="Close the playground").click()
    expect(page.get_by_role("button", name="Open a playground")).to_be_visible()
    page.goto(address(learning, "/learn/brew"))
    page.get_by_role("button", name="Start", exact=True).click()
    for number in (1, 2, 3):
        page.get_by_role("button", name="Next").click()
        expect(steps(page)).to_have_count(number)
        expect(page.get_by_role("button", name="Next")).to_be_enabled()
    assert not is_wider_than_the_window(page)
    assert barriers(page) == []
    close_run(page)
