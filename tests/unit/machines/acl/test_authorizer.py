"""The authorizer: which ACLs count, and what they decide."""

from __future__ import annotations

import pytest

from fencepost.machines.acl.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
    canonical_host,
    reason_against,
)
from fencepost.machines.acl.authorizer import Authorizer, BadPrincipals, parse_super_users

ALICE, BOB = "User:alice", "User:bob"
HOST = "10.0.0.1"


def acl(text: str) -> Acl:
    """An ACL from a line: `allow User:alice READ topic:orders`; `topic:orders*` is a prefix, `@HOST` may follow."""
    text, _, host = text.partition(" @")
    permission, principal, operation, resource = text.split(" ")
    kind, _, name = resource.partition(":")
    is_prefix = name.endswith("*") and name != "*"
    return Acl(
        ResourceType[kind.upper().replace("-", "_")],
        name[:-1] if is_prefix else name,
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal,
        host or "*",
        Operation[operation],
        PermissionType[permission.upper()],
    )


def authorizer(*lines: str, super_users: frozenset[str] = frozenset(), allow_everyone: bool = False) -> Authorizer:
    return Authorizer(map(acl, lines), super_users, allow_everyone)


def may(found: Authorizer, operation: str, name: str, principal: str = ALICE, host: str = HOST) -> bool:
    return found.allows(principal, host, Operation[operation], ResourceType.TOPIC, name)


def test_without_acls_everything_is_denied() -> None:
    assert not may(authorizer(), "READ", "orders")


def test_an_acl_allows_its_operation_on_its_resource_to_its_principal_only() -> None:
    found = authorizer("allow User:alice READ topic:orders")
    assert may(found, "READ", "orders")
    assert not may(found, "WRITE", "orders")
    assert not may(found, "READ", "orders-2")
    assert not may(found, "READ", "orders", BOB)
    assert not found.allows(ALICE, HOST, Operation.READ, ResourceType.GROUP, "orders")


def test_a_prefix_has_every_name_that_begins_with_it() -> None:
    found = authorizer("allow User:alice READ topic:ord*", "allow User:alice WRITE topic:orders-eu*")
    assert may(found, "READ", "ord")
    assert may(found, "READ", "orders-eu-1")
    assert may(found, "WRITE", "orders-eu-1")
    assert not may(found, "WRITE", "orders")
    assert not may(found, "READ", "or")


def test_the_wildcard_has_every_name() -> None:
    found = authorizer("allow User:alice READ topic:*")
    assert may(found, "READ", "anything")
    assert not may(authorizer("allow User:alice READ group:*"), "READ", "anything")


def test_the_wildcard_principal_is_everybody() -> None:
    assert may(authorizer("allow User:* READ topic:orders"), "READ", "orders", BOB)


def test_an_acl_with_a_host_counts_from_that_host_only() -> None:
    found = authorizer("allow User:alice READ topic:orders @10.0.0.1")
    assert may(found, "READ", "orders")
    assert not may(found, "READ", "orders", host="10.0.0.2")


