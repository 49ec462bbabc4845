"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the client proves that it knows a password.

The broker keeps salted keys, from which the password cannot be computed. Follows Kafka's ScramSaslServer and
ScramFormatter. There is no channel binding, as in Kafka.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
import re
import string
from collections.abc import Callable, Mapping
from hashlib import shake_256
from types import MappingProxyType
from typing import NamedTuple

from fencepost.machines.auth.login import ANOTHER_USER, Challenge, LoginAccepted, LoginRefused, Step
from fencepost.protocol.scram import MIN_ITERATIONS, SALT_BYTES, ScramMechanism

_SASL_NAME = r"(?:[^,=\0]|=2C|=3D)+"
_CLIENT_FIRST = re.compile(rf"(n,(?:a=({_SASL_NAME}))?,)(n=({_SASL_NAME}),r=([!-+\--~]+)((?:,[a-zA-Z]=[^,\0]*)*))")
_CLIENT_FINAL = re.compile(r"(c=([a-zA-Z0-9/+=]+),r=([!-+\--~]+)),p=([a-zA-Z0-9/+=]+)")

_BASE_36 = string.digits + string.ascii_lowercase
_JAVA_SALT = re.compile(rb"[0-9a-z]{20,26}")


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The keys that are kept for a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", mechanism.digest), iterations)


class Appearance(NamedTuple):
    """What a client sees of a credential before it proves anything."""

    salt_bytes: int | None  # None: a salt as Apache Kafka's Java tools make it.
    iterations: int


# What `fencepost user add` makes.
USUAL = Appearance(SALT_BYTES, MIN_ITERATIONS)


def look_of(credential: ScramCredential) -> Appearance:
    is_javas = _JAVA_SALT.fullmatch(credential.salt) is not None
    return Appearance(None if is_javas else len(credential.salt), credential.iterations)


def decoy_of(
    mechanism: ScramMechanism, user: str, secret: bytes, looks: Mapping[Appearance, int] = MappingProxyType({})
) -> ScramCredential:
    """The credential of a user that does not exist: always the same salt, and no password fits.

    It looks like that of a real user: as many decoys have a look as real users have it, by `looks`. Few decoys change
    theirs when users are added.
    """

    def seed(*words: object) -> bytes:
        return hmac.digest(secret, ",".join(map(str, (mechanism.name, *words, user))).encode(), "sha512")

    def rank(look: Appearance) -> float:  # Weighted rendezvous hashing.
        drawn = (int.from_bytes(seed("look", *look)[:6]) + 1) / (2**48 + 1)
        return looks.get(look, 1) / -math.log(drawn)

    look = max(looks or (USUAL,), key=rank)
    salt = _java_salt(seed("salt")) if look.salt_bytes is None else shake_256(seed("salt")).digest(look.salt_bytes)
    return credential_of(mechanism, seed("password"), salt, look.iterations)


def _java_salt(seed: bytes) -> bytes:
    """130 bits as a number with base 36. Follows Kafka's ScramFormatter.secureRandomString."""
    number, digits = int.from_bytes(seed) % 2**130, ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE_36[digit] + digits
    return digits.encode()


class ScramExchange:
    """`find` returns the credential of a user, or a decoy. `nonce` is random and never used twice."""

    def __init__(self, mechanism: ScramMechanism, find: Callable[[str], ScramCredential], nonce: str) -> None:
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._user = ""
        self._header = ""
        self._signed = ""
        self._credential: ScramCredential | None = None

    def step(self, token: bytes, now_ms: int) -> Step:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            return self._refuse("the message is not UTF-8")
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _refuse(self, detail: str) -> LoginRefused:
        # The message is the same for every reason, as in Kafka. It must not tell which users exist.
        name = self._mechanism.name
        return LoginRefused(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {name}", detail
        )

    def _first(self, text: str) -> Step:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            return self._refuse("the first message is not a SCRAM message without channel binding")
        self._header, authorization_id, bare, name, nonce, _ = found.groups()
        user = _unescape(name)
        if authorization_id and _unescape(authorization_id) != user:
            return LoginRefused(f"Authentication failed: {ANOTHER_USER}", f"user {user!r} asked to act as another user")
        self._user = user
        # Differs: Kafka ends the exchange at once if the user does not exist. Fencepost goes on with a salt and
        # iterations like those of its users, and refuses the proof, so that a client cannot find out which users exist.
        self._credential = self._find(user)
        self._nonce = nonce + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{bare},{answer}"
        return Challenge(answer.encode())

    def _final(self, text: str, credential: ScramCredential) -> Step:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            return self._refuse("the last message is not a SCRAM message")
        without_proof, binding, nonce, proof = found.groups()
        if _decode(binding) != self._header.encode():
            return self._refuse("the last message is for another exchange: its channel binding differs")
        if not hmac.compare_digest(nonce, self._nonce):
            return self._refuse("the last message is for another exchange: its nonce differs")
        digest = self._mechanism.digest
        signed = f"{self._signed},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, digest)
        client_key = bytes(a ^ b for a, b in zip(_decode(proof), signature))
        if not hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key):
            return self._refuse(f"user {self._user!r}: unknown, or a wrong password")
        proof_of_server = hmac.digest(credential.server_key, signed, digest)
        return LoginAccepted(self._user, b"v=" + base64.b64encode(proof_of_server))


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
