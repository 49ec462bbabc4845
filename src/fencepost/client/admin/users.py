"""Users that log in by SCRAM: which there are, and the orders to add and to delete one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.client.admin.answers import DEADLINE_S
from fencepost.client.admin.topics import order
from fencepost.client.client import KafkaClient, retry
from fencepost.client.failures import BrokerError
from fencepost.protocol.messages import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from fencepost.protocol.scram import BY_NUMBER, SALT_BYTES, SCRAM_MECHANISMS, salted_password

_Request = AlterUserScramCredentialsRequest


def describe_users(client: KafkaClient) -> dict[str, dict[str, int]]:
    """The iterations of each user's credentials, by mechanism."""
    response = retry(lambda: client.send(client.any_broker(), DescribeUserScramCredentialsRequest(None)), DEADLINE_S)
    if response.error_code:
        raise BrokerError(response.error_code, "listing users", response.error_message)
    return {
        result.user: {
            BY_NUMBER[info.mechanism].name: info.iterations
            for info in result.credential_infos
            if info.mechanism in BY_NUMBER
        }
        for result in response.results
    }


def add_user(client: KafkaClient, user: str, mechanism: str, password: str, iterations: int) -> None:
    """Add the credential, or replace it. The cluster gets the salted password. Raises BrokerError if it is refused."""
    kind, salt = SCRAM_MECHANISMS[mechanism], os.urandom(SALT_BYTES)
    salted = salted_password(kind, password, salt, iterations)
    upsertion = _Request.ScramCredentialUpsertion(user, kind.number, iterations, salt, salted)
    _order(client, f"adding user {user}", _Request([], [upsertion]))


def delete_user(client: KafkaClient, user: str, mechanism: str) -> None:
    """Raises BrokerError if it is refused, as for a user without this credential."""
    deletion = _Request.ScramCredentialDeletion(user, SCRAM_MECHANISMS[mechanism].number)
    _order(client, f"deleting user {user}", _Request([deletion], []))


def _order(client: KafkaClient, what: str, request: AlterUserScramCredentialsRequest) -> None:
    order(client, what, lambda controller: client.send(controller, request).results[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCredential:
    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRow:
    user: str
    credentials: tuple[UserCredential, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserList:
    users: tuple[UserRow, ...]


def user_list(users: Mapping[str, Mapping[str, int]]) -> UserList:
    """`users` has the iterations of each credential, by user and mechanism."""
    return UserList(
        users=tuple(
            UserRow(
                user=name,
                credentials=tuple(UserCredential(mechanism=kind, iterations=n) for kind, n in sorted(kept.items())),
            )
            for name, kept in sorted(users.items())
        )
    )
