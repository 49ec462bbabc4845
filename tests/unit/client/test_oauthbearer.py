"""Tokens for OAUTHBEARER: settings, when a token is renewed, what an endpoint or a function may answer."""

from __future__ import annotations

import base64
import json
import logging
import re
import socket
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.failures import AuthenticationFailed, BadClientSetting, NoToken
from fencepost.client.oauthbearer import Token, TokenSource, expiry_of, token_of, token_source
from fencepost.client.settings import parse_settings
from tests.certificates import Authority
from tests.engines.oidc import CLIENT_ID, CLIENT_SECRET, SCOPE, OidcProvider, SigningKey

pytest.importorskip("cryptography")
SASL = {"bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
OIDC = {
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token?tenant=7",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "hush",
}


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey()


@pytest.fixture
def provider(key: SigningKey) -> Iterator[OidcProvider]:
    with OidcProvider(key) as running:
        yield running


def fetch(settings: dict[str, Any]) -> Token:
    login = parse_settings({**SASL, **settings}).oauth
    assert login is not None
    return token_source(login).token()


# --- settings -----------------------------------------------------------------------------------------------


def test_the_names_of_librdkafka_and_of_the_java_client_are_the_same_login() -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="me" clientSecret="hush" scope="all" extension_logicalCluster="lkc-7";'
    )
    java = {
        "sasl.login.callback.handler.class": handler,
        "sasl.oauthbearer.token.endpoint.url": OIDC["sasl.oauthbearer.token.endpoint.url"],
        "sasl.jaas.config": jaas,
    }
    newer_java = {
        "sasl.oauthbearer.token.endpoint.url": OIDC["sasl.oauthbearer.token.endpoint.url"],
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "hush",
    }
    more = {"sasl.oauthbearer.scope": "all", "sasl.oauthbearer.extensions": "logicalCluster=lkc-7"}
    logins = [parse_settings({**SASL, **given}).oauth for given in ({**OIDC, **more}, {**newer_java, **more}, java)]
    assert logins[0] is not None
    assert logins[0] == logins[1] == logins[2]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "needs sasl.oauthbearer.token.endpoint.url, or oauth_cb"),
        ({"sasl.oauthbearer.method": "magic"}, "sasl.oauthbearer.method=magic is none of oidc, default"),
        ({**OIDC, "sasl.oauthbearer.client.secret": ""}, "needs sasl.oauthbearer.client.secret"),
        ({**OIDC, "oauth_cb": len}, "sasl.oauthbearer.method=oidc and oauth_cb are both set"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "ftp://idp"}, "is no address of the form https://"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://a:hush@idp/"}, "is no address of the form https://"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://idp:x/"}, "is no address of the form https://"),
        ({**OIDC, "sasl.oauthbearer.extensions": "auth=x"}, "'auth' is no name for an extension"),
        ({**OIDC, "sasl.oauthbearer.extensions": "cluster"}, "expected NAME=VALUE"),
        ({**OIDC, "sasl.oauthbearer.grant.type": "x"}, "sasl.oauthbearer.grant.type is a setting of Java clients"),
        ({**OIDC, "https.ca.location": "a", "https.ca.pem": "b"}, "are both set"),
        ({"oauth_cb": "no_colon"}, "is neither a function nor MODULE:FUNCTION"),
        ({"oauth_cb": "no_such_module:token"}, "cannot be imported: No module named 'no_such_module'"),
        ({"oauth_cb": "os:no_such_name"}, "cannot be imported: module 'os' has no attribute"),
        ({"oauth_cb": "os:name"}, "is a str, expected a function"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanism=AWS_MSK_IAM is a mechanism of Java clients only"),
        (
            {**OIDC, "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLogin"},
            "is Java, which this client cannot call",
        ),
    ],
)
def test_a_login_that_cannot_work_is_refused_at_once(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadClientSetting) as refused:
        parse_settings({**SASL, **given})
    assert problem in str(refused.value)
    assert "hush" not in str(refused.value)


def test_no_secret_is_in_the_repr_of_settings_and_tokens() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----"
    extensions = {"sasl.oauthbearer.extensions": "cluster=hush"}
    tls = {"ssl.key.pem": pem, "ssl.certificate.pem": pem, "ssl.key.password": "hush", "ssl.ca.pem": pem}
    for given in (
        {**OIDC, **extensions, **tls},
        {"oauth_cb": lambda _: None, "sasl.oauthbearer.config": "hush"},
        {"ssl.keystore.location": "k.p12", "ssl.keystore.password": "hush", "ssl.truststore.password": "hush", **OIDC},
    ):
        assert "hush" not in repr(parse_settings({**SASL, **given}))
    assert "hush" not in repr(Token("hush", 7.0, {"cluster": "hush"}))


# --- renewing -----------------------------------------------------------------------------------------------


