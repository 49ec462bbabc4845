"""What exactly-once forbids, found in a history. Each checker is a pure function of the index of a history.

`arranging.py` reads the history once and makes the index; `kinds.py` has the kinds of anomalies,
and one of them with its proof. Each other module has the checkers of one family.
`pipeline.py` judges the histories of `fencepost verify pipeline`, whose records have other meanings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fencepost.verify.checkers.cycles import check_read_cycles, check_write_cycles
from fencepost.verify.checkers.index import Index
from fencepost.verify.checkers.kinds import Anomaly
from fencepost.verify.checkers.late_requests import name_late_end_txns, name_late_produces
from fencepost.verify.checkers.offsets import check_offsets
from fencepost.verify.checkers.order import (
    check_offsets_agree,
    check_output_order,
    check_polls,
    check_send_order,
    check_sources,
)
from fencepost.verify.checkers.pipeline import check_pipeline, is_pipeline
from fencepost.verify.checkers.producers import (
    check_epochs,
    check_fenced,
    check_last_stable_offsets,
    check_reused_sequences,
)
from fencepost.verify.checkers.records import (
    check_aborted_reads,
    check_compacted,
    check_duplicates,
    check_invented,
    check_lost,
    check_precommitted_reads,
    check_retained,
    check_torn,
)

CHECKERS: tuple[Callable[[Index], Iterable[Anomaly]], ...] = (
    *(check_lost, check_torn, check_aborted_reads, check_precommitted_reads, check_duplicates, check_invented),
    *(check_reused_sequences, check_compacted, check_retained, check_sources),
    *(check_send_order, check_output_order, check_offsets_agree, check_polls, check_offsets),
    *(check_epochs, check_fenced, check_last_stable_offsets, check_read_cycles, check_write_cycles),
)


def check_history(index: Index) -> list[Anomaly]:
    """Everything that is wrong with a history. That of a pipeline is judged by what its program made of its inputs."""
    if is_pipeline(index.header):
        return check_pipeline(index.header, index.events)
    found = (anomaly for check in CHECKERS for anomaly in check(index))
    return list(name_late_end_txns(index, name_late_produces(index, found)))
