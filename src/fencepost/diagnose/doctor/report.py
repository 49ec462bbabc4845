"""All checks over one snapshot, ranked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fencepost.diagnose.doctor.cluster import (
    diagnose_copies,
    diagnose_last_epoch,
    diagnose_max_timeout,
    diagnose_memory,
    diagnose_mixed_releases,
    diagnose_verification,
)
from fencepost.diagnose.doctor.findings import DoctorFinding, DoctorSnapshot, Severity, rank
from fencepost.diagnose.doctor.ids import diagnose_expiry, diagnose_names, diagnose_spread
from fencepost.diagnose.doctor.transactions import (
    MAX_AGE_MS,
    diagnose_duels,
    diagnose_groups,
    diagnose_hangs,
    diagnose_out_of_sight,
    diagnose_pending,
    diagnose_stalls,
    diagnose_timeouts,
    diagnose_undelivered,
    diagnose_unseen,
    open_count,
)
from fencepost.diagnose.words import listed

CHECKS: tuple[Callable[[DoctorSnapshot], list[DoctorFinding]], ...] = (
    diagnose_hangs,
    diagnose_unseen,
    diagnose_timeouts,
    diagnose_undelivered,
    diagnose_duels,
    diagnose_max_timeout,
    diagnose_copies,
    diagnose_memory,
    diagnose_verification,
    diagnose_names,
    diagnose_expiry,
    diagnose_spread,
    diagnose_last_epoch,
    diagnose_mixed_releases,
)
CHECKS_BY_AGE: tuple[Callable[[DoctorSnapshot, int], list[DoctorFinding]], ...] = (
    diagnose_stalls,
    diagnose_out_of_sight,
    diagnose_groups,
    diagnose_pending,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    now_ms: int
    cluster_id: str
    broker_count: int
    partition_count: int
    transactional_id_count: int
    open_count: int
    group_count: int
    # The worst first.
    findings: tuple[DoctorFinding, ...]
    problem_count: int
    risk_count: int
    problems: tuple[str, ...]


def diagnose_doctor(snapshot: DoctorSnapshot, max_age_ms: int = MAX_AGE_MS) -> DoctorReport:
    findings = [finding for check in CHECKS for finding in check(snapshot)]
    findings += [finding for check in CHECKS_BY_AGE for finding in check(snapshot, max_age_ms)]
    return DoctorReport(
        now_ms=snapshot.now_ms,
        cluster_id=snapshot.cluster_id,
        broker_count=snapshot.broker_count,
        partition_count=len(snapshot.lso.ends),
        transactional_id_count=len(snapshot.txns.listed),
        open_count=open_count(snapshot),
        group_count=snapshot.group_count,
        findings=tuple(sorted(findings, key=rank)),
        problem_count=sum(finding.severity is Severity.PROBLEM for finding in findings),
        risk_count=sum(finding.severity is Severity.RISK for finding in findings),
        problems=one_per_cause(snapshot.problems),
    )


def one_per_cause(problems: Sequence[str]) -> tuple[str, ...]:
    """One line for each cause: a broker that does not answer leaves several questions open."""
    questions: dict[str, dict[str, None]] = {}
    for problem in problems:
        question, _, cause = problem.partition(": ")
        questions.setdefault(cause or question, {})[question] = None
    return tuple(
        cause if cause in unanswered else f"{listed(unanswered)}: {cause}" for cause, unanswered in questions.items()
    )
