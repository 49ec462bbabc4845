"""The server of the workbench: every page answers at one address with HTML, with JSON, and with a stream of changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, compile_path
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from fencepost.web.guard import Refusal, WebGuard, json_object, refusal_response
from fencepost.web.page import Page, PageRefused
from fencepost.web.pages import OPTIONAL_PAGES, PAGES
from fencepost.web.watch import Problem, Watch, problem_document

STATIC = Path(__file__).parent / "static"

_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="fencepost-script" content="{script}">
<meta name="fencepost-frame" content="{frame}">
<title>{title} · Fencepost</title>
<link rel="icon" type="image/svg+xml" href="/static/icon.svg">
<link rel="stylesheet" href="/static/vendor/uplot/uPlot.min.css">
<link rel="stylesheet" href="/static/style.css">
<script src="/static/theme.js"></script>
<script type="module" src="/static/app.js"></script>
</head>
<body>
<noscript>The workbench needs JavaScript. Every page also answers with JSON: add ?format=json to its address.</noscript>
</body>
</html>
"""


def shell(script: str, title: str, frame: Mapping[str, object]) -> str:
    """`frame`: what the script of the frame needs to know before it asks for the document."""
    return _HTML.format(script=escape(script), title=escape(title), frame=escape(json.dumps(frame)))


