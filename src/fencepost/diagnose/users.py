"""The document of `fencepost user list`: the users that log in by SCRAM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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


def diagnose_users(users: Mapping[str, Mapping[str, int]]) -> UserList:
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
