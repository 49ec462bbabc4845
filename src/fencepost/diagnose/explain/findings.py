"""The parts of an explanation: causes, findings (each with a label), and actions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fencepost.commands import Command

HANGING, GROUPS = "hanging", "groups that wait"
WHAT_HAPPENED, WHY, LAST_ACTIVITY, READERS = "what happened", "why", "last activity", "readers"
WHAT_IS_NEXT, SIMILAR = "what happens next", "similar ids"
SUSPICION = "suspicion"


class Cause(Enum):
    """Why a transaction is as it is, for programs; the name in lower case is the code in JSON."""

    HANGING = "it is open on a partition and unknown to its coordinator, so that no timeout ends it"
    HANGING_NAMELESS = "what hangs in the cluster has no transactional id, and may be of an earlier producer of this id"
    DUEL = "producers register the id again and again: probably two processes share it"
    OPEN = "its producer has neither committed nor aborted it yet"
    OVERDUE = "its timeout has passed, and its coordinator has not aborted it"
    MARKERS_UNDER_WAY = "it is decided, and its coordinator writes the markers"
    MARKERS_MISSING = "it was decided long ago, and not all markers are written"
    COMMITTED = "its last transaction was committed"
    ABORTED = "its last transaction was aborted, and the log does not show why"
    ABORTED_BY_CLIENT = "its client aborted its last transaction"
    ABORTED_BY_TIMEOUT = "its coordinator aborted its last transaction after the timeout"
    ABORTED_BY_TAKEOVER = "its coordinator aborted its last transaction for a new producer with the same id"
    ABORTED_BY_ORDER = "an operator ended its last transaction and fenced its producer"
    ABORTED_BY_CLIENT_OR_TAKEOVER = "its client or a new producer ended its last transaction: the log does not tell"
    REGISTERED = "its producer has begun no transaction since it registered"
    FENCED_BY_ORDER = "an operator fenced its producer, which had no open transaction"
    EXPIRED = "the id was removed because it had expired"
    UNKNOWN_ID = "its coordinator does not know the id"


@dataclass(frozen=True, slots=True)
class Finding:
    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What to do and in which case; some actions are a command."""

    advice: str
    command: Command | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    findings: tuple[Finding, ...] = ()
    actions: tuple[Action, ...] = ()
    # The most serious first.
    causes: tuple[Cause, ...] = ()

    def __add__(self, other: Findings) -> Findings:
        return Findings(self.findings + other.findings, self.actions + other.actions, self.causes + other.causes)


NO_FINDINGS = Findings()
NOTHING_TO_DO = Action(advice="there is nothing to do")
