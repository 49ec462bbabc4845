"""One ACL, a filter of ACLs, and the check of a new one. The numbers are those of Kafka's protocol.

Follows Kafka's AclBinding, ResourcePatternFilter, AccessControlEntryFilter and AclControlManager.
"""

from __future__ import annotations

from contextlib import suppress
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple, Self

WILDCARD = "*"
# The only name of the resource CLUSTER.
CLUSTER_NAME = "kafka-cluster"


class _Code(IntEnum):
    """A number of the protocol. Those that Kafka does not know are its UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> Self:  # noqa: ARG003
        return cls(0)


class ResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


class PatternType(_Code):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(_Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """Allows or denies an operation on the resources of a pattern, to one principal (or all) from one host (or all)."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: PermissionType


class AclFilter(NamedTuple):
    """Matches ACLs by the fields that it has. None and ANY match everything, UNKNOWN nothing."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: PermissionType

    def matches(self, acl: Acl) -> bool:
        return (
            self._matches_resource(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (PermissionType.ANY, acl.permission)
        )

    def is_unknown(self) -> bool:
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission)

    def _matches_resource(self, acl: Acl) -> bool:
        if self.resource_type not in (ResourceType.ANY, acl.resource_type):
            return False
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or covers(acl, self.name)
        return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.name in (None, acl.name)


class Denial(NamedTuple):
    """Who was denied what."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str
    api_key: int


def canonical_host(host: str) -> str:
    """An address in one form, however it was written: `0:0:0:0:0:0:0:1` is `::1`, and `::ffff:10.0.0.1` is IPv4."""
    if host == WILDCARD:
        return host
    with suppress(ValueError):
        address = ip_address(host.partition("%")[0])  # Without the zone of a link-local address.
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return str(mapped or address)
    return host


def covers(acl: Acl, name: str) -> bool:
    """Whether the pattern of an ACL has the resource of this name."""
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, WILDCARD)


def reason_against(acl: Acl) -> str | None:
    """Why an ACL cannot be created, in Kafka's words; None if it can."""
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    # Differs: Kafka answers UNKNOWN_SERVER_ERROR for all ACLs of a CreateAcls if one has ANY or MATCH where it must be
    # definite. Fencepost refuses only that one, with INVALID_REQUEST.
    if acl.resource_type <= ResourceType.ANY:
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    if acl.operation <= Operation.ANY:
        return f"Invalid operation {acl.operation.name}"
    if acl.permission <= PermissionType.ANY:
        return f"Invalid permissionType {acl.permission.name}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from "
            "the principal name)"
        )
    return None
