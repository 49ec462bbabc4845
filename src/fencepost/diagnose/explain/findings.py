"""What an explanation consists of: findings, each with a label, and actions."""

from __future__ import annotations

from dataclasses import dataclass

WHAT_HAPPENED, WHY, LAST_ACTIVITY, READERS = "what happened", "why", "last activity", "readers"
WHAT_IS_NEXT, SIMILAR = "what happens next", "similar ids"
SUSPICION = "suspicion"


@dataclass(frozen=True, slots=True)
class Finding:
    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What to do and in which case; some actions are a command."""

    advice: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    findings: tuple[Finding, ...] = ()
    actions: tuple[Action, ...] = ()

    def __add__(self, other: Findings) -> Findings:
        return Findings(self.findings + other.findings, self.actions + other.actions)


NOTHING_TO_DO = Action(advice="there is nothing to do")
