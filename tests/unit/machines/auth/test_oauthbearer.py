"""Tokens: those that are good, and every kind that is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from fencepost.machines.auth.login import Challenge, LoginAccepted, LoginRefused
from fencepost.machines.auth.oauthbearer import (
    INVALID_TOKEN,
    BadToken,
    CheckedToken,
    OAuthBearerExchange,
    TokenRules,
    check_token,
    parse_key_set,
)
from tests.tokens import ISSUER, Provider

NOW = 1_700_000_000
NOW_MS = NOW * 1000
PROVIDER = Provider(clock=lambda: NOW)
RULES = TokenRules(ISSUER, ("kafka", "orders"))


def find(key_id: str | None) -> list[jwt.PyJWK]:
    return [key.key for key in parse_key_set(PROVIDER.key_set()) if key_id in (None, key.key_id)]


def check(token: str, rules: TokenRules = RULES, now_ms: int = NOW_MS) -> CheckedToken:
    return check_token(token, find, rules, now_ms)


def encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def test_a_good_token_says_whose_it_is_and_until_when() -> None:
    token = PROVIDER.token("alice", aud="kafka", exp=NOW + 600)
    assert check(token) == CheckedToken("alice", (NOW + 600) * 1000)
    several = PROVIDER.token("alice", aud=["else", "orders"], client="svc-1", exp=NOW + 600)
    assert check(several, RULES._replace(subject_claim="client")).user == "svc-1"
    assert check(PROVIDER.token("alice"), TokenRules()).user == "alice", "no rules for issuer and audience"


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": NOW - 31}, "it expired 31 s ago"),
        ({"exp": None}, "it has no claim exp"),
        ({"exp": "soon"}, "it has no claim exp"),
        ({"exp": True}, "it has no claim exp"),
        ({"exp": float("nan")}, "it has no claim exp"),
        ({"exp": float("inf")}, "it has no claim exp"),
        ({"aud": 7}, "its audience is 7"),
        ({"aud": {"kafka": 1}}, "its audience is {'kafka': 1}"),
        ({"iat": None}, "it has no claim iat"),
        ({"iat": NOW + 90}, "it was issued 90 s in the future"),
        ({"nbf": NOW + 90}, "it is not valid before 90 s from now"),
        ({"iss": "https://evil.example.com"}, "its issuer is 'https://evil.example.com', expected"),
        ({"iss": None}, "its issuer is None"),
        ({"aud": "other"}, "its audience is 'other', expected one of kafka, orders"),
        ({"aud": None}, "its audience is"),
        ({"sub": None}, "its claim sub names no user"),
        ({"sub": " "}, "its claim sub names no user"),
        ({"sub": ["alice"]}, "its claim sub names no user"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(claims: dict[str, Any], said: str) -> None:
    with pytest.raises(BadToken) as refused:
        check(PROVIDER.token("alice", **({"aud": "kafka"} | claims)))
    assert str(refused.value).startswith(said)


def test_the_clocks_may_differ_a_little() -> None:
    token = PROVIDER.token("alice", aud="kafka", exp=NOW)
    assert check(token, now_ms=(NOW + 29) * 1000).user == "alice"
    with pytest.raises(BadToken, match="expired"):
        check(token, now_ms=(NOW + 30) * 1000)


def test_an_unsigned_token_is_refused() -> None:
    claims = {"sub": "alice", "iss": ISSUER, "aud": "kafka", "iat": NOW, "exp": NOW + 600}
    headers: list[dict[str, Any]] = [{"alg": "none"}, {"alg": "none", "kid": "first"}, {"kid": "first"}, {"alg": []}]
    for unsigned in headers:
        with pytest.raises(BadToken):
            check(f"{encoded(unsigned)}.{encoded(claims)}.")
    # The signature of a good token does not count for other claims.
    good = PROVIDER.token("alice", aud="kafka")
    header, _, signature = good.split(".")
    with pytest.raises(BadToken, match="its signature does not hold"):
        check(f"{header}.{encoded(claims | {'sub': 'root'})}.{signature}")
    with pytest.raises(BadToken, match="its signature does not hold"):
        check(f"{header}.{encoded(claims)}.")


def test_a_token_by_another_key_is_refused() -> None:
    for key_id, said in (("first", "its signature does not hold"), ("second", "no key with the id second")):
        with pytest.raises(BadToken, match=said):
            check(Provider(key_id).token("alice", aud="kafka"))


def test_a_public_key_is_no_shared_secret() -> None:
    """The oldest attack on tokens: HMAC with the public key, which everyone knows."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    entry = json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": "first"}
    keys = [found.key for found in parse_key_set(json.dumps({"keys": [entry]}).encode())]
    claims = {"sub": "alice", "iss": ISSUER, "aud": "kafka", "iat": NOW, "exp": NOW + 600}
    signed = jwt.encode(claims, key, algorithm="RS256", headers={"kid": "first"})
    assert check_token(signed, lambda _: keys, RULES, NOW_MS).user == "alice"
    # PyJWT refuses to sign like that, so the attacker does it by hand.
    body = f"{encoded({'alg': 'HS256', 'kid': 'first'})}.{encoded(claims)}"
    forged = base64.urlsafe_b64encode(hmac.digest(pem, body.encode(), hashlib.sha256)).decode().rstrip("=")
    with pytest.raises(BadToken, match="it is signed by the algorithm HS256"):
        check_token(f"{body}.{forged}", lambda _: keys, RULES, NOW_MS)


