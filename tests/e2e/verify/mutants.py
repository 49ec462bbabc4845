"""Broken brokers that `fencepost verify cluster` has to catch, each with one bug planted.

    with MutantBroker("marker-lost") as broker:
        ...

The broker's process runs this file: it plants the bug, and then runs the command line as `python -m fencepost` does.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from fencepost.broker.coordinator.two_phase_commit import TwoPhaseCommit  # noqa: E402
from fencepost.machines.partition.partition import Partition  # noqa: E402
from fencepost.protocol import errors  # noqa: E402
from fencepost.protocol.batch import decode_header  # noqa: E402
from fencepost.testing import Broker  # noqa: E402
from tests.simulation import bugs  # noqa: E402
from tests.simulation.patching import Patch, patched  # noqa: E402

# How many markers, or record batches, pass between two that go wrong.
EVERY = 20


def marker_lost() -> list[Patch]:
    """The marker of a transaction is not written to one of its partitions."""
    write_marker = TwoPhaseCommit.write_marker
    numbers = itertools.count(1)

    def lose_some(self: TwoPhaseCommit, partition: Partition, *rest: Any) -> int:
        is_internal = partition.topic.startswith("__")
        if not is_internal and next(numbers) % EVERY == 0:
            return errors.NONE
        return write_marker(self, partition, *rest)

    return [(TwoPhaseCommit, "write_marker", lose_some)]


def marker_before_data() -> list[Patch]:
    """A commit marker is in the log before the last record batch of its transaction."""
    append = Partition.append
    numbers = itertools.count(1)

    def append_late(self: Partition, records: Any, now_ms: int, **given: Any) -> Any:
        producer_id = decode_header(records).producer_id
        producer = self.producers.by_id.get(producer_id)
        if producer is not None and producer.txn_first_offset >= 0 and next(numbers) % EVERY == 0:
            self.write_marker(producer_id, producer.epoch, True, producer.coordinator_epoch, now_ms)
            given["verified"] = True
        return append(self, records, now_ms, **given)

    return [(Partition, "append", append_late)]


MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    "marker-lost": marker_lost,
    "marker-before-data": marker_before_data,
    "fence-forgotten": bugs.no_epoch_check,
    "lso-too-far": bugs.lso_off_by_one,
    "offsets-without-outputs": bugs.pending_offsets_visible,
}


class MutantBroker(Broker):
    """A broker with a bug; None: without one, and started in the same way."""

    def __init__(self, mutant: str | None, **given: Any) -> None:
        super().__init__(**given)
        self._mutant = mutant

    def _command(self) -> list[str]:
        if self._mutant is None:
            return super()._command()
        python, *_, module_argument, _fencepost = super()._command()[:4]
        assert module_argument == "-m", "the broker is started in another way now"
        return [python, __file__, self._mutant, *super()._command()[4:]]


def main() -> int:
    from fencepost.cli import main as command_line

    mutant, *arguments = sys.argv[1:]
    with patched(MUTANTS[mutant]()):
        return command_line(arguments)


if __name__ == "__main__":
    sys.exit(main())
