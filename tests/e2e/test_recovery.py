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
    DeleteTopicsRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    ProduceRequest,
)
from fencepost.server.storage.checkpoints import RECOVERY_POINTS_NAME, decode_offsets, read_file
from fencepost.testing import Broker, BrokerFailed
from tests.crash.workload import WRITERS, Workload
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
    "a header cut short": lambda batch: batch[:30],
    "a batch cut short": lambda batch: batch[:-1],
    "zeros": lambda batch: bytes(5000),
    "zeros within a batch": lambda batch: batch[:70] + bytes(len(batch) - 70),
    "garbage": lambda batch: b"\xde\xad\xbe\xef" * 400,
    "a flipped bit": lambda batch: flip(batch, 80),
    "a flipped bit in the length": lambda batch: flip(batch, 9),
    "a batch from elsewhere": lambda batch: stamp(batch, 7777, 0),
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


def test_bytes_added_after_a_clean_stop_are_cut_too(broker: Broker) -> None:
    client = Tv2Client(broker.bootstrap_servers, TXN_ID)
    client.init()
    transact(client, ["a1"])
    broker.stop()
    path = folder(broker) / "orders-0" / f"{0:020d}.log"
    with path.open("ab") as file:
        file.write(next_batch(path)[:-1])
    before = broker.warnings
    broker.start()
    assert any("cut" in line for line in warnings_since(broker, before))
    transact(client, ["a2"])
    assert values_in(broker) == ["a1", "a2"]


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


def test_what_was_open_when_the_power_went_is_aborted(broker: Broker) -> None:
    """Some of its records may be lost, and the broker cannot tell which: its client must not commit the rest."""
    client = Tv2Client(broker.bootstrap_servers, TXN_ID)
    client.init()
    assert client.produce({("orders", 0): ["open"]}) == errors.NONE
    broker.kill()
    pretend_another_boot(broker)
    broker.start()
    assert state_of(broker) == "Empty"
    assert client.end(True) == errors.PRODUCER_FENCED
    assert values_in(broker) == []


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
    "emptied": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\xde\xad\xbe\xef" * (path.stat().st_size // 4 + 1)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
}


# The rest in `make test-engines`.
DAMAGE_IN_SHORT = {("kill", "garbage"), ("kill", "cut"), ("stop", "deleted")}


