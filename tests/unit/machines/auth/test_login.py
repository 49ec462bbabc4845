"""The login of a connection: what may come next, and how long a session lasts."""

from __future__ import annotations

import pytest

from fencepost.machines.auth.login import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Login,
    LoginAccepted,
    LoginRefused,
    State,
    Step,
    session_lifetime_ms,
)

METADATA = 3
START_MS = 1_700_000_000_000


class Named:
    """A mechanism that believes every name; a name of two words has an expiry, and `no-one` is refused."""

    def step(self, token: bytes, now_ms: int) -> Step:
        name, _, expires_ms = token.decode().partition(" ")
        if name == "no-one":
            return LoginRefused("no")
        return LoginAccepted(name, expires_ms=int(expires_ms) if expires_ms else None)


def new_login(max_session_ms: int = 0) -> Login:
    return Login({"NAMED": Named, "OTHER": Named}, {"NAMED": max_session_ms})


def logged_in(max_session_ms: int = 0, token: bytes = b"alice") -> Login:
    login = new_login(max_session_ms)
    assert login.begin("NAMED", START_MS)
    assert isinstance(login.authenticate(token, START_MS), LoginAccepted)
    return login


@pytest.mark.parametrize("key", [METADATA, SASL_AUTHENTICATE, 0, 51, -1])
def test_before_a_login_only_versions_and_a_mechanism_are_allowed(key: int) -> None:
    login = new_login()
    assert not login.objection(API_VERSIONS, START_MS)
    assert not login.objection(SASL_HANDSHAKE, START_MS)
    assert login.objection(key, START_MS)


def test_after_a_failed_login_nothing_is_allowed() -> None:
    login = new_login()
    login.begin("NAMED", START_MS)
    assert login.objection(METADATA, START_MS)
    assert isinstance(login.authenticate(b"no-one", START_MS), LoginRefused)
    assert all(login.objection(key, START_MS) for key in range(80))
    assert not login.may_begin(START_MS)


def test_a_mechanism_that_is_not_offered_ends_the_login() -> None:
    login = new_login()
    assert not login.begin("PLAIN", START_MS)
    assert login.state is State.FAILED


def test_a_session_without_a_limit_never_ends_and_cannot_be_repeated() -> None:
    login = logged_in()
    assert not login.objection(METADATA, START_MS * 2)
    assert not login.may_begin(START_MS * 2)
    assert login.session_lifetime_ms(START_MS) == 0


def test_a_session_ends_unless_the_login_is_repeated() -> None:
    login = logged_in(max_session_ms=5000)
    assert login.session_lifetime_ms(START_MS) == 5000
    assert not login.objection(METADATA, START_MS + 4999)
    assert login.objection(METADATA, START_MS + 5000)
    assert login.objection(API_VERSIONS, START_MS + 5000)
    assert not login.objection(SASL_HANDSHAKE, START_MS + 5000), "the client may repeat its login late"
    assert login.may_begin(START_MS + 5000)
    assert login.begin("NAMED", START_MS + 5000)
    assert login.objection(METADATA, START_MS + 5000), "in the middle of a login"
    login.authenticate(b"alice", START_MS + 5000)
    assert not login.objection(METADATA, START_MS + 9999)
    assert not login.may_begin(START_MS + 5999), "within a second"
    assert login.may_begin(START_MS + 6000)


def test_a_repeated_login_cannot_change_the_user_or_the_mechanism() -> None:
    login = logged_in(max_session_ms=5000)
    login.begin("NAMED", START_MS)
    refused = login.authenticate(b"bob", START_MS)
    assert isinstance(refused, LoginRefused)
    assert refused.message == "Cannot change principals during re-authentication from User:alice to User:bob"
    login = logged_in(max_session_ms=5000)
    assert not login.begin("OTHER", START_MS)
    assert login.objection(METADATA, START_MS)


@pytest.mark.parametrize(
    ("expires_ms", "max_session_ms", "lifetime_ms"),
    [(None, 0, 0), (None, 500, 500), (1800, 0, 0), (1800, 500, 500), (1200, 500, 200), (900, 500, 0)],
)
def test_a_session_lasts_as_long_as_the_credentials_but_not_longer_than_the_limit(
    expires_ms: int | None, max_session_ms: int, lifetime_ms: int
) -> None:
    assert session_lifetime_ms(expires_ms, max_session_ms, 1000) == lifetime_ms
