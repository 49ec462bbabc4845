"""The file `fencepost` of a checkpoint: what the next run has to know of this one, and Kafka cannot tell it. Pure.

The transactional.id and the cluster that the query writes to: commit notes are found by both, so they cannot tell that
one of them has changed. A run that starts after a crash with another transactional.id does not fence the interrupted
run, nor does it find out what that run committed.

The micro-batch that failed last: Spark takes it for written if the user's function catches the exception.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from fencepost.spark.checkpoint.offsets import BadCheckpoint
from fencepost.spark.driver.commit_note import CommitNote, UnreadableNote
from fencepost.spark.failures import Refuse

FILE = "fencepost"
VERSION = 1


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """Where a query writes."""

    transactional_id: str
    cluster_id: str


@dataclass(frozen=True, slots=True)
class Remembered:
    place: OutputPlace | None = None  # None: no run has written, or the last one ended all that it had begun.
    failed: int | None = None


def encode_remembered(remembered: Remembered) -> str:
    id_, cluster = (
        (remembered.place.transactional_id, remembered.place.cluster_id) if remembered.place else (None, None)
    )
    return json.dumps(
        {"fencepost": VERSION, "transactional.id": id_, "cluster": cluster, "failed": remembered.failed}, indent=1
    )


def decode_remembered(text: str) -> Remembered:
    """Raises BadCheckpoint: what the checkpoint remembers is not known, and must not be guessed."""
    try:
        document = json.loads(text)
        version, id_, cluster = document["fencepost"], document["transactional.id"], document["cluster"]
        failed = document["failed"]
    except (ValueError, LookupError, TypeError):
        version = None
    if version == VERSION and (failed is None or type(failed) is int):
        if isinstance(id_, str) and isinstance(cluster, str):
            return Remembered(OutputPlace(id_, cluster), failed)
        if id_ is None and cluster is None:
            return Remembered(None, failed)
    raise BadCheckpoint(
        f"file {FILE} of the checkpoint: expected a transactional.id and a cluster, found {text[:200]!r}\n\nhint: "
        "delete the file if neither has changed since the last run, and that run ended without an exception"
    )


def refuse_another_place(batch_id: int, before: OutputPlace | None, now: OutputPlace) -> Refuse | None:
    """For a micro-batch of an earlier run, which may have committed it, or left its transaction open."""
    if before is None or before == now:
        return None
    if before.transactional_id != now.transactional_id:
        setting, was, is_ = "transactional.id", before.transactional_id, now.transactional_id
    else:
        setting, was, is_ = "bootstrap.servers", f"cluster {before.cluster_id}", f"cluster {now.cluster_id}"
    return Refuse(
        f"micro-batch {batch_id} was begun by an earlier run with {setting} {was}, but this run has {setting} {is_}: "
        "it is not known whether that run committed it, and readers may wait for its open transaction\n\nhint: set "
        f"{setting} back, and change it after a clean stop; or end that transaction with `fencepost txn fence "
        f"{before.transactional_id}`, look into the output topics, and set run_batch={batch_id} if the micro-batch is "
        f"missing there, or skip_batch={batch_id} if it is there"
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
        f"function caught the exception, so Spark took it for written{rewind_hint(failed, checkpoint)}; or set "
        f"skip_batch={failed} to leave it out"
    )


def rewind_hint(failed: int, checkpoint: str) -> str:
    """How to make Spark run a micro-batch again that it takes for written."""
    return (
        "\n\nhint: let exceptions leave the function that you give to foreachBatch. To write micro-batch "
        f"{failed}: stop the query, delete the files {failed} and .{failed}.crc and those of later numbers in "
        f"{checkpoint}/commits, and {failed + 1} and .{failed + 1}.crc and those of later numbers in "
        f"{checkpoint}/offsets, and start it again"
    )
