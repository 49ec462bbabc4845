"""The file `fencepost` of a checkpoint: under which transactional.id, and in which cluster, the query writes. Pure.

Commit notes are found by both, so they cannot tell that one of them has changed. A run that starts after a crash with
another transactional.id does not fence the interrupted run, nor does it find out what that run committed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from fencepost.spark.checkpoint.offsets import BadCheckpoint
from fencepost.spark.failures import Refuse

FILE = "fencepost"
VERSION = 1


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """Where a query writes."""

    transactional_id: str
    cluster_id: str


def encode_place(place: OutputPlace) -> str:
    return json.dumps(
        {"fencepost": VERSION, "transactional.id": place.transactional_id, "cluster": place.cluster_id}, indent=1
    )


def decode_place(text: str) -> OutputPlace:
    """Raises BadCheckpoint: what the checkpoint remembers is not known, and must not be guessed."""
    try:
        document = json.loads(text)
        version, id_, cluster = document["fencepost"], document["transactional.id"], document["cluster"]
    except (ValueError, LookupError, TypeError):
        version, id_, cluster = None, None, None
    if version != VERSION or not isinstance(id_, str) or not isinstance(cluster, str):
        raise BadCheckpoint(
            f"file {FILE} of the checkpoint: expected a transactional.id and a cluster, found {text[:200]!r}\n\nhint: "
            "delete the file if neither has changed since the last run"
        )
    return OutputPlace(id_, cluster)


def refuse_another_place(batch_id: int, before: OutputPlace, now: OutputPlace) -> Refuse | None:
    """For a micro-batch of an earlier run, which may have committed it, or left its transaction open."""
    if before == now:
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
