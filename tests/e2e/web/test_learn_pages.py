"""The pages of Learn over HTTP: without a cluster and without permission, bounded, and ended with the server."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.web.test_beside import broker_with_web
from tests.web_server import TIMEOUT_S, WebServer, web_server

NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def server() -> Iterator[WebServer]:
    with web_server(None) as server:
        yield server


def act(server: WebServer, path: str, action: str, **given: object) -> Any:
    answer = server.post(path, {"action": action, "confirm": True, **given})
    assert answer.status == 200, answer
    return answer.document


def test_without_a_cluster_the_workbench_begins_with_learn(server: WebServer) -> None:
    answer = server.get("/", accept="text/html")
    assert (answer.status, answer.headers["location"]) == (307, "/learn")
    demos = server.document("/learn")["demos"]
    assert [demo["name"] for demo in demos] == ["brew", "zombie", "isolation", "recovery", "read", "refunds"]


def test_a_demo_that_does_not_exist_is_not_found_and_a_similar_one_is_named(server: WebServer) -> None:
    answer = server.get("/learn/brow")
    assert answer.status == 404
    assert answer.document["hint"] == "did you mean brew?"


def test_the_steps_of_a_demo_arrive_live(server: WebServer) -> None:
    run = act(server, "/learn/brew", "start")["run"]
    with server.events(f"/learn/brew?run={run}") as events:
        assert next(events).document["run"]["steps"] == []
        act(server, "/learn/brew", "next", run=run)
        while not (document := next(events).document)["run"]["steps"]:
            pass
    assert document["run"]["steps"][0]["records"][0]["state"] == "Empty"
    act(server, "/learn/brew", "close", run=run)
    ended = server.document(f"/learn/brew?run={run}")
    assert ended["run"] is None
    assert "it has ended" in ended["ended"]
    answer = server.post("/learn/brew", {"action": "next", "confirm": True, "run": run})
    assert answer.status == 404


def test_a_click_needs_no_permission_but_the_header_that_keeps_other_sites_out(server: WebServer) -> None:
    session = act(server, "/learn/playground", "open")["session"]
    given = {"action": "click", "confirm": True, "session": session, "button": "register"}
    assert server.post("/learn/playground", given, X_Fencepost="0").status == 403
    assert server.post("/learn/playground", given, Origin="http://elsewhere.example").status == 403
    clicked = act(server, "/learn/playground", "click", session=session, button="register")["clicked"]
    assert clicked["exchanges"][0]["error"] == "NONE"
    shown = server.document(f"/learn/playground?session={session}")["playground"]
    assert shown["txn"]["state"] == "Empty"
    assert shown["drawing"]["machine"]["current"] == "Empty"
    for wrong, reason in (
        ({"button": "explode"}, "there is no button 'explode'"),
        ({"button": "start"}, "the broker is running"),
    ):
        answer = server.post("/learn/playground", {**given, **wrong})
        assert (answer.status, answer.document["error"]) == (400, reason)
    act(server, "/learn/playground", "close", session=session)


def test_there_are_few_playgrounds_and_the_end_of_the_server_is_the_end_of_their_brokers() -> None:
    with web_server(None) as server:
        for _ in range(4):
            run = act(server, "/learn/brew", "start")["run"]
        answer = server.post("/learn/zombie", {"action": "start", "confirm": True})
        assert answer.status == 400
        assert answer.document["error"].startswith("4 demos are open, and this workbench runs no more at once")
        assert answer.document["hint"].startswith("close one, or the tab that shows it")
        act(server, "/learn/brew", "leave", run=run)
        act(server, "/learn/zombie", "start")
        assert "it has ended" in server.document(f"/learn/brew?run={run}")["ended"]
        act(server, "/learn/playground", "open")
        brokers = psutil.Process(server.process.pid).children(recursive=True)
        folders = {folder for broker in brokers for folder in broker.cmdline() if "fencepost-playground-" in folder}
        assert len(folders) == 1
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        gone, alive = psutil.wait_procs(brokers, 30)
        assert (len(gone), alive) == (len(brokers), [])
        assert not any(Path(folder).exists() for folder in folders)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_end_of_the_server_leaves_no_broker_and_no_folder_also_in_the_middle_of_a_step(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with web_server(None) as server:
        run = act(server, "/learn/zombie", "start")["run"]
        act(server, "/learn/zombie", "play", run=run)
        session = act(server, "/learn/playground", "open")["session"]
        for button in ("register", "begin", "produce", "delay-end"):
            act(server, "/learn/playground", "click", session=session, button=button, producer="A")
        with ThreadPoolExecutor(2) as browsers:
            # The server gets both, and does not answer before it ends.
            given = {"session": session, "button": "commit", "producer": "A"}
            browsers.submit(server.post, "/learn/playground", {"action": "click", "confirm": True, **given})
            browsers.submit(server.post, "/learn/playground", {"action": "open", "confirm": True})
            while len(list(tmp_path.iterdir())) < 3:
                time.sleep(0.01)
            brokers = psutil.Process(server.process.pid).children(recursive=True)
            for _ in range(3):
                server.process.send_signal(number)
            assert server.process.wait(TIMEOUT_S) == 0
        assert psutil.wait_procs(brokers, TIMEOUT_S)[1] == []
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_a_broker_leaves_no_broker_and_no_folder_of_the_workbench_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with broker_with_web() as (process, url):
        act(WebServer(process, url), "/learn/playground", "open")
        assert len(list(tmp_path.iterdir())) == 1
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        assert list(tmp_path.iterdir()) == []


def test_learn_works_while_the_cluster_is_away() -> None:
    with web_server(NOWHERE) as server:
        with server.events("/learn") as events:
            assert next(events).name == "document"
        run = act(server, "/learn/brew", "start")["run"]
        assert server.document(f"/learn/brew?run={run}")["run"]["status"] == "ready"
