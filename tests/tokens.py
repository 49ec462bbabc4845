"""Tokens for tests: a provider of our own, with its keys.

provider = Provider()
(folder / "jwks.json").write_bytes(provider.key_set())
token = provider.token("alice", aud="kafka")
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

ISSUER = "https://login.example.com"


class Provider:
    def __init__(self, key_id: str = "first", clock: Callable[[], float] = time.time) -> None:
        self.key_id = key_id
        self.clock = clock
        self.key = ec.generate_private_key(ec.SECP256R1())

    def key_set(self, *others: Provider) -> bytes:
        """The public keys of this provider, and of others."""
        return json.dumps({"keys": [provider._public() for provider in (self, *others)]}).encode()

    def _public(self) -> dict[str, Any]:
        public: dict[str, Any] = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        return public | {"kid": self.key_id, "use": "sig", "alg": "ES256"}

    def token(self, user: str, lifetime_s: float = 600, **claims: Any) -> str:
        """A token as a provider makes it; a claim of None is left out."""
        now = int(self.clock())
        usual = {"sub": user, "iss": ISSUER, "iat": now, "exp": int(now + lifetime_s)}
        given = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(given, self.key, algorithm="ES256", headers={"kid": self.key_id})
