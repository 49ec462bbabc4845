"""Decides whether a client may do something. Follows Kafka's StandardAuthorizer.

An ACL counts if its pattern has the resource, and principal, host and operation match. One that denies wins over all
that allow. Without one that counts the answer is no, unless no ACL at all is about the resource and
`allow.everyone.if.no.acl.found` is set. Super users may do everything. An authorizer never changes: a change of the
ACLs makes a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepost.machines.acl.acls import (
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
    canonical_host,
)

WILDCARD_PRINCIPAL = "User:*"
# The operations that imply another one, in ACLs that allow. One that denies READ does not deny DESCRIBE.
IMPLIED_BY: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
SUPPORTED_OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


class BadPrincipals(ValueError):
    """A list of principals that cannot be used. The message completes the sentence `name=text ...`."""


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of `User:alice;User:bob`. Raises BadPrincipals."""
    users = frozenset(part.strip() for part in text.split(";") if part.strip())
    for user in users:
        kind, _, name = user.partition(":")
        if not kind or not name:
            raise BadPrincipals(
                f"has {user}, which is no principal\n\nhint: write TYPE:NAME and separate several by a semicolon, "
                "for example User:admin;User:operator"
            )
    return users


class Authorizer:
    def __init__(
        self, acls: Iterable[Acl], super_users: frozenset[str] = frozenset(), allow_everyone_if_no_acl: bool = False
    ) -> None:
        self._super_users = super_users
        self._allow_everyone_if_no_acl = allow_everyone_if_no_acl
        # The ACLs of a pattern, by principal. A name is looked up as a literal, and as each prefix that it has.
        self._by_pattern: dict[tuple[ResourceType, PatternType, str], dict[str, list[Acl]]] = {}
        self._prefix_sizes: dict[ResourceType, set[int]] = {}
        for acl in acls:
            by_principal = self._by_pattern.setdefault((acl.resource_type, acl.pattern_type, acl.name), {})
            by_principal.setdefault(acl.principal, []).append(acl._replace(host=canonical_host(acl.host)))
            if acl.pattern_type is PatternType.PREFIXED:
                self._prefix_sizes.setdefault(acl.resource_type, set()).add(len(acl.name))

    def allows(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        about_resource = [
            found
            for pattern_type, pattern in self._patterns_of(resource_type, name)
            if (found := self._by_pattern.get((resource_type, pattern_type, pattern))) is not None
        ]
        if not about_resource:
            return self._allow_everyone_if_no_acl
        is_allowed = False
        for by_principal in about_resource:
            for who in (principal, WILDCARD_PRINCIPAL):
                for acl in by_principal.get(who, ()):
                    if _counts(acl, host, operation):
                        if acl.permission is PermissionType.DENY:
                            return False
                        is_allowed = True
        return is_allowed

    def allows_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may do this to any resource of the type, existing or not."""
        # Kafka: asks for this name, which super users may use, and others if no ACL is about it.
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        allowed: set[tuple[PatternType, str]] = set()
        denied: set[tuple[PatternType, str]] = set()
        for (found_type, pattern_type, name), by_principal in self._by_pattern.items():
            if found_type is not resource_type:
                continue
            for who in (principal, WILDCARD_PRINCIPAL):
                for acl in by_principal.get(who, ()):
                    # Kafka: what one operation implies for another does not count here.
                    if acl.operation in (operation, Operation.ALL) and acl.host in (host, WILDCARD):
                        (denied if acl.permission is PermissionType.DENY else allowed).add((pattern_type, name))
        everything = (PatternType.LITERAL, WILDCARD)
        if everything in denied:
            return False
        return any(one == everything or not _is_dominated(one, denied) for one in allowed)

    def allowed_operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """The operations that the client may do, as the bits of Kafka's `authorized_operations`."""
        return bits(
            operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )

    def _patterns_of(self, resource_type: ResourceType, name: str) -> list[tuple[PatternType, str]]:
        """The patterns that have the resource."""
        prefixes = (name[:size] for size in self._prefix_sizes.get(resource_type, ()) if size <= len(name))
        return [
            (PatternType.LITERAL, name),
            (PatternType.LITERAL, WILDCARD),
            *((PatternType.PREFIXED, prefix) for prefix in prefixes),
        ]


def bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


def _counts(acl: Acl, host: str, operation: Operation) -> bool:
    if acl.host not in (host, WILDCARD):
        return False
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission is PermissionType.ALLOW and acl.operation in IMPLIED_BY.get(operation, ())


def _is_dominated(allowed: tuple[PatternType, str], denied: set[tuple[PatternType, str]]) -> bool:
    """Whether patterns that are denied have everything that a pattern allows."""
    pattern_type, name = allowed
    if pattern_type is PatternType.LITERAL and allowed in denied:
        return True
    return any((PatternType.PREFIXED, name[:size]) in denied for size in range(1, len(name) + 1))
