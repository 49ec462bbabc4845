"""Transactional ids: names that make fencing useless, ids that expire, and ids that crowd on few coordinators."""

from __future__ import annotations

import re
from collections import Counter

from fencepost.commands import command
from fencepost.counting import counted
from fencepost.diagnose.doctor.findings import DoctorFinding, DoctorSnapshot, Severity
from fencepost.diagnose.snapshot import TXN_TOPIC
from fencepost.diagnose.words import duration, listed
from fencepost.machines.txn.records import partition_for

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# Kafka Streams names its ids APPLICATION-UUID-NUMBER, and keeps the UUID on disk: they are meant to look so.
_STREAMS = re.compile(rf".+-{_UUID}-\d+", re.IGNORECASE)
# A UUID, with or without hyphens, or as many hexadecimal digits; they count only if both digits and letters are there.
_RANDOM = re.compile(
    rf"{_UUID}|(?<![0-9a-f])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{{16,}}(?![0-9a-f])", re.IGNORECASE
)
# The name of a Docker container: 12 hexadecimal digits. Fewer digits or letters may be a number or a word.
_CONTAINER = re.compile(r"(?<![0-9a-z])(?=(?:[a-f]*\d){2})(?=(?:\d*[a-f]){2})[0-9a-f]{12}(?![0-9a-z])")
# A ULID of this century begins with 01; a number of as many digits is none.
_ULID = re.compile(r"(?<![0-9a-z])(?=\d*[a-z])01[0-9a-hjkmnp-tv-z]{24}(?![0-9a-z])", re.IGNORECASE)
# The time in milliseconds, from 2014 to 2033.
_EPOCH_MS = re.compile(r"(?<![0-9a-z])1[4-9]\d{11}(?![0-9a-z])", re.IGNORECASE)
# The names that Kubernetes gives to the pods of a Deployment: two random parts of its own alphabet.
_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
_POD = re.compile(rf"(?:^|.*[-_.]){_SAFE}{{8,10}}-{_SAFE}{{5}}(?:[-_.]\d+)?")
MIN_IDS_TO_JUDGE_SPREAD = 100
NEAR_EXPIRY = 0.8
SHOWN_IDS = 3
GUIDE = "docs/guides/transactional-ids.md"


def looks_random(transactional_id: str) -> bool:
    """Whether an id has a part that another start of the process would not repeat."""
    is_new = any(kind.search(transactional_id) is not None for kind in (_RANDOM, _CONTAINER, _ULID, _EPOCH_MS))
    return is_new and _STREAMS.fullmatch(transactional_id) is None


def looks_like_a_pod(transactional_id: str) -> bool:
    """Whether an id has the name of a Kubernetes pod, which changes with every restart."""
    found = _POD.fullmatch(transactional_id)
    # Both random parts together nearly always have a digit; words of the same letters do not.
    return found is not None and any(char.isdigit() for char in transactional_id.rsplit("-", 2)[-2])


def diagnose_names(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    ids = sorted(txn.transactional_id for txn in snapshot.txns.listed)
    random = [id_ for id_ in ids if looks_random(id_)]
    pods = [id_ for id_ in ids if id_ not in set(random) and looks_like_a_pod(id_)]
    findings = []
    for check, found, kind in (
        ("random-ids", random, "look random"),
        ("pod-ids", pods, "look like the names of Kubernetes pods"),
    ):
        if found:
            shown = listed([f"`{id_}`" for id_ in found], SHOWN_IDS)
            findings.append(
                DoctorFinding(
                    check=check,
                    severity=Severity.RISK,
                    summary=f"{len(found)} of {counted(len(ids), 'transactional id')} {kind}: {shown}",
                    detail="A process that restarts under a new id does not fence its predecessor and does not abort "
                    f"what it left open: readers wait for the timeout. See {GUIDE}.",
                    command=command("txn", "list"),
                    transactional_ids=tuple(found),
                )
            )
    return findings


def diagnose_expiry(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    """Ids that were not used for so long that they are about to be forgotten."""
    expiration_ms = snapshot.settings.expiration_ms
    if not expiration_ms or snapshot.txns.updated_ms is None:
        return []
    left = {
        id_: expiration_ms - (snapshot.now_ms - updated_ms)
        for id_, updated_ms in snapshot.txns.updated_ms.items()
        if snapshot.now_ms - updated_ms >= NEAR_EXPIRY * expiration_ms
    }
    if not left:
        return []
    ids = sorted(left, key=lambda id_: (left[id_], id_))
    expires = "expires" if len(ids) == 1 else "expire"
    return [
        DoctorFinding(
            check="expiring-ids",
            severity=Severity.INFORMATION,
            summary=f"{counted(len(ids), 'transactional id')} {expires} soon, the first in {duration(left[ids[0]])}: "
            + listed([f"`{id_}`" for id_ in ids], SHOWN_IDS),
            detail=f"They were not used for nearly transactional.id.expiration.ms ({duration(expiration_ms)}). The "
            "cluster then forgets which of their producers were fenced.",
            command=command("txn", "list", "--idle", "1d"),
            transactional_ids=tuple(ids),
        )
    ]


def diagnose_spread(snapshot: DoctorSnapshot) -> list[DoctorFinding]:
    """Ids that crowd on few partitions of `__transaction_state`, so that few brokers do all the work."""
    topic, ids = snapshot.state_topic, [txn.transactional_id for txn in snapshot.txns.listed]
    if topic is None or topic.partition_count < 2 or len(ids) < MIN_IDS_TO_JUDGE_SPREAD:
        return []
    load = Counter(partition_for(id_, topic.partition_count) for id_ in ids)
    [(fullest, most)] = load.most_common(1)
    mean = len(ids) / topic.partition_count
    # Chance alone makes a partition a few standard deviations fuller than the mean.
    if most <= 3 * mean or most - mean <= 6 * mean**0.5 + 1:
        return []
    return [
        DoctorFinding(
            check="spread",
            severity=Severity.INFORMATION,
            summary=f"{most} of {len(ids)} transactional ids are on {TXN_TOPIC}-{fullest}",
            detail=f"An even spread would put {mean:.0f} on each of its {topic.partition_count} partitions. Java's "
            "string hash spreads ids badly that differ in few characters.",
            command=command("txn", "list"),
        )
    ]
