"""What `fencepost doctor` knows and what it says: the answers of a cluster; findings with severity and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from fencepost.client.admin.answers import NamedPartition
from fencepost.commands import Command
from fencepost.diagnose.snapshot import Ends, LogEntry, Look, TxnsSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTopic:
    """The topic `__transaction_state`, and the settings that decide how long its memory lasts; None: not shown."""

    partition_count: int
    replication_factor: int
    min_insync_replicas: int | None = None
    delete_retention_ms: int | None = None
    cleanup_policy: str | None = None
    unclean_leader_election: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSettings:
    """The settings of the brokers that bear on transactions; None: not shown."""

    max_timeout_ms: int | None = None
    abort_check_ms: int | None = None
    expiration_ms: int | None = None
    verifies_partitions: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLook:
    """The ends of the partitions whose transactions cannot be found out, some time after the first look."""

    after_ms: int
    ends: Mapping[NamedPartition, Ends]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSnapshot:
    now_ms: int
    cluster_id: str
    broker_count: int
    is_fencepost: bool
    lso: Look
    # None: every transaction that readers wait for is known.
    second_look: SecondLook | None = None
    txns: TxnsSnapshot
    # The records of `__transaction_state` of the last minutes, by transactional id, oldest first.
    recent: Mapping[str, tuple[LogEntry, ...]] = field(default_factory=dict)
    # None: the cluster has had no transaction yet.
    state_topic: StateTopic | None = None
    settings: DoctorSettings = field(default_factory=DoctorSettings)
    group_count: int = 0
    # The highest `metadata.version` that each broker supports; brokers that do not tell are left out.
    metadata_versions: tuple[int, ...] = ()
    # With TV2, every end of a transaction changes the epoch of its producer.
    ends_bump_epochs: bool = False
    problems: tuple[str, ...] = ()


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
