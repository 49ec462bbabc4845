"""Settings of the cluster with which fencing does not last or readers may wait for hours, and bugs of its release.

A broker does not tell its release, but the highest `metadata.version` that it supports, which belongs to one: `4.2`,
and not whether it is 4.2.0 or 4.2.1. KAFKA-19999, which refuses a marker that is sent again, is in no release: 4.1.1
does not have the check that refuses it, and 4.2.0 has the fix.
"""

from __future__ import annotations

from fencepost.commands import alter_config, command
from fencepost.diagnose.doctor.findings import DoctorFinding, DoctorSnapshot, Severity
from fencepost.diagnose.snapshot import TXN_TOPIC
from fencepost.diagnose.words import duration, listed

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LONGEST_TIMEOUT_MS = HOUR_MS
# The default of `transaction.timeout.ms` in clients.
USUAL_TIMEOUT_MS = 60_000
SAFE_REPLICATION = 3
SAFE_MIN_ISR = 2
DESCRIBE = command("topic", "describe", TXN_TOPIC, "--all-settings")
ALL_BROKERS = ("--entity-type", "brokers", "--entity-default")
STATE_TOPIC = ("--entity-type", "topics", "--entity-name", TXN_TOPIC)
RESTART = "Brokers read it when they start."


def diagnose_max_timeout(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    limit_ms = snapshot.settings.max_timeout_ms
    if limit_ms is None or USUAL_TIMEOUT_MS <= limit_ms <= LONGEST_TIMEOUT_MS:
        return []
    if limit_ms > LONGEST_TIMEOUT_MS:
        summary = f"transaction.max.timeout.ms is {duration(limit_ms)}"
        detail = (
            "A producer may ask for that much and die: readers of its partitions then wait that long. Lower it to what "
            f"the slowest transaction needs. {RESTART}"
        )
    else:
        summary = f"transaction.max.timeout.ms is {duration(limit_ms)}, less than the default timeout of clients"
        detail = (
            f"Producers that leave transaction.timeout.ms at {duration(USUAL_TIMEOUT_MS)} are refused with "
            f"INVALID_TRANSACTION_TIMEOUT. {RESTART}"
        )
    # The command shows how much of its timeout each transaction needs.
    needed = command("txn", "list", "--state", "Ongoing")
    return [DoctorFinding(check="max-timeout", severity=Severity.RISK, summary=summary, detail=detail, command=needed)]


def diagnose_copies(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    """Too few copies of `__transaction_state`; as information where the cluster cannot have more."""
    topic = snapshot.state_topic
    if topic is None:
        return []
    if snapshot.broker_count < SAFE_REPLICATION:
        if snapshot.is_fencepost:
            why = "A Fencepost broker keeps one copy of everything."
        else:
            why = f"The cluster has {snapshot.broker_count} broker{'s' if snapshot.broker_count > 1 else ''}."
        return [
            DoctorFinding(
                check="replication",
                severity=Severity.INFORMATION,
                summary=f"{TXN_TOPIC} has {topic.replication_factor} copy"
                if topic.replication_factor == 1
                else f"{TXN_TOPIC} has {topic.replication_factor} copies",
                detail=f"{why} If its disk is lost, so are decisions and fencing.",
            )
        ]
    copies, brokers = topic.replication_factor, snapshot.broker_count
    if copies < SAFE_REPLICATION:
        return [
            DoctorFinding(
                check="replication",
                severity=Severity.RISK,
                summary=f"{TXN_TOPIC} has replication factor {copies} on a cluster of {brokers} brokers",
                detail="Losing a broker stops or forgets transactions. Three copies are usual: add some with "
                "kafka-reassign-partitions.",
                command=DESCRIBE,
            )
        ]
    # Not before there are three copies: two that have to be in sync would not survive the loss of a broker, and before
    # Kafka 3.7 a single copy would refuse every write.
    if topic.min_insync_replicas is not None and topic.min_insync_replicas < SAFE_MIN_ISR:
        return [
            DoctorFinding(
                check="min-isr",
                severity=Severity.RISK,
                summary=f"{TXN_TOPIC} has min.insync.replicas={topic.min_insync_replicas}",
                detail="A commit may be acknowledged by one broker alone, and lost with it. Two are usual.",
                command=alter_config(STATE_TOPIC, f"min.insync.replicas={SAFE_MIN_ISR}"),
            )
        ]
    return []


def diagnose_memory(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    """Settings with which the cluster forgets transactional ids, and with them which producers are fenced."""
    findings = []
    topic, expiration_ms = snapshot.state_topic, snapshot.settings.expiration_ms
    if topic is not None and topic.delete_retention_ms is not None and topic.delete_retention_ms < HOUR_MS:
        findings.append(
            DoctorFinding(
                check="delete-retention",
                severity=Severity.RISK,
                summary=f"{TXN_TOPIC} keeps tombstones for {duration(topic.delete_retention_ms)} (delete.retention.ms)",
                detail="A broker that was away for longer may miss that an id has expired, and bring it back with an "
                "old epoch.",
                command=alter_config(STATE_TOPIC, f"delete.retention.ms={DAY_MS}"),
            )
        )
    if topic is not None and topic.cleanup_policy is not None and topic.cleanup_policy != "compact":
        findings.append(
            DoctorFinding(
                check="cleanup-policy",
                severity=Severity.PROBLEM,
                summary=f"{TXN_TOPIC} has cleanup.policy={topic.cleanup_policy}, not compact",
                detail="Records of ids are deleted by age: open transactions and fencing are forgotten.",
                command=alter_config(STATE_TOPIC, "cleanup.policy=compact"),
            )
        )
    if topic is not None and topic.unclean_leader_election:
        findings.append(
            DoctorFinding(
                check="unclean-election",
                severity=Severity.RISK,
                summary=f"{TXN_TOPIC} has unclean.leader.election.enable=true",
                detail="A broker that missed decisions may become the coordinator: commits can be lost.",
                command=alter_config(STATE_TOPIC, "unclean.leader.election.enable=false"),
            )
        )
    if expiration_ms is not None and expiration_ms < DAY_MS:
        findings.append(
            DoctorFinding(
                check="expiration",
                severity=Severity.RISK,
                summary=f"transactional.id.expiration.ms is {duration(expiration_ms)}",
                detail="An id that is not used for so long is forgotten, and with it which producers were fenced. "
                f"Seven days are usual. {RESTART}",
                command=command("txn", "list", "--idle", "1m"),
            )
        )
    return findings


def diagnose_verification(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    if snapshot.settings.verifies_partitions is not False:
        return []
    return [
        DoctorFinding(
            check="verification",
            severity=Severity.RISK,
            summary="transaction.partition.verification.enable is false",
            detail="A late write of an older client may open a transaction that no coordinator knows, and hang for "
            "ever (KIP-890)." + (f" {RESTART}" if snapshot.is_fencepost else ""),
            command=command("txn", "hanging")
            if snapshot.is_fencepost
            else alter_config(ALL_BROKERS, "transaction.partition.verification.enable=true"),
        )
    ]


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