@pytest.mark.parametrize(
    ("written", "client"),
    [("0:0:0:0:0:0:0:1", "::1"), ("::1", "::1"), ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1"), ("10.0.0.1", "10.0.0.1")],
)
def test_an_address_counts_however_it_is_written(written: str, client: str) -> None:
    found = authorizer("allow User:alice ALL topic:orders", f"deny User:alice READ topic:orders @{written}")
    assert not may(found, "READ", "orders", host=client)


def test_a_client_has_one_address_on_a_socket_for_both_protocols() -> None:
    assert canonical_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert canonical_host("fe80::1%eth0") == "fe80::1"
    assert canonical_host("*") == "*"


@pytest.mark.parametrize(
    "denial",
    [
        "deny User:alice READ topic:orders",
        "deny User:* READ topic:orders",
        "deny User:alice ALL topic:orders",
        "deny User:alice READ topic:ord*",
        "deny User:alice READ topic:*",
        "deny User:alice READ topic:orders @10.0.0.1",
    ],
)
def test_a_denial_wins_wherever_it_is(denial: str) -> None:
    grants = ("allow User:alice ALL topic:orders", "allow User:* READ topic:*", "allow User:alice READ topic:o*")
    assert not may(authorizer(*grants, denial), "READ", "orders")
    assert not may(authorizer(denial, *grants), "READ", "orders")
    assert not may(authorizer(denial, *grants, allow_everyone=True), "READ", "orders")


@pytest.mark.parametrize(
    ("granted", "implied"),
    [
        ("READ", "DESCRIBE"),
        ("WRITE", "DESCRIBE"),
        ("DELETE", "DESCRIBE"),
        ("ALTER", "DESCRIBE"),
        ("ALTER_CONFIGS", "DESCRIBE_CONFIGS"),
        ("ALL", "CREATE"),
    ],
)
def test_an_allowed_operation_implies_another(granted: str, implied: str) -> None:
    assert may(authorizer(f"allow User:alice {granted} topic:orders"), implied, "orders")


def test_a_denied_operation_implies_nothing() -> None:
    found = authorizer("allow User:alice ALL topic:orders", "deny User:alice READ topic:orders")
    assert may(found, "DESCRIBE", "orders")
    assert not may(authorizer("allow User:alice CREATE topic:orders"), "DESCRIBE", "orders")
    assert not may(authorizer("allow User:alice DESCRIBE topic:orders"), "READ", "orders")


def test_a_super_user_may_do_everything_even_what_is_denied() -> None:
    found = authorizer("deny User:* ALL topic:*", super_users=frozenset({ALICE}))
    assert may(found, "READ", "orders")
    assert not may(found, "READ", "orders", BOB)


def test_a_resource_without_acls_may_be_open_to_everybody() -> None:
    found = authorizer("allow User:bob READ topic:orders", "allow User:bob READ topic:eu-*", allow_everyone=True)
    assert may(found, "READ", "refunds")
    # An ACL for another user is about the resource.
    assert not may(found, "READ", "orders")
    assert not may(found, "WRITE", "orders", BOB)
    assert not may(found, "READ", "eu-1")


def may_any(found: Authorizer, principal: str = ALICE) -> bool:
    return found.allows_any(principal, HOST, Operation.WRITE, ResourceType.TOPIC)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], False),
        (["allow User:alice WRITE topic:orders"], True),
        (["allow User:alice READ topic:orders"], False),
        (["allow User:alice WRITE group:orders"], False),
        (["allow User:alice WRITE topic:orders @10.0.0.2"], False),
        (["allow User:alice WRITE topic:orders", "deny User:alice WRITE topic:orders"], False),
        (["allow User:alice WRITE topic:orders", "deny User:alice WRITE topic:ord*"], False),
        (["allow User:alice WRITE topic:ord*", "deny User:alice WRITE topic:ord*"], False),
        (["allow User:alice WRITE topic:ord*", "deny User:alice WRITE topic:orders"], True),
        (["allow User:alice WRITE topic:*", "deny User:alice WRITE topic:orders"], True),
        (["allow User:alice WRITE topic:orders", "deny User:* ALL topic:*"], False),
        (["allow User:* ALL topic:orders"], True),
    ],
)
def test_any_resource_is_one_that_no_denial_covers(lines: list[str], expected: bool) -> None:
    assert may_any(authorizer(*lines)) is expected


def test_a_super_user_may_write_to_any_topic() -> None:
    assert may_any(authorizer("deny User:* ALL topic:*", super_users=frozenset({ALICE})))


def test_allowed_operations_are_kafkas_bits() -> None:
    found = authorizer("allow User:alice WRITE topic:orders", "allow User:alice ALL cluster:kafka-cluster")
    kinds = ResourceType.TOPIC, ResourceType.CLUSTER
    topic, cluster = (
        found.allowed_operations(ALICE, HOST, kind, name) for kind, name in zip(kinds, ("orders", CLUSTER_NAME))
    )
    assert topic == 1 << 4 | 1 << 8
    assert cluster == 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users(" User:a ;; User:CN=b,O=c ") == {"User:a", "User:CN=b,O=c"}
    with pytest.raises(BadPrincipals, match=r"has alice, which is no principal"):
        parse_super_users("alice")


# --- filters and new ACLs -----------------------------------------------------------------------------------

ALL_ACLS = {
    line: acl(line)
    for line in (
        "allow User:alice READ topic:orders",
        "deny User:bob WRITE topic:orders @10.0.0.1",
        "allow User:alice READ topic:ord*",
        "allow User:alice READ topic:*",
        "allow User:alice READ group:orders",
    )
}


def found_by(
    kind: str = "ANY",
    name: str | None = None,
    pattern: str = "ANY",
    principal: str | None = None,
    host: str | None = None,
    operation: str = "ANY",
    permission: str = "ANY",
) -> list[int]:
    wanted = AclFilter(
        ResourceType[kind],
        name,
        PatternType[pattern],
        principal,
        host,
        Operation[operation],
        PermissionType[permission],
    )
    return [number for number, one in enumerate(ALL_ACLS.values()) if wanted.matches(one)]


def test_a_filter_matches_by_the_fields_that_it_has() -> None:
    assert found_by() == [0, 1, 2, 3, 4]
    assert found_by(kind="GROUP") == [4]
    assert found_by(name="orders") == [0, 1, 4]
    assert found_by(pattern="PREFIXED") == [2]
    assert found_by(pattern="PREFIXED", name="orders") == []
    assert found_by(pattern="LITERAL", name="*") == [3]
    assert found_by(kind="TOPIC", name="orders", pattern="MATCH") == [0, 1, 2, 3]
    assert found_by(principal=BOB) == [1]
    assert found_by(host="*") == [0, 2, 3, 4]
    assert found_by(operation="WRITE") == [1]
    assert found_by(permission="DENY") == [1]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"resource_type": ResourceType.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"name": ""}, "Invalid empty resource name"),
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"permission": PermissionType.ANY}, "Invalid permissionType ANY"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
    ],
)
def test_an_acl_that_could_not_be_checked_is_not_created(wrong: dict[str, object], reason: str) -> None:
    good = acl("allow User:alice READ topic:orders")
    assert reason_against(good) is None
    assert reason in (reason_against(good._replace(**wrong)) or "")  # type: ignore[arg-type]
