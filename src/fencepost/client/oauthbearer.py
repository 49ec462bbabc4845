"""The tokens of sasl.mechanism=OAUTHBEARER: from an OIDC token endpoint by client credentials, or from a function.

A `TokenSource` keeps a token and renews it before it expires. The settings have the names of librdkafka
(sasl.oauthbearer.*) and confluent-kafka (oauth_cb); those of the Java client are known too.
"""

from __future__ import annotations

import base64
import importlib
import json
import logging
import re
import ssl
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from fencepost.client.failures import AuthenticationFailed, BadClientSetting, ClientError, NoToken
from fencepost.client.tls import only_one, pem_text, trusting

log = logging.getLogger(__name__)

OAUTHBEARER_SETTINGS = {
    "sasl.oauthbearer.method": "oidc, or default: oauth_cb makes the tokens",
    "sasl.oauthbearer.token.endpoint.url": "oidc: where the client asks for tokens, with its id and secret",
    "sasl.oauthbearer.client.id": "oidc: the name of the client",
    "sasl.oauthbearer.client.secret": "oidc: its secret",
    "sasl.oauthbearer.client.credentials.client.id": "the name of the client, as the Java client writes it",
    "sasl.oauthbearer.client.credentials.client.secret": "its secret, as the Java client writes it",
    "sasl.oauthbearer.scope": "oidc: what the token is for",
    "sasl.oauthbearer.extensions": "NAME=VALUE[,NAME=VALUE...] for the broker",
    "https.ca.location": "oidc: a PEM file or folder for the endpoint; the system's certificates if absent",
    "https.ca.pem": "oidc: the same as text",
    "oauth_cb": "a function that returns a token and when it expires, or MODULE:FUNCTION",
    "sasl.oauthbearer.config": "a text that oauth_cb is called with",
}
METHODS = ("oidc", "default")
# A token is renewed when this part of its time has passed.
RENEWED_AT = 0.8
# While an old token is still valid: the pause after a failure to renew it.
PAUSE_S = 5.0
LOGINS_KEPT = 64
ENDPOINT_TIMEOUT_S = 10.0
# A hundred years: a time beyond it is in milliseconds.
LONGEST_S = 36_500 * 86_400
MAX_ANSWER_BYTES = 1 << 20
MAX_REASON_CHARS = 300
_JAAS_EXTENSION = "extension_"
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7E \t\r\n]*")
_TOKEN = re.compile(r"[\x21-\x7E]+")  # No separator of the message that carries it, and no end of a line.


class Token(NamedTuple):
    value: str
    expires_at_s: float  # As time.time() has it.
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Token(expires_at_s={self.expires_at_s:.0f})"


TokenFunction = Callable[[str], Any]
Extensions = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """A login at an OIDC token endpoint (RFC 6749, 4.4)."""

    endpoint_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: Extensions = field(default=(), repr=False)
    ca_location: str | None = None
    ca_pem: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFunction:
    """A login whose tokens a function of the user makes. `name` is for messages."""

    function: TokenFunction = field(repr=False, hash=False)  # Not every object that can be called has a hash.
    name: str
    config: str = field(default="", repr=False)
    extensions: Extensions = field(default=(), repr=False)


OAuthLogin = ClientCredentials | FromFunction


# --- settings -----------------------------------------------------------------------------------------------


