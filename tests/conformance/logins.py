"""Logins by SASL, message by message: what is sent, and what both our broker and Apache Kafka answer.

`LOGINS` are functions of a broker with the user `alice`, by PLAIN and by SCRAM. An answer is the name of the error, the
message, and what the next request on the connection finds.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fencepost.protocol import errors
from fencepost.protocol.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from fencepost.protocol.schema import Message
from tests.tokens import Provider
from tests.wire.raw_client import Closed, RawClient

USER, PASSWORD = "alice", "correct horse"
CLOSED = "closed"
WRONG = "Authentication failed: Invalid username or password"
ANOTHER = "Authentication failed: Client requested an authorization id that is different from username"
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
FAILED = "SASL_AUTHENTICATION_FAILED"


class Stage(NamedTuple):
    """Where the broker listens."""

    plaintext: tuple[str, int]
    sasl_plaintext: tuple[str, int]


class Conversation:
    """One connection to the broker; each method returns plain values, to compare two brokers by."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.client = RawClient(*address)
        self.last = b""  # The token in the last answer.

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()

    def ask(self, request: Message, version: int) -> Any:
        try:
            return self.client.call(request, version)
        except Closed:
            return None

    def handshake(self, mechanism: str) -> Any:
        reply = self.ask(SaslHandshakeRequest(mechanism), 1)
        return CLOSED if reply is None else (errors.name_of(reply.error_code), sorted(reply.mechanisms))

    def token(self, token: bytes) -> Any:
        reply = self.ask(SaslAuthenticateRequest(token), 2)
        if reply is None:
            return CLOSED
        self.last = reply.auth_bytes
        return errors.name_of(reply.error_code), reply.error_message, reply.session_lifetime_ms

    def versions(self) -> str:
        reply = self.ask(ApiVersionsRequest("test", "1"), 3)
        return CLOSED if reply is None else errors.name_of(reply.error_code)

    def metadata(self) -> str:
        reply = self.ask(MetadataRequest([]), 9)
        return CLOSED if reply is None else "served" if reply.brokers else "refused"

    def plain(self, token: bytes) -> Any:
        """Log in by PLAIN, then try a request."""
        self.handshake("PLAIN")
        return self.token(token), self.metadata()

    def scram_first(self, first: str) -> Any:
        self.handshake("SCRAM-SHA-256")
        return self.token(first.encode())