def frame(
    *,
    params: Mapping[str, str] | None = None,
    navigation: Sequence[tuple[str, str]] = (),
    can_act: bool = False,
    cluster: str | None = None,
    problem: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """`problem`: why there is no page, or what was wrong with the token."""
    return {
        "params": dict(params or {}),
        "navigation": [{"label": label, "href": href} for label, href in navigation],
        "can_act": can_act,
        "cluster": cluster,
        "problem": problem,
    }


JSON, EVENTS, HTML = "application/json", "text/event-stream", "text/html"
# In the query, these are for the server and not for the page.
FORMAT = "format"
MOST_BODY_BYTES = 1 << 20
# A proxy or a browser that has gone is found out by a comment that cannot be sent.
PING_S = 15


class TextConvertor(Convertor[str]):
    """Any text, also with slashes and line breaks. Starlette's own `path` stops at a line break."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("text", TextConvertor())


class StaticFolder(StaticFiles):
    """The files of the browser's side. A browser asks each time whether a file has changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.setdefault("cache-control", "no-cache")
        return response


def wanted_type(accept: str, format_: str | None) -> str:
    """JSON, a stream of events, or HTML, by the header Accept; `?format=json` wins."""
    if format_ == "json":
        return JSON
    ranges = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return next((range_ for range_ in ranges if range_ in (JSON, EVENTS, HTML)), HTML)


class Server:
    """Answers the requests for pages."""

    def __init__(self, watch: Watch, pages: Sequence[Page], allow_actions: bool) -> None:
        self._watch = watch
        self._allow_actions = allow_actions
        self.pages = [page for page in pages if watch.cluster.is_named or not page.needs_cluster]
        self._left_out = [page for page in (*pages, *OPTIONAL_PAGES) if page not in self.pages]
        self._navigation = [(page.nav, page.path) for page in self.pages if page.nav is not None]

    def routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = [
            Route(page.path, self._endpoint(page), methods=["GET", "POST"]) for page in self.pages
        ]
        if self.pages and all(page.path != "/" for page in self.pages):
            first = next(page.path for page in self.pages if page.nav is not None)
            routes.append(Route("/", lambda request: RedirectResponse(first)))
        return routes

    def _endpoint(self, page: Page) -> Any:
        async def answer(request: Request) -> Response:
            # A browser takes the ids `.` and `..` for folders, so a parameter that is not in the path may be in the
            # query.
            params = {
                name: str(value) if value != "" else request.query_params.get(name, "")
                for name, value in request.path_params.items()
            }
            if request.method == "POST":
                return await self._act(page, params, request)
            return await self._show(page, params, request)

        return answer

    async def _show(self, page: Page, params: Mapping[str, str], request: Request) -> Response:
        type_ = wanted_type(request.headers.get("accept", ""), request.query_params.get(FORMAT))
        query = {name: value for name, value in request.query_params.items() if name != FORMAT}
        vary = {"vary": "accept"}
        if type_ == HTML:
            return HTMLResponse(self.shell(page.script, page.title.format_map(params), page, params), headers=vary)
        if type_ == EVENTS:
            return EventSourceResponse(self._events(page, params, query), headers=vary, ping=PING_S, sep="\n")
        try:
            return Response(await self._watch.ask(page, params, query), media_type=JSON, headers=vary)
        except Exception as e:
            return problem_response(self._watch.problem_of(e), vary)

    async def _events(
        self, page: Page, params: Mapping[str, str], query: Mapping[str, str]
    ) -> AsyncIterator[ServerSentEvent]:
        try:
            async for event in self._watch.follow(page, params, query):
                yield ServerSentEvent(event.data, event=event.name)
        except PageRefused as e:
            yield ServerSentEvent(json.dumps(problem_document(self._watch.problem_of(e))), event="problem")

    def shell(self, script: str, title: str, page: Page, params: Mapping[str, str]) -> str:
        can_act = any(self._may(action.needs_permission) for action in page.actions.values())
        return shell(script, title, self._frame(params=params, can_act=can_act))

    def _frame(self, **more: Any) -> dict[str, object]:
        return frame(navigation=self._navigation, cluster=self._watch.cluster.name, **more)

    def not_found(self, request: Request) -> Response:
        path = request.url.path
        refusal = Refusal(
            404, f"there is no page {path}", missing_option(path, self._left_out) or "the workbench begins at /"
        )
        if HTML not in request.headers.get("accept", "") or request.query_params.get(FORMAT) == "json":
            return refusal_response(refusal)
        problem = {"status": refusal.status, "error": refusal.error, "hint": refusal.hint}
        return HTMLResponse(shell("", "Not found", self._frame(problem=problem)), 404, {"vary": "accept"})

    def _may(self, needs_permission: bool) -> bool:
        return self._allow_actions or not needs_permission

    async def _act(self, page: Page, params: Mapping[str, str], request: Request) -> Response:
        given = await json_object(request, MOST_BODY_BYTES)
        if given is None:
            return refusal_response(Refusal(400, "the body is not a JSON object", 'send {"action": …}'))
        action = page.actions.get(str(given.get("action")))
        if action is None:
            known = ", ".join(sorted(page.actions)) or "none"
            return refusal_response(Refusal(400, f"no action {given.get('action')!r} here", f"there is: {known}"))
        if not self._may(action.needs_permission):
            hint = "start `fencepost web` with --allow-actions to change the cluster from here"
            return refusal_response(Refusal(403, "this workbench only reads", hint))
        is_confirmed = given.get("confirm") is True
        work = action.do if is_confirmed else action.says
        try:
            answer = await self._watch.run(page, lambda: work(self._watch.cluster, params, given))
        except Exception as e:
            return problem_response(self._watch.problem_of(e))
        finally:
            if is_confirmed:
                self._watch.look_soon(page, params)
        return JSONResponse({"action": given["action"], "is_done": is_confirmed, **answer})


def missing_option(path: str, left_out: Sequence[Page]) -> str | None:
    """How to get the page of an address, if the workbench was started without it."""
    page = next((page for page in left_out if compile_path(page.path)[0].match(path)), None)
    return None if page is None else f"start `fencepost web` with {page.option}, and it is there"


def login_page(problem: Refusal | None) -> Response:
    """The form for the token. It shows nothing else of the workbench."""
    shown = None if problem is None else {"error": problem.error, "hint": problem.hint}
    return HTMLResponse(shell("login.js", "Token", frame(problem=shown)), 401)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(problem_document(problem), problem.status, headers)


def make_app(
    watch: Watch,
    *,
    allow_actions: bool = False,
    token: str | None = None,
    hosts: Collection[str] | None = None,
    cookie: str = "fencepost",
    pages: Sequence[Page] = PAGES,
) -> Starlette:
    """`hosts`: the names that the server goes by, None for any; `cookie`: the name of the cookie for the token."""
    server = Server(watch, pages, allow_actions)

    async def not_found(request: Request, _: Exception) -> Response:
        return server.not_found(request)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        watch.cluster.close()

    guard = Middleware(WebGuard, names=hosts, token=token, cookie=cookie, login_page=login_page)
    return Starlette(
        routes=[Mount("/static", StaticFolder(directory=STATIC)), *server.routes()],
        middleware=[guard],
        exception_handlers={404: not_found},
        lifespan=lifespan,
    )
