"""The clients' own record of what they sent and what the broker answered, as a history of the verifier.

A client opens an `Attempt` for each transaction. It notes each record before it sends it, and the broker's answer to
the end of the transaction. Every record's value is unique. An event's time is its number: the simulation does one thing
at a time. What the verifier's checkers do not know of, the epochs that the broker gives out, is noted beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.verify.history import (
    Acked,
    Assign,
    Begin,
    Committed,
    End,
    Event,
    Poll,
    PowerLoss,
    Rest,
    Send,
    SendOffsets,
    TxnEnded,
    TxnOutcome,
)

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

    by: str
    txn: int
    sent: int = 0  # Records.


@dataclass(slots=True)
class Grant:
    """An epoch that the broker gave out. After the offsets in `ends`, earlier epochs of the producer may not write.

    `is_before_markers`: EndTxn gave it as soon as the outcome was decided, so a write of the ended transaction that was
    on its way may still arrive. Its marker, which carries the new epoch, comes after it.
    """

    producer_id: int
    epoch: int
    ends: dict[TopicPartition, int]
    is_before_markers: bool = False


@dataclass(slots=True)
class Follower:
    """A reader of some partitions, and its positions."""

    name: str
    read_committed: bool
    positions: dict[TopicPartition, int] = field(default_factory=dict)


class History:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.grants: list[Grant] = []
        self.followers: list[Follower] = []
        # Power was lost and commits are not synced, so the broker may have lost acknowledged records.
        self.is_forgetful = False
        self._id_of: dict[int, str] = {}  # Producer id -> transactional id, or the name of a client without one.
        self._owner_of: dict[tuple[int, int], str] = {}  # Producer id and epoch -> client instance.

    def note(self, kind: type[Any], by: str, *fields: Any) -> None:
        self.events.append(kind(len(self.events), by, *fields))

    # --- writers ----------------------------------------------------------------------------------------------

    def begin(self, by: str, txn: int) -> Attempt:
        self.note(Begin, by, txn)
        return Attempt(by, txn)

    def send(self, attempt: Attempt, where: TopicPartition, source: tuple[str, int, int] | None = None) -> str:
        """Note that a record is about to be sent; return its value."""
        value = f"{attempt.by}-{attempt.txn}:{attempt.sent}"
        attempt.sent += 1
        self.note(Send, attempt.by, attempt.txn, value, *where, source)
        return value

    def send_offsets(self, attempt: Attempt, group: str, offsets: dict[TopicPartition, int]) -> None:
        found = [(*where, offset) for where, offset in offsets.items()]
        self.note(SendOffsets, attempt.by, attempt.txn, group, found)

    def ask(self, attempt: Attempt, commit: bool) -> None:
        """The outcome is the broker's decision from here on."""
        self.note(End, attempt.by, attempt.txn, commit)

    def end(self, attempt: Attempt, outcome: TxnOutcome) -> None:
        self.note(TxnEnded, attempt.by, attempt.txn, outcome.value)

    def send_plain(self, by: str, value: str, where: TopicPartition) -> None:
        self.note(Send, by, None, value, *where)

    def acknowledge(self, by: str, value: str, where: TopicPartition) -> None:
        self.note(Acked, by, value, *where, -1)

    # --- readers ----------------------------------------------------------------------------------------------

    def follow(self, follower: Follower) -> None:
        self.followers.append(follower)
        for where, position in follower.positions.items():
            self.assign(follower.name, follower.read_committed, where, position)

    def assign(self, by: str, read_committed: bool, where: TopicPartition, position: int) -> None:
        self.note(Assign, by, "read_committed" if read_committed else "read_uncommitted", *where, position)

    def poll(self, by: str, where: TopicPartition, reads: list[Read], position: int) -> None:
        self.note(Poll, by, *where, reads, position)

    def rest(self) -> None:
        self.note(Rest, "world")

    # --- answers of the broker --------------------------------------------------------------------------------

    def note_grant(
        self,
        whose: str,
        instance: str,
        producer_id: int,
        epoch: int,
        ends: dict[TopicPartition, int],
        is_before_markers: bool = False,
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
        self.grants.append(Grant(producer_id, epoch, ends, is_before_markers))

    def note_offsets(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        """The broker answered with these offsets of the group."""
        found = [(*where, offset) for where, offset in offsets.items() if offset >= 0]
        self.note(Committed, "world", group, found)

    def power_was_lost(self, kept: dict[TopicPartition, int]) -> None:
        """Each partition has lost its records from the offset in `kept` on."""
        self.note(PowerLoss, "world")
        for grant in self.grants:
            for where, end in grant.ends.items():
                grant.ends[where] = min(end, kept[where])
        for follower in self.followers:
            for where, position in follower.positions.items():
                follower.positions[where] = min(position, kept[where])
                self.assign(follower.name, follower.read_committed, where, follower.positions[where])
