"""Retention and the cleaner in a broker: when they run, what they change, and what a restart finds."""

from __future__ import annotations

import pytest

from fencepost.machines.log.interface import LogConfig, Rewrite, StorageFailed
from fencepost.machines.log.memory import MemoryLog
from fencepost.protocol import errors
from fencepost.protocol.batch import HEADER_BYTES, assemble, decode_header, encode_batch, encode_varint, stamp
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.records import iter_batches, iter_records
from tests.pure_broker import PureBroker

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def create(broker: PureBroker, name: str, **configs: str) -> None:
    settings = [
        CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
    ]
    topic = CreateTopicsRequest.CreatableTopic(name, 1, 1, [], settings)
    assert broker.call(CreateTopicsRequest([topic]), version=5).topics[0].error_code == errors.NONE


def produce(broker: PureBroker, topic: str, *pairs: tuple[bytes, bytes | None]) -> int:
    batch = encode_batch(pairs, broker.now_ms)
    data = ProduceRequest.TopicProduceData(topic, partition_data=[ProduceRequest.PartitionProduceData(0, batch)])
    reply = broker.call(ProduceRequest(None, 1, 1000, [data]), version=8)
    result = reply.responses[0].partition_responses[0]
    assert result.error_code == errors.NONE
    return int(result.base_offset)


def fetch(broker: PureBroker, topic: str, offset: int) -> tuple[int, list[tuple[int, bytes | None, bytes | None]]]:
    wanted = FetchRequest.FetchTopic(topic, partitions=[FetchRequest.FetchPartition(0, fetch_offset=offset)])
    wanted.partitions[0].partition_max_bytes = 1 << 20
    reply = broker.call(FetchRequest(max_wait_ms=0, topics=[wanted], max_bytes=1 << 20), version=11)
    partition = reply.responses[0].partitions[0]
    records = [r for _, batch in iter_batches(partition.records or b"") for r in iter_records(batch)]
    return partition.error_code, [(r.offset, r.key, r.value) for r in records]


def earliest(broker: PureBroker, topic: str) -> int:
    wanted = ListOffsetsRequest.ListOffsetsTopic(topic, [ListOffsetsRequest.ListOffsetsPartition(0, -1, -2)])
    reply = broker.call(ListOffsetsRequest(topics=[wanted]), version=5)
    return int(reply.topics[0].partitions[0].offset)


def delete_records(broker: PureBroker, topic: str, offset: int, partition: int = 0) -> tuple[int, int]:
    wanted = DeleteRecordsRequest.DeleteRecordsTopic(
        topic, [DeleteRecordsRequest.DeleteRecordsPartition(partition, offset)]
    )
    result = broker.call(DeleteRecordsRequest([wanted], 1000), version=2).topics[0].partitions[0]
    return result.error_code, result.low_watermark


# --- retention ----------------------------------------------------------------------------------------------


