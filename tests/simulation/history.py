"""The clients' own record of what they sent and what the broker answered. The checks rely on nothing else.

A client opens an `Attempt` for each transaction. It notes each record before it sends it, and the broker's answer to
the end of the transaction. Every record's value is unique and begins with the key of its attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.protocol.topic_partition import TopicPartition

TOPICS = {"in": 2, "out": 2, "other": 2}
INPUTS = [("in", 0), ("in", 1)]
OUTPUTS = [("out", 0), ("out", 1)]
OTHERS = [("other", 0), ("other", 1)]
PLACES = INPUTS + OUTPUTS + OTHERS


class Read(NamedTuple):
    """One record that a reader gave to its application."""

    offset: int
    value: str


class Violation(Exception):
    """The broker broke a promise."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


@dataclass(slots=True)
class Attempt:
    """One transaction of one client."""

    key: str
    sent: dict[str, TopicPartition] = field(default_factory=dict)  # Each value and its partition.
    offsets: dict[TopicPartition, int] = field(default_factory=dict)  # The group's offsets in this transaction.
    asked_to_commit: bool = False  # The outcome is the broker's decision from here on.
    was_doubted: bool = False  # The answer to a request to commit is missing.
    outcome: str = ""  # In the broker's last answer: "committed", "aborted" or "refused"; empty without one.

    @property
    def must_be_there(self) -> bool:
        return self.outcome == "committed"

    @property
    def may_be_there(self) -> bool:
        return self.must_be_there or (self.asked_to_commit and (self.outcome == "" or self.was_doubted))


@dataclass(slots=True)
class Grant:
    """An epoch that the broker gave out. After the offsets in `ends`, earlier epochs of the producer may not write."""

    producer_id: int
    epoch: int
    ends: dict[TopicPartition, int]


@dataclass(slots=True)
class Follower:
    """A reader of some partitions: its positions, and all records that it has delivered."""

    name: str
    read_committed: bool
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    delivered: dict[TopicPartition, list[Read]] = field(default_factory=dict)


class History:
    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.grants: list[Grant] = []
        self.followers: list[Follower] = []
        # Power was lost and commits are not synced, so the broker may have lost acknowledged records.
        self.is_forgetful = False
        self.plain: dict[TopicPartition, list[str]] = {}  # Acknowledged records without a transaction, in order.
        self._id_of: dict[int, str] = {}  # Producer id -> transactional id, or the name of a client without one.
        self._owner_of: dict[tuple[int, int], str] = {}  # Producer id and epoch -> client instance.

    def begin(self, key: str) -> Attempt:
        attempt = self.attempts[key] = Attempt(key)
        return attempt

    def note_grant(
        self, whose: str, instance: str, producer_id: int, epoch: int, ends: dict[TopicPartition, int]
    ) -> None:
        """The broker gave a client this producer id and epoch."""
        known = self._id_of.setdefault(producer_id, whose)
        if known != whose:
            raise Violation("producer id reused", f"{producer_id} was given to {known}, and now to {whose}")
        owner = self._owner_of.setdefault((producer_id, epoch), instance)
        if owner != instance:
            raise Violation(
                "epoch reused", f"producer {producer_id} epoch {epoch} was given to {owner}, and now to {instance}"
            )
        self.grants.append(Grant(producer_id, epoch, ends))

    def note_offset(self, group: str, where: TopicPartition, offset: int) -> None:
        """The broker answered with this offset of the group, so a client must have asked to commit it."""
        if offset < 0:
            return
        for attempt in self.attempts.values():
            if attempt.offsets.get(where) == offset and attempt.may_be_there:
                return
        if not self.is_forgetful:
            raise Violation("pending offset read", f"{group} is at {offset} of {where}, which no client committed")

    def power_was_lost(self, kept: dict[TopicPartition, int]) -> None:
        """Each partition has lost its records from the offset in `kept` on."""
        for grant in self.grants:
            for where, end in grant.ends.items():
                grant.ends[where] = min(end, kept[where])
        for follower in self.followers:
            for where, position in follower.positions.items():
                follower.positions[where] = min(position, kept[where])
                delivered = follower.delivered.setdefault(where, [])
                while delivered and delivered[-1].offset >= kept[where]:
                    lost = delivered.pop()
                    is_promised = lost.value.partition(":")[0] in self.attempts and not self.is_forgetful
                    if follower.read_committed and is_promised:
                        raise Violation("commit lost", f"{follower.name} had read {lost.value} before the power loss")