def parse_login(values: Mapping[str, str], jaas: Mapping[str, str], function: object) -> OAuthLogin:
    """function: the value of oauth_cb as it was given. Raises BadClientSetting."""
    url = values.get("sasl.oauthbearer.token.endpoint.url")
    method = values.get("sasl.oauthbearer.method", "oidc" if url else "default").lower()
    if method not in METHODS:
        raise BadClientSetting(f"sasl.oauthbearer.method={method} is none of {', '.join(METHODS)}")
    extensions = _extensions(values, jaas)
    if method == "default":
        if function is None:
            raise BadClientSetting(
                "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, or oauth_cb\n\nhint: set the "
                "endpoint with sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret, or oauth_cb to a "
                "function that returns a token and when it expires, or to MODULE:FUNCTION"
            )
        config = values.get("sasl.oauthbearer.config", "")
        return FromFunction(function=_function(function), name=_name_of(function), config=config, extensions=extensions)
    if function is not None:
        raise BadClientSetting("sasl.oauthbearer.method=oidc and oauth_cb are both set\n\nhint: leave one of them out")
    given = {
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": _either(values, "client.id") or jaas.get("clientId"),
        "sasl.oauthbearer.client.secret": _either(values, "client.secret") or jaas.get("clientSecret"),
    }
    for name, value in given.items():
        if not value:
            raise BadClientSetting(f"sasl.oauthbearer.method=oidc needs {name}\n\nhint: your identity provider has it")
    endpoint_url, client_id, client_secret = (value or "" for value in given.values())
    _check_url(endpoint_url)
    only_one(values, "https.ca.location", "https.ca.pem")
    return ClientCredentials(
        endpoint_url=endpoint_url,
        client_id=client_id,
        client_secret=client_secret,
        scope=values.get("sasl.oauthbearer.scope", jaas.get("scope", "")),
        extensions=extensions,
        ca_location=values.get("https.ca.location"),
        ca_pem=pem_text(values, "https.ca.pem"),
    )


def _either(values: Mapping[str, str], name: str) -> str | None:
    """As librdkafka writes it, or as the Java client does."""
    return values.get(f"sasl.oauthbearer.{name}") or values.get(f"sasl.oauthbearer.client.credentials.{name}")


def _check_url(url: str) -> None:
    try:
        parts = urllib.parse.urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    if not is_url or "@" in parts.netloc:
        # The value may have a password in it.
        raise BadClientSetting(
            "sasl.oauthbearer.token.endpoint.url is no address of the form https://HOST[:PORT]/PATH\n\n"
            "hint: the client's name and secret belong in sasl.oauthbearer.client.id and .client.secret"
        )


def _extensions(values: Mapping[str, str], jaas: Mapping[str, str]) -> Extensions:
    found = {name.removeprefix(_JAAS_EXTENSION): v for name, v in jaas.items() if name.startswith(_JAAS_EXTENSION)}
    for pair in filter(str.strip, values.get("sasl.oauthbearer.extensions", "").split(",")):
        name, equals, value = pair.strip().partition("=")
        if not equals:
            raise BadClientSetting(f"sasl.oauthbearer.extensions has {name!r}, expected NAME=VALUE")
        found[name] = value
    if (problem := _problem_of_extensions(found)) is not None:
        raise BadClientSetting(f"sasl.oauthbearer.extensions: {problem}")
    return tuple(sorted(found.items()))


def _problem_of_extensions(extensions: Mapping[str, str]) -> str | None:
    for name, value in extensions.items():
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            return f"{name!r} is no name for an extension: letters only, and not `auth`"
        if not _EXTENSION_VALUE.fullmatch(value):
            return f"the value of {name} has characters that are not printable ASCII"
    return None


def _function(given: object) -> TokenFunction:
    if callable(given):
        return given
    text = str(given)
    module, colon, name = text.partition(":")
    hint = "hint: write MODULE:FUNCTION, for example my_company.kafka:token; Python must find the module"
    if not colon or not module or not name:
        raise BadClientSetting(f"oauth_cb={text} is neither a function nor MODULE:FUNCTION\n\n{hint}")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as e:
        raise BadClientSetting(f"oauth_cb={text} cannot be imported: {e}\n\n{hint}") from None
    if not callable(found):
        raise BadClientSetting(f"oauth_cb={text} is a {type(found).__name__}, expected a function\n\n{hint}")
    return found  # type: ignore[no-any-return]


def _name_of(function: object) -> str:
    return function if isinstance(function, str) else str(getattr(function, "__qualname__", type(function).__name__))


# --- tokens -------------------------------------------------------------------------------------------------


