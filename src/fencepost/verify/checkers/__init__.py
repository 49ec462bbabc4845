"""What exactly-once forbids, found in a history. Each checker is a pure function of the index of a history.

`index.py` reads the history once; `kinds.py` has the kinds of anomalies, `anomaly.py` one of them with its proof.
`pipeline.py` judges the histories of `fencepost verify pipeline`, whose records have other meanings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fencepost.verify.checkers.anomaly import Anomaly
from fencepost.verify.checkers.index import Index
from fencepost.verify.checkers.pipeline import PIPELINE, check_pipeline
from fencepost.verify.checkers.records import (
    check_aborted_reads,
    check_duplicates,
    check_invented,
    check_lost,
    check_precommitted_reads,
    check_torn,
)

CHECKERS: tuple[Callable[[Index], Iterable[Anomaly]], ...] = (
    check_lost,
    check_torn,
    check_aborted_reads,
    check_precommitted_reads,
    check_duplicates,
    check_invented,
)


def check_history(index: Index) -> list[Anomaly]:
    """Everything that is wrong with a history. That of a pipeline is judged by what its program made of its inputs."""
    if index.header.what.get("verify") == PIPELINE:
        return check_pipeline(index.header, index.events)
    return [anomaly for check in CHECKERS for anomaly in check(index)]