def test_a_token_is_renewed_before_it_expires_and_an_old_one_serves_while_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 1000.0
    problem: Exception | None = None
    fetched: list[Token] = []

    def fetch() -> Token:
        if problem is not None:
            raise problem
        fetched.append(Token(f"token {len(fetched)}", now_s + 100))
        return fetched[-1]

    source = TokenSource(fetch, lambda: now_s)
    assert source.token().value == "token 0"
    now_s = 1079.0
    assert source.token().value == "token 0"
    now_s, problem = 1080.0, NoToken("away")
    with caplog.at_level(logging.WARNING):
        assert source.token().value == "token 0"
        assert source.token().value == "token 0"
    assert [record.message for record in caplog.records] == [
        "the token for Kafka could not be renewed; it is valid for another 20 s: away"
    ]
    now_s, problem = 1085.0, None
    assert source.token().value == "token 1"
    now_s, problem = 1185.0, NoToken("away")
    with pytest.raises(NoToken, match="away"):
        source.token()


def test_a_token_that_a_broker_refused_is_not_used_again() -> None:
    made = iter(range(9))
    source = TokenSource(lambda: Token(f"token {next(made)}", time.time() + 600))
    first = source.token()
    assert source.token() is first
    source.forget(first)
    second = source.token()
    assert second.value == "token 1"
    source.forget(first)  # Another connection was refused at the same time.
    assert source.token() is second


# --- an endpoint --------------------------------------------------------------------------------------------


def test_an_endpoint_gives_a_token_for_the_clients_id_and_secret(provider: OidcProvider) -> None:
    token = fetch({**provider.settings, "sasl.oauthbearer.extensions": "logicalCluster=lkc-7"})
    assert [token.value] == provider.tokens
    assert 3500 < token.expires_at_s - time.time() <= 3600
    assert token.extensions == {"logicalCluster": "lkc-7"}
    assert provider.forms == [{"grant_type": "client_credentials", "scope": SCOPE}]


def test_clients_with_equal_settings_share_a_token(provider: OidcProvider) -> None:
    assert fetch(provider.settings) == fetch({**provider.settings, "client.id": "another"})
    assert len(provider.tokens) == 1
    with pytest.raises(AuthenticationFailed):
        fetch({**provider.settings, "sasl.oauthbearer.client.id": "another"})


def test_an_endpoint_may_have_a_certificate_by_an_authority_of_ones_own(key: SigningKey, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with OidcProvider(key, certificate=authority.certify("CN=endpoint", ("127.0.0.1",))) as provider:
        assert fetch({**provider.settings, "https.ca.location": str(authority.path)}).value in provider.tokens
        one_line = authority.pem.replace("\n", "\\n")
        assert fetch({**provider.settings, "https.ca.pem": one_line}).value in provider.tokens
        with pytest.raises(AuthenticationFailed, match=r"is not to be trusted(?s:.*)hint: https\.ca\.location"):
            fetch(provider.settings)
        with pytest.raises(AuthenticationFailed, match="is not to be trusted"):
            fetch({**provider.settings, "https.ca.pem": Authority(tmp_path, "Stranger").pem})


def test_a_wrong_secret_is_named_and_not_shown(provider: OidcProvider) -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        fetch({**provider.settings, "sasl.oauthbearer.client.secret": "a guess"})
    problem, _, hint = str(failed.value).partition("\n\n")
    assert problem == (
        f"the token endpoint {provider.url} refused client '{CLIENT_ID}' with 401: "
        "invalid_client: no such client, or another secret"
    )
    assert hint == "hint: check sasl.oauthbearer.client.id, .client.secret and .scope"


def test_an_endpoint_that_repeats_the_secret_does_not_get_it_into_the_message(provider: OidcProvider) -> None:
    said = f"{CLIENT_SECRET} is not the secret"
    provider.answer = 400, json.dumps({"error": "bad", "error_description": said}).encode()
    with pytest.raises(AuthenticationFailed) as failed:
        fetch(provider.settings)
    assert "with 400: bad: *** is not the secret" in str(failed.value)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_endpoint_with_a_problem_of_its_own_is_asked_again(provider: OidcProvider, status: int) -> None:
    provider.answer = status, b"<html>"
    with pytest.raises(NoToken, match=rf"with {status}\n\nhint: the endpoint has a problem of its own"):
        fetch(provider.settings)


def test_the_secret_does_not_follow_a_redirect(provider: OidcProvider) -> None:
    provider.answer = 302, b""
    with pytest.raises(AuthenticationFailed, match=r"with 302\n\nhint: check sasl\.oauthbearer\.token\.endpoint\.url"):
        fetch(provider.settings)


def test_an_endpoint_that_is_away_is_named_and_asked_again() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/token"
        with pytest.raises(
            NoToken, match=r"cannot be reached: Connection refused\n\nhint: check sasl\.oauthbearer\.token"
        ):
            fetch({**OIDC, "sasl.oauthbearer.token.endpoint.url": url + "?tenant=hush"})


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"<html>hush</html>", "answered with 17 bytes that are not JSON"),
        (b"[" * 100_000, "answered with 100000 bytes that are not JSON"),
        (b'{"token": "hush"}', "answered with JSON without an access_token"),
        (b'["hush"]', "answered with JSON without an access_token"),
        (b'{"access_token": "hush"}', "does not say when its token expires"),
        (b'{"access_token": "hush", "expires_in": true}', "does not say when its token expires"),
        (b'{"access_token": "hush", "expires_in": -5}', "the token has expired 5 s ago"),
        (b'{"access_token": "", "expires_in": 60}', "the token is empty or has characters"),
        (b'{"access_token": "hush\\u0001", "expires_in": 60}', "the token is empty or has characters"),
        (b'{"access_token": "hush", "expires_in": 1e300}', "the token expires in"),
    ],
)
def test_an_answer_that_is_no_token_is_refused_without_being_shown(body: bytes, problem: str) -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        token_of(body, "the token endpoint", 1000.0)
    assert problem in str(failed.value)
    assert "\n\nhint: " in str(failed.value)
    assert "hush" not in str(failed.value)


