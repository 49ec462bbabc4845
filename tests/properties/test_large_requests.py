"""A large request is handled in the memory that it arrived in. It is answered and stored like a copy of it."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fencepost.broker.node import Frame
from fencepost.protocol import errors
from fencepost.protocol.batch import Part, decode_header, encode_batch
from fencepost.protocol.messages import FetchRequest, InitProducerIdRequest, ProduceRequest, ProduceResponse
from fencepost.protocol.schema import Malformed
from tests.properties.test_plain_requests import requests
from tests.pure_broker import START_MS, PureBroker, PureConnection
from tests.wire.raw_client import decode_reply, encode_frame

PLAIN: dict[str, dict[str, str]] = {"orders": {}, "payments": {}}
TOPICS = {"orders": {"cleanup.policy": "compact"}, "payments": {"message.timestamp.type": "LogAppendTime"}}
EVERYTHING = 1 << 30


def broker(topics: dict[str, dict[str, str]]) -> PureBroker:
    made = PureBroker()
    for name, config in topics.items():
        made.cluster.create_topic(name, 2, config, START_MS)
    made.call(InitProducerIdRequest("t1", 60_000), 4)
    return made


def answer(to: PureBroker, frame: Frame) -> tuple[object, ...]:
    connection = PureConnection()
    try:
        to.node.handle(frame, connection, to.now_ms)
    except Malformed as e:
        return ("malformed", str(e))
    return (connection.frames, connection.closed)


def stored(broker: PureBroker) -> list[bytes]:
    logs = [partition.log for topic in broker.cluster.topics.values() for partition in topic.partitions.values()]
    return [log.read(log.start_offset, EVERYTHING, log.end_address) for log in logs]


def in_own_memory(frame: bytes) -> memoryview:
    return memoryview(bytearray(frame))


def spoil(frame: memoryview) -> None:
    frame[:] = b"\xee" * len(frame)


def produce(batch: bytes, index: int = 0) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(index, batch)]
    return ProduceRequest(None, -1, 1, [ProduceRequest.TopicProduceData("orders", bytes(16), data)])


@given(st.lists(st.tuples(requests(), st.sampled_from([False, False, False, True])), min_size=1, max_size=6))
@settings(max_examples=80)
@example([(bytes.fromhex("0000000900000007ffff0000ffff00000001"), False)])  # Ends too early.
def test_a_request_in_its_own_memory_is_answered_and_stored_like_a_copy(frames: list[tuple[bytes, bool]]) -> None:
    for topics in (PLAIN, TOPICS):
        in_place, copied = broker(topics), broker(topics)
        for frame, is_full in frames:
            in_place.storage.full = copied.storage.full = is_full
            before = stored(in_place)
            memory = in_own_memory(frame)
            assert answer(in_place, memory) == answer(copied, frame)
            if stored(in_place) == before and not is_full:
                assert memory == frame, "a request that was refused has changed"
            # The broker holds no reference to the memory after the answer.
            spoil(memory)
        assert stored(in_place) == stored(copied)


def test_a_batch_that_the_disk_refused_can_be_sent_again() -> None:
    made = broker({"orders": {}})
    request = produce(encode_batch([(b"k", b"x" * 100)], START_MS))
    made.storage.full = True
    for code in (errors.KAFKA_STORAGE_ERROR, errors.NONE, errors.NONE):
        connection = PureConnection()
        made.node.handle(in_own_memory(encode_frame(request, 9)), connection, made.now_ms)
        response: ProduceResponse = decode_reply(request, 9, connection.frames[0])
        assert response.responses[0].partition_responses[0].error_code == code
        made.storage.full = False
    assert made.cluster.topics["orders"].partitions[0].log.end_offset == 2


def test_only_the_record_batch_is_stored_and_not_the_bytes_after_it() -> None:
    made = broker({"orders": {}})
    batch = encode_batch([(b"k", b"x" * 100)], START_MS)
    memory = in_own_memory(encode_frame(produce(batch + b"left over"), 9))
    made.node.handle(memory, PureConnection(), made.now_ms)
    log = made.cluster.topics["orders"].partitions[0].log
    found = log.read(0, EVERYTHING, log.end_address)
    assert (found[16:], decode_header(found).base_offset) == (batch[16:], 0)


class PartsConnection(PureConnection):
    """Keeps the parts of its answers as a socket does that cannot send them yet."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[Part] = []

    def reply(self, parts: list[Part]) -> None:
        self.parts += parts


def test_a_fetch_that_waited_for_a_large_request_keeps_nothing_of_its_memory() -> None:
    made = broker({"orders": {}})
    partitions = [FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=EVERYTHING)]
    fetch = FetchRequest(
        max_wait_ms=10_000, min_bytes=1, topics=[FetchRequest.FetchTopic("orders", partitions=partitions)]
    )
    waiting = PartsConnection()
    made.node.handle(encode_frame(fetch, 12), waiting, made.now_ms)
    assert not waiting.parts
    batch = encode_batch([(b"k", b"x" * 100_000)], START_MS)
    memory = in_own_memory(encode_frame(produce(batch), 9))
    made.node.handle(memory, PureConnection(), made.now_ms)
    spoil(memory)
    assert batch[16:] in b"".join(waiting.parts)
