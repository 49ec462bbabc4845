"""Groups as DescribeGroups and ListGroups show them."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.machines.group.classic.group import CONSUMER_PROTOCOL_TYPE, STABLE
from fencepost.machines.group.shard import GroupShard


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: tuple[DescribedMember, ...]
    group_type: str = "classic"


def describe_classic(shard: GroupShard, group_id: str) -> DescribedGroup | None:
    group = shard.classic.get(group_id)
    if group is None:
        return None
    protocol = group.protocol if group.state is STABLE else None
    members = tuple(
        DescribedMember(
            member_id=m.member_id,
            group_instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            metadata=b"" if protocol is None else m.metadata(protocol),
            assignment=m.assignment,
        )
        for m in group.members.values()
    )
    return DescribedGroup(group_id, group.state.value, group.protocol_type or "", protocol or "", members)


def list_groups(shard: GroupShard) -> list[DescribedGroup]:
    """Every group, for ListGroups to filter."""
    classic = (describe_classic(shard, group_id) for group_id in shard.classic)
    consumer = [
        DescribedGroup(group.group_id, group.state_name(), CONSUMER_PROTOCOL_TYPE, "", (), "consumer")
        for group in shard.consumer.values()
    ]
    return [*(group for group in classic if group is not None), *consumer]
