"""The bugs of the verifier's broken brokers do what they say, in one partition and without a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.machines.log.memory import MemoryLog
from fencepost.machines.partition.partition import Partition
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.records import iter_batches, iter_records
from tests.e2e.verify.mutants import EVERY, MUTANTS
from tests.simulation.patching import patched

NOW, PID = 1_700_000_000_000, 1000


@pytest.fixture
def partition(request: pytest.FixtureRequest) -> Iterator[Partition]:
    with patched(MUTANTS[request.param]()):
        yield Partition(MemoryLog(None), "orders", 0)


def write(partition: Partition, sequence: int) -> int:
    """The offset in the acknowledgement of a record of a transaction; its value is its sequence number."""
    batch = encode_batch([(None, b"%d" % sequence)], NOW, PID, 0, sequence, transactional=True)
    result = partition.append(batch, NOW, verified=True)
    assert result.error == errors.NONE
    return result.base_offset


def committed(partition: Partition, offset: int = 0) -> list[int]:
    """What a read_committed reader gets in one fetch, before it drops aborted records."""
    records = partition.fetch(offset, 1 << 20, read_committed=True).records
    data = [batch for header, batch in iter_batches(records) if not header.is_control]
    return [int(record.value or b"") for batch in data for record in iter_records(batch)]


def end(partition: Partition, commit: bool) -> None:
    assert partition.write_marker(PID, 0, commit, 0, NOW) == errors.NONE


@pytest.mark.parametrize("partition", ["batch-lost"], indirect=True)
def test_a_batch_is_acknowledged_and_missing(partition: Partition) -> None:
    for sequence in range(2 * EVERY):
        write(partition, sequence)
    end(partition, commit=True)
    assert set(range(2 * EVERY)) - set(committed(partition)) == {EVERY - 1, 2 * EVERY - 1}


@pytest.mark.parametrize("partition", ["zero-offsets"], indirect=True)
def test_a_batch_is_acknowledged_with_offset_0(partition: Partition) -> None:
    offsets = [write(partition, sequence) for sequence in range(EVERY)]
    assert offsets == [*range(EVERY - 1), 0]


@pytest.mark.parametrize("partition", ["duplicates-kept"], indirect=True)
def test_a_batch_that_is_sent_again_is_there_twice(partition: Partition) -> None:
    for sequence in (0, 0, 1, 1, 2):
        write(partition, sequence)
    end(partition, commit=True)
    assert committed(partition) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("partition", ["aborted-visible"], indirect=True)
def test_readers_are_not_told_what_was_aborted(partition: Partition) -> None:
    write(partition, 0)
    end(partition, commit=False)
    assert partition.fetch(0, 1 << 20, read_committed=True).aborted == []


@pytest.mark.parametrize("partition", ["fetch-skips"], indirect=True)
def test_a_fetch_begins_behind_what_was_asked_for(partition: Partition) -> None:
    for sequence in range(3):
        write(partition, sequence)
    end(partition, commit=True)
    found = [committed(partition) for _ in range(EVERY)]
    assert found == [[0, 1, 2]] * (EVERY - 1) + [[1, 2]]
