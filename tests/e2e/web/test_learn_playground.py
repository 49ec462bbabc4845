"""The playground: every recipe causes its error, and every button does what it says, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fencepost.web.learn.playground.buttons import Click
from fencepost.web.learn.playground.guide import GUIDE
from fencepost.web.learn.playground.recipes import RECIPES, Recipe
from fencepost.web.learn.playground.session import BadClick, Playground


@pytest.fixture(scope="module")
def shared() -> Iterator[Playground]:
    playground = Playground()
    yield playground
    playground.close()


@pytest.fixture
def playground(shared: Playground) -> Playground:
    shared.click(Click("reset"))
    return shared


def clicks(playground: Playground, *names: str | Click) -> list[Any]:
    """The error of the last request of each click, None without a request."""
    found = []
    for name in names:
        exchanges = playground.click(name if isinstance(name, Click) else Click(name))["exchanges"]
        found.append(exchanges[-1]["error"] if exchanges else None)
    return found


@pytest.mark.parametrize(
    "recipe",
    # Those that only tell the broker to answer with an error are alike.
    [pytest.param(r, id=r.name, marks=pytest.mark.engines if r.is_injected else ()) for r in RECIPES.values()],
)
def test_the_recipe_causes_its_error(playground: Playground, recipe: Recipe) -> None:
    done = [playground.click(click) for click in recipe.clicks]
    last = done[-1]["exchanges"][-1]
    assert last["error"] == recipe.name, done
    assert last["explanation"]["meaning"]


def test_each_step_of_the_guide_does_what_its_sentence_says(playground: Playground) -> None:
    before = playground.document()["partition"]
    begin = before["high_watermark"] if before is not None else 0
    new = []
    for number, step in enumerate(GUIDE, 1):
        playground.click(step.click)
        document = playground.document()
        assert document["progress"] == {"done": number, "is_astray": False}, step.label
        entries = document["partition"]["entries"]
        new.append([entry.get("fate", "marker") for entry in entries if entry["offset"] >= begin])
    open_, committed, aborted = ["open"], ["committed", "marker"], ["aborted", "marker"]
    assert new == [
        [], [], open_, committed, committed, committed + open_, committed + aborted, committed + aborted,
    ]  # fmt: skip
    playground.click(Click("reset"))
    assert playground.document()["progress"] == {"done": 0, "is_astray": False}


def test_a_transaction_is_committed_with_its_offsets(playground: Playground) -> None:
    assert clicks(playground, "register", "begin", "produce", "add-offsets") == ["NONE", None, "NONE", "NONE"]
    open_ = playground.document()
    assert open_["txn"]["state"] == "Ongoing"
    assert open_["group"]["is_pending"]
    key = open_["partition"]["read_uncommitted"][-1]
    assert open_["partition"]["entries"][-1]["fate"] == "open"
    assert open_["partition"]["last_stable_offset"] < open_["partition"]["high_watermark"]
    assert clicks(playground, "commit") == ["NONE"]
    done = playground.document()
    assert done["txn"]["state"] == "CompleteCommit"
    assert not done["group"]["is_pending"]
    assert done["partition"]["read_committed"][-1] == key
    assert [record["state"] for record in done["records"]][-2:] == ["PrepareCommit", "CompleteCommit"]


def test_an_older_client_sends_the_requests_of_tv1(playground: Playground) -> None:
    playground.click(Click("client", "older"))
    playground.click(Click("register"))
    produced = playground.click(Click("produce"))
    assert [sent["api"] for sent in produced["exchanges"]] == ["AddPartitionsToTxn", "Produce"]
    offsets = playground.click(Click("add-offsets"))
    assert [sent["api"] for sent in offsets["exchanges"]] == ["AddOffsetsToTxn", "TxnOffsetCommit"]
    assert clicks(playground, "abort") == ["NONE"]
    assert playground.document()["txn"]["state"] == "CompleteAbort"


def test_a_decision_survives_the_death_of_the_broker(playground: Playground) -> None:
    clicks(playground, "register", "begin", "produce", "commit", "begin", "produce", "kill")
    dead = playground.document()
    assert not dead["broker"]["is_running"]
    assert dead["states_on_disk"][dead["transactional_id"]] == "Ongoing"
    assert clicks(playground, "commit") == ["NETWORK_EXCEPTION"]
    assert clicks(playground, "start", "commit") == [None, "NONE"]
    assert playground.document()["txn"]["state"] == "CompleteCommit"
    # A client notices that its connection has ended, and opens another.
    assert clicks(playground, "begin", "produce", "kill", "start", "commit") == [None, "NONE", None, None, "NONE"]


@pytest.mark.engines
def test_a_delayed_end_arrives_after_its_client_has_given_up(playground: Playground) -> None:
    clicks(playground, "register", "begin", "produce")
    assert clicks(playground, "delay-end", "commit") == [None, "NETWORK_EXCEPTION"]
    while playground.document()["txn"]["state"] != "CompleteCommit":
        pass  # The page asks in the same way; the time limit of the test ends this.


def test_the_timeout_fences_the_producer(playground: Playground) -> None:
    clicks(playground, "register", "begin", "produce", Click("clock", "timeout"))
    document = playground.document()
    assert document["txn"]["state"] == "CompleteAbort"
    assert "longer than its timeout" in document["records"][-2]["what"]
    assert clicks(playground, "commit") == ["INVALID_TXN_STATE"]


def test_a_second_start_is_refused_with_its_reason(playground: Playground) -> None:
    with pytest.raises(BadClick, match="the broker is running"):
        playground.click(Click("start"))


def test_a_closed_playground_leaves_no_broker_and_no_folder() -> None:
    playground = Playground()
    folder = playground._broker.data
    assert folder is not None
    playground.close()
    assert not playground._broker.is_running
    assert not folder.exists()


def test_a_click_that_waits_while_the_playground_closes_does_not_start_the_broker_again() -> None:
    playground = Playground()
    playground.click(Click("kill"))
    with ThreadPoolExecutor(2) as threads:
        with playground._one_click:
            waiting = [threads.submit(playground.click, Click(button)) for button in ("start", "reset")]
            playground.close()
        assert [str(click.exception()) for click in waiting] == ["this playground is closed"] * 2
    assert not playground._broker.is_running


def test_a_broker_that_starts_while_the_playground_closes_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    playground = Playground()
    playground.click(Click("kill"))
    start = playground._broker.start

    def start_late() -> None:
        playground.close()
        start()

    monkeypatch.setattr(playground._broker, "start", start_late)
    with pytest.raises(BadClick, match="this playground is closed"):
        playground.click(Click("start"))
    assert not playground._broker.is_running
    assert not Path(playground._folder.name).exists()
