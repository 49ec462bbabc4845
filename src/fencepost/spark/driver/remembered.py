"""The file `fencepost` of a checkpoint: what the next run has to know of this one, and Kafka cannot tell it. Pure.

The transactional.id and the cluster that the query writes to: commit notes are found by both, so they cannot tell that
one of them has changed. A run that starts after a crash with another transactional.id does not fence the interrupted
run, nor does it find out what that run committed. A function that calls several sinks writes to several places.

The micro-batch that failed last: Spark takes it for written if the user's function catches the exception.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fencepost.commands import command, for_cluster
from fencepost.spark.checkpoint.offsets import BadCheckpoint
from fencepost.spark.driver.commit_note import CommitNote, UnreadableNote
from fencepost.spark.failures import Refuse

FILE = "fencepost"
VERSION = 1


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """Where a sink writes."""

    transactional_id: str
    cluster_id: str


@dataclass(frozen=True, slots=True)
class Use:
    """Of a place, by the last run that began a transaction there."""

    run_id: str
    is_ended: bool = False  # Nothing of the last micro-batch is committed there, and no transaction is open.


@dataclass(frozen=True, slots=True)
class Remembered:
    used: Mapping[OutputPlace, Use] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)  # By transactional.id, the first micro-batch that failed.

    def failed_for(self, transactional_id: str) -> int | None:
        """The failure that a sink has to mind: its own, or of an id that has written nothing, and may have been its."""
        return min((self.failed[id_] for id_ in self.failed.keys() - self._others(transactional_id)), default=None)

    def begin(self, place: OutputPlace, run_id: str) -> Remembered:
        """Before the first transaction of a run in this place. What failed before has been considered.

        A place that is new replaces those that this run has not used: the id was changed, or the cluster.
        """
        kept = {p: use for p, use in self.used.items() if place in self.used or use.run_id == run_id}
        return Remembered({**kept, place: Use(run_id)}, self.failed).succeed(place.transactional_id)

    def succeed(self, transactional_id: str) -> Remembered:
        others = self._others(transactional_id)
        return Remembered(self.used, {id_: batch_id for id_, batch_id in self.failed.items() if id_ in others})

    def fail(self, transactional_id: str, batch_id: int) -> Remembered:
        """The first one counts: a later one may be the refusal to go on without it."""
        first = min(batch_id, self.failed.get(transactional_id, batch_id))
        return Remembered(self.used, {**self.failed, transactional_id: first})

    def end(self, place: OutputPlace) -> Remembered:
        ended = {place: Use(self.used[place].run_id, is_ended=True)} if place in self.used else {}
        return Remembered({**self.used, **ended}, self.failed)

    def _others(self, transactional_id: str) -> set[str]:
        """The ids of the query's other sinks. A new id may be that of another sink, or replace any of them."""
        used = {place.transactional_id for place in self.used}
        return used - {transactional_id} if transactional_id in used else set()


def encode_remembered(remembered: Remembered) -> str:
    places = [
        {"transactional.id": p.transactional_id, "cluster": p.cluster_id, "run": use.run_id, "ended": use.is_ended}
        for p, use in remembered.used.items()
    ]
    return json.dumps({"fencepost": VERSION, "places": places, "failed": remembered.failed}, indent=1)


def decode_remembered(text: str) -> Remembered:
    """Raises BadCheckpoint: what the checkpoint remembers is not known, and must not be guessed."""
    try:
        document = json.loads(text)
        version, failed = document["fencepost"], dict(document["failed"])
        used = {
            OutputPlace(place["transactional.id"], place["cluster"]): Use(place["run"], place["ended"])
            for place in document["places"]
        }
    except (ValueError, LookupError, TypeError):
        version = None
    if (
        version == VERSION
        and all(
            isinstance(said, str) for p, use in used.items() for said in (p.transactional_id, p.cluster_id, use.run_id)
        )
        and all(isinstance(use.is_ended, bool) for use in used.values())
        and all(type(batch_id) is int for batch_id in failed.values())
    ):
        return Remembered(used, failed)
    raise BadCheckpoint(
        f"file {FILE} of the checkpoint: expected transactional.ids and clusters, found {text[:200]!r}\n\nhint: "
        "delete the file if neither has changed since the last run, and that run ended without an exception"
    )


def refuse_another_place(
    batch_id: int, used: Mapping[OutputPlace, Use], now: OutputPlace, *, was_set_back: bool = False
) -> Refuse | None:
    """For a micro-batch of an earlier run, which may have committed it elsewhere, or left its transaction open.

    was_set_back: the micro-batch is committed elsewhere, so the checkpoint does not remember the last run.
    """
    before = next((place for place, use in used.items() if was_set_back or not use.is_ended), None)
    if before is None or now in used:
        return None
    if before.transactional_id != now.transactional_id:
        setting, was, is_ = "transactional.id", before.transactional_id, now.transactional_id
    else:
        setting, was, is_ = "bootstrap.servers", f"cluster {before.cluster_id}", f"cluster {now.cluster_id}"
    fence = for_cluster(command("txn", "fence", about=before.transactional_id), ("--bootstrap", "HOST:PORT"))
    return Refuse(
        f"micro-batch {batch_id} was begun by an earlier run with {setting} {was}, but this run has {setting} {is_}: "
        "it is not known whether that run committed it, and readers may wait for its open transaction\n\nhint: set "
        f"{setting} back, and change it after a clean stop; or end that transaction with `{fence}` (of a broker of "
        f"cluster {before.cluster_id}), look into the output topics, and set run_batch={batch_id} if the micro-batch "
        f"is missing there, or skip_batch={batch_id} if it is there"
    )


def refuse_after_failure(
    batch_id: int,
    failed: int | None,
    note: CommitNote | UnreadableNote | None,
    query_id: str,
    checkpoint: str,
    skip_batch: int | None,
) -> Refuse | None:
    """A micro-batch after one that failed in an earlier run, and that Spark took for written.

    A later commit note shows that another driver has written the failed one.
    """
    if failed is None or batch_id <= failed or skip_batch == failed:
        return None
    if isinstance(note, CommitNote) and note.query_id == query_id and note.batch_id >= failed:
        return None
    return Refuse(
        f"micro-batch {batch_id} is not written, because micro-batch {failed} failed in an earlier run, and that run's "
        f"function caught the exception, so Spark took it for written{rewind_hint(failed, checkpoint)}. If another "
        f"program has written it since (Spark's own sink, or an older version of this one), or it is to be left out, "
        f"set skip_batch={failed}"
    )


def rewind_hint(failed: int, checkpoint: str) -> str:
    """How to make Spark run a micro-batch again that it takes for written."""
    return (
        "\n\nhint: let exceptions leave the function that you give to foreachBatch. To write micro-batch "
        f"{failed}: stop the query, delete the files {failed} and .{failed}.crc and those of later numbers in "
        f"{checkpoint}/commits, and {failed + 1} and .{failed + 1}.crc and those of later numbers in "
        f"{checkpoint}/offsets, and start it again"
    )
