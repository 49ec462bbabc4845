"""What the next process makes of the folder that it finds: torn tails, lost indexes, timeouts that went on meanwhile.

Every test has a real broker on disk, stops or kills it, changes its files or lets time pass, and starts it again.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencepost.machines.txn.records import partition_for
from fencepost.protocol import errors
from fencepost.protocol.batch import decode_header, encode_batch, stamp
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    DescribeTransactionsRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    ProduceRequest,
)
from fencepost.server.storage.checkpoints import RECOVERY_POINTS_NAME, decode_offsets, read_file
from fencepost.testing import Broker
from tests.readers.reading import READ_COMMITTED, TIMEOUT_S, committed_offsets, connect, end_offsets, read_all
from tests.wire.tv2_client import Tv2Client

TXN_ID = "t1"
GROUP = "group"
TXN_LOG = f"__transaction_state-{partition_for(TXN_ID, 50)}"
OFFSETS_LOG = f"__consumer_offsets-{partition_for(GROUP, 50)}"
IMPATIENT = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
}


SEGMENTED = {"log.segment.bytes": "8192", "log.index.interval.bytes": "200"}
WRITTEN = [f"value {number} " + "x" * 50 for number in range(100)]
COMMITTED = [value for number, value in enumerate(WRITTEN) if number % 3]
PROVEN_BY_SEGMENTS = 80  # An offset in `orders-0` below the end of its last closed segment.


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker on disk with one topic, `orders`, of one partition."""
    broker = Broker(data=tmp_path / "data")
    broker.start()
    try:
        create_topic(broker, "orders")
        yield broker
    finally:
        broker.kill()


def folder(broker: Broker) -> Path:
    assert broker.data is not None
    return broker.data


def create_topic(broker: Broker, name: str, partitions: int = 1) -> None:
    with connect(broker.bootstrap_servers) as client:
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1)
        reply = client.call(CreateTopicsRequest([topic], 30_000), version=5)
        assert reply.topics[0].error_code == errors.NONE


def transact(client: Tv2Client, values: list[str], commit: bool = True, topic: str = "orders") -> None:
    assert client.produce({(topic, 0): values}) == errors.NONE
    assert client.end(commit) == errors.NONE


def values_in(broker: Broker, topic: str = "orders", isolation_level: str = "read_committed") -> list[str]:
    return [record.value for record in read_all(broker.bootstrap_servers, [topic], isolation_level)]


def described(broker: Broker, transactional_id: str) -> Any:
    with connect(broker.bootstrap_servers) as client:
        return client.call(DescribeTransactionsRequest([transactional_id]), version=0).transaction_states[0]


def state_of(broker: Broker, transactional_id: str = TXN_ID) -> str | int:
    """The transaction's state, or why there is none."""
    found = described(broker, transactional_id)
    return str(found.transaction_state) if found.error_code == errors.NONE else int(found.error_code)


def await_state(broker: Broker, wanted: str | int, transactional_id: str = TXN_ID) -> None:
    deadline = time.monotonic() + 10
    while (state := state_of(broker, transactional_id)) != wanted:
        assert time.monotonic() < deadline, f"{transactional_id} stays {state}"
        time.sleep(0.02)


def commit_offset(broker: Broker, offset: int) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, committed_metadata="")
    topic = OffsetCommitRequest.OffsetCommitRequestTopic("orders", partitions=[partition])
    request = OffsetCommitRequest(GROUP, topics=[topic])
    with connect(broker.bootstrap_servers) as client:
        reply = client.call(request, version=7)
        assert reply.topics[0].partitions[0].error_code == errors.NONE


class Left(NamedTuple):
    """A folder that a process left behind, and the client that was in the middle of a transaction."""

    data: Path
    client: Tv2Client

    @contextmanager
    def copied_to(self, data: Path) -> Iterator[Broker]:
        """A broker for a copy, not started yet: many tests may use what was left."""
        shutil.copytree(self.data, data)
        broker = Broker(data=data, settings=SEGMENTED)
        try:
            yield broker
        finally:
            broker.kill()


def await_recovery_point(data: Path, offset: int) -> None:
    """A thread of the broker stores it after a segment of `orders-0` is closed and synced."""
    deadline = time.monotonic() + TIMEOUT_S
    while (decode_offsets(read_file(str(data / RECOVERY_POINTS_NAME))) or {}).get("orders-0", 0) < offset:
        assert time.monotonic() < deadline, f"no recovery point at {offset}"
        time.sleep(0.01)


