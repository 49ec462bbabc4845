"""What a group is asked, what it answers, and what it wants written down.

`Join`, `Sync`, `Heartbeat` and `Leaver` are requests of members, all versions in one; `*Result` are the
answers. The machines in `rebalance.py` return effects: a `Reply` to a request that may have waited for
long, or a `Persist`, after which they go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Token = object  # Whatever the caller needs to answer a held request later; never None.
Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), in the member's order of preference.


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup, v0-9. `member_id` is empty for a newcomer; v0 has no rebalance timeout, which is -1 then."""

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

    def time_to_rejoin_ms(self) -> int:
        """A member that names no rebalance timeout has as long as its session."""
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
    """Who leaves: a member, or whoever holds the instance id if there is no member id."""

    member_id: str
    group_instance_id: str | None = None


class Reply(NamedTuple):
    """Answer the request that `token` stands for."""

    token: Token
    result: JoinResult | SyncResult | LeaveResult


class Persist(NamedTuple):
    """Append this record, then go on with the error code of the append (0 is success).

    `then(error_code, now_ms)` changes the state that the record describes, and gives the effects to carry
    out next. Nothing else may happen to the group in between.
    """

    group_id: str
    record: GroupRecord
    then: Callable[[int, int], list[Effect]]


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


Effect = Reply | Persist


class MemberRecord(NamedTuple):
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
    members: tuple[MemberRecord, ...]


class GroupChange(NamedTuple):
    """A record of `__consumer_offsets` about a classic group; without one it is a tombstone, which ends the group."""

    group_id: str
    record: GroupRecord | None
