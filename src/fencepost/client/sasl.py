"""The logins of SASL, without I/O: a conversation yields a message for the broker and is sent the broker's answer.

PLAIN (RFC 4616), SCRAM (RFC 5802, without channel binding) and OAUTHBEARER (RFC 7628).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator, Mapping

from fencepost.protocol.scram import SCRAM_MECHANISMS, salted_password

OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, OAUTHBEARER)
# A session is renewed when this part of its lifetime has passed, as in the Java client.
RENEWED_AT = 0.85
# Brokers refuse to renew a session that is younger than a second.
LEAST_SESSION_S = 1.1
# Of SCRAM. Kafka has 4096 by default; a stranger must not keep a client busy for hours.
ITERATIONS = range(1, 10_000_000)

Conversation = Generator[bytes, bytes, None]


class Untrusted(Exception):
    """The broker's answer shows that it is not the broker it should be. The message continues "HOST:PORT ..."."""


def plain(username: str, password: str) -> Conversation:
    yield f"\0{username}\0{password}".encode()


def scram(mechanism: str, username: str, password: str, nonce: str) -> Conversation:
    """nonce: random, for this conversation only."""
    kind = SCRAM_MECHANISMS[mechanism]
    digest = kind.digest
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    server_first = (yield f"n,,{first}".encode()).decode(errors="replace")
    try:
        fields = dict(part.split("=", 1) for part in server_first.split(","))
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        if iterations not in ITERATIONS:
            raise ValueError(iterations)
    except (KeyError, ValueError):
        raise Untrusted("answered SCRAM with something else") from None
    if not fields.get("r", "").startswith(nonce):
        raise Untrusted("answered SCRAM with a nonce that is not ours")
    salted = salted_password(kind, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    final = f"c=biws,r={fields['r']}"
    signed = f"{first},{server_first},{final}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    server_final = (yield f"{final},p={proof}".encode()).decode(errors="replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if server_final != f"v={base64.b64encode(expected).decode()}":
        raise Untrusted("could not prove that it knows the password")


def oauthbearer(token: str, extensions: Mapping[str, str]) -> Conversation:
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    if (yield f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()):
        # The broker has refused the token, and says so with an error code when it is asked to go on.
        yield b"\x01"
        raise Untrusted("refused the token, and then accepted it")


def renewed_after_s(session_lifetime_ms: int) -> float | None:
    """How long after a login to log in again, before the session ends (KIP-368). None: the session does not end."""
    if session_lifetime_ms <= 0:
        return None
    return max(session_lifetime_ms / 1000 * RENEWED_AT, LEAST_SESSION_S)
