"""Questions to the group coordinators: which consumer groups there are, their members, and their offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencepost.client.admin.answers import Answers, NamedPartition, ask, by_value, chunks, moved
from fencepost.client.admin.offsets import LAST_WITH_TOPIC_NAMES, group_answers, offset_fetch_request, partition_answers
from fencepost.client.client import GROUP, KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.protocol import errors
from fencepost.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerProtocolAssignment,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
)
from fencepost.protocol.schema import Malformed, Message

# The groups in which the Spark sink keeps notes about its transactions, as offsets. No consumer reads with them.
COMMIT_NOTES = "fencepost-marker-"
TOKEN_NOTES = "fencepost-token-"


def is_note_group(group_id: str) -> bool:
    return group_id.startswith((COMMIT_NOTES, TOKEN_NOTES))


CONSUMER_PROTOCOL_TYPE = "consumer"
CLASSIC, CONSUMER = "classic", "consumer"
SEVERAL_GROUPS_IN = 8  # OffsetFetch asks for one group before this version.
LAST_ASSIGNMENT_VERSION = 3
# Keeps requests and replies at a few hundred kilobytes.
GROUPS_PER_REQUEST = 200
OFFSETS_PER_REQUEST = 10_000


class ListedGroup(NamedTuple):
    group_id: str
    coordinator: int
    protocol: str  # `classic`, or `consumer` for KIP-848.
    state: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[NamedPartition, ...]


class GroupMembership(NamedTuple):
    group_id: str
    state: str
    assignor: str
    epoch: int | None  # Only with KIP-848.
    members: tuple[GroupMember, ...]


class GroupOffset(NamedTuple):
    offset: int | None  # None: nothing is committed, but a transaction has written an offset, or a member reads there.
    is_pending: bool  # A transaction that has not ended may change it.


GroupOffsets = Mapping[NamedPartition, GroupOffset]


def list_groups(client: KafkaClient) -> Answers[str, ListedGroup]:
    """The consumer groups of all coordinators; share groups, streams groups and Kafka Connect are left out."""
    answers: Answers[str, ListedGroup] = Answers()
    for node_id in sorted(client.brokers()):
        try:
            response = ask(client, node_id, ListGroupsRequest())
        except ClientError as e:
            answers.problems.append(f"broker {node_id} could not list its groups: {e}")
            continue
        for group in response.groups:
            protocol = group.group_type.lower() or CLASSIC
            # A classic group whose members have all left may have no protocol type; a simple consumer never has one.
            if protocol in (CLASSIC, CONSUMER) and group.protocol_type in (CONSUMER_PROTOCOL_TYPE, ""):
                listed = ListedGroup(group.group_id, node_id, protocol, group.group_state)
                answers.found[group.group_id] = listed
    return answers


def describe_group(client: KafkaClient, group: ListedGroup) -> GroupMembership | None:
    """The members of a group; None if it is gone. Raises ClientError."""
    [found] = _describe_on(client, group.coordinator, group.protocol, [group.group_id])
    if found.error_code == errors.GROUP_ID_NOT_FOUND:
        return None
    if found.error_code:
        raise BrokerError(found.error_code, f"group {group.group_id}")
    return _membership(found, group.protocol)


def describe_groups(client: KafkaClient, groups: Collection[ListedGroup]) -> Answers[str, GroupMembership]:
    """The members of some groups; groups that are gone are left out."""
    answers: Answers[str, GroupMembership] = Answers()
    for protocol in (CLASSIC, CONSUMER):
        coordinators = {group.group_id: group.coordinator for group in groups if group.protocol == protocol}
        for node_id, ids in by_value(coordinators).items():
            for chunk in chunks(ids, GROUPS_PER_REQUEST):
                try:
                    described = _describe_on(client, node_id, protocol, chunk)
                except ClientError as e:
                    answers.problems.append(f"broker {node_id} could not describe its groups: {e}")
                    continue
                for found in described:
                    if found.error_code == errors.NONE:
                        answers.found[found.group_id] = _membership(found, protocol)
                    elif found.error_code != errors.GROUP_ID_NOT_FOUND:
                        answers.problems.append(str(BrokerError(found.error_code, f"group {found.group_id}")))
    return answers


def count_members(client: KafkaClient, group_id: str) -> int:
    """The number of members of a group, with the classic protocol or with KIP-848's."""
    questions: list[Message] = [DescribeGroupsRequest([group_id])]
    if client.any_broker().session.max_version(ConsumerGroupDescribeRequest.definition.api_key) >= 0:
        questions.append(ConsumerGroupDescribeRequest([group_id]))
    members = 0
    for request in questions:  # Each request sees only the groups of its own protocol.
        response = client.ask_coordinator(group_id, GROUP, request, lambda r: r.groups[0].error_code, at_most=5)
        members += len(response.groups[0].members)
    return members