def leave(data: Path, end: str) -> Left:
    """Several segments with committed, aborted and open transactions, and a group's offset; then kill or stop."""
    broker = Broker(data=data, settings=SEGMENTED)
    broker.start()
    try:
        create_topic(broker, "orders")
        client = Tv2Client(broker.bootstrap_servers, TXN_ID)
        client.init()
        for value in WRITTEN:
            transact(client, [value], commit=value in COMMITTED)
        assert client.produce({("orders", 0): ["open"]}) == errors.NONE
        commit_offset(broker, 2)
        await_recovery_point(data, PROVEN_BY_SEGMENTS)
        getattr(broker, end)()
        return Left(data, client)
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    return leave(tmp_path_factory.mktemp(request.param) / "data", request.param)


@pytest.fixture(scope="module")
def left_by_kill(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return leave(tmp_path_factory.mktemp("kill") / "data", "kill")


def warnings_since(broker: Broker, before: list[str]) -> list[str]:
    return broker.warnings[len(before) :]


# --- torn tails ---------------------------------------------------------------------------------------------


def next_batch(log: Path) -> bytes:
    """A whole batch that would follow the last one of the file."""
    data = log.read_bytes()
    pos = offset = 0
    while pos < len(data):
        header = decode_header(data, pos)
        offset = header.last_offset + 1
        pos += header.size_bytes
    return stamp(encode_batch([(b"key", b"value" * 20)], 1_700_000_000_000), offset, 0)


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


# What an unacknowledged write may leave at the end of a file: whole batch in, bytes out.
TEARS: dict[str, Callable[[bytes], bytes]] = {
    "a batch cut short": lambda batch: batch[:-1],
    "zeros within a batch": lambda batch: batch[:70] + bytes(len(batch) - 70),
    "a flipped bit in the length": lambda batch: flip(batch, 9),
}


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_tail_is_cut_and_everything_before_it_is_served(tear: str, left_by_kill: Left, tmp_path: Path) -> None:
    with left_by_kill.copied_to(tmp_path / "data") as broker:
        names = ["orders-0", TXN_LOG, OFFSETS_LOG]
        torn = [max((folder(broker) / name).glob("*.log")) for name in names]
        sizes = [path.stat().st_size for path in torn]
        for path in torn:
            with path.open("ab") as file:
                file.write(TEARS[tear](next_batch(path)))
        broker.start()
        assert [path.stat().st_size for path in torn] == sizes
        said = broker.warnings
        assert sorted(line.split(": cut ")[0] for line in said) == sorted(names), "one line for each file"
        assert state_of(broker) == "Ongoing"
        assert committed_offsets(broker.bootstrap_servers, GROUP, "orders") == {0: 2}
        # The client goes on where it was.
        client = left_by_kill.client.moved_to(broker.bootstrap_servers)
        assert client.produce({("orders", 0): ["more"]}) == errors.NONE
        assert client.end(True) == errors.NONE
        assert values_in(broker) == [*COMMITTED, "open", "more"]
        broker.stop()


def test_another_boot_is_a_reason_to_check_everything(broker: Broker) -> None:
    """As after a power loss: the page cache is gone, and the middle of a file may be damaged."""
    client = Tv2Client(broker.bootstrap_servers, TXN_ID)
    client.init()
    for number in range(50):
        transact(client, [f"value {number}"], commit=number % 5 != 0)
    broker.kill()
    pretend_another_boot(broker)
    broker.start()
    assert values_in(broker) == [f"value {number}" for number in range(50) if number % 5]
    broker.kill()
    pretend_another_boot(broker)
    path = folder(broker) / "orders-0" / f"{0:020d}.log"
    data = path.read_bytes()
    batches = list(positions(data))
    # The data of the 21st transaction: each one has a batch and a marker.
    path.write_bytes(flip(data, batches[40] + 70))
    before = broker.warnings
    broker.start()
    said = warnings_since(broker, before)
    assert any(re.match(r"orders-0: cut \d+ bytes of 0{20}\.log after offset 39 .*crc", line) for line in said), said
    assert values_in(broker) == [f"value {number}" for number in range(20) if number % 5]
    # Its producer may have had a transaction open of which nothing is left, so it begins anew.
    assert client.produce({("orders", 0): ["zombie"]}) == errors.INVALID_PRODUCER_EPOCH
    client.init()
    transact(client, ["more"])
    assert values_in(broker)[-1] == "more"


def pretend_another_boot(broker: Broker) -> None:
    path = folder(broker) / "boot-id"
    assert path.exists()
    path.write_text("another boot")


def positions(data: bytes) -> Iterator[int]:
    pos = 0
    while pos < len(data):
        yield pos
        pos += decode_header(data, pos).size_bytes


# --- derived files ------------------------------------------------------------------------------------------

DAMAGE: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "garbage": lambda path: path.write_bytes(b"\xde\xad\xbe\xef" * (path.stat().st_size // 4 + 1)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
}


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex", "snapshot"])
@pytest.mark.parametrize(
    ("left", "damage"), [("kill", "garbage"), ("kill", "cut"), ("stop", "deleted")], indirect=["left"]
)
def test_what_is_derived_from_the_log_is_made_again(suffix: str, damage: str, left: Left, tmp_path: Path) -> None:
    with left.copied_to(tmp_path / "data") as broker:
        damaged = sorted((folder(broker) / "orders-0").glob(f"*.{suffix}"))
        assert len(damaged) >= 2, "several segments"
        for path in damaged:
            DAMAGE[damage](path)
        broker.start()
        assert all(line.startswith("orders-0: ") for line in broker.warnings), broker.log
        assert values_until_the_lso(broker) == COMMITTED
        assert end_offset(broker) == 2 * len(WRITTEN) + 1
        assert left.client.moved_to(broker.bootstrap_servers).end(True) == errors.NONE
        assert values_in(broker) == [*COMMITTED, "open"]
        assert [offset_at_time(broker, 0), offset_at_time(broker, 1 << 50)] == [0, -1]
        before = broker.warnings
        broker.stop()
        if damage == "garbage":
            broker.start()
            assert warnings_since(broker, before) == [], "once is enough"
            assert values_in(broker) == [*COMMITTED, "open"]


def values_until_the_lso(broker: Broker) -> list[str]:
    """Committed values up to the LSO, where a transaction is open."""
    with connect(broker.bootstrap_servers) as client:
        lso = end_offsets(client, ["orders"], READ_COMMITTED)["orders", 0]
    return [r.value for r in read_all(broker.bootstrap_servers, ["orders"], until={("orders", 0): lso})]


def end_offset(broker: Broker, topic: str = "orders", partition: int = 0) -> int:
    with connect(broker.bootstrap_servers) as client:
        return end_offsets(client, [topic])[topic, partition]


def offset_at_time(broker: Broker, timestamp: int) -> int:
    partition = ListOffsetsRequest.ListOffsetsPartition(0, timestamp=timestamp)
    request = ListOffsetsRequest(-1, 0, [ListOffsetsRequest.ListOffsetsTopic("orders", [partition])])
    with connect(broker.bootstrap_servers) as client:
        return int(client.call(request, version=6).topics[0].partitions[0].offset)


# --- what must not be forgotten -----------------------------------------------------------------------------


def produce(broker: Broker, batch: bytes) -> tuple[int, int]:
    """Error and base offset."""
    part = ProduceRequest.PartitionProduceData(0, batch)
    data = ProduceRequest.TopicProduceData(name="orders", partition_data=[part])
    with connect(broker.bootstrap_servers) as client:
        partition = client.call(ProduceRequest(None, -1, 30_000, [data]), version=9).responses[0].partition_responses[0]
        return int(partition.error_code), int(partition.base_offset)


# --- transactions over restarts -----------------------------------------------------------------------------


def opened(broker: Broker, transactional_id: str, timeout_ms: int) -> Tv2Client:
    """The producer of an open transaction."""
    client = Tv2Client(broker.bootstrap_servers, transactional_id)
    client.init(timeout_ms)
    assert client.produce({("orders", 0): ["late"]}) == errors.NONE
    return client


def test_a_timeout_goes_on_while_the_broker_is_away(broker: Broker) -> None:
    short, long = opened(broker, TXN_ID, 1500), opened(broker, "patient", 600_000)
    started_ms = described(broker, "patient").transaction_start_time_ms
    broker.kill()
    time.sleep(1.6)
    broker.settings |= IMPATIENT
    broker.start()
    await_state(broker, "CompleteAbort")
    assert short.end(True) != errors.NONE, "its producer is fenced"
    assert f"transaction {TXN_ID} " in broker.log
    still_open = described(broker, "patient")
    assert (still_open.transaction_state, still_open.transaction_start_time_ms) == ("Ongoing", started_ms)
    assert long.end(False) == errors.NONE
    assert values_in(broker) == [], "and the LSO is free"
