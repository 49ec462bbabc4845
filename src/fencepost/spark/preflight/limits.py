"""Judges the settings and versions of a cluster for a sink, and the state of its transactional.id. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.client.admin.answers import DescribedTxn
from fencepost.spark.driver.commit_note import CommitNote, UnreadableNote
from fencepost.spark.preflight.report import OK, PROBLEM, UNKNOWN, WARNING, Checked, from_message

DAY_MINUTES = 24 * 60
IN_USE = ("Ongoing", "PrepareCommit", "PrepareAbort")


def judge_versions(features: Mapping[str, int], unverified: str | None) -> Checked:
    """features: the finalized ones. unverified: why a late write could do harm; transaction.version 2 prevents it."""
    subject = "Kafka version"
    shown = {"transaction.version": 0, **features}
    text = ", ".join(f"{name} {shown[name]}" for name in ("metadata.version", "transaction.version") if name in shown)
    if features.get("transaction.version", 0) >= 2:
        return Checked(subject, OK, text)
    if unverified is not None:
        return from_message(subject, f"{text}; {unverified}")
    hint = "each micro-batch costs two requests less with transaction.version 2, which Apache Kafka 4.0 or later has"
    return Checked(subject, OK, text, hint)


def judge_timeout(timeout_ms: int, max_timeout_ms: int | None) -> Checked:
    subject = "transaction.timeout.ms"
    if max_timeout_ms is None:
        return Checked(subject, UNKNOWN, f"{timeout_ms}; the brokers do not show transaction.max.timeout.ms")
    if timeout_ms > max_timeout_ms:
        return Checked(
            subject,
            PROBLEM,
            f"{timeout_ms} is more than transaction.max.timeout.ms={max_timeout_ms} of the brokers",
            "lower the first, or raise the second on all brokers",
        )
    return Checked(subject, OK, f"{timeout_ms}, of at most {max_timeout_ms}")


def judge_record_batch(topic: str, max_record_batch_bytes: int, max_message_bytes: int | None) -> Checked:
    subject = f"record batches to {topic}"
    if max_message_bytes is None:
        return Checked(subject, UNKNOWN, f"{max_record_batch_bytes} bytes; the topic does not show max.message.bytes")
    if max_record_batch_bytes > max_message_bytes:
        return Checked(
            subject,
            WARNING,
            f"max.request.size={max_record_batch_bytes} is more than max.message.bytes={max_message_bytes} of the "
            "topic: larger record batches are refused, and sent again in halves",
            f"set max.request.size to {max_message_bytes} or less, or raise the topic's limit",
        )
    return Checked(subject, OK, f"{max_record_batch_bytes} bytes, of at most {max_message_bytes}")


def judge_retention(minutes: int | None, is_by_user: bool) -> Checked:
    """How long commit notes are kept."""
    subject = "offsets.retention.minutes"
    if minutes is None:
        return Checked(
            subject,
            WARNING,
            "the brokers do not show it, so a query that ends before its first commit cannot be started again",
            "set fencepost.offsets.retention.minutes, or allow DescribeConfigs on the cluster",
        )
    if minutes < DAY_MINUTES:
        return Checked(
            subject,
            WARNING,
            f"{minutes}: a pipeline that stands still for longer is refused at its next start",
            "raise it on the brokers: a week (10080) is Kafka's default",
        )
    return Checked(subject, OK, f"{minutes}" + (" (by fencepost.offsets.retention.minutes)" if is_by_user else ""))


def judge_id(
    transactional_id: str, txn: DescribedTxn | None, note: CommitNote | UnreadableNote | None, now_ms: int
) -> Checked:
    """Who has the id now, and what its last transaction was. `txn`: by its coordinator; None: it knows no such id."""
    subject = f"transactional.id {transactional_id}"
    last, hint = "; Kafka has no commit note of it", None
    if isinstance(note, CommitNote):
        last = f"; its last commit note is of micro-batch {note.batch_id} of query {note.query_id}"
        hint = f'a query with another checkpoint has to adopt that one: adopt="{note.query_id}"'
    elif note is not None:
        last = f"; Kafka has {note.text[:200]!r} where its commit note should be"
    if txn is None:
        return Checked(subject, OK, f"no producer has registered it{last}", hint)
    owner = f"producer {txn.producer_id}, epoch {txn.producer_epoch}"
    if txn.state in IN_USE:
        # An abort without a transaction has no start.
        since = f" for {max(now_ms - txn.start_ms, 0) // 1000} s" if txn.start_ms >= 0 else ""
        return Checked(
            subject,
            WARNING,
            f"{txn.state}{since}, {owner}, timeout {txn.timeout_ms // 1000} s: a pipeline with this id is running, or "
            f"has just died{last}",
            "if it is running, stop it, or give this pipeline another id: its start fences the other one",
        )
    if isinstance(note, UnreadableNote):
        hint = "another program commits to that group, or a newer version of fencepost: the sink refuses micro-batches"
        return Checked(subject, WARNING, f"{txn.state}, {owner}{last}", hint)
    return Checked(subject, OK, f"{txn.state}, {owner}, no open transaction{last}", hint)


def judge_random_id(transactional_id: str) -> Checked:
    return Checked(
        f"transactional.id {transactional_id}",
        WARNING,
        "it looks random: a restart with another id neither fences this pipeline nor finds its last micro-batch",
        "choose a name that this pipeline keeps over restarts",
    )
