"""The requests of a classic group's members, the answers, and the group's records.

`Join`, `Sync`, `Heartbeat` and `Leaver` are requests, all versions in one; `*Result` are the answers. A `Reply` answers
a request that may have been held for long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Token = object  # Identifies a held request to the caller, who answers it later; never None.
Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), in the member's order of preference.
MayDescribe = Callable[[str], bool]  # Whether a client may see the topic of this name.
EVERYTHING: MayDescribe = lambda name: True  # noqa: E731


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup, v0-9. `member_id` is empty for a new member. `rebalance_timeout_ms` is -1 if v0 names none."""

    group_id: str
    version: int
    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    may_describe: MayDescribe = EVERYTHING  # Of the client, for the patterns of a consumer group.

    def time_to_rejoin_ms(self) -> int:
        """The rebalance timeout, or the session timeout of a member that names none."""
        return self.session_timeout_ms if self.rebalance_timeout_ms < 0 else self.rebalance_timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup, v0-5. Only the leader gives assignments; from v5 on the protocol must be named."""

    group_id: str
    version: int = 0
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Heartbeat, v0-4."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class Leaver(NamedTuple):
    """One entry of LeaveGroup: a member id, or only the instance id of a static member."""

    member_id: str
    group_instance_id: str | None = None


class Reply(NamedTuple):
    """Answer the request that `token` stands for."""

    token: Token
    result: JoinResult | SyncResult | LeaveResult


class JoinResult(NamedTuple):
    error_code: int
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # (member id, instance id, metadata).


class SyncResult(NamedTuple):
    error_code: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeaveResult(NamedTuple):
    error_code: int
    members: tuple[tuple[str, str | None, int], ...] = ()  # (member id, instance id, error code), as asked.


class ClassicMemberRecord(NamedTuple):
    """One member inside a GroupRecord, with the fields of Kafka's GroupMetadataValue."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


class GroupRecord(NamedTuple):
    """The durable part of a group, with the fields of Kafka's GroupMetadataValue."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: tuple[ClassicMemberRecord, ...]


class GroupChange(NamedTuple):
    """A record of `__consumer_offsets` about a classic group; without one it is a tombstone, which ends the group."""

    group_id: str
    record: GroupRecord | None
