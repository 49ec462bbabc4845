"""Requests that need no story: what is asked, and what both our broker and Apache Kafka answer.

`REQUESTS` are functions of a broker with a topic `orders` of three partitions and two transactional producers, and do
not depend on their order (a batch may have come before: then it comes again);
`FRAMES` are bytes that are answered, or cost the connection (None).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.records import GZIP, Record, encode_records, iter_records
from tests.transcripts.target import Target
from tests.wire.raw_client import encode_frame

Part = tuple[int, bytes | None]
BATCH_BYTES = len(encode_batch([(None, b"x")], 0))


class Stage:
    """A broker with the topic, and two transactional producers that have begun."""

    def __init__(self, target: Target) -> None:
        self.target = target
        kind = CreateTopicsRequest.CreatableTopic
        self.call(CreateTopicsRequest([kind("orders", 3, 1)], 10_000), 5)
        self.call(FindCoordinatorRequest("g", 0), 1)  # Creates what groups are kept in.
        self.wait_for_leaders()
        self.first = self.init("first")
        self.second = self.init("second")
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("orders", [0, 1])
        for name, producer in (("first", self.first), ("second", self.second)):
            self.call(AddPartitionsToTxnRequest((), name, *producer, [topic]), 3)

    def call(self, request: Any, version: int) -> Any:
        return self.target.call(request, version)

    def wait_for_leaders(self) -> None:
        for _ in range(200):
            wanted = [MetadataRequest.MetadataRequestTopic(name="orders")]
            found = self.call(MetadataRequest(wanted, allow_auto_topic_creation=False), 4).topics[0]
            if found.error_code == 0 and self.produce([(2, self.batch())]) == [(2, "NONE")]:
                return
            self.target.advance(20)
        raise AssertionError("the topic has no leaders")

    def init(self, transactional_id: str) -> tuple[int, int]:
        for _ in range(200):
            reply = self.call(InitProducerIdRequest(transactional_id, 60_000), 4)
            if reply.error_code == 0:
                return reply.producer_id, reply.producer_epoch
            self.target.advance(20)
        raise AssertionError(errors.name_of(reply.error_code))

    def batch(self, producer: tuple[int, int] = (-1, -1), sequence: int = -1, transactional: bool = False) -> bytes:
        return encode_batch([(None, b"x")], self.target.now_ms, *producer, sequence, transactional)

    def produce(
        self, parts: list[Part], transactional_id: str | None = None, acks: int = -1, version: int = 11
    ) -> list[tuple[int, str]]:
        data = [ProduceRequest.PartitionProduceData(*part) for part in parts]
        topics = [ProduceRequest.TopicProduceData("orders", partition_data=data)]
        reply = self.call(ProduceRequest(transactional_id, acks, 1000, topics), version)
        found = [(p.index, errors.name_of(p.error_code)) for t in reply.responses for p in t.partition_responses]
        return sorted(found)

    def fetch(
        self,
        offsets: dict[int, int],
        partition_max_bytes: int = 1000,
        max_bytes: int = 1 << 20,
        committed: bool = False,
    ) -> list[tuple[int, str, int, bool]]:
        """Per partition: error, whole batches, and whether there is a list of aborted transactions."""
        partitions = [
            FetchRequest.FetchPartition(index, -1, offset, partition_max_bytes=partition_max_bytes)
            for index, offset in offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            topics=[FetchRequest.FetchTopic("orders", partitions=partitions)],
        )
        reply = self.call(request, 11)
        return [
            (
                p.partition_index,
                errors.name_of(p.error_code),
                len(p.records or b"") // BATCH_BYTES,
                p.aborted_transactions is not None,
            )
            for t in reply.responses
            for p in t.partitions
        ]

    def list_offset(self, timestamp: int, version: int, leader_epoch: int = -1, isolation: int = 0) -> str:
        partition = ListOffsetsRequest.ListOffsetsPartition(2, leader_epoch, timestamp)
        topics = [ListOffsetsRequest.ListOffsetsTopic("orders", [partition])]
        found = self.call(ListOffsetsRequest(-1, isolation, topics), version).topics[0].partitions[0]
        return errors.name_of(found.error_code)

    def commit_offset(self, transactional_id: str, version: int, metadata: str | None = "", offset: int = 1) -> str:
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, offset, -1, metadata)
        request = TxnOffsetCommitRequest(transactional_id, "g", *self.first, topics=[kind("orders", [partition])])
        return errors.name_of(self.call(request, version).topics[0].partitions[0].error_code)

    def add(self, *txns: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction) -> list[Any]:
        reply = self.call(AddPartitionsToTxnRequest(txns), 4)
        return sorted(
            (t.transactional_id, p.partition_index, errors.name_of(p.partition_error_code))
            for t in reply.results_by_transaction
            for topic in t.topic_results
            for p in topic.results_by_partition
        )

    def marker(self, topic: str) -> str:
        kind = WriteTxnMarkersRequest.WritableTxnMarker
        topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic(topic, [0])]
        reply = self.call(WriteTxnMarkersRequest([kind(987_654, 0, False, topics, 0)]), 1)
        return errors.name_of(reply.markers[0].topics[0].partitions[0].error_code)

    def find(self, key_type: int, version: int) -> str:
        reply = self.call(FindCoordinatorRequest("k", key_type, ["k"]), version)
        return errors.name_of((reply.coordinators[0] if version >= 4 else reply).error_code)

    def produce_to(self, topic: str, batch: bytes, settings: Mapping[str, str], version: int = 9) -> list[Any]:
        """The whole answer to a batch for a topic with these settings, with its numbers of many digits left out."""
        configs = [CreateTopicsRequest.CreatableTopicConfig(name, value) for name, value in settings.items()]
        self.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(topic, 1, 1, [], configs)], 10_000), 5)
        data = [ProduceRequest.TopicProduceData(topic, partition_data=[ProduceRequest.PartitionProduceData(0, batch)])]
        for _ in range(200):
            found = self.call(ProduceRequest(None, -1, 1000, data), version).responses[0].partition_responses[0]
            if found.error_code not in (errors.UNKNOWN_TOPIC_OR_PARTITION, errors.NOT_LEADER_OR_FOLLOWER):
                break
            self.target.advance(20)
        texts = [each.batch_index_error_message for each in found.record_errors] + [found.error_message]
        return [
            errors.name_of(found.error_code),
            (found.base_offset, found.log_append_time_ms, found.log_start_offset),
            [each.batch_index for each in found.record_errors],
            [text and re.sub(r"-?\d{10,}", "#", text) for text in texts],
        ]

    def pattern(self, text: str) -> str:
        return errors.name_of(self.call(ListTransactionsRequest(transactional_id_pattern=text), 2).error_code)

    def matching(self, text: str) -> list[str]:
        found = self.call(ListTransactionsRequest(transactional_id_pattern=text), 2).transaction_states
        return sorted({t.transactional_id for t in found} & {"first", "second"})


def txn(s: Stage, name: str, producer: tuple[int, int], verify: bool, *indexes: int) -> Any:
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("orders", list(indexes))]
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(name, *producer, verify, topics)


DAY_MS = 86_400_000
COMPACTED = {"cleanup.policy": "compact"}
WITHOUT_KEYS = encode_batch([(b"k", b"v"), (None, b"v"), (b"k", b"v"), (None, b"v")], 0)
NO_KEY = "Compacted topic cannot accept message without key in topic partition keyed-0"
TWO_WITHOUT_KEYS = (
    "One or more records have been rejected due to 2 record errors in total, and only showing the first three errors "
    f"at most: [RecordError(batchIndex=1, message='{NO_KEY}'), RecordError(batchIndex=3, message='{NO_KEY}')]"
)
TIMELY = {"message.timestamp.before.max.ms": "600000", "message.timestamp.after.max.ms": "600000"}
UNTIMELY = "One or more records have been rejected due to invalid timestamp"


def untimely(offset: int) -> str:
    return f"Timestamp # of message with offset {offset} is out of range. The timestamp should be within [#, #]"


def compressed(batch: bytes) -> bytes:
    return encode_records(list(iter_records(batch)), codec=GZIP)


def produces_without_keys(version: int) -> Callable[[Stage], list[Any]]:
    return lambda s: s.produce_to("keyed", WITHOUT_KEYS, COMPACTED, version)


def spread_out(now_ms: int) -> bytes:
    """Three records, of which the second is a day late."""
    times = (now_ms, now_ms + DAY_MS, now_ms + 1)
    return encode_records([Record(n, at, None, b"v") for n, at in enumerate(times)])


RE2_ACCEPTS = (
    "", "a*?", r"\d+", "(?P<n>a)", "(?<n>a)", "a{1000}", "a{,2}", "^*", "[[:alpha:]]", r"\bfoo\b", "(?i)a", "(?U)a+",
    r"\p{Greek}", r"\pL", r"\Qa.b\E", r"\z", r"\x{41}", "[a&&b]", r"\d{0,1000}",
)  # fmt: skip
RE2_REFUSES = (
    "(?=a)", "(?<=a)", r"\1", "[a", "(", ")", "a{1001}", "x**", "a++", "a{2}{3}", r"[a-\d]", "[[:foo:]]", "(?x)a",
    r"\Z", r"\h", r"\u0041", "(?#c)", "(?'n'a)", "a{5,2}", "\\",
)  # fmt: skip
RE2_MATCHES = {
    "(?i)FIRST|second": ["first", "second"],
    r"\bfirst\b": ["first"],
    "(?i:S)econd$": ["second"],
    "irst": [],
    "[[:lower:]]{5}": ["first"],
    r"[^\d\W]*d\z": ["second"],
    r"\Qfirst\E.*": ["first"],
}


# Name -> (what to do, what comes back).
def counts_of_partitions(s: Stage) -> list[str]:
    """What is answered to a topic that wants fewer, the same, and more partitions, and to a topic that is not there."""
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    wanted = [
        [kind("orders", 2, None)],
        [kind("orders", 3, None)],
        [kind("orders", 4, None)],
        [kind("absent", 2, None)],
    ]
    replies = [s.call(CreatePartitionsRequest(each, 10_000, validate_only=True), 3) for each in wanted]
    return [errors.name_of(reply.results[0].error_code) for reply in replies]


def topics_that_are_there_or_not(s: Stage) -> list[str]:
    created = s.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 1, 1)], 10_000), 5).topics
    deleted = s.call(DeleteTopicsRequest(topic_names=["absent"], timeout_ms=10_000), 5).responses
    return [errors.name_of(found.error_code) for found in (*created, *deleted)]


REQUESTS: dict[str, tuple[Callable[[Stage], Any], Any]] = {
    "the number of partitions only grows": (
        counts_of_partitions,
        ["INVALID_PARTITIONS", "INVALID_PARTITIONS", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"],
    ),
    "a topic is created once, and deleted if it is there": (
        topics_that_are_there_or_not,
        ["TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PARTITION"],
    ),
    "acks may be -1, 0 or 1": (
        lambda s: [s.produce([(2, s.batch())], acks=acks) for acks in (2, -2, 1)],
        [[(2, "INVALID_REQUIRED_ACKS")], [(2, "INVALID_REQUIRED_ACKS")], [(2, "NONE")]],
    ),
    "no record batch at all": (lambda s: s.produce([(2, b"")]), [(2, "INVALID_RECORD")]),
    "a transactional batch without a transactional id": (
        lambda s: s.produce([(0, s.batch(s.first, 0, True)), (2, s.batch())]),
        [(0, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), (2, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")],
    ),
    "transactional batches of two producers": (
        lambda s: s.produce([(0, s.batch(s.first, 0, True)), (1, s.batch(s.second, 0, True))], "first"),
        [(0, "INVALID_PRODUCER_ID_MAPPING"), (1, "INVALID_PRODUCER_ID_MAPPING")],
    ),
    "transactional batches of two epochs": (
        lambda s: s.produce([(0, s.batch(s.first, 0, True)), (1, s.batch((s.first[0], 9), 0, True))], "first"),
        [(0, "INVALID_PRODUCER_ID_MAPPING"), (1, "INVALID_PRODUCER_ID_MAPPING")],
    ),
    "a transactional batch and a plain one": (
        lambda s: s.produce([(0, s.batch(s.first, 0, True)), (2, s.batch())], "first"),
        [(0, "NONE"), (2, "NONE")],
    ),
    "acks=1 in a transaction": (
        lambda s: s.produce([(0, s.batch(s.first, 0, True))], "first", acks=1),
        [(0, "NONE")],
    ),
    "an empty transactional id, where the transaction is known": (
        lambda s: [s.produce([(0, s.batch(s.first, n, True))], name) for n, name in enumerate(("first", ""))],
        [[(0, "NONE")], [(0, "NONE")]],
    ),
    "an empty transactional id, where it is not": (
        lambda s: s.produce([(1, s.batch(s.first, 0, True))], ""),
        [(1, "INVALID_REQUEST")],
    ),
    "a transactional id and a plain batch": (lambda s: s.produce([(2, s.batch())], "nobody"), [(2, "NONE")]),
    "a producer without a sequence": (lambda s: s.produce([(2, s.batch((77, 0)))]), [(2, "INVALID_RECORD")]),
    "a partition that cannot be": (lambda s: s.produce([(-1, s.batch())]), [(-1, "UNKNOWN_TOPIC_OR_PARTITION")]),
    "nothing to produce": (lambda s: [s.produce([]), s.produce([], "first")], [[], []]),
    "an offset out of range": (
        lambda s: [s.fetch({2: offset}, committed=c) for offset in (-1, 1000) for c in (False, True)],
        [[(2, "OFFSET_OUT_OF_RANGE", 0, False)]] * 4,
    ),
    "the first batch comes whole, whatever the limit": (
        lambda s: s.fetch({2: 0, 0: 0}, max_bytes=0),
        [(2, "NONE", 1, False), (0, "NONE", 0, False)],
    ),
    "only the first partition may go over the limit": (
        lambda s: [s.fetch({2: 0, 0: 0}, partition_max_bytes=limit, committed=True) for limit in (0, 1)],
        [[(2, "NONE", 1, True), (0, "NONE", 0, True)]] * 2,
    ),
    "readers of committed data always get a list of aborted transactions": (
        lambda s: s.fetch({2: 0, 0: 0}, max_bytes=1, committed=True),
        [(2, "NONE", 1, True), (0, "NONE", 0, True)],
    ),
    "nothing to fetch": (lambda s: s.fetch({}), []),
    "special timestamps came with later versions": (
        lambda s: {
            version: [s.list_offset(timestamp, version) == "NONE" for timestamp in range(-1, -8, -1)]
            for version in (1, 6, 7, 8, 9, 10, 11)
        },
        {
            version: [True] * known + [False] * (7 - known)
            for version, known in {1: 2, 6: 2, 7: 3, 8: 4, 9: 5, 10: 5, 11: 6}.items()
        },
    ),
    "a special timestamp that a version does not know": (lambda s: s.list_offset(-3, 6), "UNSUPPORTED_VERSION"),
    "a leader epoch from the future": (lambda s: s.list_offset(-1, 5, leader_epoch=99), "UNKNOWN_LEADER_EPOCH"),
    "types of coordinators": (
        lambda s: [s.find(key_type, version) for version in (1, 4, 6) for key_type in (0, 1, 2, 3)],
        ["NONE", "NONE", "INVALID_REQUEST", "INVALID_REQUEST"] * 3,
    ),
    "several transactions in one AddPartitionsToTxn": (
        lambda s: s.add(
            txn(s, "first", s.first, True, 0, 2),
            txn(s, "second", s.second, False, 2),
            txn(s, "nobody", (1, 1), False, 0),
        ),
        [
            ("first", 0, "NONE"),
            ("first", 2, "TRANSACTION_ABORTABLE"),
            ("nobody", 0, "INVALID_PRODUCER_ID_MAPPING"),
            ("second", 2, "NONE"),
        ],
    ),
    "no partitions to add": (
        lambda s: s.call(AddPartitionsToTxnRequest((), "first", *s.first, []), 3).results_by_topic_v3_and_below,
        [],
    ),
    "markers to any topic": (
        lambda s: [s.marker(topic) for topic in ("orders", "__consumer_offsets", "__transaction_state", "nowhere")],
        ["NONE", "NONE", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"],
    ),
    "offsets of an empty transactional id": (
        lambda s: [s.commit_offset("", version) for version in (3, 5)],
        ["INVALID_REQUEST"] * 2,
    ),
    "offsets with odd values": (
        lambda s: [s.commit_offset("first", 5, metadata=None), s.commit_offset("first", 5, offset=-5)],
        ["NONE", "NONE"],
    ),
    "an empty group": (
        lambda s: errors.name_of(s.call(AddOffsetsToTxnRequest("first", *s.first, ""), 3).error_code),
        "NONE",
    ),
    "a producer id that an idempotent producer need not name": (
        lambda s: s.call(InitProducerIdRequest(None, 60_000, 5, 5), 4).producer_epoch,
        0,
    ),
    "a producer id that cannot be": (
        lambda s: errors.name_of(s.call(InitProducerIdRequest("odd", 60_000, -5, -5), 4).error_code),
        "NONE",
    ),
    "any text is a transactional id": (
        lambda s: [
            errors.name_of(s.call(InitProducerIdRequest(name, 60_000), 4).error_code)
            for name in ("é€😀 /", "x" * 32767)
        ],
        ["NONE", "NONE"],
    ),
    **{
        f"records without a key in a compacted topic v{version}": (
            produces_without_keys(version),
            ["INVALID_RECORD", (-1, -1, start_offset), indexes, texts],
        )
        for version, start_offset, indexes, texts in (
            (3, -1, [], [None]),
            (7, 0, [], [None]),
            (8, 0, [1, 3], [NO_KEY, NO_KEY, TWO_WITHOUT_KEYS]),
            (9, 0, [1, 3], [NO_KEY, NO_KEY, TWO_WITHOUT_KEYS]),
            (12, 0, [1, 3], [NO_KEY, NO_KEY, TWO_WITHOUT_KEYS]),
        )
    },
    "compressed records without a key": (
        lambda s: s.produce_to("keyed", compressed(WITHOUT_KEYS), COMPACTED),
        ["INVALID_RECORD", (-1, -1, 0), [1, 3], [NO_KEY, NO_KEY, TWO_WITHOUT_KEYS]],
    ),
    "more records without a key than the message shows": (
        lambda s: s.produce_to("keyed", encode_batch([(None, b"v")] * 40, 0), COMPACTED)[2],
        list(range(40)),
    ),
    "an empty key is a key": (
        lambda s: s.produce_to("keyed", encode_batch([(b"", b"v")], 0), COMPACTED)[2:],
        [[], [None]],
    ),
    "timestamps out of range": (
        lambda s: s.produce_to("timely", encode_batch([(None, b"a")] * 2, s.target.now_ms - DAY_MS), TIMELY),
        ["INVALID_TIMESTAMP", (-1, -1, 0), [0, 1], [untimely(0), untimely(1), UNTIMELY]],
    ),
    "some timestamps out of range": (
        lambda s: s.produce_to("timely", spread_out(s.target.now_ms), TIMELY),
        ["INVALID_TIMESTAMP", (-1, -1, 0), [1], [untimely(1), UNTIMELY]],
    ),
    "keys and timestamps at fault": (
        lambda s: s.produce_to(
            "both", encode_batch([(b"k", b"v"), (None, b"v")], s.target.now_ms - DAY_MS), TIMELY | COMPACTED
        ),
        ["INVALID_TIMESTAMP", (-1, -1, 0), [0, 1], [untimely(0), NO_KEY.replace("keyed", "both"), UNTIMELY]],
    ),
    "patterns are those of RE2": (
        lambda s: [text for text in (*RE2_ACCEPTS, *RE2_REFUSES) if s.pattern(text) == "NONE"],
        list(RE2_ACCEPTS),
    ),
    "ids that a pattern matches": (
        lambda s: [s.matching(text) for text in RE2_MATCHES],
        list(RE2_MATCHES.values()),
    ),
    "unknown states": (
        lambda s: s.call(ListTransactionsRequest(["ongoing", "Ongoing", "Dead", "?"]), 0).unknown_state_filters,
        ["ongoing", "?"],
    ),
}  # fmt: skip


def header(api_key: int, version: int, client_id: bytes = b"\0\1x") -> bytes:
    return struct.pack(">hhi", api_key, version, 7) + client_id


NO_ID = encode_frame(EndTxnRequest("", 1, 1, True), 3)
# To NO_ID, with the correlation id and the tags of the header before it: error 42.
REFUSED = b"\0\0\0\1\0" + b"\0\0\0\0" + b"\0\x2a" + b"\0"
# UNSUPPORTED_VERSION, and one range: ApiVersions v0 to v4.
TOO_NEW = b"\0\0\0\7" + b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\4"

FRAMES: dict[str, tuple[bytes, bytes | None]] = {
    "an unknown API": (header(999, 0), None),
    "an API that cannot be": (header(-1, 0), None),
    "an API of Kafka's past": (header(4, 0), None),
    "an API for controllers": (header(52, 0), None),
    "a version of Produce that is too new": (header(0, 99) + bytes(50), None),
    "a version of Produce that is too old, though it is advertised": (header(0, 0) + bytes(50), None),
    "a version of Fetch that is too old": (header(1, 3) + bytes(50), None),
    "a version of EndTxn that is too new": (header(26, 6) + bytes(50), None),
    "a version of InitProducerId that is unstable": (header(22, 6) + bytes(50), None),
    "a version of TxnOffsetCommit that came later": (header(28, 6) + bytes(50), None),
    "a version of WriteTxnMarkers that is no more": (header(27, 0) + bytes(50), None),
    "a version of ApiVersions that is too new": (header(18, 99) + bytes(5), TOO_NEW),
    "a version of ApiVersions that cannot be": (header(18, -1), TOO_NEW),
    "bytes after the request": (NO_ID + b"more", REFUSED),
    "an unknown tagged field": (NO_ID[:-1] + b"\1\x05\3abc", REFUSED),
    "a request that ends too early": (NO_ID[:-3], None),
    "null instead of a string": (header(26, 0) + b"\xff\xff" + bytes(11), None),
    "null instead of a compact string": (header(26, 3) + b"\0\0" + bytes(12), None),
    "a string that is longer than the frame": (header(26, 0) + b"\x7f\xff" + bytes(20), None),
    "a string that is longer than any may be": (encode_frame(EndTxnRequest("x" * 40_000, 1, 1, True), 3), None),
    "an array that is longer than the frame": (header(3, 1) + b"\x7f\xff\xff\xff", None),
    "a client id that is longer than the frame": (header(3, 1, b"\0\x64") + bytes(4), None),
    "an empty frame": (b"", None),
    "half a header": (b"\0\1", None),
}
