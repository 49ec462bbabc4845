"""The consumer groups: all of them, and one with its members, offsets, offsets in transactions, and lags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fencepost.client.admin.groups import GroupMember
from fencepost.client.client import KafkaClient
from fencepost.commands import for_cluster
from fencepost.diagnose.collect.affected import MOST_ASKED
from fencepost.diagnose.collect.groups import collect_group, collect_groups
from fencepost.diagnose.groups import (
    GroupDescription,
    GroupList,
    GroupPartition,
    GroupRow,
    diagnose_group,
    diagnose_groups,
)
from fencepost.diagnose.lso import by_lag
from fencepost.diagnose.words import listed, plain
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import ListPage, Page, Params, SubjectNotFound, is_found, shown

# All groups cost several requests to each coordinator.
GROUPS_EVERY_S = 2.0
# The partitions of a member that are shown; a page has all of them.
PARTITIONS_OF_MEMBER = 20

GROUP_ORDERS: Mapping[str, Callable[[GroupRow], Any]] = {
    "group_id": lambda group: group.group_id,
    "state": lambda group: (group.state, group.group_id),
    "lag_to_lso": lambda group: (by_lag(group.lag_to_lso), group.group_id),
    "lag_to_high_watermark": lambda group: (by_lag(group.lag_to_high_watermark), group.group_id),
    "waiting": lambda group: (
        group.waiting_count,
        group.pending_count,
        by_lag(group.lag_to_high_watermark),
        group.group_id,
    ),
}
PARTITION_ORDERS: Mapping[str, Callable[[GroupPartition], Any]] = {
    "partition": lambda row: (row.topic, row.partition),
    "lag_to_lso": lambda row: (by_lag(row.lag_to_lso), row.topic, row.partition),
    "lag_to_high_watermark": lambda row: (by_lag(row.lag_to_high_watermark), row.topic, row.partition),
}
MEMBER_ORDERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {"member_id": lambda member: member["member_id"]}


def collect_groups_quickly(client: KafkaClient) -> GroupList:
    return diagnose_groups(collect_groups(client, MOST_ASKED))


def ask_groups(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> dict[str, Any]:
    return groups_document(cluster.recent(collect_groups_quickly, GROUPS_EVERY_S), query)


def groups_document(groups: GroupList, query: Mapping[str, str]) -> dict[str, Any]:
    """`waits=1` in the query: only groups that wait for a transaction, or have an offset in one."""
    search, only_waiting = query.get("search", ""), bool(query.get("waits"))
    waiting = [group for group in groups.groups if group.waiting_count or group.pending_count]
    found = [group for group in (waiting if only_waiting else groups.groups) if is_found(search, group.group_id)]
    return {
        "now_ms": groups.now_ms,
        **_page(shown(found, query, GROUP_ORDERS, "-waiting")),
        "search": search,
        "group_count": groups.total,
        "left_out": groups.left_out,
        "waiting_count": len(waiting),
        "problems": list(groups.problems),
    }


def _page(page: ListPage) -> dict[str, Any]:
    return {"rows": plain(tuple(page.rows)), **page.document()}


def ask_group(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> dict[str, Any]:
    group_id = params["group_id"]
    with cluster.client() as client:
        snapshot = collect_group(client, group_id)
    if isinstance(snapshot, tuple):
        hint = f"\n\nhint: did you mean {listed(snapshot)}?" if snapshot else ""
        raise SubjectNotFound(f"there is no group {group_id}{hint}")
    return group_document(for_cluster(diagnose_group(snapshot), cluster.arguments), query)


def group_document(group: GroupDescription, query: Mapping[str, str]) -> dict[str, Any]:
    """Partitions and members are pages. Members have the words `members_search` and `members_page` in the query."""
    search, members_search = query.get("search", ""), query.get("members_search", "")
    partitions = [row for row in group.partitions if is_found(search, f"{row.topic}-{row.partition}")]
    members = [
        _member(member)
        for member in group.members
        if is_found(members_search, member.member_id, member.client_id, member.instance_id or "", member.host)
    ]
    members_query = {"page": query.get("members_page", "")}
    document: dict[str, Any] = plain(group)
    return document | {
        "partitions": _page(shown(partitions, query, PARTITION_ORDERS, "-lag_to_high_watermark")) | {"search": search},
        "members": _page(shown(members, members_query, MEMBER_ORDERS, "member_id")) | {"search": members_search},
        "member_count": len(group.members),
        "pending_count": sum(row.is_pending for row in group.partitions),
        "waiting_count": sum(row.is_waiting for row in group.partitions),
    }


def _member(member: GroupMember) -> dict[str, Any]:
    document: dict[str, Any] = plain(member)
    return document | {
        "partitions": document["partitions"][:PARTITIONS_OF_MEMBER],
        "partition_count": len(member.partitions),
    }


GROUPS = Page(
    path="/groups", script="groups.js", title="Groups", nav="Groups", ask=ask_groups, refresh_s=GROUPS_EVERY_S
)
GROUP = Page(path="/group/{group_id:text}", script="group.js", title="Group {group_id}", ask=ask_group)
