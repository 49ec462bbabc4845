"""SCRAM without a broker: the exchange of RFC 7677, and exchanges that must fail. `tests/conformance` has more."""

from __future__ import annotations

import base64
import itertools
from collections import Counter

import pytest

from fencepost.machines.auth.login import Challenge, LoginAccepted, LoginRefused, Step
from fencepost.machines.auth.scram import Appearance, ScramCredential, ScramExchange, credential_of, decoy_of, look_of
from fencepost.protocol.scram import SCRAM_MECHANISMS, SHA_256, salted_password
from tests.conformance.logins import scram_final

# The example of RFC 7677.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = f"r=rOprNGfwEbeRWgbNEkqO{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
PROOF = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

CREDENTIALS = {
    "user": credential_of(SHA_256, salted_password(SHA_256, "pencil", SALT, 4096), SALT, 4096),
}


def exchange(find: dict[str, ScramCredential] = CREDENTIALS, secret: bytes = b"secret") -> ScramExchange:
    return ScramExchange(SHA_256, lambda user: find.get(user) or decoy_of(SHA_256, user, secret), SERVER_NONCE)


def steps(*messages: str) -> list[Step]:
    server = exchange()
    return [server.step(message.encode(), 0) for message in messages]


def test_the_example_of_the_rfc() -> None:
    assert steps(FIRST, FINAL) == [Challenge(CHALLENGE.encode()), LoginAccepted("user", PROOF.encode())]


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace("p=dHzb", "p=dHzc"),
        FINAL.replace("c=biws", "c=eSws"),  # The client says that it supports channel binding: a downgrade.
        FINAL.replace("r=rOpr", "r=rOps"),
        FINAL.replace(SERVER_NONCE, ""),
        FINAL.replace(",p=", ",q="),
        FINAL[:-8],
        "c=biws,r=,p=",
        "",
        FIRST,
    ],
)
def test_a_last_message_with_any_change_is_refused(final: str) -> None:
    challenge, refused = steps(FIRST, final)
    assert isinstance(challenge, Challenge)
    assert isinstance(refused, LoginRefused)


@pytest.mark.parametrize(
    "first",
    [
        "p=tls-unique,,n=user,r=abc",
        "y,,n=user,r=abc",
        "n,a=root,n=user,r=abc",
        "n,,n=us=20er,r=abc",
        "n,,n=,r=abc",
        "n,,n=user",
        "n,,m=x,n=user,r=abc",
        "",
        "\0",
    ],
)
def test_a_first_message_that_is_none_is_refused(first: str) -> None:
    assert isinstance(steps(first)[0], LoginRefused)


def test_an_unknown_user_looks_like_one_with_another_password() -> None:
    """The same answers, the same salt every time, and nothing that could be told apart from a real one."""
    first = "n=mallory,r=abc"
    answers = [exchange().step(f"n,,{first}".encode(), 0) for _ in range(2)]
    assert answers[0] == answers[1]
    assert isinstance(answers[0], Challenge)
    other = exchange().step(b"n,,n=malcolm,r=abc", 0)
    assert other != answers[0]
    final = scram_final("n,,", first, answers[0].token.decode(), "pencil")
    server = exchange()
    server.step(f"n,,{first}".encode(), 0)
    unknown = server.step(final, 0)
    known = exchange()
    first = "n=user,r=abc"
    challenge = known.step(f"n,,{first}".encode(), 0)
    assert isinstance(challenge, Challenge)
    wrong = known.step(scram_final("n,,", first, challenge.token.decode(), "pen"), 0)
    assert isinstance(unknown, LoginRefused)
    assert isinstance(wrong, LoginRefused)
    assert unknown.message == wrong.message


JAVA_SALT = b"1o0jknb8fy3ezr7yqmz1rdsm2q"  # As `kafka-configs` of Apache Kafka makes it.


def test_decoys_look_like_the_users_that_there_are_and_keep_their_look_when_one_is_added() -> None:
    looks = {Appearance(16, 4096): 6, Appearance(64, 8192): 3, Appearance(None, 4096): 1}
    names = [f"unknown-{n}" for n in range(2000)]
    found = Counter(look_of(decoy_of(SHA_256, name, b"secret", looks)) for name in names)
    assert found.keys() == looks.keys()
    assert all(abs(found[look] / len(names) - share / 10) < 0.05 for look, share in looks.items())
    more = {**looks, Appearance(16, 4096): 7}
    changed = sum(
        decoy_of(SHA_256, name, b"secret", looks) != decoy_of(SHA_256, name, b"secret", more) for name in names
    )
    assert changed < len(names) / 10


def test_a_decoy_of_a_user_of_javas_tools_has_a_salt_of_their_kind() -> None:
    look = look_of(ScramCredential(JAVA_SALT, b"", b"", 4096))
    assert look.salt_bytes is None
    salts = [decoy_of(SHA_256, f"unknown-{n}", b"secret", {look: 1}).salt for n in range(500)]
    assert len(set(salts)) == len(salts)
    # 130 bits with base 36: a number of 26 digits begins with 1.
    assert {salt[:1] for salt in salts if len(salt) == 26} == {b"1"}
    assert 0.3 < sum(len(salt) == 26 for salt in salts) / len(salts) < 0.5


def test_names_with_commas_and_equal_signs_are_whole() -> None:
    name = "a,b=c"
    server = exchange({name: CREDENTIALS["user"]})
    first = "n=a=2Cb=3Dc,r=abc"
    challenge = server.step(f"n,,{first}".encode(), 0)
    assert isinstance(challenge, Challenge)
    done = server.step(scram_final("n,,", first, challenge.token.decode(), "pencil"), 0)
    assert isinstance(done, LoginAccepted)
    assert done.user == name


def test_no_password_can_be_computed_from_what_is_kept() -> None:
    kept = [credential_of(m, salted_password(m, "pencil", SALT, 4096), SALT, 4096) for m in SCRAM_MECHANISMS.values()]
    for one, other in itertools.combinations(kept, 2):
        assert {one.stored_key, one.server_key}.isdisjoint({other.stored_key, other.server_key})
    assert all(b"pencil" not in part for one in kept for part in one[:3])