@pytest.mark.parametrize(
    ("left", "suffix", "damage"),
    [
        pytest.param(how, suffix, damage, marks=[] if (how, damage) in DAMAGE_IN_SHORT else [pytest.mark.engines])
        for how in ("kill", "stop")
        for suffix in ("index", "timeindex", "txnindex", "snapshot")
        for damage in DAMAGE
        # An empty index of aborted transactions says that there are none, and the broker cannot tell that it is wrong.
        if (suffix, damage) != ("txnindex", "emptied")
    ],
    indirect=["left"],
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


def test_producer_ids_never_repeat_over_kills(broker: Broker) -> None:
    given: list[int] = []
    for round_number in range(8):
        with connect(broker.bootstrap_servers) as client:
            for number in range(3):
                reply = client.call(InitProducerIdRequest(None, 60_000), version=4)
                assert reply.error_code == errors.NONE
                given.append(reply.producer_id)
                reply = client.call(InitProducerIdRequest(f"id-{round_number}-{number}", 60_000), version=4)
                given.append(reply.producer_id)
        broker.kill()
        broker.start()
    assert len(set(given)) == len(given)
    assert given == sorted(given)


def test_an_idempotent_producer_is_known_again_after_a_kill(broker: Broker) -> None:
    """Its retry of a batch that was stored is answered with the first offset, and stored once."""
    with connect(broker.bootstrap_servers) as client:
        reply = client.call(InitProducerIdRequest(None, 60_000), version=4)
    producer_id, epoch = reply.producer_id, reply.producer_epoch
    batch = encode_batch([(None, b"once")], time.time_ns() // 1_000_000, producer_id, epoch, 0)
    gap = encode_batch([(None, b"gap")], time.time_ns() // 1_000_000, producer_id, epoch, 5)
    for _ in range(3):
        assert produce(broker, batch) == (errors.NONE, 0)
        assert produce(broker, gap) == (errors.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        broker.kill()
        broker.start()
    assert values_in(broker) == ["once"]


def produce(broker: Broker, batch: bytes) -> tuple[int, int]:
    """Error and base offset."""
    part = ProduceRequest.PartitionProduceData(0, batch)
    data = ProduceRequest.TopicProduceData(name="orders", partition_data=[part])
    with connect(broker.bootstrap_servers) as client:
        partition = client.call(ProduceRequest(None, -1, 30_000, [data]), version=9).responses[0].partition_responses[0]
        return int(partition.error_code), int(partition.base_offset)


def test_a_topic_that_was_deleted_does_not_come_back(broker: Broker) -> None:
    client = Tv2Client(broker.bootstrap_servers, TXN_ID)
    client.init()
    transact(client, ["old"])
    for _ in range(3):
        with connect(broker.bootstrap_servers) as raw:
            raw.call(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=30_000), version=4)
        broker.kill()
        broker.start()
        with connect(broker.bootstrap_servers) as raw:
            reply = raw.call(MetadataRequest(None, allow_auto_topic_creation=False), version=9)
            assert "orders" not in [topic.name for topic in reply.topics]
        create_topic(broker, "orders")
        assert values_in(broker) == []
        transact(client, ["new"])
        assert values_in(broker) == ["new"]


# --- transactions over restarts -----------------------------------------------------------------------------


def test_finished_transactions_are_left_alone_by_a_restart(broker: Broker) -> None:
    states = {"empty": "Empty", "committed": "CompleteCommit", "aborted": "CompleteAbort", "open": "Ongoing"}
    for name in states:
        client = Tv2Client(broker.bootstrap_servers, name)
        client.init()
        if name != "empty":
            assert client.produce({("orders", 0): [name]}) == errors.NONE
        if name in ("committed", "aborted"):
            assert client.end(name == "committed") == errors.NONE
    logs = {f"__transaction_state-{partition_for(name, 50)}" for name in states} | {"orders-0"}
    sizes = {name: log_bytes(folder(broker) / name) for name in logs}
    for end in (broker.kill, broker.stop):
        end()
        broker.start()
        assert {name: state_of(broker, name) for name in states} == states
        assert {name: log_bytes(folder(broker) / name) for name in logs} == sizes, "nothing was written"


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


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


def test_an_idle_id_expires_while_the_broker_is_away(broker: Broker) -> None:
    client = Tv2Client(broker.bootstrap_servers, TXN_ID)
    client.init()
    transact(client, ["a1"])
    opener = Tv2Client(broker.bootstrap_servers, "open")
    opener.init()
    assert opener.produce({("orders", 0): ["b1"]}) == errors.NONE
    before = client.producer_id
    broker.kill()
    time.sleep(0.3)
    broker.settings |= {**IMPATIENT, "transactional.id.expiration.ms": "200"}
    broker.start()
    await_state(broker, errors.TRANSACTIONAL_ID_NOT_FOUND)
    assert state_of(broker, "open") == "Ongoing", "an open transaction never expires"
    broker.kill()
    del broker.settings["transactional.id.expiration.ms"]
    broker.start()
    assert state_of(broker) == errors.TRANSACTIONAL_ID_NOT_FOUND, "the tombstone is in the log"
    client.init()
    assert client.producer_id > before
    assert client.producer_epoch == 0
    transact(client, ["a2"])
    assert opener.end(True) == errors.NONE
    assert values_in(broker) == ["a1", "b1", "a2"]


# --- who may open the folder --------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["transaction.state.log.num.partitions", "offsets.topic.num.partitions"])
def test_another_number_of_shards_is_refused_on_an_existing_folder(setting: str, broker: Broker) -> None:
    client = Tv2Client(broker.bootstrap_servers, TXN_ID)
    client.init()
    transact(client, ["a1"])
    commit_offset(broker, 1)
    broker.stop()
    broker.settings[setting] = "49"
    with pytest.raises(BrokerFailed, match=rf"{setting} is 49, but .* has 50") as refused:
        broker.start()
    assert f"hint: start with --set {setting}=50" in str(refused.value)
    assert "Traceback" not in str(refused.value)
    del broker.settings[setting]
    broker.start()
    assert values_in(broker) == ["a1"]


def test_a_second_broker_on_the_same_folder_is_refused(broker: Broker) -> None:
    client = Tv2Client(broker.bootstrap_servers, TXN_ID)
    client.init()
    transact(client, ["a1"])
    second = Broker(data=folder(broker))
    with pytest.raises(BrokerFailed, match=f"is in use by process {broker.pid}") as refused:
        second.start()
    assert "hint: " in str(refused.value)
    assert "Traceback" not in str(refused.value)
    transact(client, ["a2"])
    assert values_in(broker) == ["a1", "a2"]
    broker.kill()
    with second:
        assert values_in(second) == ["a1", "a2"], "a lock does not outlive its process"


def test_a_clean_stop_leaves_nothing_to_recover(broker: Broker) -> None:
    writers = [Tv2Client(broker.bootstrap_servers, f"writer-{number}") for number in range(4)]
    for number, client in enumerate(writers):
        client.init()
        for _ in range(50):
            transact(client, [f"{number}"])
    broker.stop()
    files = snapshot_of(folder(broker))
    broker.start()
    assert broker.warnings == []
    broker.stop()
    assert broker.warnings == []
    assert snapshot_of(folder(broker)) == files, "a start and a stop change no log"


def snapshot_of(data: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data)): path.read_bytes() for path in data.glob("*/*") if path.is_file()}


# --- flush on commit ----------------------------------------------------------------------------------------


def test_with_flush_on_commit_many_producers_share_a_sync(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data", settings={"fencepost.flush.on.commit": "true"}) as broker:
        workload = Workload(broker, tmp_path, 1, WRITERS)
        workload.create_topics()
        workload.start()
        try:
            time.sleep(1)
            workload.rest()
            broker.kill()
            broker.start()
            workload.read_all()
        finally:
            workload.kill()
        assert workload.report is not None
        assert workload.report.committed >= len(WRITERS)
