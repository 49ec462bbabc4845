"""Batches that the disk changed: a reader learns it for their partition alone, and a start does not build on them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.machines.log.interface import CorruptLog
from fencepost.machines.txn.records import partition_for
from fencepost.protocol import errors
from fencepost.protocol.batch import LENGTH_AT, decode_header, encode_batch
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    FetchRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from fencepost.server.startup import explain
from fencepost.server.storage.missing import DataMissing
from tests.folder_broker import FolderBroker

READ_COMMITTED = 1
PARTITIONS = 3
NOW_MS = 1_700_000_000_000
GROUP, TXN_ID = "group", "t1"
Change = Callable[[bytearray, int], None]


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def first_segment(path: Path, log: str) -> Path:
    return path / log / f"{0:020d}.log"


def position_of(path: Path, number: int) -> int:
    """Where the batch with this number begins."""
    data = path.read_bytes()
    at = 0
    for _ in range(number):
        at += decode_header(data, at).size_bytes
    return at


# --- readers ------------------------------------------------------------------------------------------------


LENGTHS: dict[str, Callable[[int], int]] = {
    "one bit": lambda length: length ^ 0x10,
    "a large one": lambda length: length ^ 0x100000,
    "no batch": lambda length: -12,
    "nothing": lambda length: 0,
}


def partly_aborted(tmp_path: Path) -> FolderBroker:
    """Partitions with four transactions each, of which one was aborted."""
    broker = FolderBroker(tmp_path)
    topic = CreateTopicsRequest.CreatableTopic("orders", PARTITIONS, 1)
    assert broker.call(CreateTopicsRequest([topic]), 7).topics[0].error_code == errors.NONE
    for index in range(PARTITIONS):
        partition = broker.cluster.partition("orders", index)
        assert partition is not None
        for number in range(4):
            batch = encode_batch([(None, b"%d" % number)] * 2, NOW_MS, 7, 0, 2 * number, transactional=True)
            assert partition.append(batch, NOW_MS, verified=True).error == errors.NONE
            assert partition.write_marker(7, 0, number != 2, 0, NOW_MS) == errors.NONE
    return broker


def fetch(
    broker: FolderBroker,
    offset: int,
    isolation_level: int = READ_COMMITTED,
    max_bytes: int = 1 << 20,
) -> Any:
    wanted = [
        FetchRequest.FetchPartition(i, fetch_offset=offset, partition_max_bytes=max_bytes) for i in range(PARTITIONS)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 22,
        isolation_level=isolation_level,
        topics=[FetchRequest.FetchTopic("orders", partitions=wanted)],
    )
    return broker.call(request, 11).responses[0].partitions


@pytest.mark.parametrize("length", LENGTHS)
def test_a_damaged_length_stops_the_readers_of_its_partition_and_no_others(length: str, tmp_path: Path) -> None:
    broker = partly_aborted(tmp_path)
    path = first_segment(tmp_path, "orders-1")
    at = position_of(path, 4)  # The data of the third transaction, at offset 6.
    data = bytearray(path.read_bytes())
    (before,) = struct.unpack_from(">i", data, at + LENGTH_AT)
    struct.pack_into(">i", data, at + LENGTH_AT, LENGTHS[length](before))
    path.write_bytes(data)
    whole = len(fetch(broker, 0)[0].records)

    found = fetch(broker, 0)
    assert [p.error_code for p in found] == [errors.NONE] * 3
    assert [len(p.records) for p in found][::2] == [whole, whole]
    assert 0 < len(found[1].records) < whole, "the batches before the damage are served"
    for isolation_level, max_bytes in ((READ_COMMITTED, 1 << 20), (READ_COMMITTED, 10), (0, 10)):
        found = fetch(broker, 6, isolation_level, max_bytes)
        if length == "one bit" and isolation_level == READ_COMMITTED and max_bytes > 10:
            continue  # It looks like a batch of this length, and its checksum is wrong for the reader.
        codes = [p.error_code for p in found]
        assert codes == [errors.NONE, errors.CORRUPT_MESSAGE, errors.NONE], (isolation_level, max_bytes)
        assert found[1].high_watermark == -1
    for _ in range(30):
        fetch(broker, 6, max_bytes=10)
    lines = [line for line in broker.notices if line.startswith("orders-1 is damaged: ")]
    assert len(lines) == 2, "at the first and at the tenth time"
    assert f"{path}: position " in lines[0]
    assert broker.notices[broker.notices.index(lines[0]) + 1].startswith("hint: ")
    assert lines[1].endswith("(10 reads so far)")


# --- starts -------------------------------------------------------------------------------------------------


def left_by(end: str, path: Path) -> None:
    """A group with an offset, and a transactional id, each in the middle of a log of several batches."""
    broker = FolderBroker(path)
    topic = CreateTopicsRequest.CreatableTopic("orders", 1, 1)
    broker.call(CreateTopicsRequest([topic], 30_000), 7)
    for offset in range(50, 60):
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, committed_metadata="")
        wanted = OffsetCommitRequest.OffsetCommitRequestTopic("orders", partitions=[partition])
        reply = broker.call(OffsetCommitRequest(GROUP, topics=[wanted]), 7)
        assert reply.topics[0].partitions[0].error_code == errors.NONE
        assert broker.call(InitProducerIdRequest(TXN_ID, 60_000), 4).error_code == errors.NONE
    getattr(broker, end)()


def committed(broker: FolderBroker) -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic("orders", [0])
    reply = broker.call(OffsetFetchRequest(GROUP, [topic]), 7)
    offset: int = reply.topics[0].partitions[0].committed_offset
    return offset


LOGS = {
    "groups": f"__consumer_offsets-{partition_for(GROUP, 5)}",
    "ids": f"__transaction_state-{partition_for(TXN_ID, 5)}",
}


@pytest.mark.parametrize(
    ("number", "end"),
    # After a kill, a damaged last batch may be a write that did not finish: it is cut off without asking.
    [(3, "stop"), (9, "stop"), (3, "kill"), (8, "kill")],
)
@pytest.mark.parametrize("log", LOGS)
def test_a_changed_byte_of_a_coordinators_log_stops_the_start_until_the_loss_is_accepted(
    number: int, log: str, end: str, tmp_path: Path
) -> None:
    left_by(end, tmp_path)
    path = first_segment(tmp_path, LOGS[log])
    at = position_of(path, number)
    flip(path, at + decode_header(path.read_bytes(), at).size_bytes - 20, 4)
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises((CorruptLog, DataMissing)) as refused:
        FolderBroker(tmp_path)
    said = explain(refused.value, str(tmp_path)) or ""
    assert f"{LOGS[log]}" in said
    assert f"{path.name}: position {at}: crc is 0x" in said
    assert ", the header says 0x" in said
    assert "--set fencepost.recovery.missing=accept" in said
    del files[tmp_path / ".lock"]
    changed = [file.name for file, before in files.items() if not file.exists() or file.read_bytes() != before]
    assert [name for name in changed if name.endswith(".log")] == []

    broker = FolderBroker(tmp_path, missing="accept")
    assert [line for line in broker.reports if f"{LOGS[log]}: cut " in line and ", kept in " in line]
    assert committed(broker) == (50 + number - 1 if log == "groups" else 59)
    assert broker.call(InitProducerIdRequest(TXN_ID, 60_000), 4).producer_id > 1 << 40, "as after a power loss"
    broker.stop()
    broker = FolderBroker(tmp_path)
    assert broker.reports == []
    assert committed(broker) == (50 + number - 1 if log == "groups" else 59)


def test_a_batch_of_a_coordinators_log_that_is_shorter_than_a_header_ends_the_load(tmp_path: Path) -> None:
    left_by("stop", tmp_path)
    path = first_segment(tmp_path, LOGS["groups"])
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, position_of(path, 3) + LENGTH_AT, -12)
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match=f"{path}: position .*length -12"):
        FolderBroker(tmp_path)


def test_a_batch_with_the_offset_of_an_earlier_one_is_not_loaded(tmp_path: Path) -> None:
    left_by("stop", tmp_path)
    path = first_segment(tmp_path, LOGS["groups"])
    flip(path, position_of(path, 4) + 7, 2)  # No checksum covers the base offset.
    with pytest.raises(CorruptLog, match=f"{path}: position .*base offset is 0, the batch before ends at offset 3"):
        FolderBroker(tmp_path)
