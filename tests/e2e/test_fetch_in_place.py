"""Large answers that the broker sends from its files, to clients that read slowly or leave."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import DeleteRecordsRequest, FetchRequest, ProduceRequest
from fencepost.testing import Broker
from tests.wire.raw_client import RawClient, decode_reply, encode_frame

TOPIC = "large"
BATCHES, VALUE_BYTES = 40, 900_000
VERSION = 11
FETCH = FetchRequest(
    max_wait_ms=0,
    min_bytes=1,
    max_bytes=1 << 30,
    topics=[
        FetchRequest.FetchTopic(
            TOPIC, partitions=[FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 30)]
        )
    ],
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data=tmp_path, topics={TOPIC: 1}) as broker:
        with RawClient(broker.host, broker.port) as client:
            for n in range(BATCHES):
                batch = encode_batch([(None, b"%02d" % n * (VALUE_BYTES // 2))], time.time_ns() // 1_000_000)
                data = ProduceRequest.PartitionProduceData(0, batch)
                topic = ProduceRequest.TopicProduceData(TOPIC, partition_data=[data])
                reply = client.call(ProduceRequest(None, -1, 1000, [topic]), 9)
                assert reply.responses[0].partition_responses[0].error_code == errors.NONE
        yield broker


def ask_and_do_not_read(broker: Broker) -> socket.socket:
    """A client with an answer on its way, most of which the broker has not sent."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(30)
    sock.connect((broker.host, broker.port))
    frame = encode_frame(FETCH, VERSION)
    sock.sendall(struct.pack(">i", len(frame)) + frame)
    wait_until(lambda: mapped_files(broker) != [])
    return sock


def mapped_files(broker: Broker) -> list[str]:
    """The `.log` files in the memory of the broker, once for each mapping."""
    return [line for line in Path(f"/proc/{broker.pid}/maps").read_text().splitlines() if ".log" in line]


def own_bytes(broker: Broker) -> int:
    """The memory of the broker without mapped files."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen within 15 s"
        time.sleep(0.01)


def log_file(broker: Broker) -> Path:
    assert broker.data is not None
    (path,) = (broker.data / f"{TOPIC}-0").glob("*.log")
    return path


def receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(min(1 << 20, size - len(data)))
        if not chunk:
            break
        data += chunk
    return bytes(data)


def test_a_slow_reader_gets_all_records_although_they_are_deleted_meanwhile(broker: Broker) -> None:
    stored = log_file(broker).read_bytes()
    before = own_bytes(broker)
    with ask_and_do_not_read(broker) as sock:
        assert own_bytes(broker) - before < len(stored) // 4
        with RawClient(broker.host, broker.port) as client:
            where = DeleteRecordsRequest.DeleteRecordsPartition(0, BATCHES)
            request = DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic(TOPIC, [where])], 1000)
            assert client.call(request, 1).topics[0].partitions[0].error_code == errors.NONE
            assert first_error(client) == errors.OFFSET_OUT_OF_RANGE
        (size,) = struct.unpack(">i", receive(sock, 4))
        found = decode_reply(FETCH, VERSION, receive(sock, size)).responses[0].partitions[0]
    assert found.records == stored
    wait_until(lambda: mapped_files(broker) == [])


def test_a_reader_that_leaves_in_the_middle_leaves_nothing_open(broker: Broker) -> None:
    before = len(os.listdir(f"/proc/{broker.pid}/fd"))
    for _ in range(5):
        with ask_and_do_not_read(broker) as sock:
            assert len(receive(sock, 100_000)) == 100_000
        wait_until(lambda: mapped_files(broker) == [])
    wait_until(lambda: len(os.listdir(f"/proc/{broker.pid}/fd")) <= before)


def test_a_file_that_is_cut_under_an_answer_costs_the_connection_and_not_the_broker(broker: Broker) -> None:
    with ask_and_do_not_read(broker) as sock:
        os.truncate(log_file(broker), 0)
        (size,) = struct.unpack(">i", receive(sock, 4))
        with suppress(ConnectionResetError):
            assert len(receive(sock, size)) < size
    with RawClient(broker.host, broker.port) as client:
        assert first_error(client) == errors.KAFKA_STORAGE_ERROR
    assert "Traceback" not in broker.log


def first_error(client: RawClient) -> int:
    code: int = client.call(FETCH, VERSION).responses[0].partitions[0].error_code
    return code
