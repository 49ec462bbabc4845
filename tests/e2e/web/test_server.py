"""`fencepost web` as a process: pages, their JSON, live updates, the guard, and its end."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fencepost.testing import Broker
from tests.command_line import run_fencepost
from tests.web_server import TIMEOUT_S, WebServer, web_server

HOSTILE = "<img src=x onerror=alert(1)>"
Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def server(broker: Broker) -> Iterator[WebServer]:
    with web_server(broker.bootstrap_servers) as server:
        yield server


def open_transaction(servers: str, transactional_id: str, topic: str) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"waits", partition=0)
    producer.flush(TIMEOUT_S)
    return producer


@pytest.mark.parametrize("path", ["/", "/txns", "/topics"])
def test_a_page_is_html_for_a_browser_and_json_for_a_program(server: WebServer, path: str) -> None:
    html = server.get(path, accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert html.status == 200
    assert html.headers["content-type"].startswith("text/html")
    assert html.body.startswith("<!doctype html>")
    json_ = server.get(path)
    assert json_.headers["content-type"] == "application/json"
    assert json_.headers["vary"].lower() == "accept"
    assert json_.headers["cache-control"] == "no-store"
    assert set(server.get(f"{path}?format=json", accept="text/html").document) == set(json_.document)


def test_every_answer_forbids_scripts_and_frames_of_others(server: WebServer) -> None:
    for path in ("/", "/static/app.js", "/nowhere"):
        headers = server.get(path, accept="text/html").headers
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "'unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_what_does_not_exist_says_so(server: WebServer) -> None:
    answer = server.get("/nowhere")
    assert (answer.status, answer.document["error"]) == (404, "there is no page /nowhere")
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py"):
        assert server.get(path).status == 404


def test_an_open_transaction_appears_live_and_its_end_is_counted(
    server: WebServer, broker: Broker, unique: Unique
) -> None:
    topic, transactional_id = unique("watched"), unique(HOSTILE)
    assert run_fencepost("topic", "create", topic, bootstrap_servers=broker.bootstrap_servers).returncode == 0
    with server.events("/") as events:
        assert next(events).name == "document"
        producer = open_transaction(broker.bootstrap_servers, transactional_id, topic)
        for event in events:
            if transactional_id in [row["transactional_id"] for row in event.document["oldest"]]:
                break
        [gap] = [row for row in event.document["gaps"] if row["topic"] == topic]
        assert (gap["waiting"], gap["transactional_id"]) == (1, transactional_id)
        producer.commit_transaction(TIMEOUT_S)
        for event in events:
            ids = [row["transactional_id"] for row in event.document["oldest"]]
            rates = event.document["rates"] or {"commits": []}
            if transactional_id not in ids and any(rates["commits"]):
                break
    found = server.document(f"/txns?search={transactional_id.replace('<', '%3C').replace(' ', '+')}")
    assert [(row["transactional_id"], row["state"]) for row in found["rows"]] == [(transactional_id, "CompleteCommit")]
    [partition] = server.document(f"/topics?search={topic}-0")["rows"]
    assert (partition["last_stable_offset"], partition["waiting"]) == (2, 0)


def test_a_cluster_that_goes_away_is_said_and_the_stream_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data") as broker, web_server(broker.bootstrap_servers) as server:
        with server.events("/") as events:
            assert next(events).name == "document"
            before_ms = time.time_ns() // 1_000_000
            broker.kill()
            event = next(event for event in events if event.name == "away")
            assert event.document["error"].startswith("no broker can be reached: ")
            assert event.document["since_ms"] >= before_ms - 1000
            answer = server.get("/")
            assert answer.status == 503
            broker.start()
            assert next(event for event in events if event.name == "document").document["broker_count"] == 1
        assert server.get("/").status == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_also_while_a_browser_follows(broker: Broker, number: int) -> None:
    with web_server(broker.bootstrap_servers) as server, server.events("/") as events:
        next(events)
        server.process.send_signal(number)
        assert server.process.wait(TIMEOUT_S) == 0
        _, said = server.process.communicate()
    assert said == ""


def test_a_cluster_that_does_not_answer_does_not_delay_the_end() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        web_server(f"127.0.0.1:{silent.getsockname()[1]}") as server,
        server.events("/"),
    ):
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(TIMEOUT_S) == 0


def test_another_host_name_and_another_site_get_nothing(server: WebServer) -> None:
    assert server.get("/", Host="evil.example").status == 421
    assert server.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors").status == 403
    assert server.post("/", {"action": "abort"}, Origin="http://evil.example").status == 403
    assert server.request("POST", "/", {"Content-Type": "application/json"}, "{}").status == 403


def test_a_page_without_actions_refuses_them_by_name(server: WebServer) -> None:
    answer = server.post("/", {"action": "abort", "confirm": True})
    assert (answer.status, answer.document["error"]) == (400, "no action 'abort' here")
    assert server.post("/", ["abort"]).status == 400


def test_a_token_is_needed_for_everything_but_the_form(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "token"
    with web_server(broker.bootstrap_servers, "--token-file", str(file)) as server:
        token = file.read_text().strip()
        assert file.stat().st_mode & 0o077 == 0
        assert server.get("/").status == 401
        assert server.get("/", Authorization="Bearer wrong").status == 401
        assert server.get("/", Authorization=f"Bearer {token}").status == 200
        form = server.get("/", accept="text/html")
        assert form.status == 401
        assert "login.js" in form.body
        assert broker.bootstrap_servers not in form.body
        assert server.get("/static/app.js").status == 200
        assert server.post("/login", {"token": "wrong"}).status == 401
        entered = server.post("/login", {"token": token})
        cookie = entered.headers["set-cookie"]
        assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in cookie.split(";")}
        assert server.get("/", Cookie=cookie.partition(";")[0]).status == 200
        led = server.get(f"//evil.example/?token={token}&page=2")
        assert (led.status, led.headers["location"]) == (303, "/evil.example/?page=2")


def test_an_address_that_other_machines_reach_needs_a_token() -> None:
    done = run_fencepost("web", "--bootstrap", "127.0.0.1:1", "--listen", "0.0.0.0:0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: other machines reach 0.0.0.0:0, and there is no token\n\n"
        "hint: name a file for one with --token-file FILE, or listen on 127.0.0.1\n"
    )


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    done = run_fencepost("web", "--bootstrap", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--token-file", str(file))
    assert done.returncode == 2
    assert f"the token in {file} cannot be used: it has 6 characters" in done.stderr


def test_a_busy_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_fencepost("web", "--bootstrap", "127.0.0.1:1", "--listen", listen)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: cannot listen on {listen}: ")


def test_a_cluster_with_logins_is_asked_with_the_settings_of_the_client(tmp_path: Path) -> None:
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    data = tmp_path / "data"
    added = run_fencepost(
        "user", "add", "ann", "--password-file", str(_file(tmp_path, "p", "secret")), "--data", str(data)
    )
    assert added.returncode == 0, added.stderr
    login = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=ann\nsasl.password="
    right, wrong = _file(tmp_path, "right", f"{login}secret"), _file(tmp_path, "wrong", f"{login}guess")
    with Broker(data=data, settings=settings) as broker:
        servers = broker.listeners["SASL_PLAINTEXT"]
        with web_server(servers, "--command-config", str(right)) as server:
            assert server.document("/")["broker_count"] == 1
            assert "secret" not in server.get("/", accept="text/html").body + server.get("/").body
        with web_server(servers, "--command-config", str(wrong)) as server:
            answer = server.get("/")
            assert answer.status == 503
            assert "ann" in answer.document["error"] or "login" in answer.document["error"].lower()


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path
