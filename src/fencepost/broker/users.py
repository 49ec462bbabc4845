"""Users with SCRAM credentials: which changes are allowed, and how the metadata document keeps them.

Follows Kafka's ScramControlManager.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.machines.auth.scram import ScramCredential, credential_of
from fencepost.protocol import errors
from fencepost.protocol.messages import AlterUserScramCredentialsRequest
from fencepost.protocol.scram import BY_NUMBER, MAX_ITERATIONS, MIN_ITERATIONS

# The credentials of each user by the name of their mechanism.
Users = Mapping[str, Mapping[str, ScramCredential]]
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


class UserRefused(NamedTuple):
    error_code: int
    message: str


def decide_alteration(
    users: Users, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> tuple[dict[str, UserRefused | None], Users]:
    """The result for each user, and the users afterwards.

    Kafka: a request may name each user once, also if it is about another mechanism.
    """
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    times = Counter(change.name for change in changes)
    results: dict[str, UserRefused | None] = {}
    for change in changes:
        objection = _objection(users, change)
        if objection is None and times[change.name] > 1:
            objection = UserRefused(
                errors.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        results[change.name] = results.get(change.name) or objection
    after = {name: dict(credentials) for name, credentials in users.items()}
    for deletion in deletions:
        if results[deletion.name] is None:
            del after[deletion.name][BY_NUMBER[deletion.mechanism].name]
    for upsertion in upsertions:
        if results[upsertion.name] is None:
            mechanism = BY_NUMBER[upsertion.mechanism]
            salted, salt = upsertion.salted_password, upsertion.salt
            credential = credential_of(mechanism, salted, salt, upsertion.iterations)
            after.setdefault(upsertion.name, {})[mechanism.name] = credential
    return results, {name: credentials for name, credentials in after.items() if credentials}


def _objection(users: Users, change: Deletion | Upsertion) -> UserRefused | None:
    if not change.name:
        return UserRefused(errors.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = BY_NUMBER.get(change.mechanism)
    if mechanism is None:
        return UserRefused(errors.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Deletion):
        if mechanism.name in users.get(change.name, {}):
            return None
        return UserRefused(errors.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    if change.iterations < MIN_ITERATIONS:
        return UserRefused(errors.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        return UserRefused(errors.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salted_password:
        # Differs: Kafka answers UNKNOWN_SERVER_ERROR to an empty salted password. Fencepost says what is wrong.
        return UserRefused(errors.UNACCEPTABLE_CREDENTIAL, "Attempt to specify an empty salted password")
    return None


def encode_users(users: Users) -> dict[str, Any]:
    """As a part of the metadata document. There are salted keys, and never passwords."""
    return {
        name: {
            mechanism: {
                "salt": base64.b64encode(found.salt).decode(),
                "stored_key": base64.b64encode(found.stored_key).decode(),
                "server_key": base64.b64encode(found.server_key).decode(),
                "iterations": found.iterations,
            }
            for mechanism, found in credentials.items()
        }
        for name, credentials in users.items()
    }


def decode_users(document: Mapping[str, Any]) -> Users:
    def decode(found: Mapping[str, Any]) -> ScramCredential:
        salt, stored_key, server_key = (base64.b64decode(found[name]) for name in ("salt", "stored_key", "server_key"))
        return ScramCredential(salt, stored_key, server_key, found["iterations"])

    return {
        name: {mechanism: decode(found) for mechanism, found in credentials.items()}
        for name, credentials in document.items()
    }
