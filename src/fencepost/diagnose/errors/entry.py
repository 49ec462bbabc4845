"""One row of the table of errors: its fields and the values that they take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Who(Enum):
    PROGRAM = "this program"
    OTHER = "another producer or group member"
    OPERATOR = "whoever runs the cluster: settings or permissions"
    CLUSTER = "the cluster: something moves, loads or is broken"
    NETWORK = "the network, or a broker that went away"


class Then(Enum):
    """What a transactional program does with it."""

    NOTHING = "nothing: all is well"
    RETRY = "try again: clients do so by themselves until their own timeout"
    ABORT = "abort the transaction and begin a new one with the same producer"
    CLOSE = "close this producer; where it is meant to live on, make a new one, which registers again"
    FIX = "mend what is wrong first: it will be the same the next time"


class Effect(Enum):
    """Whether the request may have done something although it was answered with an error."""

    DONE = "it was done"
    NONE = "definite: the request had no effect"
    UNKNOWN = "not definite: it may have been done, or be done later"


PROGRAM, OTHER, OPERATOR, CLUSTER, NETWORK = Who
NOTHING, RETRY, ABORT, CLOSE, FIX = Then
DONE, DEFINITE, UNKNOWN = Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEntry:
    code: int
    name: str
    meaning: str
    who: Who
    effect: Effect
    retriable: bool
    then: Then
    what_to_do: str
    apis: tuple[str, ...]
    # What Apache Kafka's Java client throws, and the family it belongs to (KIP-1050).
    java: str | None
    java_family: str | None
    librdkafka: str | None
