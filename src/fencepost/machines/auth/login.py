"""The login of one connection by SASL: which message may come next, who the client is, and for how long.

Follows Kafka's SaslServerAuthenticator, and KafkaChannel for repeated logins (KIP-368). A mechanism is an `Exchange`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from enum import Enum
from typing import NamedTuple, Protocol

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
# The shortest time between the beginnings of two repeated logins.
MIN_REAUTHENTICATION_MS = 1000
ANOTHER_USER = "Client requested an authorization id that is different from username"


class Challenge(NamedTuple):
    """The client has to answer."""

    token: bytes


class LoginAccepted(NamedTuple):
    """The client is this user. `expires_ms`: when its credentials expire."""

    user: str
    token: bytes = b""
    expires_ms: int | None = None


class LoginRefused(NamedTuple):
    """The client is not who it says it is. `message` is for the client, `detail` for the operator."""

    message: str
    detail: str = ""


Step = Challenge | LoginAccepted | LoginRefused


class Exchange(Protocol):
    """The server's side of one SASL mechanism, for one login."""

    def step(self, token: bytes, now_ms: int) -> Step: ...


class State(Enum):
    HANDSHAKE = "handshake"  # The client has to name its mechanism.
    AUTHENTICATE = "authenticate"  # The client has to prove who it is.
    AUTHENTICATED = "authenticated"
    FAILED = "failed"


# What a client may send before it has logged in. SaslHandshake in the middle of a login is refused with an answer.
ALLOWED: Mapping[State, Set[int]] = {
    State.HANDSHAKE: {SASL_HANDSHAKE, API_VERSIONS},
    State.AUTHENTICATE: {SASL_HANDSHAKE, SASL_AUTHENTICATE},
    State.FAILED: set(),
}


class Login:
    """`mechanisms`: those that are offered. `max_session_ms`: the longest session, by mechanism; 0: for ever."""

    def __init__(self, mechanisms: Mapping[str, Callable[[], Exchange]], max_session_ms: Mapping[str, int]) -> None:
        self.mechanisms = mechanisms
        self.state = State.HANDSHAKE
        self.user: str | None = None
        self.expires_ms: int | None = None
        self._max_session_ms = max_session_ms
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._last_repeat_ms: int | None = None

    def objection(self, api_key: int, now_ms: int) -> str:
        """Why the connection must be closed instead of serving a request of this API now; empty if it may be served."""
        if self.state is State.AUTHENTICATED:
            is_over = self.expires_ms is not None and now_ms >= self.expires_ms
            return (
                "its session has expired (connections.max.reauth.ms)" if is_over and api_key != SASL_HANDSHAKE else ""
            )
        if api_key in ALLOWED[self.state]:
            return ""
        # Differs: Kafka answers a request of another API in the middle of a login with an error, and then closes the
        # connection. Fencepost closes it.
        return f"a request with API key {api_key} before the login is done"

    def may_begin(self, now_ms: int) -> bool:
        """Whether the client may name a mechanism now, for its first login or for a repeated one."""
        if self.state is State.HANDSHAKE:
            return True
        # Kafka: a client may repeat its login only if its session is limited.
        if self.state is not State.AUTHENTICATED or self.expires_ms is None:
            return False
        return self._last_repeat_ms is None or now_ms - self._last_repeat_ms >= MIN_REAUTHENTICATION_MS

    def begin(self, mechanism: str, now_ms: int) -> bool:
        """The client names its mechanism. Returns whether it is offered; if not, the connection must be closed."""
        if mechanism not in self.mechanisms or (self.user is not None and mechanism != self._mechanism):
            self.state = State.FAILED
            return False
        if self.state is State.AUTHENTICATED:
            self._last_repeat_ms = now_ms
        self._mechanism = mechanism
        self._exchange = self.mechanisms[mechanism]()
        self.state = State.AUTHENTICATE
        return True

    def authenticate(self, token: bytes, now_ms: int) -> Step:
        """The client's next message of the exchange. After LoginRefused, the connection must be closed."""
        assert self.state is State.AUTHENTICATE, f"the login is in state {self.state.value}"
        assert self._exchange is not None
        step = self._exchange.step(token, now_ms)
        if isinstance(step, LoginAccepted) and self.user is not None and step.user != self.user:
            step = LoginRefused(
                f"Cannot change principals during re-authentication from User:{self.user} to User:{step.user}",
                f"it logged in as {self.user} before",
            )
        if isinstance(step, LoginAccepted):
            self.user = step.user
            lifetime_ms = session_lifetime_ms(step.expires_ms, self._max_session_ms.get(self._mechanism, 0), now_ms)
            self.expires_ms = now_ms + lifetime_ms if lifetime_ms else None
            self.state = State.AUTHENTICATED
        elif isinstance(step, LoginRefused):
            self.state = State.FAILED
        return step

    def session_lifetime_ms(self, now_ms: int) -> int:
        """For the client: how long its session lasts from now on; 0: for ever."""
        return 0 if self.expires_ms is None else max(self.expires_ms - now_ms, 0)


def session_lifetime_ms(expires_ms: int | None, max_session_ms: int, now_ms: int) -> int:
    """How long a session lasts; 0: for ever.

    Kafka: the end of a token ends a session only if `connections.max.reauth.ms` is set.
    """
    if expires_ms is None:
        return max_session_ms
    return max(min(expires_ms - now_ms, max_session_ms), 0)
