"""One row of the table of errors: its fields and the values that they take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Who(Enum):
    PROGRAM = "this program"
    OTHER = "another producer or group member"
    OPERATOR = "the settings or permissions of the cluster"
    CLUSTER = "the cluster: a leader or coordinator is moving, loading or failing"
    NETWORK = "the network, or a broker that stopped"


class Then(Enum):
    """What a transactional program does after the error."""

    NOTHING = "nothing: this is not a failure"
    RETRY = "retry: clients do this by themselves, until their timeout"
    ABORT = "abort the transaction and begin a new one with the same producer"
    CLOSE = "close this producer; to continue, create a new one, which registers again"
    EXIT = "end the process: its successor may be at work, and a new producer in this process would fence it in turn"
    FIX = "fix the cause first: a retry gives the same error"


class Effect(Enum):
    """Whether the request may have taken effect although the answer is an error."""

    DONE = "the request took effect"
    NONE = "definite: the request had no effect"
    UNKNOWN = "not definite: the request may have taken effect, or may do so later"


PROGRAM, OTHER, OPERATOR, CLUSTER, NETWORK = Who
NOTHING, RETRY, ABORT, CLOSE, EXIT, FIX = Then
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
