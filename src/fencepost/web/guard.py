"""Decides which requests the workbench takes, before any of them reaches a page.

- The Host header must name this server, so that a foreign name that resolves to 127.0.0.1 (DNS rebinding) gets nothing.
- A token, if there is one, must come with each request: as `Authorization: Bearer`, or in a cookie that only this
  site sends. The address `/?token=…` sets the cookie and is left at once.
- Other sites may lead a user here by a link, and nothing else: no images, frames, scripts, fetches or forms.
- An action must be a POST of JSON from a page of this server, with a header that no form can send.

The decisions are pure functions over the headers; `WebGuard` applies them.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


async def json_object(request: Request, at_most: int) -> dict[str, Any] | None:
    """The JSON object in the body; None: there is none, or it has more than `at_most` bytes, which are not read."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > at_most:
            return None
    try:
        found = json.loads(body)
    # A ValueError is also text that is not UTF-8, and a number of thousands of digits.
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


SAFE_METHODS = frozenset({"GET", "HEAD"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
OWN_HEADER = "x-fencepost"
# Without these, there would be no form to enter the token.
WITHOUT_TOKEN = "/static/"
# It is read before a token is known.
MOST_LOGIN_BYTES = 4096
RESPONSE_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Refusal(NamedTuple):
    status: int
    error: str
    hint: str


WRONG_TOKEN = Refusal(
    401, "that token is not the right one", "the file that `fencepost web --token-file FILE` names has it"
)


def refused_host(host: str, names: Collection[str] | None) -> Refusal | None:
    """`names`: the names that this server goes by; None: any, because a token protects it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if names is None or name.lower() in names:
        return None
    return Refusal(
        421,
        f"this workbench is not {name or 'a server without a name'}",
        "use the address that it printed; `--listen` with a token serves other names",
    )


def refused_site(method: str, headers: Mapping[str, str]) -> Refusal | None:
    """Refuses what another site's page sent. Every browser of today says so in Sec-Fetch-Site."""
    site = headers.get("sec-fetch-site", "none")
    is_link = method in SAFE_METHODS and headers.get("sec-fetch-mode") == "navigate"
    is_link = is_link and headers.get("sec-fetch-dest", "document") == "document"
    if site in ("none", "same-origin") or is_link:
        return None
    return Refusal(403, "requests from other sites are not taken", "open the workbench in a tab of its own")


def refused_change(headers: Mapping[str, str], scheme: str) -> Refusal | None:
    """Refuses a POST that does not come from a page of this server."""
    origin, host = headers.get("origin"), headers.get("host", "")
    # Behind a proxy with TLS, a page has https and this server has http.
    if origin is not None and origin not in (f"{scheme}://{host}", f"https://{host}"):
        return Refusal(403, f"the origin {origin} may not change anything", "use the workbench's own page")
    if headers.get(OWN_HEADER) != "1":
        return Refusal(
            403, "the header X-Fencepost: 1 is missing", "send it, so that no form of a site can do the same"
        )
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return Refusal(415, "the body is not JSON", "send Content-Type: application/json")
    return None


def is_token(given: str | None, token: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(errors="replace"), token.encode())


def token_of(headers: Mapping[str, str], cookie: str) -> str | None:
    """The token that a request carries."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    # Other programs on this host may set cookies that `http.cookies` rejects, and it then drops all of them.
    return cookie_parser(headers.get("cookie", "")).get(cookie)


class WebGuard:
    """Middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        names: Collection[str] | None,
        token: str | None,
        cookie: str,
        login_page: Callable[[Refusal | None], Response],
    ) -> None:
        """`cookie` is the name of the cookie for the token, `login_page` the form for it."""
        self._app = app
        self._login_page = login_page
        self._names = names
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # There are no WebSockets here.
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in RESPONSE_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        answer = await self._answer(scope, receive)
        await (answer or self._app)(scope, receive, send_with_headers)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """The answer instead of a page; None: the page may answer."""
        headers = Headers(scope=scope)
        method, path = scope["method"], scope["path"]
        refusal = refused_host(headers.get("host", ""), self._names) or refused_site(method, headers)
        if refusal is None and method not in SAFE_METHODS:
            refusal = refused_change(headers, scope["scheme"])
        if refusal is not None:
            return refusal_response(refusal)
        if self._token is None:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if method in SAFE_METHODS and is_token(given, self._token):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            # Two slashes at the front would lead to another server.
            here = "/" + scope.get("raw_path", path.encode()).decode("latin-1").lstrip("/")
            return self._with_cookie(RedirectResponse(here + (f"?{rest}" if rest else ""), 303), scope)
        if method == "POST" and path == "/login":
            return await self._login(scope, receive)
        kept = token_of(headers, self._cookie)
        if path.startswith(WITHOUT_TOKEN) or is_token(kept, self._token):
            return None
        is_wrong = given is not None or kept is not None
        if "text/html" in headers.get("accept", ""):
            return self._login_page(WRONG_TOKEN if is_wrong else None)
        refusal = (
            WRONG_TOKEN if is_wrong else Refusal(401, "a token is needed", "send it as `Authorization: Bearer TOKEN`")
        )
        return refusal_response(refusal, {"www-authenticate": "Bearer"})

    async def _login(self, scope: Scope, receive: Receive) -> Response:
        body = await json_object(Request(scope, receive), MOST_LOGIN_BYTES)
        if body is None:
            return refusal_response(Refusal(400, "the body is not a short JSON object", 'send {"token": …}'))
        given = body.get("token")
        if not isinstance(given, str) or self._token is None or not is_token(given, self._token):
            return refusal_response(WRONG_TOKEN)
        return self._with_cookie(JSONResponse({"is_logged_in": True}), scope)

    def _with_cookie(self, response: Response, scope: Scope) -> Response:
        assert self._token is not None
        response.set_cookie(
            self._cookie, self._token, httponly=True, samesite="strict", secure=scope["scheme"] == "https", path="/"
        )
        return response


def refusal_response(refusal: Refusal, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": refusal.error, "hint": refusal.hint}, refusal.status, headers)