def test_the_expiry_is_in_the_answer_or_in_the_token(key: SigningKey) -> None:
    assert token_of(b'{"access_token": "x", "expires_in": "60"}', "it", 1000.0).expires_at_s == 1060.0
    token = key.token(600)
    expires_at_s = token_of(json.dumps({"access_token": token}).encode(), "it", 1000.0).expires_at_s
    assert abs(expires_at_s - time.time() - 600) < 60
    for other in ("opaque", "a.b.c", key.token(exp=None), "..", "a.W10.c"):
        assert expiry_of(other) is None


# --- a function ---------------------------------------------------------------------------------------------


def test_a_function_is_called_as_confluent_kafka_calls_it() -> None:
    def make(config: str) -> tuple[str, float, str, dict[str, str]]:
        return f"token-of-{config}", time.time() + 60, "User:me", {"cluster": "7"}

    token = fetch({"oauth_cb": make, "sasl.oauthbearer.config": "region", "sasl.oauthbearer.extensions": "pool=p"})
    assert token.value == "token-of-region"
    assert token.extensions == {"cluster": "7", "pool": "p"}


def test_a_function_may_be_an_object_without_a_hash() -> None:
    class Signer:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, config: str) -> tuple[str, float]:
            return "signed", time.time() + 60

    assert fetch({"oauth_cb": Signer()}).value == "signed"


def make_token(_: str) -> tuple[str, float]:
    return "made", time.time() + 60


def test_a_function_can_be_named() -> None:
    assert fetch({"oauth_cb": f"{__name__}:make_token"}).value == "made"


def fails(_: str) -> tuple[str, float]:
    raise OSError("no credentials in the environment")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (fails, "oauth_cb fails failed: OSError: no credentials in the environment"),
        (lambda _: "hush", "returned str, expected a tuple of 2 or 4"),
        (lambda _: ("hush", 60.0, "me"), "returned (str, float, str), expected a tuple of 2 or 4"),
        (lambda _: (b"hush", 60.0), "returned (bytes, float)"),
        (lambda _: ("hush", "60"), "returned (str, str)"),
        (lambda _: ("hush", 60.0), "the token has expired"),
        (lambda _: ("hush", (time.time() + 60) * 1000), "the token expires in"),
        (lambda _: ("hu sh", time.time() + 60), "the token is empty or has characters"),
        (lambda _: ("hush", time.time() + 60, "me", {"auth": "x"}), "'auth' is no name for an extension"),
    ],
)
def test_a_function_that_returns_no_token_is_reported_without_the_value(function: Any, problem: str) -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        fetch({"oauth_cb": function})
    assert problem in str(failed.value)
    assert "\n\nhint: " in str(failed.value)
    assert "hush" not in str(failed.value)


GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "connecting.md"


def test_the_function_of_the_guide_makes_a_signed_token_for_msk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    [example] = re.findall(r"^```py\n# msk_login\.py\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "msk_login.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret of a test")
    settings = parse_settings(
        {
            "bootstrap.servers": "h:9098",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": "msk_login:token",
            "sasl.oauthbearer.config": "eu-west-1",
        }
    )
    assert settings.oauth is not None
    token = token_source(settings.oauth).token()
    assert 800 < token.expires_at_s - time.time() <= 900
    url = base64.urlsafe_b64decode(token.value + "=" * (-len(token.value) % 4)).decode()
    address = urllib.parse.urlsplit(url)
    query = dict(urllib.parse.parse_qsl(address.query))
    assert (address.scheme, address.netloc) == ("https", "kafka.eu-west-1.amazonaws.com")
    assert query["Action"] == "kafka-cluster:Connect"
    assert re.fullmatch(r"AKIAOFATEST/\d{8}/eu-west-1/kafka-cluster/aws4_request", query["X-Amz-Credential"])
    assert re.fullmatch(r"[0-9a-f]{64}", query["X-Amz-Signature"])
    assert query["X-Amz-Expires"] == "900"
