"""The addresses of pages and their actions, without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from html import escape
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pytest
from starlette.applications import Starlette
from starlette.types import Receive

from fencepost.web.app import frame, make_app, shell, wanted_type
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import Page, PageAction, SubjectNotFound
from fencepost.web.watch import Watch

HOSTILE = ["a/b", "a%2Fb", "a b?c#d", "a\nb\n", "…", "<script>", "//x", "{x}", "'\"&", "x" * 300, "\\", "a/../b"]

HARD_JSON = [
    pytest.param(b'{"token": ' + b"1" * 5000 + b"}", id="a number of 5000 digits"),
    pytest.param(b"[" * 200_000, id="deep"),
    pytest.param(b'{"token": "\xff"}', id="not UTF-8"),
]


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: str


def call(
    app: Starlette,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    receive: Receive | None = None,
) -> Answer:
    """One request, as uvicorn hands it to the application."""
    raw_path, _, query = target.partition("?")

    sent = {"host": "127.0.0.1:8080", "accept": "application/json", **(headers or {})}
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "scheme": "http",
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
    }
    found: list[dict[str, Any]] = []

    async def once() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        found.append(message)

    asyncio.run(app(scope, receive or once, send))
    head, *rest = found
    named = {name.decode(): value.decode() for name, value in head["headers"]}
    return Answer(head["status"], named, b"".join(part.get("body", b"") for part in rest).decode())


def says(cluster: WatchedCluster, params: Mapping[str, str], given: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"text": f"would end {params['id']}"}


def do(cluster: WatchedCluster, params: Mapping[str, str], given: Mapping[str, Any]) -> Mapping[str, Any]:
    if given.get("fails"):
        raise SubjectNotFound("it has ended already")
    return {"text": f"ended {params['id']}"}


PAGES = (
    Page(
        path="/thing/{id:text}",
        script="thing.js",
        title="Thing {id}",
        ask=lambda cluster, params, query: {"params": dict(params), "query": dict(query)},
        needs_cluster=False,
        actions={
            "end": PageAction(says=says, do=do),
            "play": PageAction(says=says, do=do, needs_permission=False),
        },
    ),
    Page(path="/things", script="things.js", title="Things", nav="Things", ask=lambda *_: {}, needs_cluster=False),
    Page(path="/topic/{id}", script="x.js", title="Topic", ask=lambda *_: {}),
    Page(path="/", script="x.js", title="X", nav="X", ask=lambda *_: {}),
)


def app(allow_actions: bool = False) -> Starlette:
    return make_app(Watch(WatchedCluster(None), print), allow_actions=allow_actions, pages=PAGES)


def post(given: object, allow_actions: bool = False, **headers: str) -> Answer:
    sent = {"x-fencepost": "1", "content-type": "application/json", **headers}
    return call(app(allow_actions), "POST", "/thing/7", sent, json.dumps(given).encode())


@pytest.mark.parametrize("name", HOSTILE)
def test_every_name_has_an_address(name: str) -> None:
    answer = call(app(), "GET", f"/thing/{quote(name, safe='')}?page=2")
    assert json.loads(answer.body) == {"params": {"id": name}, "query": {"page": "2"}}
    html = call(app(), "GET", f"/thing/{quote(name, safe='')}", {"accept": "text/html"})
    assert html.status == 200
    assert "<script>alert" not in html.body


def test_a_name_that_a_browser_takes_for_a_folder_comes_in_the_query() -> None:
    assert json.loads(call(app(), "GET", "/thing/?id=..").body)["params"] == {"id": ".."}


def test_without_a_cluster_only_pages_that_need_none_are_there_and_the_first_is_the_start() -> None:
    answer = call(app(), "GET", "/")
    assert (answer.status, answer.headers["location"]) == (307, "/things")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/nowhere", "the workbench begins at /"),
        ("/topic/7", "start `fencepost web` with --bootstrap HOST:PORT, and it is there"),
        ("/tap", "start `fencepost web` with --tap HOST:PORT, and it is there"),
    ],
)
def test_an_address_without_a_page_is_a_page_for_a_browser_and_json_for_a_program(path: str, hint: str) -> None:
    shown = call(app(), "GET", path, {"accept": "text/html,*/*;q=0.8"})
    assert (shown.status, shown.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert escape(json.dumps(hint)) in shown.body
    for answer in (call(app(), "GET", path), call(app(), "GET", f"{path}?format=json", {"accept": "text/html"})):
        assert (answer.status, json.loads(answer.body)) == (404, {"error": f"there is no page {path}", "hint": hint})


def test_a_wrong_token_is_called_wrong_and_a_missing_one_is_asked_for() -> None:
    with_token = make_app(Watch(WatchedCluster(None), print), token="secret", pages=PAGES)
    wrong = "that token is not the right one"
    for target, headers in (
        ("/things?token=guess", {}),
        ("/things", {"authorization": "Bearer guess"}),
        ("/things", {"cookie": "fencepost=guess"}),
    ):
        assert json.loads(call(with_token, "GET", target, headers).body)["error"] == wrong
        assert wrong in call(with_token, "GET", target, {**headers, "accept": "text/html"}).body
    assert json.loads(call(with_token, "GET", "/things").body)["error"] == "a token is needed"
    assert wrong not in call(with_token, "GET", "/things", {"accept": "text/html"}).body


def test_an_action_first_says_what_it_would_do() -> None:
    asked = post({"action": "end"}, allow_actions=True)
    assert json.loads(asked.body) == {"action": "end", "is_done": False, "text": "would end 7"}
    done = post({"action": "end", "confirm": True}, allow_actions=True)
    assert json.loads(done.body) == {"action": "end", "is_done": True, "text": "ended 7"}
    failed = post({"action": "end", "confirm": True, "fails": True}, allow_actions=True)
    assert (failed.status, json.loads(failed.body)["error"]) == (404, "it has ended already")


@pytest.mark.parametrize("confirm", [True, False])
def test_a_workbench_without_permission_only_reads(confirm: bool) -> None:
    refused = post({"action": "end", "confirm": confirm})
    assert (refused.status, json.loads(refused.body)["error"]) == (403, "this workbench only reads")
    assert post({"action": "play", "confirm": confirm}).status == 200


@pytest.mark.parametrize("confirm", ["yes", 1, "true", None])
def test_only_true_confirms(confirm: object) -> None:
    assert json.loads(post({"action": "end", "confirm": confirm}, allow_actions=True).body)["is_done"] is False


@pytest.mark.parametrize("given", [[], "end", None, {"action": "other"}, {}, {"action": ["end"]}])
def test_nonsense_is_refused(given: object) -> None:
    assert post(given, allow_actions=True).status == 400


@pytest.mark.parametrize("body", HARD_JSON)
def test_json_that_python_cannot_take_is_refused(body: bytes) -> None:
    headers = {"x-fencepost": "1", "content-type": "application/json"}
    assert call(app(), "POST", "/thing/7", headers, body).status == 400
    with_token = make_app(Watch(WatchedCluster(None), print), token="secret", pages=PAGES)
    assert call(with_token, "POST", "/login", headers, body).status == 400


def test_without_a_token_little_of_a_body_is_read() -> None:
    chunks = 0

    async def receive() -> dict[str, Any]:
        nonlocal chunks
        chunks += 1
        return {"type": "http.request", "body": b" " * 1000, "more_body": chunks < 100}

    with_token = make_app(Watch(WatchedCluster(None), print), token="secret", pages=PAGES)
    headers = {"x-fencepost": "1", "content-type": "application/json"}
    assert call(with_token, "POST", "/login", headers, receive=receive).status == 400
    assert chunks == 5


def test_a_form_of_another_site_changes_nothing() -> None:
    given = {"action": "end", "confirm": True}
    for headers in (
        {"origin": "http://evil.example"},
        {"x-fencepost": ""},
        {"content-type": "application/x-www-form-urlencoded"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert post(given, allow_actions=True, **headers).status in (403, 415), headers


@pytest.mark.parametrize(
    ("accept", "format_", "type_"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", None, "text/html"),
        ("*/*", None, "text/html"),
        ("", None, "text/html"),
        ("application/json", None, "application/json"),
        ("Application/JSON; charset=utf-8, */*", None, "application/json"),
        ("text/event-stream", None, "text/event-stream"),
        ("text/html", "json", "application/json"),
        ("text/html", "xml", "text/html"),
    ],
)
def test_the_kind_of_answer_is_the_one_asked_for(accept: str, format_: str | None, type_: str) -> None:
    assert wanted_type(accept, format_) == type_


HOSTILE_TEXT = "</title><script>alert(1)</script>\"'<img src=x onerror=alert(1)>&amp;{script}"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.title = ""
        self._in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in_title = tag == "title"

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False


def test_a_hostile_name_stays_text() -> None:
    of_page = frame(
        params={"transactional_id": HOSTILE_TEXT}, navigation=[("Overview", "/")], can_act=False, cluster=HOSTILE_TEXT
    )
    tags = Tags(shell("txn.js", HOSTILE_TEXT, of_page))
    assert tags.title == f"{HOSTILE_TEXT} · Fencepost"
    assert [attrs["src"] for tag, attrs in tags.found if tag == "script"] == ["/static/theme.js", "/static/app.js"]
    assert not [tag for tag, _ in tags.found if tag == "img"]
    [content] = [attrs["content"] for _, attrs in tags.found if attrs.get("name") == "fencepost-frame"]
    assert json.loads(content or "")["params"] == {"transactional_id": HOSTILE_TEXT}


def test_no_script_or_style_is_inline_and_nothing_comes_from_elsewhere() -> None:
    tags = Tags(shell("txn.js", "A page", {}))
    for tag, attrs in tags.found:
        assert not [name for name in attrs if name.startswith("on") or name == "style"], (tag, attrs)
        assert tag != "style"
        for name in ("src", "href"):
            assert attrs.get(name, "/static/").startswith("/static/"), (tag, attrs)  # type: ignore[union-attr]
