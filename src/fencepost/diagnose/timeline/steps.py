"""The values of a timeline: lanes, and steps that happen in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from fencepost.client.admin.answers import NamedPartition


class Look(Enum):
    """What kind of step it is, so that a drawing can give each kind a look of its own."""

    PLAIN = "a step of every transaction"
    OPEN = "readers wait for its end"
    COMMITTED = "a commit"
    ABORTED = "an abort by the client"
    TIMEOUT = "an abort by the coordinator after the timeout"
    TAKEOVER = "a new producer takes the id over and fences the one before"
    FENCED = "an operator fences the producer"
    LATE = "a request or a record of a producer whose transaction had ended"
    REFUSED = "a request that was refused"
    WAITING = "a request that is not answered yet"


class LaneKind(Enum):
    PRODUCER = "a producer"
    OPERATOR = "an operator"
    COORDINATOR = "the coordinator"
    PARTITION = "a partition"
    OFFSETS = "a partition of __consumer_offsets"
    READERS = "readers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    key: str
    kind: LaneKind
    title: str


class SourceKind(Enum):
    RECORD = "record"
    BATCH = "record batch"
    MARKER = "marker"
    REQUEST = "request"
    ENDS = "ends of a partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The record or request behind a step: its fields by their names."""

    kind: SourceKind
    title: str
    fields: Mapping[str, object]
    # Where it is in a log; None for a request.
    where: NamedPartition | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    # The same in every answer about the same step.
    key: str
    at_ms: int
    name: str
    look: Look
    # The lane in which it happens, and the lane of the sender, where an arrow begins.
    lane: str
    sender: str | None
    # The request that caused it, as far as the records show; the brokers may have forgotten the request itself.
    request: str | None
    # The state of the transactional id after the step; None if it stays.
    state: str | None
    producer_id: int | None
    producer_epoch: int | None
    sentence: str
    sources: tuple[Source, ...]
