"""The commands that are requests of a consumer group and its members."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.protocol import errors
from fencepost.protocol.messages import (
    DeleteGroupsRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.transcripts.client import Client, Command
from tests.transcripts.parsing import options


def join(client: Client, group: str, member: str, instance: str | None = None) -> Iterator[str]:
    """Join as the only member, which is also the leader, and sync: the group is stable then."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    known = client.members.get(member, "")
    request = JoinGroupRequest(client.group(group), 30_000, 30_000, known, instance, "consumer", [protocol])
    # From v4 on a new member without an instance has to join a second time, with the member id that it gets.
    reply = client.call(request, 5 if instance else 3)
    if reply.error_code:
        yield errors.name_of(reply.error_code)
        return
    client.members[member] = reply.member_id
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(reply.member_id, b"")
    sync = SyncGroupRequest(
        client.group(group), reply.generation_id, reply.member_id, instance, assignments=[assignment]
    )
    assert client.call(sync, 3).error_code == 0
    yield f"generation={reply.generation_id}"


def leave(client: Client, group: str, member: str) -> Iterator[str]:
    reply = client.call(LeaveGroupRequest(client.group(group), client.members[member]), 2)
    yield errors.name_of(reply.error_code)


def delete_group(client: Client, group: str) -> Iterator[str]:
    reply = client.call(DeleteGroupsRequest([client.group(group)]), 2)
    yield errors.name_of(reply.results[0].error_code)


def delete_offset(client: Client, group: str, place: str) -> Iterator[str]:
    topic, index = client.names.partition(place)
    kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(index)
    reply = client.call(OffsetDeleteRequest(client.group(group), [kind(topic, [partition])]), 0)
    yield errors.name_of(reply.error_code or reply.topics[0].partitions[0].error_code)


def commit_offset(client: Client, group: str, place: str, *rest: str) -> Iterator[str]:
    """`retention=` is the retention time of the offset in milliseconds, which v4 was the last version to have."""
    _, given = options(rest)
    place, _, offset = place.partition("@")
    topic, index = client.names.partition(place)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(index, int(offset), committed_metadata="")
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(topic, partitions=[partition])]
    retention_ms = int(given.get("retention", -1))
    request = OffsetCommitRequest(client.group(group), retention_time_ms=retention_ms, topics=topics)
    reply = client.call(request, 4 if given else 5)
    yield errors.name_of(reply.topics[0].partitions[0].error_code)


def fetch_offset(client: Client, group: str, place: str, stable: str = "") -> Iterator[str]:
    topic, index = client.names.partition(place)
    wanted = [OffsetFetchRequest.OffsetFetchRequestTopic(topic, [index])]
    request = OffsetFetchRequest(client.group(group), wanted, require_stable=stable == "stable")
    reply = client.call(request, 7)
    if reply.error_code:
        yield errors.name_of(reply.error_code)  # The whole group: its coordinator is still loading.
        return
    found = reply.topics[0].partitions[0]
    yield errors.name_of(found.error_code) if found.error_code else f"offset={found.committed_offset}"


COMMANDS: dict[str, Command] = {
    "join": join,
    "leave": leave,
    "delete-group": delete_group,
    "delete-offset": delete_offset,
    "commit-plain": commit_offset,
    "fetch-offset": fetch_offset,
}