class TokenSource:
    """The token of a client: fetched when it is first needed, and renewed before it expires. Thread-safe.

    id: differs for each source. Processes that ask this one for its tokens recognize by it which login they are for.
    """

    def __init__(self, fetch: Callable[[], Token], clock: Callable[[], float] = time.time) -> None:
        self.id = uuid.uuid4().hex
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renewed_at_s = 0.0

    def token(self) -> Token:
        """Raises AuthenticationFailed, or NoToken if another attempt may succeed."""
        with self._lock:
            now_s = self._clock()
            if self._token is not None and now_s < self._renewed_at_s:
                return self._token
            try:
                self._token = self._fetch()
            except ClientError as e:
                if self._token is None or now_s >= self._token.expires_at_s:
                    raise
                left_s = self._token.expires_at_s - now_s
                log.warning("the token for Kafka could not be renewed; it is valid for another %d s: %s", left_s, e)
                self._renewed_at_s = now_s + min(PAUSE_S, left_s)
                return self._token
            self._renewed_at_s = now_s + (self._token.expires_at_s - now_s) * RENEWED_AT
            return self._token

    def forget(self, token: Token) -> None:
        """A broker has refused it, so the next login needs another."""
        with self._lock:
            if self._token == token:
                self._token = None


@lru_cache(LOGINS_KEPT)
def token_source(login: OAuthLogin) -> TokenSource:
    """Equal logins of this process share their tokens: a program may create many clients with the same settings."""
    if isinstance(login, FromFunction):
        return TokenSource(lambda: call_function(login))
    return TokenSource(lambda: ask_endpoint(login))


def call_function(login: FromFunction) -> Token:
    """The function returns (token, seconds since 1970), or (token, seconds, principal, extensions)."""
    shape = (
        "hint: it returns (token, when it expires in seconds since 1970), as the function of confluent-kafka does; "
        "a third value is ignored, a fourth is a dict of extensions"
    )
    about = f"oauth_cb {login.name}"
    try:
        returned = login.function(login.config)
    except ClientError:
        raise
    except Exception as e:
        raise AuthenticationFailed(
            f"{about} failed: {type(e).__name__}: {e}\n\nhint: the function makes the token for Kafka; call it alone"
        ) from e
    # The message must not have the value: it may be the token.
    if not isinstance(returned, tuple) or len(returned) not in (2, 4):
        raise AuthenticationFailed(f"{about} returned {_shape_of(returned)}, expected a tuple of 2 or 4\n\n{shape}")
    value, expires_at_s, *more = returned
    extensions = more[1] if more else {}
    if not isinstance(value, str) or not isinstance(expires_at_s, int | float) or not isinstance(extensions, Mapping):
        raise AuthenticationFailed(f"{about} returned {_shape_of(returned)}\n\n{shape}")
    every = {**dict(login.extensions), **{str(name): str(one) for name, one in extensions.items()}}
    if (problem := _problem_of_extensions(every)) is not None:
        raise AuthenticationFailed(f"{about}: {problem}\n\n{shape}")
    return checked(Token(value, float(expires_at_s), every), about, time.time())


def _shape_of(returned: object) -> str:
    if isinstance(returned, tuple):
        return "(" + ", ".join(type(part).__name__ for part in returned) + ")"
    return type(returned).__name__


def checked(token: Token, about: str, now_s: float) -> Token:
    """Raises AuthenticationFailed for a token that no broker would accept."""
    if not _TOKEN.fullmatch(token.value):
        raise AuthenticationFailed(
            f"{about}: the token is empty or has characters that a token cannot have\n\nhint: is it a bearer token?"
        )
    if token.expires_at_s <= now_s:
        raise AuthenticationFailed(
            f"{about}: the token has expired {now_s - token.expires_at_s:.0f} s ago\n\n"
            "hint: the time is in seconds since 1970, not in milliseconds; is the clock of this machine right?"
        )
    if token.expires_at_s - now_s > LONGEST_S:
        raise AuthenticationFailed(
            f"{about}: the token expires in {(token.expires_at_s - now_s) / 86_400:.0f} days\n\n"
            "hint: the time is in seconds since 1970, not in milliseconds"
        )
    return token


