"""Tokens for the logins of tasks: the driver makes them, and a task asks for them over the lease port."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fencepost.client.failures import AuthenticationFailed, ClientError, NoToken
from fencepost.client.oauthbearer import Token, TokenSource, token_source
from fencepost.client.settings import parse_settings
from fencepost.client.transaction import ProducerIdentity
from fencepost.spark.driver.planes import settings_as_json, settings_of_task
from fencepost.spark.lease.client import DriverUnreachable, LeaseAddress, RefusedByDriver, ask_for_token
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.lease.tls import make_tls
from fencepost.spark.task.login import remember_driver
from fencepost.spark.task.plan import WritePlan

SASL = {"bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
OIDC = {
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "hush",
}


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    with LeaseServer("127.0.0.1") as running:
        yield running


def open_(server: LeaseServer, tokens: TokenSource | None) -> LeaseAddress:
    return server.open(LeaseTable(lease_timeout_ms=60_000), lambda partitions: None, tokens=tokens)


def source_of_task(login_id: str) -> TokenSource:
    login = parse_settings(settings_of_task({**SASL, **OIDC}, login_id)).oauth
    assert login is not None
    return token_source(login)


def test_a_task_gets_the_drivers_token_and_the_time_that_is_left(server: LeaseServer) -> None:
    tokens = TokenSource(lambda: Token("abc", time.time() + 600, {"cluster": "7"}))
    token = ask_for_token(open_(server, tokens))
    assert (token.value, token.extensions) == ("abc", {"cluster": "7"})
    assert 590 < token.expires_at_s - time.time() <= 600


def test_a_token_travels_over_tls() -> None:
    with LeaseServer("127.0.0.1", tls=make_tls()) as server:
        address = open_(server, TokenSource(lambda: Token("abc", time.time() + 600)))
        assert ask_for_token(address).value == "abc"
        with pytest.raises(DriverUnreachable):
            ask_for_token(address._replace(fingerprint=""), timeout_s=5)


def test_tasks_that_ask_at_the_same_time_are_answered_by_one_request(server: LeaseServer) -> None:
    asked: list[int] = []
    may_answer = threading.Event()

    def fetch() -> Token:
        asked.append(1)
        assert may_answer.wait(20)
        return Token("abc", time.time() + 600)

    address = open_(server, TokenSource(fetch))
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask_for_token, address) for _ in range(8)]
        transaction = server._service.current()
        while len(transaction.to_log_in) < 8:
            assert not any(answer.done() for answer in answers)
            time.sleep(0.01)
        may_answer.set()
        assert {answer.result(20).value for answer in answers} == {"abc"}
    assert asked == [1]


def test_a_stranger_gets_no_token(server: LeaseServer) -> None:
    address = open_(server, TokenSource(lambda: Token("abc", time.time() + 600)))
    with pytest.raises(RefusedByDriver, match="this micro-batch is over"):
        ask_for_token(address._replace(token="guess"))
    server.close()
    with pytest.raises(RefusedByDriver, match="this micro-batch is over"):
        ask_for_token(address)


def test_a_transaction_without_tokens_says_so(server: LeaseServer) -> None:
    with pytest.raises(RefusedByDriver, match="want no token"):
        ask_for_token(open_(server, None))


@pytest.mark.parametrize("problem", [NoToken("the endpoint is away"), AuthenticationFailed("the secret is wrong")])
def test_a_task_hears_why_the_driver_has_no_token_and_whether_to_try_again(
    server: LeaseServer, problem: ClientError
) -> None:
    def fetch() -> Token:
        raise problem

    remember_driver("id of a test", open_(server, TokenSource(fetch)))
    source = source_of_task("id of a test")
    for _ in range(2):
        with pytest.raises(type(problem), match=str(problem)):
            source.token()


def test_a_task_asks_the_driver_of_the_last_transaction(server: LeaseServer) -> None:
    made = iter(range(10))
    tokens = TokenSource(lambda: Token(f"token-{next(made)}", time.time() + 600))
    source = source_of_task(tokens.id)
    remember_driver(tokens.id, open_(server, tokens))
    server.close()
    remember_driver(tokens.id, open_(server, tokens))
    assert source.token().value == "token-0"


def test_a_driver_that_closes_the_connection_is_asked_again_later() -> None:
    with LeaseServer("127.0.0.1") as server:
        address = open_(server, None)
    remember_driver("gone", address)
    source = source_of_task("gone")
    with pytest.raises(NoToken, match="cannot reach the driver's lease service"):
        source.token()


def test_no_secret_is_in_the_repr_of_what_the_driver_holds(server: LeaseServer) -> None:
    tokens = TokenSource(lambda: Token("hush", time.time() + 600))
    address = open_(server, tokens)
    settings = {**SASL, "sasl.password": "hush"}
    plan = WritePlan(settings, ProducerIdentity("t", 1, 0), 13, address, 0, "out", {}, "none", 1)
    server.offer(0, {"settings": settings})
    tokens.token()
    for one in (plan, server._service.current(), tokens):
        assert "hush" not in repr(one)
        assert address.token not in repr(one)


def test_what_makes_tokens_stays_on_the_driver() -> None:
    jaas = 'OAuthBearerLoginModule required clientId="me" clientSecret="hush";'
    function = {"oauth_cb": lambda _: "hush", "sasl.oauthbearer.config": "hush"}
    url = {"sasl.oauthbearer.token.endpoint.url": OIDC["sasl.oauthbearer.token.endpoint.url"]}
    for login in (OIDC, {**url, "sasl.jaas.config": jaas}, function):
        given = {**SASL, **login, "client.id": "sink"}
        in_python = settings_of_task(given, "id")
        assert "hush" not in str(in_python)
        assert parse_settings(in_python).client_id == "sink"
        assert "hush" not in str(settings_as_json(parse_settings(given)))
    assert settings_of_task({"sasl.password": "known to tasks", "client.id": None}, "") == {
        "sasl.password": "known to tasks"
    }
