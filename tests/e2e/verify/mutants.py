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
from fencepost.machines.partition import partition  # noqa: E402
from fencepost.machines.partition.partition import AppendResult, Partition  # noqa: E402
from fencepost.machines.partition.producers import SentBatch, decide_batch  # noqa: E402
from fencepost.protocol import errors  # noqa: E402
from fencepost.protocol.batch import decode_header  # noqa: E402
from fencepost.protocol.records import iter_batches  # noqa: E402
from fencepost.testing import Broker  # noqa: E402
from tests.simulation import bugs  # noqa: E402
from tests.simulation.patching import Patch, patched  # noqa: E402

# How many markers, or record batches, pass between two that go wrong.
EVERY = 20
# The offset at which fetches end.
EARLY_END = 4


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


def _every(method: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a partition that goes wrong now and then, except for the broker's own topics."""
    numbers = itertools.count(1)

    def sometimes(self: Partition, *args: Any, **given: Any) -> Any:
        is_internal = self.topic.startswith("__")
        return (instead if not is_internal and next(numbers) % EVERY == 0 else method)(self, *args, **given)

    return sometimes


def batch_lost() -> list[Patch]:
    """A record batch is acknowledged, and is not in the log. Jepsen: Bufstream 0.1.0, Redpanda 21.10.1."""
    append = Partition.append

    def lose(self: Partition, records: Any, now_ms: int, **given: Any) -> Any:
        header = decode_header(records)
        producer = self.producers.by_id.get(header.producer_id)
        if producer is None or producer.txn_first_offset < 0 or producer.epoch != header.producer_epoch:
            return append(self, records, now_ms, **given)
        end = self.log.end_offset
        sent = SentBatch(header.base_sequence, header.last_sequence, end, header.max_timestamp)
        self.producers.apply_batch(
            header.producer_id, header.producer_epoch, sent, True, end, self.log.end_address, len(records)
        )
        return AppendResult(errors.NONE, end, -1, self.log.start_offset)

    return [(Partition, "append", _every(append, lose))]


def zero_offsets() -> list[Patch]:
    """A record batch is acknowledged with offset 0. Jepsen: Bufstream 0.1.0."""
    append = Partition.append

    def acknowledge_wrongly(self: Partition, *args: Any, **given: Any) -> Any:
        return append(self, *args, **given)._replace(base_offset=0)

    return [(Partition, "append", _every(append, acknowledge_wrongly))]


def duplicates_kept() -> list[Patch]:
    """A record batch that is sent again is appended again. Jepsen: Redpanda 21.10.1 (its issue 3039)."""

    def decide(producer: Any, epoch: int, first_sequence: int, *rest: Any) -> int:
        error = decide_batch(producer, epoch, first_sequence, *rest)
        is_again = producer is not None and producer.epoch == epoch and bool(producer.batches)
        if error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER and is_again:
            return errors.NONE if first_sequence <= producer.batches[-1].last_sequence else error
        return error

    return [(partition, "decide_batch", decide)]


def aborted_visible() -> list[Patch]:
    """Readers are not told which transactions were aborted. Jepsen: Redpanda 21.10.1 (its issue 3036)."""
    return [(Partition, "_aborted_in", lambda self, offset, records: [])]


def fetch_skips() -> list[Patch]:
    """A fetch begins behind the first batch that it was asked for. Jepsen: Redpanda 21.10.1 (stale messages)."""
    fetch = Partition.fetch

    def skip(self: Partition, offset: int, *rest: Any, **given: Any) -> Any:
        found = fetch(self, offset, *rest, **given)
        following = decode_header(found.records).last_offset + 1 if found.records else self.last_stable_offset
        return fetch(self, following, *rest, **given) if following < self.last_stable_offset else found

    return [(Partition, "fetch", _every(fetch, skip))]


def fetch_ends_early() -> list[Patch]:
    """A fetch from partition 0 sends nothing beyond an offset below the high watermark, and no error."""
    fetch = Partition.fetch

    def end_early(self: Partition, offset: int, *rest: Any, **given: Any) -> Any:
        found = fetch(self, offset, *rest, **given)
        if self.topic.startswith("__") or self.index != 0 or not found.records:
            return found
        kept = [bytes(batch) for header, batch in iter_batches(bytes(found.records)) if header.base_offset < EARLY_END]
        return found._replace(records=b"".join(kept))

    return [(Partition, "fetch", end_early)]


MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    "marker-lost": marker_lost,
    "marker-before-data": marker_before_data,
    "fence-forgotten": bugs.no_epoch_check,
    "lso-too-far": bugs.lso_off_by_one,
    "offsets-without-outputs": bugs.pending_offsets_visible,
    "batch-lost": batch_lost,
    "zero-offsets": zero_offsets,
    "duplicates-kept": duplicates_kept,
    "aborted-visible": aborted_visible,
    "fetch-skips": fetch_skips,
}
# The last reads of a run try again for a minute, so a whole run takes too long to be tested with every seed.
SLOWLY_CAUGHT: dict[str, Callable[[], list[Patch]]] = {"fetch-ends-early": fetch_ends_early}


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
    with patched((MUTANTS | SLOWLY_CAUGHT)[mutant]()):
        return command_line(arguments)


if __name__ == "__main__":
    sys.exit(main())
