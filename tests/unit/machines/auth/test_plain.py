"""PLAIN: the users in a `sasl.jaas.config`."""

from __future__ import annotations

import pytest

from fencepost.machines.auth.plain import parse_jaas_users

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize(
    ("options", "users"),
    [
        ('user_alice="s" user_bob=t', {"alice": "s", "bob": "t"}),
        ('user_alice = "a, \\"b\\" \\\\ = ü;"', {"alice": 'a, "b" \\ = ü;'}),
        ('password="x user_eve=1 y" user_alice="s"', {"alice": "s"}),
        ('user_alice="x user_eve=1" xuser_eve=2', {"alice": "x user_eve=1"}),
        ('user_alice=""', {"alice": ""}),
        ("", {}),
    ],
)
def test_only_the_options_that_name_users_make_users(options: str, users: dict[str, str]) -> None:
    assert parse_jaas_users(f"{MODULE} {options};") == users
