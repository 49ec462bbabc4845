"""Problems of transactions: they stall readers, hang, come close to their timeout, do not end, or fence each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.client.admin.answers import NamedPartition
from fencepost.commands import command
from fencepost.counting import counted
from fencepost.diagnose.doctor.findings import (
    GROUP_CANNOT_START,
    GROUP_WAITS,
    HANGING,
    DoctorFinding,
    DoctorSnapshot,
    Severity,
)
from fencepost.diagnose.hanging import HangingTxn, diagnose_hanging
from fencepost.diagnose.history import find_duel
from fencepost.diagnose.lso import AffectedPartition, LsoReport, Pin, diagnose_lso, home_of, total
from fencepost.diagnose.snapshot import is_decided, is_open, is_out_of_sight
from fencepost.diagnose.txns import age_of, share_of_timeout
from fencepost.diagnose.words import duration, listed, percent

MAX_AGE_MS = 60_000
NEAR_TIMEOUT = 0.8
# The coordinator looks for expired transactions at an interval; the default of Apache Kafka.
DEFAULT_ABORT_CHECK_MS = 10_000
# Markers take milliseconds; a broker that restarts takes longer.
MARKERS_LATE_MS = 30_000
# Most transactions are shorter. An older one may be of a producer that is gone, although it is no problem yet.
SHORT_MS = 1000


def name_of(pin: Pin) -> str:
    return f"`{pin.transactional_id}`" if pin.transactional_id is not None else f"producer {pin.producer_id}"


def diagnose_stalls(snapshot: DoctorSnapshot, max_age_ms: int = MAX_AGE_MS) -> list[DoctorFinding]:
    """Transactions that hold back readers and that a coordinator will end; a problem if they do so for too long."""
    report = diagnose_lso(snapshot.lso, max_age_ms)
    return [
        DoctorFinding(
            check="lso-stall",
            severity=Severity.PROBLEM if pin in report.late else Severity.RISK,
            summary=f"readers of {listed(pin.partitions)} wait for {name_of(pin)} for {duration(pin.age_ms or 0)}",
            detail=f"{counted(pin.waiting, 'offset')} behind its first record cannot be read with read_committed"
            + (f"; its timeout is {duration(pin.timeout_ms)}" if pin.timeout_ms is not None else "")
            + ".",
            command=command("txn", "explain", about=pin.transactional_id)
            if pin.transactional_id is not None
            else command("txn", "lso"),
            transactional_ids=(pin.transactional_id,) if pin.transactional_id is not None else (),
            partitions=pin.partitions,
            age_ms=pin.age_ms,
        )
        for pin in report.pins
        if not pin.is_orphan and (pin in report.late or (pin.age_ms or 0) >= SHORT_MS)
    ]


def diagnose_out_of_sight(snapshot: DoctorSnapshot, max_age_ms: int = MAX_AGE_MS) -> list[DoctorFinding]:
    """Open transactions on topics that this user may not see: no other check knows whether readers wait for them."""
    ages_ms = {
        txn.transactional_id: age_of(txn, snapshot.now_ms) or 0
        for txn in snapshot.txns.described.values()
        if is_out_of_sight(txn)
    }
    return [
        DoctorFinding(
            check="out-of-sight",
            severity=Severity.PROBLEM,
            summary=f"`{transactional_id}` is open for {duration(age_ms)}, on partitions that this user may not see",
            detail="Readers of these partitions may wait for it: DESCRIBE on their topics is missing.",
            command=command("txn", "explain", transactional_id),
            transactional_ids=(transactional_id,),
            age_ms=age_ms,
        )
        for transactional_id, age_ms in ages_ms.items()
        if age_ms > max_age_ms
    ]


def diagnose_unseen(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    """Partitions where readers wait for a transaction that cannot be found out, so that it may hang.

    Readers wait for a moment behind every transaction, so only a last stable offset that did not move is a problem.
    """
    lso, again = snapshot.lso, snapshot.second_look
    if again is None:
        return []
    return [
        DoctorFinding(
            check="unseen",
            severity=Severity.PROBLEM,
            summary=f"readers of {where} wait, and it is not known for which transaction",
            detail=f"{counted(lso.ends[where].gap, 'offset')} cannot be read with read_committed, and the last stable "
            f"offset has not moved for {duration(again.after_ms)}. "
            + (
                f"This user may not see the producers: READ on topic {where.topic} is missing."
                if where in lso.denied
                else "The leader of the partition did not say who writes there."
            ),
            command=command("txn", "producers", about=f"{where.topic}:{where.partition}"),
            partitions=(where,),
        )
        for where in lso.unseen
        if where in again.ends and again.ends[where].last_stable_offset == lso.ends[where].last_stable_offset
    ]


def diagnose_hangs(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    """Transactions that no coordinator will end."""
    return [
        DoctorFinding(
            check=HANGING,
            severity=Severity.PROBLEM,
            summary=f"a transaction of {_owner(h)} hangs on {h.where} since offset {h.start_offset}",
            detail=f"Readers wait for it for ever: {h.why}.",
            command=h.abort_command,
            transactional_ids=(h.transactional_id,) if h.transactional_id is not None else (),
            partitions=(h.where,),
            age_ms=h.age_ms,
        )
        for h in diagnose_hanging(snapshot.lso).hanging
    ]


def _owner(hanging: HangingTxn) -> str:
    producer = f"producer {hanging.producer_id}"
    return f"`{hanging.transactional_id}` ({producer})" if hanging.transactional_id is not None else producer


def diagnose_timeouts(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    """Transactions that have used up most of their timeout, or more than all of it."""
    findings = []
    patience_ms = 2 * (snapshot.settings.abort_check_ms or DEFAULT_ABORT_CHECK_MS)
    for txn in snapshot.txns.described.values():
        share, age_ms = share_of_timeout(txn, snapshot.now_ms), age_of(txn, snapshot.now_ms)
        if share is None or age_ms is None or share < NEAR_TIMEOUT or is_decided(txn.state):
            continue
        late_ms = age_ms - txn.timeout_ms
        is_late = late_ms > patience_ms
        findings.append(
            DoctorFinding(
                check="timeout",
                severity=Severity.PROBLEM if is_late else Severity.RISK,
                summary=f"`{txn.transactional_id}` outlived its timeout by {duration(late_ms)}"
                if is_late
                else f"`{txn.transactional_id}` has used {percent(min(share, 1))} of its timeout",
                detail="Its coordinator should have aborted it."
                if is_late
                else f"It is open for {duration(age_ms)}; after {duration(txn.timeout_ms)} it is aborted and "
                "its producer is fenced.",
                command=command("txn", "explain", about=txn.transactional_id),
                transactional_ids=(txn.transactional_id,),
                partitions=txn.partitions,
                age_ms=age_ms,
            )
        )
    return findings


def diagnose_undelivered(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    """Transactions that are decided, but whose markers are not written."""
    findings = []
    for txn in snapshot.txns.described.values():
        decided_ms = (snapshot.txns.updated_ms or {}).get(txn.transactional_id)
        if not is_decided(txn.state) or decided_ms is None:
            continue
        age_ms = snapshot.now_ms - decided_ms
        if age_ms > MARKERS_LATE_MS:
            findings.append(
                DoctorFinding(
                    check="markers",
                    severity=Severity.PROBLEM,
                    summary=f"`{txn.transactional_id}` waits for its markers for {duration(age_ms)} ({txn.state})",
                    detail=f"{listed(txn.partitions) or 'Its partitions'} cannot be reached by its coordinator: is a "
                    "broker down?",
                    command=command("txn", "explain", about=txn.transactional_id),
                    transactional_ids=(txn.transactional_id,),
                    partitions=txn.partitions,
                    age_ms=age_ms,
                )
            )
    return findings


def diagnose_duels(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    duels = {id_: find_duel(entries, snapshot.now_ms) for id_, entries in snapshot.recent.items()}
    return [
        DoctorFinding(
            check="duel",
            severity=Severity.PROBLEM,
            summary=f"{duel.registrations} producers registered `{transactional_id}` within "
            f"{duration(duel.last_ms - duel.first_ms)}",
            detail="Probably two processes share the id and fence each other, or one restarts again and again. "
            "Leave the id to one of them.",
            command=command("txn", "explain", about=transactional_id),
            transactional_ids=(transactional_id,),
            age_ms=snapshot.now_ms - duel.first_ms,
        )
        for transactional_id, duel in duels.items()
        if duel is not None
    ]


def diagnose_groups(snapshot: DoctorSnapshot, max_age_ms: int = MAX_AGE_MS) -> list[DoctorFinding]:
    """Consumer groups whose next records are behind a last stable offset that does not move."""
    report = diagnose_lso(snapshot.lso, max_age_ms)
    late = _late_partitions(snapshot, report)
    waiting = {group.group_id: [p for p in group.partitions if p.where in late] for group in report.groups}
    return [_group_waits(group_id, found, snapshot, late) for group_id, found in waiting.items() if found]


def _group_waits(
    group_id: str,
    waiting: Sequence[AffectedPartition],
    snapshot: DoctorSnapshot,
    late: Mapping[NamedPartition, int | None],
) -> DoctorFinding:
    places = tuple(p.where for p in waiting)
    hidden = sum(snapshot.lso.ends[where].gap for where in places)
    to_read = total(p.lag_to_lso for p in waiting)
    new = [p.where for p in waiting if p.committed_offset is None]
    return DoctorFinding(
        check=GROUP_WAITS,
        severity=Severity.PROBLEM,
        summary=f"group `{group_id}` waits behind the last stable offset of {listed(places)}",
        detail=f"If it reads with read_committed, it cannot see {counted(hidden, 'offset')}; {_progress(to_read)}."
        + (f" It has committed no offset on {listed(new)}." if new else ""),
        command=command("group", "describe", about=group_id),
        partitions=places,
        groups=(group_id,),
        age_ms=max((late[where] or 0 for where in places), default=None),
    )


def _progress(to_read: int | None) -> str:
    if to_read is None:
        return "how far it has read is not known"
    return f"it can still read {counted(to_read, 'offset')} before them" if to_read else "it has read all before them"


def diagnose_pending(snapshot: DoctorSnapshot, max_age_ms: int = MAX_AGE_MS) -> list[DoctorFinding]:
    """Consumer groups that cannot start, because their offsets are in a transaction that does not end."""
    report = diagnose_lso(snapshot.lso, max_age_ms)
    late = _late_partitions(snapshot, report)
    findings = []
    for group in report.groups:
        home = home_of(group.group_id, snapshot.lso.ends)
        pending = tuple(p.where for p in group.partitions if p.is_pending)
        if pending and home in late:
            findings.append(
                DoctorFinding(
                    check=GROUP_CANNOT_START,
                    severity=Severity.PROBLEM,
                    summary=f"group `{group.group_id}` has offsets of {listed(pending)} in a transaction on {home}",
                    detail="Until it ends, OffsetFetch is answered with UNSTABLE_OFFSET_COMMIT, and no new member of "
                    "the group can start.",
                    command=command("group", "describe", about=group.group_id),
                    partitions=pending,
                    groups=(group.group_id,),
                    age_ms=late[home],
                )
            )
    return findings


def _late_partitions(snapshot: DoctorSnapshot, report: LsoReport) -> dict[NamedPartition, int | None]:
    """The partitions where readers wait for too long, or for ever, with the age of what they wait for."""
    hanging = {found.where for found in diagnose_hanging(snapshot.lso).hanging}
    limit_ms = report.max_age_ms or 0
    rows = {NamedPartition(row.topic, row.partition): row.age_ms for row in report.partitions}
    return {where: age_ms for where, age_ms in rows.items() if where in hanging or (age_ms or 0) > limit_ms}


def open_count(snapshot: DoctorSnapshot) -> int:
    return sum(is_open(txn.state) for txn in snapshot.txns.listed)
