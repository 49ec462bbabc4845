"""Bugs of Apache Kafka that leave transactions without an end, by the releases of the brokers.

A broker does not tell its release, but the highest `metadata.version` that it supports, which belongs to one: `4.2`,
and not whether it is 4.2.0 or 4.2.1.

KAFKA-19999, which refuses a marker that is sent again, is in no release: the check that refuses it is not in 4.1.1, and
4.2.0, where it is, has the fix.
"""

from __future__ import annotations

from fencepost.commands import command
from fencepost.diagnose.doctor.findings import DoctorFinding, Severity
from fencepost.diagnose.doctor.snapshot import DoctorSnapshot
from fencepost.diagnose.words import listed

Release = tuple[int, int]
# The highest level of each release that may have one of these bugs. Kafka: MetadataVersion.
LAST_LEVELS: tuple[tuple[int, Release], ...] = ((21, (3, 9)), (25, (4, 0)), (27, (4, 1)), (29, (4, 2)))
LAST_EPOCH = 32_767
# An id that commits ten transactions a second gets from here to the last epoch in a few minutes.
NEAR_LAST_EPOCH = 30_000


def release_of(metadata_version: int) -> Release | None:
    """The release whose brokers support this level at most; None: a newer one, without these bugs."""
    return next((release for last, release in LAST_LEVELS if metadata_version <= last), None)


def diagnose_last_epoch(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    """With TV2 every transaction takes an epoch; at the last one, some releases lose the end of a transaction."""
    affected = sorted({release for release in _releases(snapshot) if (4, 0) <= release <= (4, 2)})
    if not affected or not snapshot.ends_bump_epochs:
        return []
    epochs = {txn.transactional_id: txn.producer_epoch for txn in snapshot.txns.described.values()}
    near = sorted(id_ for id_, epoch in epochs.items() if epoch >= NEAR_LAST_EPOCH)
    return [
        DoctorFinding(
            check="last-epoch",
            severity=Severity.RISK if near else Severity.INFORMATION,
            summary=f"Apache Kafka {listed(map(_name, affected))} may leave a transaction open for ever at the last "
            "epoch of its producer (KAFKA-20090, KAFKA-20310)",
            detail="With transaction.version=2 every transaction takes an epoch. If one that has nearly the last "
            f"({LAST_EPOCH}) times out, or its coordinator fails over, it may stay Ongoing. Kafka 4.3 has the fixes. "
            + (f"Near it: {listed(f'`{id_}`' for id_ in near)}." if near else "No transactional id is near it."),
            command=command("txn", "list"),
            transactional_ids=tuple(near),
        )
    ]


def diagnose_mixed_releases(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    """A coordinator of 4.2.0 sends markers in a version that older brokers do not know."""
    releases = sorted(set(_releases(snapshot)))
    if (4, 2) not in releases or releases[0] == (4, 2):
        return []
    return [
        DoctorFinding(
            check="mixed-releases",
            severity=Severity.RISK,
            summary=f"brokers of Apache Kafka {listed(map(_name, releases))} are in one cluster (KAFKA-20322)",
            detail="A coordinator of 4.2.0 cannot write markers on brokers before 4.2, so that transactions stay in "
            "PrepareCommit or PrepareAbort. Kafka 4.2.1 has the fix, and the end of the upgrade ends the problem.",
            command=command("txn", "list", "--state", "PrepareCommit", "--state", "PrepareAbort"),
        )
    ]


def _releases(snapshot: DoctorSnapshot) -> list[Release]:
    if snapshot.is_fencepost:
        return []
    return [release for level in snapshot.metadata_versions if (release := release_of(level)) is not None]


def _name(release: Release) -> str:
    return "3.9 or older" if release == (3, 9) else ".".join(map(str, release))