def scram_final(header: str, first: str, server_first: str, password: str, nonce: str | None = None) -> bytes:
    """The last message of a client, without any check of the server."""
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    final = f"c={base64.b64encode(header.encode()).decode()},r={nonce or fields['r']}"
    signature = hmac.digest(hashlib.sha256(client_key).digest(), f"{first},{server_first},{final}".encode(), "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    return f"{final},p={proof.decode()}".encode()


def sasl(tell: Callable[[Conversation], Any]) -> Callable[[Stage], Any]:
    """A conversation with the listener that asks for a login."""

    def run(stage: Stage) -> Any:
        with Conversation(stage.sasl_plaintext) as conversation:
            return tell(conversation)

    return run


def plaintext(tell: Callable[[Conversation], Any]) -> Callable[[Stage], Any]:
    """A conversation with the listener that asks for none."""

    def run(stage: Stage) -> Any:
        with Conversation(stage.plaintext) as conversation:
            return tell(conversation)

    return run


def scram(password: str = PASSWORD, user: str = USER, header: str = "n,,", final_header: str | None = None) -> Any:
    def tell(c: Conversation) -> Any:
        first = f"n={user},r=abc"
        began = c.scram_first(f"{header}{first}")
        if began[0] != "NONE":
            return began, c.metadata()
        final = scram_final(final_header or header, first, c.last.decode(), password)
        return c.token(final), c.metadata()

    return sasl(tell)


def replay(stage: Stage) -> Any:
    """The last message of another exchange, word for word."""
    first = f"n={USER},r=abc"
    with Conversation(stage.sasl_plaintext) as once, Conversation(stage.sasl_plaintext) as again:
        once.scram_first(f"n,,{first}")
        final = scram_final("n,,", first, once.last.decode(), PASSWORD)
        assert once.token(final)[0] == "NONE"
        again.scram_first(f"n,,{first}")
        return again.token(final), again.metadata()


def token_login(address: tuple[str, int], token: str) -> tuple[list[Any], str]:
    """Log in by OAUTHBEARER; the answers, and what a request finds afterwards."""
    with Conversation(address) as conversation:
        assert conversation.handshake("OAUTHBEARER")[0] == "NONE"
        answers = [conversation.token(f"n,,\x01auth=Bearer {token}\x01\x01".encode())]
        if conversation.last:
            answers.append(conversation.token(b"\x01"))
        return answers, conversation.metadata()


def bad_tokens(provider: Provider) -> dict[str, str]:
    """Tokens that are refused by a broker that expects the audience `kafka` and the issuer of `tests/tokens.py`."""
    return {
        "expired": provider.token(USER, aud="kafka", exp=int(time.time()) - 60),
        "without the time of issue": provider.token(USER, aud="kafka", iat=None),
        "of another audience": provider.token(USER, aud="other"),
        "of another issuer": provider.token(USER, aud="kafka", iss="https://evil.example.com"),
        "wrongly signed": Provider(provider.key_id).token(USER, aud="kafka"),
        "signed by an unknown key": Provider("second").token(USER, aud="kafka"),
        "unsigned": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.",
        "none": "a",
    }


BAD_TOKEN = ([("NONE", "", 0), (FAILED, '{"status":"invalid_token"}', 0)], CLOSED)
DONE = ("NONE", "", 0)
PLAIN_TOKEN = f"\0{USER}\0{PASSWORD}".encode()
OFFERED = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
AFTER = "SaslAuthenticate request received after successful authentication"

LOGINS: dict[str, tuple[Callable[[Stage], Any], Any]] = {
    "a request before the login": (sasl(lambda c: c.metadata()), CLOSED),
    "an unknown mechanism": (
        sasl(lambda c: [c.handshake("SCRAM-SHA-1"), c.handshake("PLAIN")]),
        [("UNSUPPORTED_SASL_MECHANISM", OFFERED), CLOSED],
    ),
    "versions, then a mechanism": (
        sasl(lambda c: [c.versions(), c.handshake("PLAIN"), c.token(PLAIN_TOKEN), c.metadata()]),
        ["NONE", ("NONE", OFFERED), DONE, "served"],
    ),
    "a token without a mechanism": (sasl(lambda c: c.token(PLAIN_TOKEN)), CLOSED),
    "a mechanism instead of a token": (
        sasl(lambda c: [c.handshake("SCRAM-SHA-256"), c.handshake("PLAIN"), c.handshake("PLAIN")]),
        [("NONE", OFFERED), ("ILLEGAL_SASL_STATE", []), CLOSED],
    ),
    "a login after the login": (
        sasl(lambda c: [c.plain(PLAIN_TOKEN), c.handshake("PLAIN"), c.token(PLAIN_TOKEN), c.metadata()]),
        [(DONE, "served"), ("ILLEGAL_SASL_STATE", []), ("ILLEGAL_SASL_STATE", AFTER, 0), "served"],
    ),
    "a login where none is wanted": (
        plaintext(lambda c: [c.handshake("PLAIN"), c.token(PLAIN_TOKEN), c.metadata()]),
        [("ILLEGAL_SASL_STATE", []), ("ILLEGAL_SASL_STATE", AFTER, 0), "served"],
    ),
    "PLAIN with a wrong password": (
        sasl(lambda c: c.plain(f"\0{USER}\0wrong".encode())), ((FAILED, WRONG, 0), CLOSED)
    ),
    "PLAIN with an unknown user": (
        sasl(lambda c: c.plain(f"\0mallory\0{PASSWORD}".encode())), ((FAILED, WRONG, 0), CLOSED)
    ),
    "PLAIN as another user": (
        sasl(lambda c: c.plain(f"root\0{USER}\0{PASSWORD}".encode())),
        ((FAILED, ANOTHER, 0), CLOSED),
    ),
    "PLAIN as oneself": (sasl(lambda c: c.plain(f"{USER}\0{USER}\0{PASSWORD}".encode())), (DONE, "served")),
    "PLAIN without a user": (
        sasl(lambda c: c.plain(f"\0\0{PASSWORD}".encode())),
        ((FAILED, "Authentication failed: username not specified", 0), CLOSED),
    ),
    "PLAIN without a password": (
        sasl(lambda c: c.plain(f"\0{USER}\0".encode())),
        ((FAILED, "Authentication failed: password not specified", 0), CLOSED),
    ),
    "PLAIN with two parts": (
        sasl(lambda c: c.plain(f"{USER}\0{PASSWORD}".encode())),
        ((FAILED, "Invalid SASL/PLAIN response: expected 3 tokens, got 2", 0), CLOSED),
    ),
    "SCRAM": (scram(), (DONE, "served")),
    "SCRAM as oneself": (scram(header=f"n,a={USER},"), (DONE, "served")),
    "SCRAM with a wrong password": (scram("wrong"), ((FAILED, INVALID, 0), CLOSED)),
    "SCRAM with an unknown user": (scram(user="mallory"), ((FAILED, INVALID, 0), CLOSED)),
    "SCRAM as another user": (scram(header="n,a=root,"), ((FAILED, ANOTHER, 0), CLOSED)),
    "SCRAM with channel binding": (scram(header="p=tls-unique,,"), ((FAILED, INVALID, 0), CLOSED)),
    "SCRAM with a message that is none": (scram(user=""), ((FAILED, INVALID, 0), CLOSED)),
    "SCRAM, a replayed message": (replay, ((FAILED, INVALID, 0), CLOSED)),
}  # fmt: skip
