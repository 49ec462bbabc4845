"""What the clients did and were told, kept outside the broker: all that the checker believes.

A client opens an `Attempt` for each transaction, notes what it sends before it sends it, and how it ended in the
broker's words. Every record's value is unique and begins with the key of its attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

TopicPartition = tuple[str, int]

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
    sent: dict[str, TopicPartition] = field(default_factory=dict)  # Every value, and where it went.
    offsets: dict[TopicPartition, int] = field(default_factory=dict)  # Of the group, in the same transaction.
    asked_to_commit: bool = False  # From here on nobody but the broker knows.
    was_doubted: bool = False  # A request to commit was sent whose answer never came.
    told: str = ""  # "committed", "aborted" or "refused": the last word of the broker.

    @property
    def must_be_there(self) -> bool:
        return self.told == "committed"

    @property
    def may_be_there(self) -> bool:
        return self.must_be_there or (self.asked_to_commit and (self.told == "" or self.was_doubted))


@dataclass(slots=True)
class Grant:
    """From `ends` on, no partition may have a record of this producer with an earlier epoch."""

    producer_id: int
    epoch: int
    ends: dict[TopicPartition, int]


@dataclass(slots=True)
class Follower:
    """A reader that goes through partitions, and all it ever delivered."""

    name: str
    read_committed: bool
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    delivered: dict[TopicPartition, list[Read]] = field(default_factory=dict)


class History:
    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.grants: list[Grant] = []
        self.followers: list[Follower] = []
        # Power was lost without a sync before: then a broker promises little.
        self.is_forgetful = False
        self.plain: dict[TopicPartition, list[str]] = {}  # Acknowledged records without a transaction, in order.
        self._id_of: dict[int, str] = {}  # Producer id -> whose it is.
        self._owner_of: dict[tuple[int, int], str] = {}  # Producer id and epoch -> which client instance.

    def begin(self, key: str) -> Attempt:
        attempt = self.attempts[key] = Attempt(key)
        return attempt

    def note_grant(
        self, whose: str, instance: str, producer_id: int, epoch: int, ends: dict[TopicPartition, int]
    ) -> None:
        """The broker says that a client has this producer id and epoch now."""
        known = self._id_of.setdefault(producer_id, whose)
        if known != whose:
            raise Violation("producer id reused", f"{producer_id} is given to {whose}, and was given to {known} before")
        owner = self._owner_of.setdefault((producer_id, epoch), instance)
        if owner != instance and not self.is_forgetful:
            raise Violation(
                "epoch reused", f"producer {producer_id} epoch {epoch} is given to {instance}, and was given to {owner}"
            )
        self.grants.append(Grant(producer_id, epoch, ends))

    def note_offset(self, group: str, where: TopicPartition, offset: int) -> None:
        """The broker says that this is the group's offset: then somebody must have asked to commit it."""
        if offset < 0:
            return
        for attempt in self.attempts.values():
            if attempt.offsets.get(where) == offset and attempt.may_be_there:
                return
        if not self.is_forgetful:
            raise Violation("pending offset read", f"{group} is at {offset} of {where}, which nobody committed")

    def power_was_lost(self, kept: dict[TopicPartition, int]) -> None:
        """Of each partition, what came before `kept` is as it was before; what came after is gone."""
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
                        raise Violation("commit lost", f"{follower.name} had read {lost.value}, and power was lost")