def ask_endpoint(login: ClientCredentials) -> Token:
    # Here, because most clients have no token: these modules take longer to load than the rest of the client.
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """The secret is for this address only."""

        def redirect_request(self, *_: Any) -> None:
            return None

    url, hint = shown(login.endpoint_url), "hint: check sasl.oauthbearer.token.endpoint.url"
    form = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
    basic = base64.b64encode(f"{login.client_id}:{login.client_secret}".encode()).decode()
    headers = {"Accept": "application/json", "Authorization": f"Basic {basic}"}
    request = Request(login.endpoint_url, urllib.parse.urlencode(form).encode(), headers)
    https = HTTPSHandler(context=trusting(login.ca_location, login.ca_pem, "https.ca."))
    try:
        with build_opener(https, NoRedirects()).open(request, timeout=ENDPOINT_TIMEOUT_S) as answer:
            body = answer.read(MAX_ANSWER_BYTES)
    except HTTPError as e:
        with e:
            said = reason_of(e.read(MAX_ANSWER_BYTES), login.client_secret)
        text = f"the token endpoint {url} refused client {login.client_id!r} with {e.code}{said}"
        if e.code >= 500 or e.code == 429:
            raise NoToken(f"{text}\n\nhint: the endpoint has a problem of its own; it is asked again") from None
        hint = (
            "hint: check sasl.oauthbearer.client.id, .client.secret and .scope" if e.code in (400, 401, 403) else hint
        )
        raise AuthenticationFailed(f"{text}\n\n{hint}") from None
    except (OSError, HTTPException) as e:
        why = e.reason if isinstance(e, URLError) else e
        if isinstance(why, ssl.SSLCertVerificationError):
            raise AuthenticationFailed(
                f"the certificate of the token endpoint {url} is not to be trusted: {why.verify_message}\n\n"
                "hint: https.ca.location or https.ca.pem names the authority that signed it"
            ) from None
        said = (why.strerror if isinstance(why, OSError) else None) or str(why) or type(why).__name__
        raise NoToken(
            f"the token endpoint {url} cannot be reached: {said}\n\n{hint}; does it run, and may this machine connect?"
        ) from None
    token = token_of(body, f"the token endpoint {url}", time.time())
    return token._replace(extensions=dict(login.extensions))


def shown(url: str) -> str:
    """The address without its query, which may have secrets."""
    return urllib.parse.urlsplit(url)._replace(query="", fragment="").geturl()


def reason_of(body: bytes, secret: str) -> str:
    """The error in the answer of a token endpoint (RFC 6749, 5.2), to be appended to a sentence."""
    try:
        answer = json.loads(body)
        parts = [answer.get("error"), answer.get("error_description")]
    except (ValueError, AttributeError, RecursionError):
        return ""
    text = ": ".join(part for part in parts if isinstance(part, str) and part.isprintable())
    return f": {text[:MAX_REASON_CHARS].replace(secret, '***')}" if text else ""


def token_of(body: bytes, about: str, now_s: float) -> Token:
    """The token in the answer of a token endpoint (RFC 6749, 5.1). The answer is never part of a message."""
    hint = "hint: is sasl.oauthbearer.token.endpoint.url the token endpoint of an OIDC provider?"
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise AuthenticationFailed(f"{about} answered with {len(body)} bytes that are not JSON\n\n{hint}") from None
    value = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(value, str):
        raise AuthenticationFailed(f"{about} answered with JSON without an access_token\n\n{hint}")
    lifetime_s = answer.get("expires_in")
    if isinstance(lifetime_s, str) and lifetime_s.isascii() and lifetime_s.isdigit() and len(lifetime_s) < 10:
        lifetime_s = int(lifetime_s)  # Some endpoints write it as text.
    if isinstance(lifetime_s, int | float) and not isinstance(lifetime_s, bool):
        expires_at_s: float | None = now_s + lifetime_s
    else:
        expires_at_s = expiry_of(value)
    if expires_at_s is None:
        raise AuthenticationFailed(
            f"{about} does not say when its token expires: there is no expires_in, and no exp in the token\n\n{hint}"
        )
    return checked(Token(value, expires_at_s), about, now_s)


def expiry_of(token: str) -> float | None:
    """`exp` of a JSON web token; None if it has none, or is something else."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        exp = claims.get("exp")
    except (IndexError, ValueError, AttributeError, RecursionError):
        return None
    return float(exp) if isinstance(exp, int | float) and not isinstance(exp, bool) else None
