"""The consumer groups: all of them, and one with its members, offsets, offsets in transactions, and lags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fencepost.diagnose.collect.groups import collect_group, collect_groups
from fencepost.diagnose.commands import for_cluster
from fencepost.diagnose.groups import (
    GroupDescription,
    GroupList,
    GroupPartition,
    GroupRow,
    MemberRow,
    diagnose_group,
    diagnose_groups,
)
from fencepost.diagnose.plain import plain
from fencepost.diagnose.words import listed
from fencepost.web.cluster import Cluster
from fencepost.web.page import NotFound, Page, Params
from fencepost.web.paging import page_of

# All groups cost several requests to each coordinator.
GROUPS_EVERY_S = 2.0
# The partitions of a member that are shown; a page has all of them.
PARTITIONS_OF_MEMBER = 20

GROUP_SORTS: Mapping[str, Callable[[GroupRow], Any]] = {
    "group_id": lambda group: group.group_id,
    "state": lambda group: (group.state, group.group_id),
    "lag_to_lso": lambda group: (group.lag_to_lso, group.group_id),
    "lag_to_high_watermark": lambda group: (group.lag_to_high_watermark, group.group_id),
    "waiting": lambda group: (group.waiting_count, group.pending_count, group.lag_to_high_watermark, group.group_id),
}
PARTITION_SORTS: Mapping[str, Callable[[GroupPartition], Any]] = {
    "partition": lambda row: (row.topic, row.partition),
    "lag_to_lso": lambda row: (row.lag_to_lso or 0, row.topic, row.partition),
    "lag_to_high_watermark": lambda row: (row.lag_to_high_watermark or 0, row.topic, row.partition),
}


def ask_groups(cluster: Cluster, params: Params, query: Mapping[str, str]) -> dict[str, Any]:
    return groups_document(diagnose_groups(cluster.recent(collect_groups, GROUPS_EVERY_S)), query)


def groups_document(groups: GroupList, query: Mapping[str, str]) -> dict[str, Any]:
    """`waits=1` in the query: only groups that wait for a transaction, or have an offset in one."""
    rows = [row for row in groups.groups if not query.get("waits") or row.waiting_count or row.pending_count]
    paged = page_of(rows, query, text=lambda group: group.group_id, sorts=GROUP_SORTS, default="-waiting")
    return {
        "now_ms": groups.now_ms,
        "groups": plain(paged),
        "total": groups.total,
        "waiting_count": sum(bool(row.waiting_count or row.pending_count) for row in groups.groups),
        "problems": list(groups.problems),
    }


def ask_group(cluster: Cluster, params: Params, query: Mapping[str, str]) -> dict[str, Any]:
    group_id = params["group_id"]
    with cluster.client() as client:
        snapshot = collect_group(client, group_id)
    if isinstance(snapshot, tuple):
        hint = f"\n\nhint: did you mean {listed(snapshot)}?" if snapshot else ""
        raise NotFound(f"there is no group {group_id}{hint}")
    return group_document(for_cluster(diagnose_group(snapshot), cluster.arguments), query)


def group_document(group: GroupDescription, query: Mapping[str, str]) -> dict[str, Any]:
    """The partitions are a page of their own; members have the words `members_search` and `members_page` in the query."""
    partitions = page_of(
        group.partitions,
        query,
        text=lambda row: f"{row.topic}-{row.partition}",
        sorts=PARTITION_SORTS,
        default="-lag_to_high_watermark",
    )
    members = page_of(
        group.members,
        {"search": query.get("members_search", ""), "page": query.get("members_page", "")},
        text=lambda member: f"{member.member_id} {member.client_id} {member.instance_id or ''} {member.host}",
        sorts={"member_id": lambda member: member.member_id},
        default="member_id",
    )
    document: dict[str, Any] = plain(group)
    return document | {
        "partitions": plain(partitions),
        "members": plain(members._replace(rows=tuple(_member(member) for member in members.rows))),
        "pending_count": sum(row.is_pending for row in group.partitions),
        "waiting_count": sum(row.is_waiting for row in group.partitions),
    }


def _member(member: MemberRow) -> dict[str, Any]:
    document: dict[str, Any] = plain(member)
    return document | {
        "partitions": document["partitions"][:PARTITIONS_OF_MEMBER],
        "partition_count": len(member.partitions),
    }


GROUPS = Page(
    path="/groups", script="groups.js", title="Groups", nav="Groups", ask=ask_groups, refresh_s=GROUPS_EVERY_S
)
GROUP = Page(path="/group/{group_id:text}", script="group.js", title="Group {group_id}", ask=ask_group)
