"""The findings of a check: severity, subject, and remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from fencepost.client.admin.answers import NamedPartition
from fencepost.commands import Command

HANGING, GROUP_WAITS, GROUP_CANNOT_START = "hanging", "group-waits", "group-cannot-start"


class Severity(IntEnum):
    """The lower, the worse."""

    PROBLEM = 0  # Something is wrong now.
    RISK = 1  # There is no problem yet, but the cluster will not survive a failure that it should survive.
    INFORMATION = 2  # Good to know; there may be nothing to improve.


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    # A stable name of the check, such as `lso-stall`.
    check: str
    severity: Severity
    summary: str
    detail: str
    # The command to run next; None if the remedy is no command.
    command: Command | None = None
    transactional_ids: tuple[str, ...] = ()
    partitions: tuple[NamedPartition, ...] = ()
    groups: tuple[str, ...] = ()
    # How long it has been so; None if that is not known, or has no meaning.
    age_ms: int | None = None


def rank(finding: DoctorFinding) -> tuple[int, int, int, str, str]:
    """The worst first. Among equals: hanging transactions, then other causes, then effects; the oldest first."""
    order = {HANGING: 0, GROUP_WAITS: 2, GROUP_CANNOT_START: 2}.get(finding.check, 1)
    return finding.severity, order, -(finding.age_ms or 0), finding.check, finding.summary
