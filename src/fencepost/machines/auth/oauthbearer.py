"""SASL OAUTHBEARER (RFC 7628): the client sends a token. Follows Kafka's OAuthBearerSaslServer.

A token (JWT, RFC 7519) is signed: `check_token` says whether it is good, whose it is, and until when, as Kafka's
BrokerJwtValidator does (KIP-768). The signature must be by a key of the provider's key set (JWKS), and the claims
`exp`, `iat`, `sub`, and `iss` and `aud` where the settings want them, must hold. PyJWT checks signatures. Time is an
argument here, so the claims about time are checked here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jwt

from fencepost.machines.auth.login import Challenge, LoginAccepted, LoginRefused, Step

INVALID_TOKEN = '{"status":"invalid_token"}'
INVALID_MESSAGE = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
)
_SASL_NAME = r"(?:[^,=\0\x01]|=2C|=3D)+"
_FIRST = re.compile(rf"n,(?:a=({_SASL_NAME}))?,\x01((?:[A-Za-z]+=[!-~ \t\r\n]+\x01)*)\x01")
_AUTH = re.compile(r"(?:^|\x01)auth=(\w+) +([-_.a-zA-Z0-9]+)\x01")


class OAuthBearerExchange:
    """`check` says whose token it is, or raises BadToken."""

    def __init__(self, check: Callable[[str, int], CheckedToken]) -> None:
        self._check = check
        self._problem: str | None = None

    def step(self, token: bytes, now_ms: int) -> Step:
        if self._problem is not None:
            # The client has taken note of the problem, with the byte 1.
            return LoginRefused(INVALID_TOKEN, f"its token is not accepted: {self._problem}")
        found = _FIRST.fullmatch(token.decode("latin-1"))
        auth = _AUTH.search(found[2]) if found is not None else None
        if found is None or auth is None or auth[1].lower() != "bearer":
            return LoginRefused(INVALID_MESSAGE, "its first message has no token")
        try:
            good = self._check(auth[2], now_ms)
        except BadToken as e:
            self._problem = str(e)
            return Challenge(INVALID_TOKEN.encode())
        asked = (found[1] or "").replace("=2C", ",").replace("=3D", "=")
        if asked not in ("", good.user):
            return LoginRefused(
                f"Authentication failed: Client requested an authorization id ({asked}) that is different from the "
                f"token's principal name ({good.user})"
            )
        return LoginAccepted(good.user, expires_ms=good.expires_ms)


# Signatures by a private key. A key set is public: a token must never be checked with one of its keys as a secret.
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
# The signature is all that PyJWT has to check.
_OPTIONS: Mapping[str, Any] = {
    f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
} | {"verify_signature": True, "require": []}


class BadToken(Exception):
    """The token is no proof. The message is for the operator."""


class TokenRules(NamedTuple):
    issuer: str = ""
    audiences: tuple[str, ...] = ()
    clock_skew_s: int = 30
    subject_claim: str = "sub"


class TokenKey(NamedTuple):
    key_id: str | None
    key: jwt.PyJWK


class CheckedToken(NamedTuple):
    user: str
    expires_ms: int


def parse_key_set(document: bytes) -> list[TokenKey]:
    """The keys of a JWKS (RFC 7517) that can sign tokens. Raises ValueError if it is none."""
    try:
        entries = json.loads(document)["keys"]
        if not isinstance(entries, list):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise ValueError('it is not a key set: {"keys": [...]}') from None
    found = []
    for entry in entries:
        try:
            if entry.get("use", "sig") == "sig" and entry.get("kty") != "oct":
                found.append(TokenKey(entry.get("kid"), jwt.PyJWK(entry)))
        except (jwt.PyJWTError, AttributeError, ValueError, TypeError, KeyError):
            continue  # A kind of key that this version does not know.
    if not found:
        raise ValueError("it has no key that signs tokens")
    return found


def check_token(
    text: str, find: Callable[[str | None], list[jwt.PyJWK]], rules: TokenRules, now_ms: int
) -> CheckedToken:
    """Whose token it is, and when it expires. `find` returns the keys with an id. Raises BadToken."""
    try:
        header = jwt.get_unverified_header(text)
    except jwt.PyJWTError as e:
        raise BadToken(f"it is not a signed token: {e}") from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise BadToken(f"it is signed by the algorithm {algorithm}, which is none of {', '.join(sorted(ALGORITHMS))}")
    keys = find(header.get("kid"))
    if len(keys) != 1:
        count = "several keys" if keys else "no key"
        raise BadToken(f"the key set has {count} with the id {header.get('kid')}")
    try:
        claims = jwt.decode(text, keys[0].key, algorithms=[algorithm], options=_OPTIONS)  # type: ignore[arg-type]
    except (jwt.PyJWTError, ValueError, TypeError) as e:
        raise BadToken(f"its signature does not hold: {e}") from None
    return _check_claims(claims, rules, now_ms / 1000)


def _check_claims(claims: Mapping[str, Any], rules: TokenRules, now_s: float) -> CheckedToken:
    expires_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
    if now_s >= expires_s + rules.clock_skew_s:
        raise BadToken(f"it expired {now_s - expires_s:.0f} s ago")
    if issued_s > now_s + rules.clock_skew_s:
        raise BadToken(f"it was issued {issued_s - now_s:.0f} s in the future")
    if "nbf" in claims and _time(claims, "nbf") > now_s + rules.clock_skew_s:
        raise BadToken(f"it is not valid before {_time(claims, 'nbf') - now_s:.0f} s from now")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise BadToken(f"its issuer is {claims.get('iss')!r}, expected {rules.issuer!r}")
    given = claims.get("aud", [])
    audiences = given if isinstance(given, list) else [given]
    if rules.audiences and not any(audience in audiences for audience in rules.audiences):
        raise BadToken(f"its audience is {given!r}, expected one of {', '.join(rules.audiences)}")
    user = claims.get(rules.subject_claim)
    if not isinstance(user, str) or not user.strip():
        raise BadToken(f"its claim {rules.subject_claim} names no user")
    return CheckedToken(user.strip(), int(expires_s * 1000))


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise BadToken(f"it has no claim {name}")
