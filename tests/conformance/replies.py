"""Whole replies, every field of them, in every version: what clients read and write with.

    assert told_replies(theirs, "replies") == told_replies(ours, "replies")

A topic has plain data, a transaction that was committed, one that was aborted and one that is open, and a group has
offsets. `REPLIES` ask about them, rightly and wrongly. What no two brokers have in common (ids, times, addresses, the
wording of messages) is only looked at for whether it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pprint import pformat
from typing import Any

from fencepost.protocol import messages
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    DeleteRecordsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.records import iter_batches
from fencepost.protocol.schema import Message, Struct
from tests.conformance.checks import served_versions
from tests.conformance.placements import TV2, Play
from tests.transcripts.target import Target

# Whether it is there is all that can be compared.
ONLY_THERE = {
    "cluster_id",
    "host",
    "log_append_time_ms",
    "last_timestamp",
    "message",
    "port",
    "session_id",
    "timestamp",
    "transaction_start_time_ms",
}
IGNORED = {"error_message", "throttle_time_ms"}
NO_UUID = bytes(16)
FIRST, SECOND, MISSING = 0, 1, 9
NOWHERE = "nowhere"


class ReplyStage(Play):
    """The words of a play fill the partitions: one with everything, one with nothing."""

    def __init__(self, target: Target, topic: str) -> None:
        super().__init__(target, topic, ["pacaxba", ""], TV2)

    def prepare(self) -> None:
        self.init(f"{self.topic}-first")  # Takes the producer id 0, which would look like none.
        self.run()
        self.a = self.owners[min(self.owners)]
        self.group = f"{self.topic}-group"
        for _ in range(500):
            if self.target.call(FindCoordinatorRequest(self.group, 0), 1).error_code == 0:
                [commit] = offset_commits(self, 7)[:1]
                if self.target.call(commit, 7).topics[0].partitions[0].error_code == 0:
                    break
            self.target.advance(20)
        wanted = [MetadataRequest.MetadataRequestTopic(name=self.topic)]
        self.topic_id = self.target.call(MetadataRequest(wanted), 12).topics[0].topic_id

    def named(self, version: int, ids_from: int) -> dict[str, Any]:
        """How a request names the topic: by its id from that version on."""
        return {"topic_id": self.topic_id} if version >= ids_from else {}

    def plain(self, value: Any, name: str = "") -> Any:
        """A reply as values that can be compared."""
        if isinstance(value, Struct):
            return {slot: self.plain(getattr(value, slot), slot) for slot in value.__slots__ if slot not in IGNORED}
        if isinstance(value, list | tuple):
            # Apache Kafka's order is that of a hash table, as a rule.
            return sorted((self.plain(item, name) for item in value), key=str)
        if name in ONLY_THERE:
            return "there" if value not in (None, "", 0, -1) else value
        if name == "topic_id":
            return value != NO_UUID
        if name == "producer_id":
            return self.who(0, value)
        if name == "records":
            return value and [self.line(0, *batch) for batch in iter_batches(value)]
        return value


def fetches(s: ReplyStage, version: int) -> list[Message]:
    kind = FetchRequest.FetchPartition

    def ask(isolation: int, *partitions: Any, topic: str | None = None, topic_id: bytes | None = None) -> Message:
        name = s.topic if topic is None else topic
        found = FetchRequest.FetchTopic(name, s.topic_id if topic_id is None else topic_id, list(partitions))
        return FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=isolation, session_epoch=-1, topics=[found]
        )

    return [
        ask(0, kind(FIRST, -1, 0, partition_max_bytes=1 << 20), kind(SECOND, -1, 0, partition_max_bytes=1 << 20)),
        ask(1, kind(FIRST, -1, 2, partition_max_bytes=1 << 20), kind(SECOND, -1, 0, partition_max_bytes=1 << 20)),
        ask(1, kind(FIRST, -1, 99, partition_max_bytes=1 << 20), kind(SECOND, -1, -1, partition_max_bytes=1 << 20)),
        ask(0, kind(MISSING, -1, 0, partition_max_bytes=1 << 20)),
        ask(0, kind(FIRST, 0, 0, partition_max_bytes=1), kind(SECOND, 5, 0, partition_max_bytes=1 << 20)),
        ask(0, kind(FIRST, -1, 0, partition_max_bytes=1), topic=NOWHERE, topic_id=b"\1" * 16),
        # A reader that has seen offset 3 of an epoch that never existed has to go back.
        ask(0, kind(FIRST, 0, 3, 0, partition_max_bytes=1 << 20), kind(SECOND, 0, 0, 0, partition_max_bytes=1 << 20)),
    ]


def offsets_by_time(s: ReplyStage, version: int) -> list[Message]:
    kind = ListOffsetsRequest.ListOffsetsPartition

    def ask(isolation: int, *partitions: Any, topic: str | None = None) -> Message:
        name = s.topic if topic is None else topic
        return ListOffsetsRequest(-1, isolation, [ListOffsetsRequest.ListOffsetsTopic(name, list(partitions))])

    special = [
        ask(isolation, kind(FIRST, -1, timestamp), kind(SECOND, -1, timestamp))
        for isolation in (0, 1)
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, s.base_ms + 10, s.base_ms + 100)
    ]
    return [
        *special,
        ask(0, kind(MISSING, -1, -1)),
        ask(0, kind(FIRST, 9, -1), kind(SECOND, 0, -1)),
        ask(0, kind(FIRST, -1, -1), kind(FIRST, -1, -2)),
        ask(0, kind(FIRST, -1, -1), topic=NOWHERE),
    ]


def ends_of_epochs(s: ReplyStage, version: int) -> list[Message]:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = [kind(FIRST, -1, 0), kind(SECOND, -1, 0), kind(MISSING, -1, 0)]
    return [
        OffsetForLeaderEpochRequest(-1, [topic(s.topic, asked)]),
        OffsetForLeaderEpochRequest(-1, [topic(s.topic, [kind(FIRST, 0, 5), kind(SECOND, 7, 0)])]),
        OffsetForLeaderEpochRequest(-1, [topic(NOWHERE, [kind(FIRST, -1, 0)])]),
    ]


def batches(s: ReplyStage, version: int) -> list[Message]:
    """One producer, whose epochs are the versions: so each begins anew."""

    def ask(*parts: tuple[int, bytes | None], acks: int = -1, **named: Any) -> Message:
        name, topic_id = named.get("topic", s.topic), named.get("topic_id", s.topic_id)
        data = [ProduceRequest.PartitionProduceData(*part) for part in parts]
        return ProduceRequest(None, acks, 30_000, [ProduceRequest.TopicProduceData(name, topic_id, data)])

    def batch(sequence: int, epoch: int = version, values: int = 1) -> bytes:
        return encode_batch([(None, b"x")] * values, s.base_ms, 555_555, epoch, sequence)

    good, damaged = batch(0), bytearray(batch(1))
    damaged[-1] ^= 1
    return [
        ask((SECOND, good)),
        ask((SECOND, good)),
        ask((SECOND, batch(5))),
        ask((SECOND, batch(0, version - 1))),
        ask((SECOND, bytes(damaged))),
        ask((SECOND, good + batch(1))),
        ask((SECOND, good[:-1])),
        ask((SECOND, b"")),
        ask((SECOND, batch(1)), (MISSING, batch(0))),
        ask((SECOND, batch(2, values=2)), acks=1),
        ask((SECOND, batch(4)), acks=7),
        ask((SECOND, batch(0)), topic=NOWHERE, topic_id=b"\1" * 16),
    ]


def offset_commits(s: ReplyStage, version: int) -> list[Message]:
    kind = OffsetCommitRequest.OffsetCommitRequestPartition

    def ask(*partitions: Any, group: str = s.group, **named: Any) -> Message:
        name = named.get("topic", s.topic)
        topic_id = named.get("topic_id", getattr(s, "topic_id", NO_UUID))
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name, topic_id, list(partitions))
        return OffsetCommitRequest(group, topics=[topic])

    return [
        ask(kind(FIRST, version, 0, "why"), kind(SECOND, version, committed_metadata=None)),
        ask(kind(MISSING, 1, committed_metadata=""), kind(SECOND, -3, committed_metadata="")),
        ask(kind(FIRST, 1, committed_metadata="m" * 4097)),
        ask(kind(FIRST, 1, committed_metadata=""), group=""),
        ask(kind(FIRST, 1, committed_metadata=""), topic=NOWHERE, topic_id=b"\1" * 16),
        OffsetCommitRequest(s.group, topics=[]),
    ]


def offset_fetches(s: ReplyStage, version: int) -> list[Message]:
    if version < 8:
        kind = OffsetFetchRequest.OffsetFetchRequestTopic
        asked = [kind(s.topic, [FIRST, SECOND, MISSING]), kind(NOWHERE, [FIRST])]
        everything = [OffsetFetchRequest(s.group, None), OffsetFetchRequest(s.group, None, require_stable=True)]
        return [
            OffsetFetchRequest(s.group, asked),
            OffsetFetchRequest(s.group + "x", asked),
            OffsetFetchRequest("", asked),
            OffsetFetchRequest(s.group, asked, require_stable=True),
            *(everything if version >= 2 else []),
        ]
    kinds = OffsetFetchRequest.OffsetFetchRequestTopics
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    wanted = [kinds(s.topic, s.topic_id, [FIRST, SECOND, MISSING]), kinds(NOWHERE, b"\1" * 16, [FIRST])]
    return [
        OffsetFetchRequest(groups=[group(s.group, topics=wanted), group(s.group + "x", topics=wanted)]),
        OffsetFetchRequest(groups=[group(s.group, topics=wanted)], require_stable=True),
        OffsetFetchRequest(groups=[group(s.group, topics=None)]),
        OffsetFetchRequest(groups=[group("", topics=wanted)]),
        OffsetFetchRequest(groups=[]),
    ]


def coordinators(s: ReplyStage, version: int) -> list[Message]:
    keys = [s.group, "another", ""]
    return [*(FindCoordinatorRequest(s.group, kind, keys) for kind in (0, 1)), FindCoordinatorRequest("", 0, [])]


def transactions(s: ReplyStage, version: int) -> list[Message]:
    names = [s.a.transactional_id, "nobody", ""]
    return [DescribeTransactionsRequest(names), DescribeTransactionsRequest([])]


def producers(s: ReplyStage, version: int) -> list[Message]:
    kind = DescribeProducersRequest.TopicRequest
    return [DescribeProducersRequest([kind(s.topic, [FIRST, MISSING]), kind(NOWHERE, [FIRST])])]


def additions(s: ReplyStage, version: int) -> list[Message]:
    """The open transaction gets what it has already, and nothing else."""
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    who = (s.a.transactional_id, s.a.producer_id, s.a.epoch)
    mine, wrong = [kind(s.topic, [FIRST])], [kind(s.topic, [FIRST, MISSING]), kind(NOWHERE, [FIRST])]
    if version < 4:
        return [AddPartitionsToTxnRequest((), *who, topics) for topics in (mine, wrong, [])]
    txn = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    return [
        AddPartitionsToTxnRequest([txn(*who, False, mine), txn("nobody", 1, 0, True, mine)]),
        AddPartitionsToTxnRequest([txn(*who, True, wrong)]),
        AddPartitionsToTxnRequest([txn(*who[:2], 99, False, mine)]),
    ]


def txn_offsets(s: ReplyStage, version: int) -> list[Message]:
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    who = (s.a.producer_id, s.a.epoch + 1)  # An epoch that no producer has: nothing is to change.
    asked = [topic(s.topic, [kind(FIRST, 1, -1, ""), kind(MISSING, 1, -1, "")]), topic(NOWHERE, [kind(0, 1, -1, "")])]
    return [
        TxnOffsetCommitRequest(s.a.transactional_id, s.group, *who, topics=asked),
        TxnOffsetCommitRequest(s.a.transactional_id, "", *who, topics=asked),
        TxnOffsetCommitRequest(s.a.transactional_id, s.group, *who, topics=[]),
    ]


def markers(s: ReplyStage, version: int) -> list[Message]:
    kind = WriteTxnMarkersRequest.WritableTxnMarker
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic
    asked = [topic(s.topic, [SECOND, MISSING]), topic(NOWHERE, [FIRST])]
    return [
        WriteTxnMarkersRequest([kind(777_777, 5, True, asked, 0), kind(777_778, 5, False, asked, 0)]),
        WriteTxnMarkersRequest([kind(777_777, 4, True, asked, 0)]),
        WriteTxnMarkersRequest([]),
    ]


def deletions(s: ReplyStage, version: int) -> list[Message]:
    kind = DeleteRecordsRequest.DeleteRecordsPartition
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    places = ((SECOND, version + 1), (SECOND, 0), (SECOND, 9_999), (SECOND, -2), (MISSING, 0), (SECOND, -1))
    return [
        *(DeleteRecordsRequest([topic(s.topic, [kind(*place)])], 30_000) for place in places),
        DeleteRecordsRequest([topic(NOWHERE, [kind(FIRST, 0)])], 30_000),
    ]


def topics(s: ReplyStage, version: int) -> list[Message]:
    kind = MetadataRequest.MetadataRequestTopic
    asked = [[kind(name=s.topic)], [kind(name=NOWHERE), kind(name=s.topic)], [kind(name="bad name")]]
    if version >= 12:
        asked += [[kind(topic_id=s.topic_id, name=None)], [kind(topic_id=b"\1" * 16, name=None)]]
    if version >= 1:
        asked.append([])
    # Before v4 a request for a topic creates it.
    asked = [names for names in asked if version >= 4 or len(names) < 2]
    return [MetadataRequest(names, allow_auto_topic_creation=False) for names in asked]


REPLIES: dict[str, Callable[[ReplyStage, int], list[Message]]] = {
    "Metadata": topics,
    "Fetch": fetches,
    "ListOffsets": offsets_by_time,
    "OffsetForLeaderEpoch": ends_of_epochs,
    "FindCoordinator": coordinators,
    "DescribeTransactions": transactions,
    "DescribeProducers": producers,
    "OffsetCommit": offset_commits,
    "OffsetFetch": offset_fetches,
    "AddPartitionsToTxn": additions,
    "TxnOffsetCommit": txn_offsets,
    "WriteTxnMarkers": markers,
    "Produce": batches,
    "DeleteRecords": deletions,
}


def told_replies(target: Target, topic: str) -> Iterator[tuple[str, str]]:
    """Each request with its reply, both as text."""
    stage = ReplyStage(target, topic)
    stage.prepare()
    for name, requests in REPLIES.items():
        for version in served_versions(name):
            for n, request in enumerate(requests(stage, version)):
                assert type(request) is getattr(messages, f"{name}Request")
                reply = stage.plain(target.call(request, version))
                yield f"{name} v{version}, request {n}", pformat(reply, width=160).replace(topic, "TOPIC")