def test_a_token_without_a_key_id_needs_a_key_set_with_one_key() -> None:
    second = Provider("second")
    keys = [key.key for key in parse_key_set(PROVIDER.key_set(second))]
    now = {"sub": "alice", "iss": ISSUER, "aud": "kafka", "iat": NOW, "exp": NOW + 600}
    token = jwt.encode(now, PROVIDER.key, algorithm="ES256")
    assert check(token).user == "alice"
    with pytest.raises(BadToken, match="several keys"):
        check_token(token, lambda _: keys, RULES, NOW_MS)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [1]}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
    ],
)
def test_a_document_without_public_keys_is_no_key_set(document: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        parse_key_set(document)


def exchange() -> OAuthBearerExchange:
    return OAuthBearerExchange(lambda token, now_ms: check(token, now_ms=now_ms))


def test_a_client_is_the_user_of_its_token() -> None:
    token = PROVIDER.token("alice", aud="kafka", exp=NOW + 600)
    for first in (f"n,,\x01auth=Bearer {token}\x01\x01", f"n,a=alice,\x01a=b\x01auth=bearer {token}\x01\x01"):
        assert exchange().step(first.encode(), NOW_MS) == LoginAccepted("alice", b"", (NOW + 600) * 1000)


def test_a_bad_token_is_answered_with_a_status_and_then_refused() -> None:
    server = exchange()
    expired = PROVIDER.token("alice", aud="kafka", exp=NOW - 60)
    assert server.step(f"n,,\x01auth=Bearer {expired}\x01\x01".encode(), NOW_MS) == Challenge(INVALID_TOKEN.encode())
    refused = server.step(b"\x01", NOW_MS)
    assert isinstance(refused, LoginRefused)
    assert refused.message == INVALID_TOKEN
    assert "it expired" in refused.detail
    # A good token does not help after a bad one.
    again = server.step(f"n,,\x01auth=Bearer {PROVIDER.token('alice', aud='kafka')}\x01\x01".encode(), NOW_MS)
    assert isinstance(again, LoginRefused)


@pytest.mark.parametrize(
    "first", ["", "n,,", "n,,\x01\x01", "n,,\x01auth=Basic abc\x01\x01", "y,,\x01auth=Bearer a\x01\x01"]
)
def test_a_message_without_a_token_is_refused(first: str) -> None:
    assert isinstance(exchange().step(first.encode(), NOW_MS), LoginRefused)


def test_a_token_cannot_be_used_for_another_user() -> None:
    first = f"n,a=root,\x01auth=Bearer {PROVIDER.token('alice', aud='kafka')}\x01\x01"
    refused = exchange().step(first.encode(), NOW_MS)
    assert isinstance(refused, LoginRefused)
    assert "an authorization id (root) that is different" in refused.message
