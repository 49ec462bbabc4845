"""75,000 mutated frames leave the broker serving: each gets a reply or Malformed, and the state stays sound.

`tests/e2e/test_fuzz.py` sends some over real sockets. A failure names the seed and the frame.
"""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.api import APIS
from fencepost.broker.cluster import Cluster
from fencepost.machines.log.interface import Storage
from fencepost.machines.txn.states import IDLE, ONGOING
from fencepost.protocol import errors, messages
from fencepost.protocol.batch import Part, encode_batch
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from fencepost.protocol.schema import Field, Malformed
from fencepost.server.storage import DataFolder
from tests.pure_broker import START_MS, PureBroker, PureConnection
from tests.wire.hostile import GROUPS, TOPICS, HostileFrames, Identity

FRAMES = 25_000
CONNECTIONS = 8
OTHERS = ("orders", "payments")  # Topics and transactional ids that the frames do not know.


class Client(PureConnection):
    """A connection that knows which request it waits for, so that the reply can be decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.frame = b""
        self.identity = Identity()
        self.is_waiting = False
        self.replies: list[tuple[bytes, Identity, bytes]] = []

    def reply(self, parts: list[Part]) -> None:
        assert self.is_waiting, "a second answer to one request"
        self.is_waiting = False
        super().reply(parts)
        self.replies += [(self.frame, self.identity, frame) for frame in self.frames]
        self.frames.clear()


class Fuzz:
    def __init__(self, seed: int, storage: Storage | None = None) -> None:
        # Small segments, so that there are many of them.
        settings = {"max.incremental.fetch.session.cache.slots": "5", "log.segment.bytes": "2000"}
        self.broker = PureBroker(settings, storage, seed=seed)  # type: ignore[arg-type]
        self.frames = HostileFrames(seed, self.broker.now_ms)
        self.next_frame = self.frames.next
        self.clients = [Client() for _ in range(CONNECTIONS)]
        self.counts: Counter[str] = Counter()
        self.sent = 0
        topics = [CreateTopicsRequest.CreatableTopic(name, 3, 1) for name in TOPICS[:2]]
        self.broker.call(CreateTopicsRequest(topics, 1000), 5)

    def run(self, count: int) -> None:
        while self.sent < count:
            self.step()
            if self.sent % 50 == 0:
                self.broker.advance(self.frames.rng.choice((1, 100, 5_000)))
                self.frames.now_ms = self.broker.now_ms
                self.collect()

    def step(self) -> None:
        rng = self.frames.rng
        slot = rng.randrange(CONNECTIONS)
        client = self.clients[slot]
        if client.is_waiting:
            # The server passes on no request while an answer is due, but the client may give up.
            if rng.random() < 0.3:
                client.hang_up()
                self.clients[slot] = Client()
            return
        client.frame = self.next_frame()
        client.identity = self.frames.identity
        client.is_waiting = True
        self.sent += 1
        try:
            self.broker.node.handle(client.frame, client, self.broker.now_ms)
        except Malformed:
            self.counts["malformed"] += 1
            self.clients[slot] = Client()
        except Exception as e:
            e.add_note(f"frame: {client.frame.hex()}")
            raise
        if client.closed:
            self.counts["closed"] += 1
            self.clients[slot] = Client()
        self.read(client)

    def collect(self) -> None:
        for client in self.clients:
            self.read(client)

    def read(self, client: Client) -> None:
        """A client must be able to decode every reply to its last byte."""
        for request, identity, frame in client.replies:
            api_key, version, correlation_id = struct.unpack_from(">hhi", request)
            assert frame[:4] == struct.pack(">i", correlation_id)
            api = APIS[api_key]
            kind = getattr(messages, f"{api.name}Response")
            version = version if api.first <= version <= api.last else 0
            pos = 5 if kind.is_flexible(version) and api_key != 18 else 4
            response, end = kind.decode(frame, pos, version)
            assert end == len(frame), f"{api.name} v{version}: {len(frame) - end} bytes left over: {request.hex()}"
            self.frames.learn(response, identity)
            self.counts[api.name] += 1
        client.replies.clear()

    def hang_up(self) -> None:
        for slot, client in enumerate(self.clients):
            client.hang_up()
            self.clients[slot] = Client()


def state_of(cluster: Cluster) -> dict[str, object]:
    """What must be the same after a restart."""
    return {
        # Kafka: the last epoch is not in the record, so a restart forgets it.
        "txns": {t.transactional_id: t._replace(last_producer_epoch=-1) for t in cluster.txns.all_txns()},
        "offsets": {
            group: cluster.groups.shard_of(group, START_MS).offsets.fetch_all(group, False) for group in GROUPS
        },
        "partitions": {
            (topic.name, p.index): (p.log.end_offset, p.last_stable_offset, dict(p.producers.open_txns))
            for topic in cluster.topics.values()
            for p in topic.partitions.values()
        },
    }


def commit_one_transaction(broker: PureBroker, name: str) -> int:
    """What a normal client does: create a topic, commit a transaction, read it back. Returns the producer id."""
    topic = CreateTopicsRequest.CreatableTopic(name, 1, 1)
    assert broker.call(CreateTopicsRequest([topic], 1000), 5).topics[0].error_code == errors.NONE
    init = broker.call(InitProducerIdRequest(name, 60_000), 4)
    assert init.error_code == errors.NONE
    added = broker.call(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=init.producer_id,
            v3_and_below_producer_epoch=init.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name, [0])],
        ),
        3,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == errors.NONE
    batch = encode_batch([(b"k", b"v")], broker.now_ms, init.producer_id, init.producer_epoch, 0, True)
    data = ProduceRequest.TopicProduceData(name, partition_data=[ProduceRequest.PartitionProduceData(0, batch)])
    produced = broker.call(ProduceRequest(name, -1, 1000, [data]), 9)
    assert produced.responses[0].partition_responses[0].error_code == errors.NONE
    ended = broker.call(EndTxnRequest(name, init.producer_id, init.producer_epoch, True), 3)
    assert ended.error_code == errors.NONE
    wanted = FetchRequest.FetchTopic(
        name, partitions=[FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]
    )
    fetched = broker.call(FetchRequest(max_bytes=1 << 20, isolation_level=1, topics=[wanted]), 11)
    assert fetched.responses[0].partitions[0].last_stable_offset == 2
    assert fetched.responses[0].partitions[0].records
    return int(init.producer_id)


def open_folder(path: Path) -> DataFolder:
    def run_now(work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        work()
        then(None)

    return DataFolder(str(path), flush=False, defer=run_now)


def test_mutated_frames_leave_a_data_folder_that_recovers(tmp_path: Path) -> None:
    fuzz = Fuzz(seed=21, storage=open_folder(tmp_path / "data"))
    broker = fuzz.broker
    fuzz.run(5_000)
    fuzz.hang_up()
    before = state_of(broker.cluster)
    # What a process finds after kill -9: the files as they are, without the file of a clean stop.
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    broker.restart(open_folder(tmp_path / "killed"))  # type: ignore[arg-type]
    assert state_of(broker.cluster) == before
    commit_one_transaction(broker, "after-the-kill")
    before = state_of(broker.cluster)
    broker.cluster.stop()
    broker.restart(open_folder(tmp_path / "killed"))  # type: ignore[arg-type]
    assert state_of(broker.cluster) == before
    commit_one_transaction(broker, "after-the-stop")


def test_a_disk_that_is_full_at_times_leaves_the_broker_serving() -> None:
    fuzz = Fuzz(seed=11)
    broker = fuzz.broker
    for _ in range(100):
        broker.storage.full = not broker.storage.full
        fuzz.run(fuzz.sent + 100)
    broker.storage.full = False
    fuzz.hang_up()
    # Markers of decided transactions that could not be written are written now.
    broker.advance(60_000)
    assert {t.state for t in broker.cluster.txns.all_txns()} <= IDLE | {ONGOING}
    commit_one_transaction(broker, "after-the-storm")
    before = state_of(broker.cluster)
    broker.restart()
    assert state_of(broker.cluster) == before


@pytest.mark.parametrize("seed", range(3))
def test_mutated_frames_leave_the_broker_serving(seed: int) -> None:
    fuzz = Fuzz(seed)
    broker = fuzz.broker
    fuzz.run(FRAMES)

    # Every API was handled, not only refused by its header.
    assert {api.name for api in APIS.values()} <= set(fuzz.counts), fuzz.counts
    assert fuzz.counts["malformed"] < FRAMES * 0.7

    # Nothing is left of clients that disconnected.
    fuzz.hang_up()
    assert broker.cluster.fetches.is_empty()
    commit_one_transaction(broker, "after-the-storm")

    # A new process finds the same state in the logs.
    before = state_of(broker.cluster)
    broker.restart()
    assert state_of(broker.cluster) == before
    commit_one_transaction(broker, "after-the-restart")
    assert set(TOPICS[:3]) & set(broker.cluster.topics)


def test_well_formed_frames_name_nothing_of_other_clients() -> None:
    """`scripts/fuzz.py` relies on it: if its other clients lose something, the broker has lost it."""
    fuzz = Fuzz(0)
    producer_ids = {commit_one_transaction(fuzz.broker, name) for name in OTHERS}
    topic_ids = {fuzz.broker.cluster.topics[name].topic_id for name in OTHERS}
    named: set[tuple[str, object]] = set()

    def next_frame() -> bytes:
        frame = fuzz.frames.well_formed()
        named.update(names_in(frame))
        return frame

    fuzz.next_frame = next_frame
    fuzz.run(10_000)
    assert {value for name, value in named if name == "topic_id"}.isdisjoint(topic_ids)
    assert {value for name, value in named if name.endswith("producer_id")}.isdisjoint(producer_ids)
    assert {value for _, value in named}.isdisjoint(OTHERS)


def names_in(frame: bytes) -> Iterator[tuple[str, object]]:
    """The single values of a request, each with the name of its field."""
    api_key, version, _, length = struct.unpack_from(">hhih", frame)
    api = APIS[api_key]
    if api.first <= version <= api.last:
        kind = getattr(messages, f"{api.name}Request")
        body = 10 + max(length, 0) + kind.is_flexible(version)
        yield from values_in(kind.decode(frame, body, version)[0], kind.definition.fields, version)


def values_in(value: Any, fields: list[Field], version: int) -> Iterator[tuple[str, object]]:
    for field in fields:
        if version not in field.versions:
            continue
        got = getattr(value, field.name)
        for one in (got or ()) if field.is_array else (got,):
            if field.struct is None:
                yield field.name, one
            elif one is not None:
                yield from values_in(one, field.struct.fields, version)
