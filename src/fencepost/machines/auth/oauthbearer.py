"""SASL OAUTHBEARER (RFC 7628): the client sends a token. Follows Kafka's OAuthBearerSaslServer."""

from __future__ import annotations

import re
from collections.abc import Callable

from fencepost.machines.auth.login import Challenge, LoginAccepted, LoginRefused, Step
from fencepost.machines.auth.tokens import BadToken, CheckedToken

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
