"""The SCRAM mechanisms of Kafka: their names, their numbers in requests, and the salting of a password."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16_384
SALT_BYTES = 16


class ScramMechanism(NamedTuple):
    number: int  # In AlterUserScramCredentials and DescribeUserScramCredentials.
    name: str
    digest: str


SHA_256, SHA_512 = ScramMechanism(1, "SCRAM-SHA-256", "sha256"), ScramMechanism(2, "SCRAM-SHA-512", "sha512")
SCRAM_MECHANISMS = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}
BY_NUMBER = {mechanism.number: mechanism for mechanism in (SHA_256, SHA_512)}


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802: Hi(password, salt, iterations)."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
