"""The documents of consumer groups: searched, sorted and cut."""

from __future__ import annotations

from typing import Any

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.groups import GroupMember
from fencepost.diagnose.groups import GroupDescription, GroupList, GroupPartition, GroupRow
from fencepost.web.pages.groups import PARTITIONS_OF_MEMBER, group_document, groups_document

NOW_MS = 1_800_000_000_000


def row(group_id: str, **changes: Any) -> GroupRow:
    fields: dict[str, Any] = {
        "protocol": "consumer",
        "state": "Stable",
        "coordinator": 1,
        "partition_count": 2,
        "waiting_count": 0,
        "pending_count": 0,
        "lag_to_lso": 0,
        "lag_to_high_watermark": 0,
        "unknown_count": 0,
    }
    return GroupRow(group_id=group_id, **fields | changes)


def listed(*rows: GroupRow) -> GroupList:
    return GroupList(now_ms=NOW_MS, groups=rows, total=len(rows), problems=("one broker is silent",))


def names(document: dict[str, Any]) -> list[str]:
    return [group["group_id"] for group in document["rows"]]


def test_groups_that_wait_come_first_and_can_be_shown_alone() -> None:
    groups = listed(
        row("quiet"),
        row("slow", lag_to_high_watermark=9),
        row("waiting", waiting_count=1),
        row("late", pending_count=2),
    )
    document = groups_document(groups, {})
    assert names(document) == ["waiting", "late", "slow", "quiet"]
    assert (document["group_count"], document["waiting_count"], document["problems"]) == (
        4,
        2,
        ["one broker is silent"],
    )
    assert document["left_out"] == 0
    assert names(groups_document(groups, {"waits": "1"})) == ["waiting", "late"]


def test_groups_are_searched_and_sorted_by_a_column() -> None:
    groups = listed(row("orders-b", lag_to_lso=3), row("orders-a", lag_to_lso=5), row("payments"))
    assert names(groups_document(groups, {"search": "ORDERS", "sort": "lag_to_lso"})) == ["orders-b", "orders-a"]
    assert names(groups_document(groups, {"sort": "group_id"})) == ["orders-a", "orders-b", "payments"]


def described(members: int, partitions: int) -> GroupDescription:
    places = tuple(NamedPartition("orders", n) for n in range(partitions))
    return GroupDescription(
        now_ms=NOW_MS,
        group_id="billing",
        protocol="consumer",
        state="Stable",
        coordinator=1,
        assignor="uniform",
        epoch=3,
        lag_to_lso=0,
        lag_to_high_watermark=partitions,
        unknown_count=0,
        members=tuple(
            GroupMember(member_id=f"m-{n:04}", instance_id=None, client_id="<b>", host="10.0.0.9", partitions=places)
            for n in range(members)
        ),
        partitions=tuple(
            GroupPartition(
                topic="orders",
                partition=n,
                committed_offset=n,
                is_pending=n == 3,
                last_stable_offset=n,
                high_watermark=n + 1,
                lag_to_lso=0,
                lag_to_high_watermark=n,
                is_waiting=n < 5,
                waits_for=None,
                member_id=None,
            )
            for n in range(partitions)
        ),
        pins=(),
        offsets_wait_for=None,
        problems=(),
    )


def test_a_group_with_many_members_and_partitions_is_cut_into_pages() -> None:
    document = group_document(described(70, 120), {})
    assert [p["partition"] for p in document["partitions"]["rows"]] == list(range(119, 69, -1))
    assert (document["partitions"]["page_count"], document["members"]["page_count"]) == (3, 2)
    assert (document["pending_count"], document["waiting_count"]) == (1, 5)
    member = document["members"]["rows"][0]
    assert (len(member["partitions"]), member["partition_count"]) == (PARTITIONS_OF_MEMBER, 120)
    second = group_document(described(70, 120), {"sort": "partition", "page": "2", "members_page": "2"})
    assert second["partitions"]["rows"][0]["partition"] == 50
    assert [m["member_id"] for m in second["members"]["rows"]] == [f"m-{n:04}" for n in range(50, 70)]


def test_partitions_and_members_are_searched_on_their_own() -> None:
    document = group_document(described(70, 120), {"search": "orders-11", "members_search": "m-0007"})
    assert sorted(p["partition"] for p in document["partitions"]["rows"]) == [11, *range(110, 120)]
    assert [m["member_id"] for m in document["members"]["rows"]] == ["m-0007"]