def test_records_go_when_their_time_is_over_and_stay_gone_after_a_restart() -> None:
    broker = PureBroker()
    create(broker, "orders", retention_ms=str(2 * HOUR_MS), segment_bytes="1024")
    for _ in range(20):
        produce(broker, "orders", (b"k", b"x" * 100))
        broker.advance(HOUR_MS // 4)
    start = earliest(broker, "orders")
    assert 4 < start < 15
    assert fetch(broker, "orders", start - 1)[0] == errors.OFFSET_OUT_OF_RANGE
    assert [offset for offset, _, _ in fetch(broker, "orders", start)[1]] == list(range(start, 20))
    broker.restart()
    assert earliest(broker, "orders") == start
    broker.advance(DAY_MS)
    assert earliest(broker, "orders") == 20
    assert produce(broker, "orders", (b"k", b"v")) == 20


def test_a_topic_stays_below_its_size() -> None:
    broker = PureBroker()
    create(broker, "orders", retention_bytes="3000", segment_bytes="1024")
    for _ in range(100):
        produce(broker, "orders", (b"k", b"x" * 100))
    broker.advance(300_000)
    log = broker.cluster.topics["orders"].partitions[0].log
    assert 3000 <= log.end_address - log.start_address <= 3000 + 1024


@pytest.mark.parametrize(
    ("settings", "is_kept"),
    [
        ({"log.retention.hours": "1"}, False),
        ({"log.retention.minutes": "60"}, False),
        ({"log.retention.ms": str(HOUR_MS)}, False),
        ({"log.retention.ms": "-1", "log.retention.hours": "1"}, True),
        ({"log.retention.minutes": "600", "log.retention.hours": "1"}, True),
        ({"log.retention.hours": "-1"}, True),
        ({}, True),
    ],
)
def test_the_broker_sets_the_time_in_any_unit(settings: dict[str, str], is_kept: bool) -> None:
    broker = PureBroker(settings)
    create(broker, "orders")
    produce(broker, "orders", (b"k", b"v"))
    broker.advance(3 * HOUR_MS)
    assert earliest(broker, "orders") == (0 if is_kept else 1)


def test_a_compacted_topic_keeps_what_is_old() -> None:
    broker = PureBroker()
    create(broker, "prices", cleanup_policy="compact", retention_ms="1000")
    create(broker, "both", cleanup_policy="compact,delete", retention_ms="1000")
    for topic in ("prices", "both"):
        produce(broker, topic, (b"k", b"v"))
    broker.advance(HOUR_MS)
    assert earliest(broker, "prices") == 0
    assert earliest(broker, "both") == 1


def test_a_log_that_cannot_be_shortened_is_reported_and_does_not_stop_the_others() -> None:
    class Stubborn(MemoryLog):
        def advance_start(self, offset: int) -> None:
            raise StorageFailed("read-only file system")

    broker = PureBroker()
    create(broker, "first", retention_ms="1000")
    create(broker, "second", retention_ms="1000")
    stubborn = Stubborn(broker.storage, LogConfig())
    broker.cluster.topics["first"].partitions[0].log = stubborn
    for topic in ("first", "second"):
        produce(broker, topic, (b"k", b"v"))
    broker.advance(HOUR_MS)
    assert earliest(broker, "second") == 1
    assert any("first-0 cannot be shortened now: read-only file system" in line for line in broker.notices)


# --- DeleteRecords ------------------------------------------------------------------------------------------


def test_delete_records_moves_the_start_for_good() -> None:
    broker = PureBroker()
    create(broker, "orders")
    for n in range(5):
        produce(broker, "orders", (b"k", b"%d" % n))
    assert delete_records(broker, "orders", 3) == (errors.NONE, 3)
    assert fetch(broker, "orders", 2)[0] == errors.OFFSET_OUT_OF_RANGE
    assert fetch(broker, "orders", 3)[1] == [(3, b"k", b"3"), (4, b"k", b"4")]
    broker.restart()
    assert earliest(broker, "orders") == 3
    assert delete_records(broker, "orders", -1) == (errors.NONE, 5)


def test_delete_records_refuses_as_kafka_does() -> None:
    broker = PureBroker()
    create(broker, "orders")
    create(broker, "prices", cleanup_policy="compact")
    broker.call(FindCoordinatorRequest("t", 1), version=2)
    assert delete_records(broker, "orders", 1) == (errors.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(broker, "orders", 0, partition=9) == (errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(broker, "nowhere", 0) == (errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(broker, "prices", 0) == (errors.POLICY_VIOLATION, -1)
    assert delete_records(broker, "__transaction_state", 0) == (errors.INVALID_TOPIC_EXCEPTION, -1)


# --- the cleaner --------------------------------------------------------------------------------------------


def store(broker: PureBroker, topic: str, batch: bytes) -> None:
    """Append a batch that clients can no longer produce."""
    log = broker.cluster.topics[topic].partitions[0].log
    header = decode_header(batch)
    last_offset = log.end_offset + header.last_offset_delta
    log.append(stamp(batch, log.end_offset, 0), log.end_offset, last_offset, header.max_timestamp)


def record(timestamp_delta: int, offset_delta: int, key: bytes) -> bytes:
    body = b"\0" + encode_varint(timestamp_delta) + encode_varint(offset_delta) + encode_varint(len(key)) + key
    return encode_varint(len(body) + 2) + body + b"\0\0"


ABSURD_TIME = record(2**63 - 1, 0, b"a") + record(0, 1, b"b")


@pytest.mark.parametrize(("payload", "count"), [(ABSURD_TIME, 2), (b"\0", 1), (b"\xff" * 5, 1), (b"", 1)])
def test_an_unreadable_batch_does_not_end_the_cleaner(payload: bytes, count: int) -> None:
    broker = PureBroker()
    for topic in ("bad", "good"):
        create(broker, topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.0", segment_bytes="1024")
    store(broker, "bad", assemble(payload, count, 0, broker.now_ms, broker.now_ms))
    for topic in ("bad", "good"):
        fill(broker, topic, 50)
    broker.advance(30_000)
    for topic in ("bad", "good"):
        log = broker.cluster.topics[topic].partitions[0].log
        assert log.clean_offset > 50
        kept = log.read(log.end_offset - 20, 1 << 20, log.end_address)
        assert len(list(iter_batches(kept))) < 20
    first = broker.cluster.topics["bad"].partitions[0].log.read(0, 1, 1 << 30)
    assert next(iter_batches(first))[1][HEADER_BYTES:] == payload, "it stays as it is"


def test_a_log_that_fails_the_cleaner_is_reported_once_and_does_not_stop_the_others() -> None:
    class Choking(MemoryLog):
        def rewrite(self, base_offset: int, end_offset: int) -> Rewrite:
            raise IndexError("index out of range")

    broker = PureBroker()
    config = LogConfig(segment_bytes=1024, compact=True)
    for topic in ("bad", "good"):
        create(broker, topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.0", segment_bytes="1024")
    broker.cluster.topics["bad"].partitions[0].log = Choking(broker.storage, config)
    for topic in ("bad", "good"):
        fill(broker, topic, 50)
    broker.advance(120_000)
    assert len(fetch(broker, "good", 0)[1]) < 30
    told = [line for line in broker.notices if "cannot be cleaned now" in line]
    assert told == ["bad-0 cannot be cleaned now: IndexError: index out of range"]


def test_a_timestamp_is_found_in_a_batch_with_an_unreadable_record() -> None:
    broker = PureBroker()
    create(broker, "orders")
    payload = record(0, 0, b"a") + record(2**63 - 1, 1, b"b")
    batch = assemble(payload, 2, 0, broker.now_ms, broker.now_ms + 5)
    data = ProduceRequest.TopicProduceData("orders", partition_data=[ProduceRequest.PartitionProduceData(0, batch)])
    assert not broker.call(ProduceRequest(None, 1, 1000, [data]), 8).responses[0].partition_responses[0].error_code
    for wanted_ms in (broker.now_ms + 1, broker.now_ms):
        wanted = [ListOffsetsRequest.ListOffsetsPartition(0, -1, wanted_ms)]
        request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic("orders", wanted)])
        found = broker.call(request, version=5).topics[0].partitions[0]
        assert (found.error_code, found.offset) == (errors.NONE, 0)


def fill(broker: PureBroker, topic: str, rounds: int) -> None:
    for n in range(rounds):
        produce(broker, topic, (b"a", b"%d" % n), (b"b", b"%d" % n))


def test_a_compacted_topic_is_cleaned_when_it_is_dirty_enough() -> None:
    broker = PureBroker()
    create(broker, "prices", cleanup_policy="compact", segment_bytes="1024")
    fill(broker, "prices", 50)
    broker.advance(14_999)
    assert len(fetch(broker, "prices", 0)[1]) == 100
    broker.advance(1_000)
    left = fetch(broker, "prices", 0)[1]
    assert len(left) < 30
    assert left[-2:] == [(98, b"a", b"49"), (99, b"b", b"49")]
    # A little more dirty data is not worth a compaction.
    fill(broker, "prices", 5)
    broker.advance(60_000)
    assert len(fetch(broker, "prices", 0)[1]) == len(left) + 10


def test_a_topics_own_ratio_and_lags_count() -> None:
    broker = PureBroker()
    settings = {"cleanup_policy": "compact", "segment_bytes": "1024"}
    create(broker, "always", **settings, min_cleanable_dirty_ratio="0.0")
    create(broker, "never", **settings, min_cleanable_dirty_ratio="1.0")
    create(broker, "later", **settings, min_compaction_lag_ms=str(HOUR_MS))
    create(broker, "at-last", **settings, min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms=str(HOUR_MS))
    names = ("always", "never", "later", "at-last")
    for name in names:
        fill(broker, name, 50)
    broker.advance(30_000)
    assert [len(fetch(broker, name, 0)[1]) < 50 for name in names] == [True, False, False, False]
    broker.advance(HOUR_MS)
    assert [len(fetch(broker, name, 0)[1]) < 50 for name in names] == [True, False, True, True]


def test_a_broker_without_a_cleaner_keeps_everything() -> None:
    broker = PureBroker({"log.cleaner.enable": "false"})
    create(broker, "prices", cleanup_policy="compact", segment_bytes="1024")
    fill(broker, "prices", 50)
    broker.advance(HOUR_MS)
    assert len(fetch(broker, "prices", 0)[1]) == 100


def commit_offsets(broker: PureBroker, offsets: range, commit: bool = True) -> None:
    """Transactions of one producer that only commit an offset."""
    reply = broker.call(InitProducerIdRequest("t", 600_000), version=1)
    assert reply.error_code == errors.NONE
    identity = reply.producer_id, reply.producer_epoch
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    for n in offsets:
        assert not broker.call(AddOffsetsToTxnRequest("t", *identity, "g"), version=0).error_code
        offset = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, n)
        request = TxnOffsetCommitRequest("t", "g", *identity, topics=[topic("orders", [offset])])
        assert not broker.call(request, version=0).topics[0].partitions[0].error_code
        if commit:
            assert not broker.call(EndTxnRequest("t", *identity, True), version=0).error_code


def committed_offset(broker: PureBroker) -> int:
    wanted = OffsetFetchRequest.OffsetFetchRequestTopic("orders", [0])
    return int(broker.call(OffsetFetchRequest("g", [wanted]), version=5).topics[0].partitions[0].committed_offset)


def bytes_of(broker: PureBroker, topic: str) -> int:
    logs = [partition.log for partition in broker.cluster.topics[topic].partitions.values()]
    return sum(log.end_address - log.start_address for log in logs)


@pytest.mark.parametrize("is_one_open", [False, True])
def test_the_brokers_own_topics_stay_short_and_say_the_same(is_one_open: bool) -> None:
    broker = PureBroker({"fencepost.state.clean.bytes": "4096"})
    create(broker, "orders")
    commit_offsets(broker, range(300))
    before = [bytes_of(broker, topic) for topic in ("__transaction_state", "__consumer_offsets")]
    broker.advance(20_000)
    if is_one_open:
        commit_offsets(broker, range(300, 301), commit=False)
    broker.advance(15_000)
    after = [bytes_of(broker, topic) for topic in ("__transaction_state", "__consumer_offsets")]
    assert after[0] < before[0] // 20
    assert after[1] < before[1] // 20
    txn = broker.cluster.txns.find("t")
    assert txn is not None
    broker.restart()
    assert broker.cluster.txns.find("t") == txn._replace(last_producer_epoch=-1)
    assert committed_offset(broker) == 299
    if is_one_open:
        end = EndTxnRequest("t", txn.producer_id, txn.producer_epoch, True)
        assert not broker.call(end, version=0).error_code
        assert committed_offset(broker) == 300


def test_the_cleaner_leaves_off_when_the_broker_stops() -> None:
    broker = PureBroker()
    create(broker, "prices", cleanup_policy="compact", segment_bytes="1024")
    fill(broker, "prices", 50)
    housekeeping = broker.cluster.housekeeping
    housekeeping.clean(broker.now_ms)
    assert housekeeping._jobs
    broker.cluster.stop()
    assert not housekeeping._jobs
    broker.restart()
    assert len(fetch(broker, "prices", 0)[1]) == 100
