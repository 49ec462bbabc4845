"""The conversations of SASL: the messages of a client, without a broker."""

from __future__ import annotations

import pytest

from fencepost.client import sasl


def test_a_token_is_sent_with_its_extensions() -> None:
    conversation = sasl.oauthbearer("abc", {"logicalCluster": "lkc-7"})
    assert next(conversation) == b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-7\x01\x01"
    with pytest.raises(StopIteration):
        conversation.send(b"")


def test_a_broker_that_refuses_a_token_is_asked_for_its_error() -> None:
    conversation = sasl.oauthbearer("abc", {})
    assert next(conversation) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert conversation.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(sasl.Untrusted, match="refused the token, and then accepted it"):
        conversation.send(b"")


def test_a_broker_that_does_not_know_the_password_is_not_trusted() -> None:
    # The example of RFC 7677.
    nonce = "rOprNGfwEbeRWgbNEkqO"
    conversation = sasl.scram("SCRAM-SHA-256", "user", "pencil", nonce)
    assert next(conversation) == f"n,,n=user,r={nonce}".encode()
    server_nonce = f"{nonce}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = conversation.send(f"r={server_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={server_nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(sasl.Untrusted, match="could not prove that it knows the password"):
        conversation.send(b"v=AAAA")


def test_a_nonce_of_another_conversation_is_not_trusted() -> None:
    conversation = sasl.scram("SCRAM-SHA-256", "user", "pencil", "ours")
    next(conversation)
    with pytest.raises(sasl.Untrusted, match="a nonce that is not ours"):
        conversation.send(b"r=theirs,s=AAAA,i=4096")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"r=ours",
        b"\xff",
        b"r=ours,s=AAAA,i=many",
        b"r=ours,s=A,i=1",
        b"r=ours,s=AAAA,i=0",
        b"r=ours,s=AAAA,i=9999999999",
    ],
)
def test_an_answer_that_is_not_scram_is_not_trusted(answer: bytes) -> None:
    conversation = sasl.scram("SCRAM-SHA-256", "user", "pencil", "ours")
    next(conversation)
    with pytest.raises(sasl.Untrusted, match="answered SCRAM with something else"):
        conversation.send(answer)


@pytest.mark.parametrize(("lifetime_ms", "after_s"), [(0, None), (-1, None), (60_000, 51.0), (500, 1.1)])
def test_a_login_is_renewed_before_it_ends_but_not_within_a_second(lifetime_ms: int, after_s: float | None) -> None:
    assert sasl.renewed_after_s(lifetime_ms) == after_s
