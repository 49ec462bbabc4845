"""The ACLs of the cluster: the authorizer made of them, a change of them, and how requests carry them (in numbers)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fencepost.broker.config import Config
from fencepost.machines.acl.acls import Acl, AclFilter, Operation, PatternType, PermissionType, ResourceType
from fencepost.machines.acl.authorizer import Authorizer, parse_super_users
from fencepost.protocol.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from fencepost.protocol.schema import Malformed

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster

# The principal of the connections between nodes, which may do everything. A client is always a `User:`.
NODE = "Node:of this cluster"
MAX_ACLS_PER_REQUEST = 10_000  # Kafka: has the same limit.


def authorizer_of(config: Config, acls: Iterable[Acl]) -> Authorizer | None:
    """What decides who may do what; None if `authorizer.class.name` is not set."""
    if not config["authorizer.class.name"]:
        return None
    super_users = parse_super_users(config["super.users"]) | {NODE}
    return Authorizer(acls, super_users, config["allow.everyone.if.no.acl.found"])


def change_acls(cluster: Cluster, acls: frozenset[Acl]) -> None:
    """Save the ACLs, and decide by them from then on. Raises StorageFailed."""
    if acls != cluster.metadata.acls:
        cluster.save(cluster.metadata._replace(acls=acls))


def new_acl(creation: CreateAclsRequest.AclCreation) -> Acl:
    """Raises Malformed."""
    _check_numbers(creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type)
    return Acl(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        Operation(creation.operation),
        PermissionType(creation.permission_type),
    )


def acl_filter(wanted: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    """Raises Malformed."""
    _check_numbers(wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type)
    return AclFilter(
        ResourceType(wanted.resource_type_filter),
        wanted.resource_name_filter,
        PatternType(wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        Operation(wanted.operation),
        PermissionType(wanted.permission_type),
    )


def _check_numbers(*numbers: int) -> None:
    if 0 in numbers:
        # Kafka: closes the connection for 0, its own number for "unknown", and answers other numbers that are unknown.
        raise Malformed(f"resource type, pattern type, operation and permission of an ACL are {numbers}, none may be 0")
