"""A full disk: requests that need space are refused, acknowledged data stays, and work resumes when there is space.

Two ways to run out of room, both without being root. A limit on the size of the broker's files, set from outside
while it runs, refuses whole writes and can be lifted again. A small file system of its own, where the system lets us
mount one, breaks off in the middle of a write.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from fencepost.protocol.records import iter_batches, iter_records
from fencepost.testing import Broker
from tests.wire.raw_client import RawClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of another process can be set on Linux only")

KB, MB = 1 << 10, 1 << 20
UNLIMITED = resource.RLIM_INFINITY


def limit_files(broker: Broker, size: int) -> None:
    """No file of the broker can grow past `size`."""
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size, UNLIMITED))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data=tmp_path / "data", settings={"group.min.session.timeout.ms": "500"}) as broker:
        yield broker
        assert "Traceback" not in broker.log


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.host, broker.port) as client:
        yield client


def create_topic(client: RawClient, name: str) -> int:
    code: int = (
        client.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(name, 1, 1)], 1000), 5).topics[0].error_code
    )
    return code


def produce(
    client: RawClient,
    topic: str,
    value: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional_id: str | None = None,
) -> Any:
    is_transactional = transactional_id is not None
    batch = encode_batch([(None, value)], int(time.time() * 1000), producer_id, epoch, sequence, is_transactional)
    data = ProduceRequest.TopicProduceData(topic, partition_data=[ProduceRequest.PartitionProduceData(0, batch)])
    reply = client.call(ProduceRequest(transactional_id, -1, 1000, [data]), 9)
    return reply.responses[0].partition_responses[0]


def fill(client: RawClient, topic: str, size: int = 2_000) -> list[bytes]:
    """Produce until the disk says no; return what was acknowledged."""
    acknowledged: list[bytes] = []
    while True:
        value = b"%06d" % len(acknowledged) + os.urandom(size)
        result = produce(client, topic, value)
        if result.error_code == errors.KAFKA_STORAGE_ERROR:
            return acknowledged
        assert (result.error_code, result.base_offset) == (errors.NONE, len(acknowledged))
        acknowledged.append(value)
        assert len(acknowledged) < 10_000


def read_all(client: RawClient, topic: str, read_committed: bool = False) -> list[bytes | None]:
    values: list[bytes | None] = []
    offset = 0
    while True:
        wanted = FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=MB)
        topics = [FetchRequest.FetchTopic(topic, partitions=[wanted])]
        request = FetchRequest(max_bytes=MB, isolation_level=int(read_committed), topics=topics)
        found = client.call(request, 11).responses[0].partitions[0]
        assert found.error_code == errors.NONE
        if not found.records:
            return values
        for header, batch in iter_batches(found.records):
            offset = header.last_offset + 1
            if not header.is_control:
                values += [record.value for record in iter_records(batch)]


def latest_stable(client: RawClient, topic: str) -> int:
    wanted = ListOffsetsRequest.ListOffsetsPartition(0, timestamp=-1)
    topics = [ListOffsetsRequest.ListOffsetsTopic(topic, [wanted])]
    offset: int = client.call(ListOffsetsRequest(isolation_level=1, topics=topics), 5).topics[0].partitions[0].offset
    return offset


def begin(client: RawClient, transactional_id: str, topic: str) -> tuple[int, int]:
    init = client.call(InitProducerIdRequest(transactional_id, 60_000), 4)
    assert init.error_code == errors.NONE
    added = client.call(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=init.producer_id,
            v3_and_below_producer_epoch=init.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(topic, [0])],
        ),
        3,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == errors.NONE
    return init.producer_id, init.producer_epoch


def test_produce_is_refused_and_nothing_acknowledged_is_lost(broker: Broker, client: RawClient) -> None:
    create_topic(client, "orders")
    limit_files(broker, 64 * KB)
    acknowledged = fill(client, "orders")
    assert len(acknowledged) > 20
    # Reading goes on, and what is small enough is still taken.
    assert read_all(client, "orders") == acknowledged
    assert client.call(ApiVersionsRequest("test", "1"), 3).error_code == errors.NONE

    limit_files(broker, UNLIMITED)
    assert produce(client, "orders", b"room").base_offset == len(acknowledged)
    assert read_all(client, "orders") == [*acknowledged, b"room"]

    broker.kill()
    broker.restart()
    with RawClient(broker.host, broker.port) as again:
        assert read_all(again, "orders") == [*acknowledged, b"room"]


def test_a_transaction_that_was_decided_ends_when_there_is_room(broker: Broker, client: RawClient) -> None:
    create_topic(client, "orders")
    producer = begin(client, "txn", "orders")
    for sequence in range(40):
        produced = produce(client, "orders", bytes(2_000), *producer, sequence, transactional_id="txn")
        assert produced.error_code == errors.NONE
    # The decision fits into its own small file, the marker not behind the data.
    limit_files(broker, 64 * KB)
    replies: list[int] = []

    def end() -> None:
        with RawClient(broker.host, broker.port) as ending:
            replies.append(ending.call(EndTxnRequest("txn", *producer, True), 3).error_code)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join(0.5)
    assert not replies
    assert latest_stable(client, "orders") == 0
    assert read_all(client, "orders", read_committed=True) == []
    limit_files(broker, UNLIMITED)
    thread.join(10)
    assert replies == [errors.NONE]
    assert latest_stable(client, "orders") == 41
    assert len(read_all(client, "orders", read_committed=True)) == 40


# --- a file system of its own -----------------------------------------------------------------------------


class TmpfsBroker(Broker):
    """A broker in a mount namespace, whose data folder is a file system of `size_kb`."""

    def __init__(self, data: Path, size_kb: int) -> None:
        data.mkdir()
        super().__init__(data=data)
        self._size_kb = size_kb

    def _command(self) -> list[str]:
        mount = f'mount -t tmpfs -o size={self._size_kb}k tmpfs "$0" && exec "$@"'
        return [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            mount,
            str(self.data),
            *super()._command(),
        ]

    def inside(self, name: str) -> Path:
        """A file of the data folder, as seen from outside of the namespace."""
        return Path(f"/proc/{self.pid}/root{self.data}/{name}")


def _can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _can_mount(), reason="this system allows no mounts in a user namespace")
def test_a_file_system_that_fills_up_in_the_middle_of_a_write(tmp_path: Path) -> None:
    broker = TmpfsBroker(tmp_path / "data", size_kb=3 * KB)
    with broker, RawClient(broker.host, broker.port) as client:
        create_topic(client, "orders")
        producer = begin(client, "txn", "orders")
        broker.inside("filler").write_bytes(bytes(MB))
        assert produce(client, "orders", b"first", *producer, 0, transactional_id="txn").error_code == errors.NONE
        acknowledged = 1
        # Odd sizes, so that the last write is cut somewhere.
        while (
            result := produce(client, "orders", bytes(3_333), *producer, acknowledged, transactional_id="txn")
        ).error_code == 0:
            acknowledged += 1
        assert result.error_code == errors.KAFKA_STORAGE_ERROR
        assert acknowledged > 100
        assert len(read_all(client, "orders")) == acknowledged
        broker.inside("filler").unlink()
        # The producer sends the same batch again, and goes on.
        again = produce(client, "orders", bytes(3_333), *producer, acknowledged, transactional_id="txn")
        assert (again.error_code, again.base_offset) == (errors.NONE, acknowledged)
        assert client.call(EndTxnRequest("txn", *producer, True), 3).error_code == errors.NONE
        assert len(read_all(client, "orders", read_committed=True)) == acknowledged + 1
        assert "Traceback" not in broker.log
