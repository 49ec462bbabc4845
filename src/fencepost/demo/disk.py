"""Reads the files of a data folder directly, so that the broker need not be running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fencepost.protocol.batch import BatchHeader, Buffer, decode_marker
from fencepost.protocol.messages import TransactionLogKey, TransactionLogValue
from fencepost.protocol.records import iter_batches, iter_records

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def states_on_disk(folder: Path, transactional_id: str) -> list[str]:
    """The states of one transactional id in `__transaction_state`, oldest first, without repetitions."""
    states: list[str] = []
    for _, batch in _batches(folder, "__transaction_state"):
        for record in iter_records(batch):
            assert record.key is not None
            key, _ = TransactionLogKey.decode(record.key, 2, 0)
            if key.transactional_id == transactional_id:
                state = "Dead" if record.value is None else _state(record.value)
                if states[-1:] != [state]:
                    states.append(state)
    return states


def _state(value: bytes) -> str:
    version = int.from_bytes(value[:2], "big")
    return STATES[TransactionLogValue.decode(value, 2, version)[0].transaction_status]


def records_on_disk(folder: Path, topics: tuple[str, ...]) -> int:
    return sum(
        header.record_count for topic in topics for header, _ in _batches(folder, topic) if not header.is_control
    )


def markers_on_disk(folder: Path, topics: tuple[str, ...]) -> list[str]:
    """COMMIT or ABORT for every marker in the logs of these topics."""
    markers = [decode_marker(batch) for topic in topics for _, batch in _batches(folder, topic)]
    return ["COMMIT" if marker.commit else "ABORT" for marker in markers if marker is not None]


def _batches(folder: Path, topic: str) -> Iterator[tuple[BatchHeader, Buffer]]:
    for segment in sorted(folder.glob(f"{topic}-[0-9]*/*.log")):
        yield from iter_batches(segment.read_bytes())
