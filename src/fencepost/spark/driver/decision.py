"""Skip a micro-batch, run it, or refuse: decided from the commit note of the last transaction. Pure.

After a crash Spark runs micro-batch N again, unless its own commit log has it. The commit note says whether Kafka has
it:

    commit note                                    decision
    same query, an earlier micro-batch             run
    same query, this micro-batch, same digest      skip
    same query, this micro-batch, another digest   refuse
    same query, a later micro-batch                refuse
    another query                                  refuse, unless the user adopts that query by its id, and the
                                                   micro-batch starts where that query's group stands
    none                                           run a micro-batch that is younger than the retention minus one
                                                   hour (minus nothing if this run of the driver planned it), one of
                                                   this run where the retention is not known, and a micro-batch 0 of
                                                   unknown age; else refuse
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from fencepost.counting import counted
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.driver.commit_note import CommitNote, TokenNote, UnreadableNote

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
# Between drivers on two machines, the clock of one may be that far ahead.
CLOCKS_DIFFER_MS = HOUR_MS


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: str


class RunOrSkip(Enum):
    RUN = "run"
    SKIP = "skip"


RUN, SKIP = RunOrSkip.RUN, RunOrSkip.SKIP
Decision = RunOrSkip | Refuse


def decide(
    note: CommitNote | UnreadableNote | None,
    query_id: str,
    batch_id: int,
    digest: str,
    *,
    offsets_age_ms: int | None,
    retention_ms: int | None,
    is_new: bool = False,
    adopt: str | bool | None = None,
    run_batch: int | None = None,
    skip_batch: int | None = None,
) -> Decision:
    """What to do with a micro-batch that Spark wants to run.

    offsets_age_ms: the time since Spark planned the micro-batch, by `<checkpoint>/offsets`. None: not known.
    retention_ms: how long the brokers keep the offsets of a group without members. None: not known.
    is_new: Spark planned the micro-batch after this sink was created, and the id had no other owner since then.
    adopt: the id of the query whose work this query continues. True, which names none, adopts nothing.
    run_batch, skip_batch: the user's answer to an earlier refusal of this micro-batch. They decide only where the note
    does not: a committed micro-batch is skipped in any case.
    """
    if (refusal := refuse_another_query(note, query_id, adopt)) is not None:
        return refusal
    if isinstance(note, CommitNote) and note.query_id != query_id:
        return RUN
    decision = _by_note(note, batch_id, digest, offsets_age_ms, retention_ms, is_new)
    if isinstance(decision, Refuse) and run_batch == batch_id:
        return RUN
    if isinstance(decision, Refuse) and skip_batch == batch_id:
        return SKIP
    return decision


def decide_token(
    notes: Iterable[TokenNote | UnreadableNote], token: str, topic: str | None
) -> TokenNote | Refuse | None:
    """The note of a frame that was written with this token; None if there is none, and the frame is to be written."""
    for note in notes:
        if isinstance(note, UnreadableNote) or note.token != token:
            return Refuse(
                f"it is not known whether a frame was written with token {token!r}: Kafka holds {note!r} where its "
                "note should be\n\nhint: look into the output topics; then use another token to write the frame"
            )
        if note.topic != topic:
            return Refuse(
                f"token {token!r} was used to write to {note.topic or 'the topics of a column'}, and now for "
                f"{topic or 'the topics of a column'}\n\nhint: every frame needs a token of its own, such as "
                f"{token + '-' + (topic or 'all')!r}"
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


def refuse_another_query(
    note: CommitNote | UnreadableNote | None, query_id: str, adopt: str | bool | None
) -> Refuse | None:
    """The last transaction was of a query that is neither this one nor the one to adopt."""
    if not isinstance(note, CommitNote) or note.query_id in (query_id, adopt):
        return None
    # An answer that is left in the program must not fit the next checkpoint by accident, so it has to name the query.
    named = f" and adopt={adopt!r} names another one" if isinstance(adopt, str) else ""
    named = " and adopt=True does not say which query to adopt" if adopt is True else named
    return Refuse(
        f"the last transaction was micro-batch {note.batch_id} of query {note.query_id}, but this is query {query_id}"
        f"{named}: its checkpoint is new, or another query uses the same transactional.id"
        f'\n\nhint: restore the old checkpoint; or, if this query is to take over, set adopt="{note.query_id}" and '
        "start it where the source offsets of the old one ended, with a checkpoint that no run has used"
    )


def refuse_another_start(
    batch_id: int,
    group_id: str,
    start: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    run_batch: int | None = None,
) -> Refuse | None:
    """The first micro-batch of a query that adopts another one does not start where the adopted query ended.

    start: where the micro-batch starts in its Kafka sources. committed: the group's offsets, which moved with the
    outputs of the adopted query. A partition that only one of them has is left out: nothing can be told of it.
    """
    differing = sorted(place for place in start.keys() & committed.keys() if start[place] != committed[place])
    if not differing or run_batch == batch_id:
        return None
    topic, partition = differing[0]
    first = f"offset {start[topic, partition]} of partition {partition} of {topic}"
    others = f" (they differ in {counted(len(differing) - 1, 'more partition')})" if len(differing) > 1 else ""
    dangers = (
        "written twice" if any(start[place] < committed[place] for place in differing) else "",
        "left out" if any(start[place] > committed[place] for place in differing) else "",
    )
    return Refuse(
        f"micro-batch {batch_id} starts at {first}, but group {group_id} is at {committed[topic, partition]} there"
        f"{others}: the rows in between would be {' or '.join(filter(None, dangers))}. The group shows where the query "
        "to adopt ended; Spark takes startingOffsets only while there is no checkpoint"
        "\n\nhint: start with a checkpoint that no run has used and the sink's starting_offsets; or set "
        f"run_batch={batch_id} to write the micro-batch as it is"
    )


def _by_note(
    note: CommitNote | UnreadableNote | None,
    batch_id: int,
    digest: str,
    offsets_age_ms: int | None,
    retention_ms: int | None,
    is_new: bool,
) -> Decision:
    choice = (
        f"\n\nhint: look into the output topics; then set run_batch={batch_id} if this micro-batch is missing there, "
        f"or skip_batch={batch_id} if it is there"
    )
    if note is None:
        return _without_note(batch_id, offsets_age_ms, retention_ms, is_new, choice)
    if isinstance(note, UnreadableNote):
        return Refuse(
            f"it is not known whether micro-batch {batch_id} was committed: Kafka holds {note.text[:200]!r} where the "
            f"commit note of the last transaction should be. Another program commits to the same group, or a newer "
            f"version of this one{choice}"
        )
    if note.batch_id < batch_id:
        return RUN
    if note.batch_id == batch_id and note.digest == digest:
        return SKIP
    if note.batch_id == batch_id:
        return Refuse(
            f"micro-batch {batch_id} is committed with source offsets {note.digest}, but the checkpoint now has "
            f"{digest} for it: offsets/{batch_id} was deleted or changed, and the micro-batch no longer holds the "
            f"same rows. Running it may write rows twice, skipping it may lose rows{choice}"
        )
    return Refuse(
        f"Kafka has micro-batch {note.batch_id} of this query, but Spark runs micro-batch {batch_id}: the checkpoint "
        "was set back, by a restore or by deleted files. Running it would write rows twice\n\nhint: restore the newer "
        f"checkpoint; or set run_batch={batch_id} to write it and those after it again, or skip_batch={batch_id} "
        "to leave it out"
    )


def _without_note(
    batch_id: int, offsets_age_ms: int | None, retention_ms: int | None, is_new: bool, choice: str
) -> Decision:
    if batch_id == 0 and offsets_age_ms is None:
        return RUN
    unknown = (
        f"it is not known whether micro-batch {batch_id} was committed: Kafka holds no commit note of this pipeline"
    )
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
        return f"{max(ms, 0) // MINUTE_MS} minutes"
    return f"{ms / DAY_MS:.1f} days" if ms >= 2 * DAY_MS else f"{ms / HOUR_MS:.1f} hours"
