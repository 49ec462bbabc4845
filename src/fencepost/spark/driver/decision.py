"""Skip a micro-batch, run it, or refuse: decided from the commit note of the last transaction. Pure.

After a crash Spark runs micro-batch N again, unless its own commit log has it. The commit note says whether Kafka has
it:

    commit note                                    decision
    same query, an earlier micro-batch             run
    same query, this micro-batch, same digest      skip, unless Spark planned it anew, and its sources are not Kafka's
                                                   or the query has state
    same query, this micro-batch, another digest   refuse
    same query, a later micro-batch                refuse
    another query                                  see adoption.py
    none                                           run a micro-batch that is younger than the retention minus one
                                                   hour (minus nothing if this run of the driver planned it), one of
                                                   this run where the retention is not known, and a micro-batch 0 of
                                                   unknown age; else refuse. Refuse one of an earlier run that was
                                                   planned an hour from now or later

A micro-batch that would run under another transactional.id or in another cluster than the checkpoint remembers is
refused too, unless this run of the driver planned it: remembered.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import Enum

from fencepost.counting import counted
from fencepost.spark.checkpoint.offsets import MicroBatchOffsets
from fencepost.spark.driver.adoption import refuse_another_query, take_over_hint
from fencepost.spark.driver.commit_note import CommitNote, TokenNote, UnreadableNote
from fencepost.spark.failures import Refuse

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
# Between drivers on two machines, the clock of one may be that far ahead.
CLOCKS_DIFFER_MS = HOUR_MS


class RunOrSkip(Enum):
    RUN = "run"
    SKIP = "skip"


RUN, SKIP = RunOrSkip.RUN, RunOrSkip.SKIP
Decision = RunOrSkip | Refuse


def decide(
    note: CommitNote | UnreadableNote | None,
    query_id: str,
    batch_id: int,
    offsets: MicroBatchOffsets,
    *,
    now_ms: int,
    retention_ms: int | None,
    created_ms: int,
    was_planned_before: bool | None = None,
    is_stateful: bool = False,
    was_registered_anew: bool = False,
    moved: Refuse | None = None,
    adopt: str | bool | None = None,
    run_batch: int | None = None,
    skip_batch: int | None = None,
) -> Decision:
    """What to do with a micro-batch that Spark wants to run.

    offsets: of the micro-batch, by the checkpoint.
    retention_ms: how long the brokers keep the offsets of a group without members. None: not known.
    created_ms: when this sink was created. No earlier one has tried a micro-batch that Spark planned after that.
    was_planned_before: by an earlier run of the query. None: that is not known, and the clocks have to tell.
    is_stateful: the query keeps state, so its rows may depend on the time of the plan (timers, timeouts).
    was_registered_anew: the id may have had another owner since then.
    moved: the refusal of a micro-batch of an earlier run, if that wrote to another place. See `remembered.py`.
    adopt: the id of the query whose work this query continues. True, which names none, adopts nothing.
    run_batch, skip_batch: the user's answer to an earlier refusal of this micro-batch. They decide only where the note
    does not: a committed micro-batch is skipped in any case.
    """
    if (refusal := refuse_another_query(note, query_id, adopt, offsets)) is not None:
        return refusal
    planned_ms = offsets.timestamp_ms
    is_of_this_sink = planned_ms is not None and planned_ms >= created_ms
    is_of_this_run = is_of_this_sink if was_planned_before is None else not was_planned_before
    decision: Decision = RUN
    if not isinstance(note, CommitNote) or note.query_id == query_id:
        age_ms = None if planned_ms is None else now_ms - planned_ms
        if note is None:
            is_new = is_of_this_sink and not was_registered_anew
            if age_ms is not None and age_ms < -CLOCKS_DIFFER_MS and was_planned_before is not False:
                decision = _of_the_future(batch_id, -age_ms)
            else:
                decision = _without_note(batch_id, age_ms, retention_ms, is_new, _choice(batch_id))
        else:
            decision = _by_note(note, batch_id, offsets, is_of_this_run, is_stateful)
    if decision is RUN and moved is not None and not is_of_this_run:
        decision = moved
    if isinstance(decision, Refuse) and run_batch == batch_id:
        return RUN
    if isinstance(decision, Refuse) and skip_batch == batch_id:
        return SKIP
    return decision


def decide_token(notes: Iterable[TokenNote | UnreadableNote], now: TokenNote) -> TokenNote | Refuse | None:
    """The note of the frame that was written with this token. None: there is none, and the frame is to be written.

    Inside foreachBatch a token with a number in it names other rows after the checkpoint was lost or restored.
    """
    for note in notes:
        if isinstance(note, UnreadableNote) or note.token != now.token:
            return Refuse(
                f"it is not known whether a frame was written with token {now.token!r}: Kafka holds {note!r} where its "
                "note should be\n\nhint: look into the output topics; then use another token to write the frame"
            )
        if note.topic != now.topic:
            return Refuse(
                f"token {now.token!r} was used to write to {note.topic or 'the topics of a column'}, and now for "
                f"{now.topic or 'the topics of a column'}\n\nhint: every frame needs a token of its own, such as "
                f"{now.token + '-' + (now.topic or 'all')!r}"
            )
        if None not in (note.micro_batch, now.micro_batch) and note.micro_batch != now.micro_batch:
            return Refuse(
                f"token {now.token!r} was used in {note.micro_batch}, and now in {now.micro_batch}, whose rows may be "
                "others. Leaving them out may lose rows, writing them may write rows twice\n\nhint: look into the "
                "output topics; then use another token to write the frame. Give the rows of a query to the sink itself "
                "(foreachBatch(sink), or @sink.batch), which compares source offsets"
            )
        return note
    return None


def warn_of_token_retention(retention_ms: int | None) -> str | None:
    """Words for the log if brokers may forget a token within a day, or do not show when. None: there is no need."""
    if retention_ms is not None and retention_ms >= DAY_MS:
        return None
    later = "a job that is started again after that writes its frame again"
    if retention_ms is None:
        return (
            f"the brokers do not show offsets.retention.minutes, for which they keep the note about a token: {later}"
            "\n\nhint: set fencepost.offsets.retention.minutes, or allow DescribeConfigs on the cluster"
        )
    return (
        f"brokers keep the note about a token for {_duration(retention_ms)} (offsets.retention.minutes): {later}"
        "\n\nhint: raise it on the brokers: a week (10080) is Kafka's default"
    )


def _choice(batch_id: int) -> str:
    return (
        f"\n\nhint: look into the output topics; then set run_batch={batch_id} if this micro-batch is missing there, "
        f"or skip_batch={batch_id} if it is there"
    )


def _by_note(
    note: CommitNote | UnreadableNote,
    batch_id: int,
    offsets: MicroBatchOffsets,
    is_of_this_run: bool,
    is_stateful: bool,
) -> Decision:
    choice = _choice(batch_id)
    if isinstance(note, UnreadableNote):
        return Refuse(
            f"it is not known whether micro-batch {batch_id} was committed: Kafka holds {note.text[:200]!r} where the "
            f"commit note of the last transaction should be. Another program commits to the same group, or a newer "
            f"version of this one{choice}"
        )
    if note.batch_id < batch_id:
        return RUN
    if note.batch_id > batch_id:
        return Refuse(
            f"Kafka has micro-batch {note.batch_id} of this query, but Spark runs micro-batch {batch_id}: the "
            "checkpoint was set back, by a restore or by deleted files. Running it may write rows twice, skipping it "
            f"may lose rows{_ways_out(note, batch_id, offsets)}"
        )
    if note.digest != offsets.digest:
        return Refuse(
            f"micro-batch {batch_id} is committed with source offsets {note.digest}, but the checkpoint now has "
            f"{offsets.digest} for it: offsets/{batch_id} was deleted or changed, and the micro-batch no longer holds "
            f"the same rows. Running it may write rows twice, skipping it may lose rows"
            f"{_ways_out(note, batch_id, offsets)}"
        )
    was_planned_anew = is_of_this_run if note.planned_ms is None else note.planned_ms != offsets.timestamp_ms
    if was_planned_anew and (is_stateful or not offsets.identify_rows):
        why = (
            "they only count what comes, so the rows may be others: those that are in Kafka, and more that are not"
            if not offsets.identify_rows
            else "the query has state, so the rows may be others: timers and timeouts depend on the time of the plan"
        )
        return Refuse(
            f"micro-batch {batch_id} is committed as Spark planned it {_time(note.planned_ms)}, but Spark planned it "
            f"anew {_time(offsets.timestamp_ms)}: the checkpoint was set back, by a restore or by a deleted "
            f"offsets/{batch_id}. Its source offsets are the same, but {why}. Running it may write rows twice, "
            f"skipping it may lose rows{_ways_out(note, batch_id, offsets)}"
        )
    return SKIP


def _ways_out(note: CommitNote, batch_id: int, offsets: MicroBatchOffsets) -> str:
    """Of a checkpoint that was set back, so that no micro-batch of it is as it is in Kafka. The best first."""
    return (
        "\n\nhint: restore the newest checkpoint; or, if the query has no state, let a new one take over: "
        f"{take_over_hint(note, offsets)}; or set run_batch={batch_id} to write the micro-batch as it is, or "
        f"skip_batch={batch_id} to leave it out"
    )


def _time(ms: int | None) -> str:
    return (
        "at a time that its note does not say"
        if ms is None
        else f"at {datetime.fromtimestamp(ms / 1000, UTC):%F %T} UTC"
    )


def _unknown(batch_id: int) -> str:
    return f"it is not known whether micro-batch {batch_id} was committed: Kafka holds no commit note of this pipeline"


def _of_the_future(batch_id: int, ahead_ms: int) -> Refuse:
    return Refuse(
        f"{_unknown(batch_id)}. By the clock of this machine it was planned {_duration(ahead_ms)} from now: this clock "
        "is wrong, or that of an earlier driver was, so the note may have expired" + _choice(batch_id)
    )


def _without_note(
    batch_id: int, offsets_age_ms: int | None, retention_ms: int | None, is_new: bool, choice: str
) -> Decision:
    if batch_id == 0 and offsets_age_ms is None:
        return RUN
    unknown = _unknown(batch_id)
    if offsets_age_ms is None:
        return Refuse(f"{unknown}, and the checkpoint does not say when the micro-batch was planned{choice}")
    if retention_ms is None and is_new:
        return RUN
    if retention_ms is None:
        return Refuse(
            f"{unknown}. It may have expired: the micro-batch was planned {_duration(offsets_age_ms)} ago, and the "
            f"brokers do not show offsets.retention.minutes{choice}; or set fencepost.offsets.retention.minutes to the "
            "value of the brokers, or allow the sink to DescribeConfigs on the cluster"
        )
    # This run of the driver planned the micro-batch, so its age is by one clock.
    differing_ms = 0 if is_new else CLOCKS_DIFFER_MS
    if offsets_age_ms < retention_ms - differing_ms:
        return RUN
    expired = "would have expired" if offsets_age_ms >= retention_ms else "may have expired, because clocks may differ"
    return Refuse(
        f"{unknown}, and the micro-batch was planned {_duration(offsets_age_ms)} ago, while the broker keeps offsets "
        f"for {_duration(retention_ms)} (offsets.retention.minutes): a note {expired}{choice}"
    )


def known_retention_ms(minutes: Iterable[str | None], by_user_ms: int | None) -> int | None:
    """How long every broker keeps offsets, by what each of them says and by the user. None: not known."""
    told = list(minutes)
    if not told or not all(told):
        return by_user_ms
    shortest_ms = min(int(one or 0) for one in told) * MINUTE_MS
    return shortest_ms if by_user_ms is None else min(shortest_ms, by_user_ms)


def _duration(ms: int) -> str:
    if ms < 2 * HOUR_MS:
        return counted(max(ms, 0) // MINUTE_MS, "minute")
    return f"{ms / DAY_MS:.1f} days" if ms >= 2 * DAY_MS else f"{ms / HOUR_MS:.1f} hours"
