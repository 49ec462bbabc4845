"""Decides whether the result is exactly once: compares the records that readers found with the settlements. Pure.

The start of the job and the micro-batch identify a commit; every row contains both numbers. Kafka writes the markers of
a commit one after another, so a reader may see a refund a moment before its audit row. The check requires only that
both belong to the same commit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fencepost.demo.refunds.settlements import Settlement
from fencepost.demo.report import Check
from fencepost.demo.topics import Offsets, Seen

EVIDENCE_LINES = 5

Commit = tuple[int, int]  # The numbers of the start of the job and of the micro-batch.


@dataclass(frozen=True, slots=True)
class Found:
    """The evidence for the verdict."""

    due: Mapping[str, Settlement]
    refunds_topic: str
    audit_topic: str
    # Records of a new reader at the end, and of the reader that ran throughout.
    final: Sequence[Seen]
    watched: Sequence[Seen]
    # The end offsets of the settlements, and the group's offsets. None: the sink commits no offsets.
    ends: Offsets
    committed: Offsets | None


@dataclass(frozen=True, slots=True)
class TopicCount:
    topic: str
    records: int
    missing: list[str]
    doubled: Counter[str]  # The number of additional copies.
    not_due: list[str]

    @property
    def duplicates(self) -> int:
        return self.doubled.total()


@dataclass(frozen=True, slots=True)
class Verdict:
    refunds: TopicCount
    audit: TopicCount
    commits: int
    refunds_without_audit: int
    checks: list[Check]

    @property
    def duplicates(self) -> int:
        return self.refunds.duplicates + self.audit.duplicates

    @property
    def is_exactly_once(self) -> bool:
        return all(check.holds for check in self.checks)

    def __str__(self) -> str:
        if self.is_exactly_once:
            return "exactly once: yes"
        missing = len(self.refunds.missing) + len(self.audit.missing)
        lost = f"{missing:,} rows missing, " if missing else ""
        return (
            f"exactly once: no ({lost}{self.duplicates:,} duplicates, "
            f"{self.refunds_without_audit:,} refunds without an audit row)"
        )


def judge(found: Found) -> Verdict:
    refunds = count(found.due, found.final, found.refunds_topic)
    audit = count(found.due, found.final, found.audit_topic)
    commits = commits_of(found.watched, found.refunds_topic)
    torn = {commit: alone for commit, (r, a) in commits.items() if (alone := r - a)}
    unpaid = {commit: alone for commit, (r, a) in commits.items() if (alone := a - r)}
    checks = [
        _every_settlement_has_one("refund", refunds, len(found.due)),
        _every_settlement_has_one("audit row", audit, len(found.due)),
        Check("rows without a committed settlement", [], _few(refunds.not_due + audit.not_due)),
        Check("wrong amounts", [], _few(wrong_amounts(found))),
        Check("differences seen by the reader that ran throughout", [], _few(differences(found))),
        Check(
            "commits in which every refund came with its audit row",
            len(commits),
            len(commits) - len(torn.keys() | unpaid.keys()),
            _few(_describe(torn, "refunds without their audit rows") + _describe(unpaid, "audit rows without refunds")),
        ),
    ]
    if found.committed is not None:
        due = [found.ends[where] for where in sorted(found.ends)]
        there = [found.committed.get(where, "none") for where in sorted(found.ends)]
        wrong = [
            f"{t}-{p}: the group's offset is {found.committed.get((t, p), 'none')}, the end offset is {end}"
            for (t, p), end in sorted(found.ends.items())
            if found.committed.get((t, p)) != end
        ]
        checks.append(Check("the group's offsets equal the end offsets of the settlements", due, there, wrong))
    return Verdict(refunds, audit, len(commits), sum(alone.total() for alone in torn.values()), checks)


def count(due: Mapping[str, Settlement], seen: Sequence[Seen], topic: str) -> TopicCount:
    keys = Counter(record.key for record in seen if record.topic == topic)
    once = Counter(dict.fromkeys(keys, 1))
    return TopicCount(
        topic, keys.total(), sorted(due.keys() - keys.keys()), keys - once, sorted(keys.keys() - due.keys())
    )


def commits_of(seen: Sequence[Seen], refunds_topic: str) -> dict[Commit, tuple[Counter[str], Counter[str]]]:
    """For each commit, the settlements of its refunds and of its audit rows."""
    commits: dict[Commit, tuple[Counter[str], Counter[str]]] = {}
    for record in seen:
        row = json.loads(record.value)
        refunds, audit = commits.setdefault((row["run"], row["batch"]), (Counter(), Counter()))
        (refunds if record.topic == refunds_topic else audit)[record.key] += 1
    return commits


def wrong_amounts(found: Found) -> list[str]:
    wrong = []
    for record in found.final:
        settlement = found.due.get(record.key)
        if settlement is None:
            continue
        paid = json.loads(record.value)["refund_cents"]
        right = settlement.amount_cents - settlement.fee_cents
        if paid != right:
            wrong.append(f"{record}: {right} cents were due")
    return wrong


def _every_settlement_has_one(what: str, counted: TopicCount, settlements: int) -> Check:
    wrong = [f"{key} has no {what}" for key in counted.missing]
    wrong += [f"{key} has {more + 1} {what}s" for key, more in sorted(counted.doubled.items())]
    once = settlements - len(counted.missing) - len(counted.doubled.keys() - set(counted.not_due))
    return Check(f"settlements with exactly one {what}", settlements, once, _few(wrong))


def differences(found: Found) -> list[str]:
    watched, final = Counter(found.watched), Counter(found.final)
    vanished = [f"received by this reader only: {record}" for record in sorted(watched - final)]
    return vanished + [f"not received by this reader: {record}" for record in sorted(final - watched)]


def _describe(alone: Mapping[Commit, Counter[str]], what: str) -> list[str]:
    return [
        f"run {run}, micro-batch {batch}: {keys.total():,} {what}, for example for {min(keys)}"
        for (run, batch), keys in sorted(alone.items())
    ]


def _few(lines: list[str]) -> list[str]:
    more = len(lines) - EVIDENCE_LINES
    return [*lines[:EVIDENCE_LINES], f"and {more:,} more"] if more > 0 else lines
