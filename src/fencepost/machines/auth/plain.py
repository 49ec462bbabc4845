"""SASL PLAIN (RFC 4616): the client sends its name and password. Follows Kafka's PlainSaslServer."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping

from fencepost.machines.auth.login import ANOTHER_USER, LoginAccepted, LoginRefused, Step

WRONG = "Authentication failed: Invalid username or password"
# Every option is read, so that the value of one is never taken for another.
_OPTION = re.compile(r'([^\s=";]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')
_ESCAPED = re.compile(r"\\(.)")


class PlainExchange:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def step(self, token: bytes, now_ms: int) -> Step:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            return LoginRefused("Authentication failed: the message is not UTF-8")
        if len(parts) != 3:
            return LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            return LoginRefused("Authentication failed: username not specified")
        if not password:
            return LoginRefused("Authentication failed: password not specified")
        # An unknown user takes as long as a wrong password. No password has a "\0".
        if not _is_same(self._passwords.get(user, "\0"), password):
            return LoginRefused(WRONG, f"user {user!r}")
        if authorization_id not in ("", user):
            return LoginRefused(f"Authentication failed: {ANOTHER_USER}")
        return LoginAccepted(user)


def _is_same(expected: str, given: str) -> bool:
    """Takes the same time for all passwords."""
    return hmac.compare_digest(hashlib.sha256(expected.encode()).digest(), hashlib.sha256(given.encode()).digest())


def parse_jaas_users(text: str) -> dict[str, str]:
    """Names and passwords in a `sasl.jaas.config`: `...PlainLoginModule required user_alice="secret";`"""
    return {
        option.removeprefix("user_"): _ESCAPED.sub(r"\1", quoted) if quoted or not bare else bare
        for option, quoted, bare in _OPTION.findall(text)
        if option.startswith("user_") and option != "user_"
    }