def _describe_on(client: KafkaClient, node_id: int, protocol: str, group_ids: Sequence[str]) -> Sequence[Any]:
    request = ConsumerGroupDescribeRequest if protocol == CONSUMER else DescribeGroupsRequest
    return list(ask(client, node_id, request(list(group_ids)), lambda r: moved(r.groups)).groups)


def _membership(found: Any, protocol: str) -> GroupMembership:
    if protocol == CONSUMER:
        members = tuple(
            GroupMember(m.member_id, m.instance_id, m.client_id, m.client_host, _partitions(m.assignment))
            for m in found.members
        )
        return GroupMembership(found.group_id, found.group_state, found.assignor_name, found.group_epoch, members)
    members = tuple(
        GroupMember(m.member_id, m.group_instance_id, m.client_id, m.client_host, _assigned(m.member_assignment))
        for m in found.members
    )
    return GroupMembership(found.group_id, found.group_state, found.protocol_data, None, members)


def _partitions(assignment: Any) -> tuple[NamedPartition, ...]:
    return tuple(sorted(NamedPartition(t.topic_name, p) for t in assignment.topic_partitions for p in t.partitions))


def _assigned(assignment: bytes) -> tuple[NamedPartition, ...]:
    """What the members of a classic group agreed on. The broker does not look at it, so it may be anything."""
    if len(assignment) < 2:
        return ()
    version = min(int.from_bytes(assignment[:2], "big"), LAST_ASSIGNMENT_VERSION)
    try:
        decoded, _ = ConsumerProtocolAssignment.decode(bytes(assignment), 2, version)
    except (Malformed, UnicodeDecodeError):
        return ()
    return tuple(sorted(NamedPartition(t.topic, p) for t in decoded.assigned_partitions for p in t.partitions))


def group_offsets(
    client: KafkaClient, coordinators: Mapping[str, int], partitions: Collection[NamedPartition] | None = None
) -> Answers[str, GroupOffsets]:
    """The offsets of some groups, given the coordinator of each: on these partitions, or all that are committed.

    If partitions are named, the answer also has those where a transaction has written the first offset of a group.
    """
    answers: Answers[str, GroupOffsets] = Answers()
    size = GROUPS_PER_REQUEST
    if partitions:
        size = max(min(size, OFFSETS_PER_REQUEST // len(partitions)), 1)
    for node_id, ids in by_value(coordinators).items():
        for chunk in chunks(ids, _at_a_time(client, node_id, size)):
            try:
                stable, refused = _fetch_offsets(client, node_id, chunk, partitions, require_stable=True)
                pending = {
                    group_id: {where for where, (_, code) in offsets.items() if code == errors.UNSTABLE_OFFSET_COMMIT}
                    for group_id, offsets in stable.items()
                }
                again = [group_id for group_id, found in pending.items() if found]
                # The offset that counts until the transaction ends.
                before = _fetch_offsets(client, node_id, again, partitions, require_stable=False)[0] if again else {}
            except ClientError as e:
                answers.problems.append(f"broker {node_id} did not give the offsets of groups: {e}")
                continue
            answers.problems += refused
            for group_id, offsets in stable.items():
                answers.found[group_id] = _merged(offsets, before.get(group_id, {}), pending[group_id])
    return answers


Fetched = dict[NamedPartition, tuple[int, int]]  # Offset and error code.


def _merged(stable: Fetched, before: Fetched, pending: Collection[NamedPartition]) -> dict[NamedPartition, GroupOffset]:
    merged = {}
    for where, (offset, code) in stable.items():
        if where in pending:
            committed = before[where][0] if where in before and before[where][0] >= 0 else None
            merged[where] = GroupOffset(committed, True)
        elif code == errors.NONE and offset >= 0:
            merged[where] = GroupOffset(offset, False)
    return merged


def _at_a_time(client: KafkaClient, node_id: int, size: int) -> int:
    try:
        newest = client.broker(node_id).session.max_version(OffsetFetchRequest.definition.api_key)
    except ClientError:
        return size  # The request itself reports it.
    return size if newest >= SEVERAL_GROUPS_IN else 1


def _fetch_offsets(
    client: KafkaClient,
    node_id: int,
    group_ids: Sequence[str],
    partitions: Collection[NamedPartition] | None,
    require_stable: bool,
) -> tuple[dict[str, Fetched], list[str]]:
    """The offsets of each group, and a line for each group that the broker refused."""
    request = offset_fetch_request(group_ids, partitions, require_stable)
    response = ask(client, node_id, request, lambda r: moved(group_answers(r)), at_most=LAST_WITH_TOPIC_NAMES)
    found: dict[str, Fetched] = {}
    refused = []
    for group in group_answers(response):
        group_id = group.group_id if response.groups else group_ids[0]
        if group.error_code not in (errors.NONE, errors.GROUP_ID_NOT_FOUND):
            refused.append(str(BrokerError(group.error_code, f"the offsets of group {group_id} are unknown")))
            continue
        found[group_id] = {
            NamedPartition(*where): (p.committed_offset, p.error_code) for where, p in partition_answers(group).items()
        }
    return found, refused
