"""A fetch whose records are sent from the page cache answers with the same bytes as one that copies them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from fencepost.machines.log.memory import MemoryStorage
from fencepost.protocol.batch import Part, encode_batch
from fencepost.protocol.messages import FetchRequest
from fencepost.server.storage import DataFolder
from tests.pure_broker import PureBroker, PureConnection
from tests.wire.raw_client import encode_frame

LARGE, SMALL, ABORTED = 0, 1, 2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class InPlace(PureConnection):
    """A connection that does not read what it sends."""

    sends_in_place = True

    def __init__(self) -> None:
        super().__init__()
        self.in_place_bytes = 0

    def reply(self, parts: list[Part]) -> None:
        self.in_place_bytes += sum(len(part) for part in parts if isinstance(part, memoryview))
        super().reply(parts)


@pytest.fixture
def broker(tmp_path: Path) -> PureBroker:
    broker = PureBroker(storage=cast(MemoryStorage, DataFolder(str(tmp_path))))
    broker.cluster.create_topic("orders", 3, {}, broker.now_ms)
    for index, size in ((LARGE, 90_000), (SMALL, 100), (ABORTED, 90_000)):
        partition = broker.cluster.topics["orders"].partitions[index]
        for n in range(6):
            is_open = index == ABORTED and n < 3
            batch = encode_batch(
                [(b"key", b"%d" % n * size)],
                broker.now_ms,
                producer_id=7 if is_open else -1,
                producer_epoch=0 if is_open else -1,
                base_sequence=n if is_open else -1,
                transactional=is_open,
            )
            assert partition.append(batch, broker.now_ms, verified=True).error == 0
        if index == ABORTED:
            assert partition.write_marker(7, 0, False, 0, broker.now_ms) == 0
    return broker


def fetch(offset: int, max_bytes: int, isolation_level: int) -> FetchRequest:
    wanted = [
        FetchRequest.FetchPartition(index, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index in (LARGE, SMALL, ABORTED)
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 24,
        isolation_level=isolation_level,
        topics=[FetchRequest.FetchTopic("orders", partitions=wanted)],
    )


@pytest.mark.parametrize("version", [4, 12])
@pytest.mark.parametrize("isolation_level", [READ_UNCOMMITTED, READ_COMMITTED])
def test_a_fetch_in_place_answers_with_the_bytes_of_one_that_copies(
    broker: PureBroker, version: int, isolation_level: int
) -> None:
    in_place_bytes = 0
    for offset in range(8):
        for max_bytes in (1, 200_000, 1 << 24):
            frame = encode_frame(fetch(offset, max_bytes, isolation_level), version)
            copied, in_place = PureConnection(), InPlace()
            broker.node.handle(frame, copied, broker.now_ms)
            broker.node.handle(frame, in_place, broker.now_ms)
            assert in_place.frames == copied.frames != []
            in_place_bytes += in_place.in_place_bytes
    assert in_place_bytes > 1_000_000


def test_records_among_which_aborted_ones_may_be_are_copied_because_the_broker_looks_at_them(
    broker: PureBroker,
) -> None:
    connection = InPlace()
    request = fetch(0, 1 << 24, READ_COMMITTED)
    request.topics[0].partitions = request.topics[0].partitions[ABORTED:]
    broker.node.handle(encode_frame(request, 12), connection, broker.now_ms)
    assert len(connection.frames[0]) > 500_000
    assert connection.in_place_bytes == 0
