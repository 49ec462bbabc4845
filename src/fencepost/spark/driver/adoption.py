"""A query that continues the work of another one, whose checkpoint was lost. Pure.

The user adopts the other query by its id. Then the first micro-batch has to start where the last transaction of the
other query ended, or the rows in between would be written twice, or left out. The commit note of that transaction has
the offsets. Three kinds of notes do not: those of versions that did not write them, those of micro-batches with too
many partitions, and those of queries whose sources are at different offsets of one partition. There the consumer group
tells, which moved in the same transaction, unless two sources read the same partition; or at least the digest.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fencepost.counting import counted
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.checkpoint.offsets import BatchStart, MicroBatchOffsets, nested
from fencepost.spark.driver.commit_note import CommitNote, UnreadableNote
from fencepost.spark.failures import Refuse

UNUSED = "with a checkpoint that no run has used"
ONLY_NEW_ROWS = (
    "only rows that are not in the output topics yet (of files: move those that were read to another folder)"
)
EARLIEST = -2  # In Spark's option `startingOffsets`.
BEGINNING = 0


@dataclass(frozen=True, slots=True)
class AdoptedEnd:
    """Where the adopted query ended."""

    query_id: str
    offsets: Mapping[TopicPartition, int]  # In its Kafka sources. Empty: only the digest is known.
    digest: str


def ended_by_note(note: CommitNote) -> AdoptedEnd:
    return AdoptedEnd(note.query_id, note.ends or {}, note.digest)


def refuse_another_query(
    note: CommitNote | UnreadableNote | None,
    query_id: str,
    adopt: str | bool | None,
    planned: MicroBatchOffsets | None = None,
) -> Refuse | None:
    """The last transaction was of a query that is neither this one nor the one to adopt.

    planned: a micro-batch of this query, if it is known.
    """
    if not isinstance(note, CommitNote) or note.query_id in (query_id, adopt):
        return None
    # An answer that is left in the program must not fit the next checkpoint by accident, so it has to name the query.
    named = f" and adopt={adopt!r} names another one" if isinstance(adopt, str) else ""
    named = " and adopt=True does not say which query to adopt" if adopt is True else named
    return Refuse(
        f"the last transaction was micro-batch {note.batch_id} of query {note.query_id}, but this is query {query_id}"
        f"{named}: its checkpoint is new, or another query uses the same transactional.id"
        f"\n\nhint: restore the old checkpoint; or, if this query is to take over, {take_over_hint(note, planned)}"
    )


def take_over_hint(note: CommitNote, planned: MicroBatchOffsets | None) -> str:
    """How a query with a new checkpoint continues where the query of the note ended.

    planned: a micro-batch of the query that is refused. It shows the kinds of the sources, and their partitions.
    """
    others = planned is not None and not planned.identify_rows
    adopt = f'set adopt="{note.query_id}"'
    if others and not note.ends:
        return f"{adopt} and start it {UNUSED} and {ONLY_NEW_ROWS}"
    start = _starting_offsets(note.ends, planned.consumed if planned is not None else ())
    rest = f", and with {ONLY_NEW_ROWS} in its other sources" if others else ""
    return f"{adopt} and start it where the source offsets of the old one ended, {UNUSED}{start}{rest}"


def refuse_another_start(
    batch_id: int, starts: list[BatchStart], others: list[str], ended: AdoptedEnd
) -> Refuse | None:
    """The micro-batch of a query that adopts another one does not start where that one ended, or that is not known.

    starts: of the micro-batch, and of the query itself: what came in between has left no note, so it wrote nothing.
    others: the sources that are not Kafka's, in Spark's words. Nothing tells where they start.
    A partition that is new since then has to be read from its beginning. A topic that only one of both reads is not
    compared.
    """
    answer = f"set run_batch={batch_id} to write the micro-batch as it is"
    known = [(start.offsets, right) for start in starts if (right := _right_start(start.offsets, ended.offsets))]
    fits = any(ended.digest in start.digests for start in starts)
    fits = fits or any(not _differing(offsets, right) for offsets, right in known)
    # Without a topic in common, it reads other topics than the adopted query.
    fits = fits or (not known and bool(ended.offsets) and any(start.offsets for start in starts))
    if fits and not others:
        return None
    places = {place for start in starts for place in start.offsets}
    startings = _starting_offsets(ended.offsets, places) if ended.offsets or not others else ""
    if others and (fits or not known):
        return Refuse(
            f"it is not known whether micro-batch {batch_id} starts where query {ended.query_id} ended, which this one "
            f"is to continue: only Kafka sources show that, and this query reads {', '.join(others)}. Rows that are in "
            f"the output topics would be written twice\n\nhint: start {UNUSED}{startings} and {ONLY_NEW_ROWS}, and "
            f"{answer}"
        )
    hint = f"start {UNUSED}{startings}; or {answer}"
    if not known:
        return Refuse(
            f"it is not known whether micro-batch {batch_id} starts where query {ended.query_id} ended, which this one "
            f"is to continue: the commit note of that query has no offsets that fit all sources, its digest "
            f"{ended.digest} is not that of this start, and there is no group with such offsets. Rows may be written "
            f"twice, or left out\n\nhint: look into the output topics, and {hint}"
        )
    start, right = known[0]
    differing = _differing(start, right)
    topic, partition = differing[0]
    did = f"ended at {right[topic, partition]}" if (topic, partition) in ended.offsets else "had read nothing"
    first = f"offset {start[topic, partition]} of partition {partition} of {topic}"
    more = f" (they differ in {counted(len(differing) - 1, 'more partition')})" if len(differing) > 1 else ""
    dangers = (
        "written twice" if any(start[place] < right[place] for place in differing) else "",
        "left out" if any(start[place] > right[place] for place in differing) else "",
    )
    return Refuse(
        f"micro-batch {batch_id} starts at {first}, but query {ended.query_id}, which this one is to continue, {did} "
        f"there{more}: the rows in between would be "
        f"{' or '.join(filter(None, dangers))}. Spark takes startingOffsets only while there is no checkpoint"
        f"\n\nhint: {hint}"
    )


def _right_start(start: Mapping[TopicPartition, int], ended: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Where the query should start, in the topics that both read."""
    topics = {topic for topic, _ in ended}
    return {place: ended.get(place, BEGINNING) for place in start if place[0] in topics}


def _differing(start: Mapping[TopicPartition, int], right: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return sorted(place for place, offset in right.items() if start[place] != offset)


def _starting_offsets(offsets: Mapping[TopicPartition, int] | None, places: Collection[TopicPartition]) -> str:
    """The option to type, wherever the offsets are known.

    places: the partitions that the query reads. Spark wants the offset of each, also of those that are new.
    """
    if not offsets:
        return " and, if the pipeline has a group.id, the sink's starting_offsets"
    is_same_source = {topic for topic, _ in places} & {topic for topic, _ in offsets}
    new = [place for place in places if place not in offsets] if is_same_source else []
    why = f" (-2: {counted(len(new), 'new partition')}, from the beginning)" if new else ""
    topics = nested({**dict.fromkeys(new, EARLIEST), **offsets})
    # Spark refuses a topic that the source does not read.
    which = "its Kafka source" if len(topics) == 1 else "its Kafka sources, each with the topics that it reads"
    return f" and .option(\"startingOffsets\", '{json.dumps(topics)}') for {which}{why}"
