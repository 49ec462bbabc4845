"""`answer_from_bytes` decodes no message. Whatever it answers, the full decoder would answer too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import AddPartitionsToTxnRequest, InitProducerIdRequest, ProduceRequest
from fencepost.protocol.schema import Malformed
from tests.pure_broker import START_MS, PureBroker, PureConnection
from tests.wire.raw_client import encode_frame

PRODUCE, ADD_PARTITIONS = 0, 24
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
names = st.sampled_from(["orders", "payments", "missing", "__transaction_state"])
ids = st.sampled_from(["t1", "t2", "t" * 127, "", "ü"])
# Valid values are drawn more often, so that two requests in a row can lead to a written record.
transactional_ids = st.one_of(st.just("t1"), ids)
producer_ids = st.sampled_from([0, 0, 0, 1, -1])
epochs = st.sampled_from([0, 0, 0, 1, -1])


def broker(plain: bool) -> PureBroker:
    made = PureBroker()
    for name in ("orders", "payments"):
        made.cluster.create_topic(name, 2, {}, START_MS)
    assert made.call(InitProducerIdRequest("t1", 60_000), 4).producer_id == 0
    if not plain:
        for key in (PRODUCE, ADD_PARTITIONS):
            entry = list(made.node._load(key))
            entry[1] = None
            made.node._handlers[key] = tuple(entry)
    return made


def answer(to: PureBroker, frame: bytes) -> tuple[object, ...]:
    connection = PureConnection()
    try:
        to.node.handle(frame, connection, to.now_ms)
    except Malformed:
        return ("malformed",)
    return (connection.frames, connection.closed)


@st.composite
def produce(draw: st.DrawFn) -> bytes:
    def batch() -> bytes | None:
        size = draw(st.sampled_from([0, 1, 100, 20_000]))
        made = encode_batch(
            [(b"k", b"x" * size)],
            START_MS,
            draw(producer_ids),
            draw(epochs),
            draw(st.integers(0, 2)),
            draw(st.booleans()),
        )
        return draw(st.sampled_from([made, made, made, made[:-1], b"", None]))

    topics = [
        ProduceRequest.TopicProduceData(
            draw(names),
            bytes(16),
            [
                ProduceRequest.PartitionProduceData(draw(st.integers(-1, 2)), batch())
                for _ in range(draw(st.integers(0, 2)))
            ],
        )
        for _ in range(draw(st.sampled_from([1, 1, 1, 0, 2])))
    ]
    request = ProduceRequest(
        draw(st.one_of(st.none(), transactional_ids)), draw(st.sampled_from([-1, 1, 0, 2])), 1, topics
    )
    return encode_frame(request, draw(st.integers(3, 13)), 7, draw(st.sampled_from([None, "", "rdkafka"])))


@st.composite
def add_partitions(draw: st.DrawFn) -> bytes:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=draw(transactional_ids),
        v3_and_below_producer_id=draw(producer_ids),
        v3_and_below_producer_epoch=draw(epochs),
        v3_and_below_topics=[
            Topic(draw(names), draw(st.lists(st.integers(-1, 2), max_size=2))) for _ in range(draw(st.integers(0, 2)))
        ],
    )
    return encode_frame(request, draw(st.integers(0, 3)), 7, draw(st.sampled_from([None, "", "rdkafka"])))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    frame = draw(st.one_of(produce(), add_partitions()))
    kind = draw(st.sampled_from(["whole", "whole", "whole", "cut", "changed", "longer"]))
    if kind == "cut":
        return frame[: draw(st.integers(8, len(frame)))]
    if kind == "longer":
        return frame + draw(st.binary(min_size=1, max_size=4))
    if kind == "changed":
        # Not the API key and the version: those requests have their own strategies.
        at = draw(st.integers(8, len(frame) - 1))
        return frame[:at] + bytes([draw(st.integers(0, 255))]) + frame[at + 1 :]
    return frame


@given(st.lists(requests(), min_size=1, max_size=6))
@settings(max_examples=300)
def test_a_plain_request_is_answered_as_if_it_were_decoded_in_full(frames: list[bytes]) -> None:
    plain, full = broker(True), broker(False)
    for frame in frames:
        assert answer(plain, frame) == answer(full, frame)
    assert plain.cluster.txns.find("t1") == full.cluster.txns.find("t1")
    assert plain.cluster.txns.counts == full.cluster.txns.counts
    for name in ("orders", "payments"):
        for ours, theirs in zip(
            plain.cluster.topics[name].partitions.values(), full.cluster.topics[name].partitions.values()
        ):
            assert ours.log.end_offset == theirs.log.end_offset


@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_what_a_small_transaction_sends_is_plain(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = broker(True)
    topics = [Topic("orders", [0])]
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t1",
        v3_and_below_producer_id=0,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    made.call(add, 0)

    def decoded(*_: object) -> None:
        raise AssertionError("it was decoded in full")

    for sequence, size in enumerate((1, 100, 20_000)):
        batch = encode_batch([(b"k", b"x" * size)], START_MS, 0, 0, sequence, True)
        data = [ProduceRequest.TopicProduceData("orders", bytes(16), [ProduceRequest.PartitionProduceData(0, batch)])]
        frame = encode_frame(ProduceRequest("t1", -1, 1, data), version, 7, "rdkafka")
        connection = PureConnection()
        with monkeypatch.context() as patched:
            patched.setattr(ProduceRequest, "decode", decoded)
            made.node.handle(frame, connection, made.now_ms)
        assert connection.frames
    assert made.cluster.topics["orders"].partitions[0].log.end_offset == 3
