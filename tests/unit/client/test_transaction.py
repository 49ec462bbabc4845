"""Which brokers keep a late write out of the next transaction, by what they say."""

from __future__ import annotations

import pytest

from fencepost.client.transaction import find_unverified


def test_brokers_that_all_verify_writes_are_safe() -> None:
    assert find_unverified({1: 5, 2: 4}, {1: "true", 2: "true"}, False) is None


@pytest.mark.parametrize("is_verified", [False, True])
def test_one_broker_that_does_not_verify_writes_is_named_whatever_the_user_says(is_verified: bool) -> None:
    said = find_unverified({1: 5, 2: 5, 3: 5}, {1: "true", 2: "true", 3: "false"}, is_verified)
    assert said is not None
    assert said.startswith("broker 3 has transaction.partition.verification.enable=false")
    assert "hint: set transaction.partition.verification.enable=true on every broker" in said


def test_one_broker_that_is_too_old_to_verify_is_named_with_its_version() -> None:
    assert "broker 2 serves AddPartitionsToTxn up to v3" in (
        find_unverified({1: 5, 2: 3}, {1: "true", 2: None}, True) or ""
    )


def test_a_setting_that_a_broker_hides_has_to_come_from_the_user() -> None:
    said = find_unverified({1: 5}, {1: None}, False) or ""
    assert "broker 1 does not show transaction.partition.verification.enable" in said
    assert "fencepost.transaction.partition.verification.enable=true" in said
    assert find_unverified({1: 5}, {1: None}, True) is None
