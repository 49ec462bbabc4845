"""Requests to a broker that does not lead the partition, or does not coordinate the group or the transactional id.

    told_answers(brokers)       # the same on three brokers of Apache Kafka and on `--brokers 3`

Every API that has a leader or a coordinator is asked in every version, at all three brokers. Topic `copied` has three
replicas, so each broker has one; `single` has one, so two brokers have nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pprint import pformat
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.schema import NO_UUID, Message, Struct
from tests.conformance.checks import served_versions
from tests.conformance.three_brokers import GROUP_KEY, NODE_IDS, TXN_KEY, ThreeBrokers, Unanswered, wait_until

COPIED, SINGLE = "copied", "single"
GROUP, TRANSACTIONAL_ID = "readers", "orders-sink"
LEADER = 1  # Of both topics.
NOW_MS = 1_700_000_000_000
IGNORED = {"error_message", "throttle_time_ms", "log_append_time_ms"}


class Stage:
    """Three brokers with both topics, a record in each; the group and the transactional id have coordinators."""

    def __init__(self, brokers: ThreeBrokers) -> None:
        self.brokers = brokers
        brokers.create_topic(COPIED, [[LEADER, 2, 3]])
        brokers.create_topic(SINGLE, [[LEADER]])
        self.coordinators = {
            key_type: self._await_coordinator(key, key_type)
            for key, key_type in ((GROUP, GROUP_KEY), (TRANSACTIONAL_ID, TXN_KEY))
        }
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in (COPIED, SINGLE)]
        found = brokers.call(LEADER, MetadataRequest(wanted), 12).topics
        self.topic_ids = {topic.name: topic.topic_id for topic in found}
        self.epochs = {name: brokers.leader_and_epoch(LEADER, name, 0)[1] for name in (COPIED, SINGLE)}
        for name in (COPIED, SINGLE):
            wait_until(f"a record in {name}", self._is_written, name)
            for node_id in NODE_IDS:
                # A replica knows how far it may be read only after its next fetch.
                wait_until(f"the high watermark of {name} at broker {node_id}", self._is_read, node_id, name)

    def _await_coordinator(self, key: str, key_type: int) -> int:
        """The coordinator, once all brokers agree and it has loaded its partition."""

        def is_ready() -> bool:
            found = {self.brokers.coordinator(node_id, key, key_type) for node_id in NODE_IDS}
            if len(found) > 1 or -1 in found:
                return False
            [there] = found
            if key_type == GROUP_KEY:
                reply = self.brokers.call(there, HeartbeatRequest(key, 0, "nobody"), 4)
                return errors.name_of(reply.error_code) == "UNKNOWN_MEMBER_ID"
            reply = self.brokers.call(there, InitProducerIdRequest(key, 60_000), 4)
            return errors.name_of(reply.error_code) == "NONE"

        wait_until(f"the coordinator of {key}", is_ready)
        return self.brokers.coordinator(LEADER, key, key_type)

    def _is_written(self, topic: str) -> bool:
        data = [ProduceRequest.PartitionProduceData(0, encode_batch([(None, b"x")], NOW_MS, 555, 0, 0))]
        request = ProduceRequest(None, -1, 30_000, [ProduceRequest.TopicProduceData(topic, NO_UUID, data)])
        found = self.brokers.call(LEADER, request, 11).responses[0].partition_responses[0]
        return errors.name_of(found.error_code) == "NONE"

    def _is_read(self, node_id: int, topic: str) -> bool:
        found = self.brokers.call(node_id, fetch(self, topic, 12), 12).responses[0].partitions[0]
        return errors.name_of(found.error_code) != "NONE" or int(found.high_watermark) > 0


# --- requests about partitions ----------------------------------------------------------------------------------


def produce(s: Stage, topic: str, version: int) -> Message:
    """The batch that is there already, so a leader answers with its offset and changes nothing."""
    data = [ProduceRequest.PartitionProduceData(0, encode_batch([(None, b"x")], NOW_MS, 555, 0, 0))]
    return ProduceRequest(None, -1, 30_000, [ProduceRequest.TopicProduceData(topic, s.topic_ids[topic], data)])


def fetch(s: Stage, topic: str, version: int, epoch: int = -1) -> Message:
    partitions = [FetchRequest.FetchPartition(0, epoch, 0, partition_max_bytes=1 << 20)]
    topics = [FetchRequest.FetchTopic(topic, s.topic_ids[topic] if version >= 13 else NO_UUID, partitions)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)


def fetch_in_epoch(s: Stage, topic: str, version: int) -> Message:
    return fetch(s, topic, version, s.epochs[topic])


def fetch_in_later_epoch(s: Stage, topic: str, version: int) -> Message:
    return fetch(s, topic, version, s.epochs[topic] + 1)


def list_offsets(s: Stage, topic: str, version: int) -> Message:
    partitions = [ListOffsetsRequest.ListOffsetsPartition(0, -1, -1)]
    return ListOffsetsRequest(-1, 0, [ListOffsetsRequest.ListOffsetsTopic(topic, partitions)])


def epoch_end(s: Stage, topic: str, version: int) -> Message:
    partitions = [OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, -1, s.epochs[topic])]
    return OffsetForLeaderEpochRequest(-1, [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic, partitions)])


def delete_records(s: Stage, topic: str, version: int) -> Message:
    partitions = [DeleteRecordsRequest.DeleteRecordsPartition(0, 0)]
    return DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic(topic, partitions)], 30_000)


def describe_producers(s: Stage, topic: str, version: int) -> Message:
    return DescribeProducersRequest([DescribeProducersRequest.TopicRequest(topic, [0])])


def write_markers(s: Stage, topic: str, version: int) -> Message:
    """A leader writes a marker that ends nothing."""
    topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic(topic, [0])]
    return WriteTxnMarkersRequest([WriteTxnMarkersRequest.WritableTxnMarker(777, 0, False, topics, 0)])


ELSEWHERE = "another broker"
# Where Fencepost refuses with NOT_LEADER_OR_FOLLOWER what a broker of Apache Kafka answers otherwise: the topic and the
# first version. Comments `# Differs:` have the reasons.
REFUSED_ONLY_HERE = {
    "Fetch": (COPIED, 11),
    "Fetch in the leader's epoch": (COPIED, 11),
    "Fetch in a later epoch": (COPIED, 9),
    "DescribeProducers": (COPIED, 0),
    "WriteTxnMarkers": (SINGLE, 0),
}


def is_refused_only_here(question: str) -> bool:
    return any(
        question == f"{name} v{version} of {topic} to {ELSEWHERE}"
        for name, (topic, first) in REFUSED_ONLY_HERE.items()
        for version in served_versions(name.split(" ")[0])
        if version >= first
    )


TO_LEADERS: Mapping[str, Callable[[Stage, str, int], Message]] = {
    "Produce": produce,
    "Fetch": fetch,
    "Fetch in the leader's epoch": fetch_in_epoch,
    "Fetch in a later epoch": fetch_in_later_epoch,
    "ListOffsets": list_offsets,
    "OffsetForLeaderEpoch": epoch_end,
    "DeleteRecords": delete_records,
    "DescribeProducers": describe_producers,
    "WriteTxnMarkers": write_markers,
}

# --- requests to coordinators: for a producer and a member that do not exist ------------------------------------


def add_partitions(s: Stage, version: int) -> Message:
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(COPIED, [0])]
    if version < 4:
        return AddPartitionsToTxnRequest((), TRANSACTIONAL_ID, 777, 0, topics)
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    return AddPartitionsToTxnRequest([kind(TRANSACTIONAL_ID, 777, 0, True, topics)])


def offset_commit(s: Stage, version: int) -> Message:
    partitions = [OffsetCommitRequest.OffsetCommitRequestPartition(0, 5, committed_metadata="")]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(COPIED, s.topic_ids[COPIED], partitions)
    return OffsetCommitRequest(GROUP, 3, "nobody", topics=[topic])


def offset_fetch(s: Stage, version: int) -> Message:
    if version < 8:
        return OffsetFetchRequest(GROUP, [OffsetFetchRequest.OffsetFetchRequestTopic(COPIED, [0])])
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(COPIED, s.topic_ids[COPIED], [0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(GROUP, topics=topics)])


def txn_offset_commit(s: Stage, version: int) -> Message:
    partitions = [TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 5, -1, "")]
    topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(COPIED, partitions)]
    return TxnOffsetCommitRequest(TRANSACTIONAL_ID, GROUP, 777, 0, topics=topics)


def join(s: Stage, version: int) -> Message:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol("range", b"")]
    return JoinGroupRequest(GROUP, 10_000, 10_000, "nobody", None, "consumer", protocols)


def leave(s: Stage, version: int) -> Message:
    return LeaveGroupRequest(GROUP, "nobody", [LeaveGroupRequest.MemberIdentity("nobody")] if version >= 3 else ())


def offset_delete(s: Stage, version: int) -> Message:
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(COPIED, [OffsetDeleteRequest.OffsetDeleteRequestPartition(0)])
    ]
    return OffsetDeleteRequest(GROUP, topics)


TO_COORDINATORS: Mapping[str, tuple[int, Callable[[Stage, int], Message]]] = {
    # The timeout is too long, so nothing changes at the coordinator.
    "InitProducerId": (TXN_KEY, lambda s, v: InitProducerIdRequest(TRANSACTIONAL_ID, 2**31 - 1)),
    "AddPartitionsToTxn": (TXN_KEY, add_partitions),
    "AddOffsetsToTxn": (TXN_KEY, lambda s, v: AddOffsetsToTxnRequest(TRANSACTIONAL_ID, 777, 0, GROUP)),
    "EndTxn": (TXN_KEY, lambda s, v: EndTxnRequest(TRANSACTIONAL_ID, 777, 0, True)),
    "DescribeTransactions": (TXN_KEY, lambda s, v: DescribeTransactionsRequest([TRANSACTIONAL_ID])),
    "OffsetCommit": (GROUP_KEY, offset_commit),
    "OffsetFetch": (GROUP_KEY, offset_fetch),
    "TxnOffsetCommit": (GROUP_KEY, txn_offset_commit),
    "JoinGroup": (GROUP_KEY, join),
    "SyncGroup": (GROUP_KEY, lambda s, v: SyncGroupRequest(GROUP, 3, "nobody", None, "consumer", "range", [])),
    "Heartbeat": (GROUP_KEY, lambda s, v: HeartbeatRequest(GROUP, 3, "nobody")),
    "LeaveGroup": (GROUP_KEY, leave),
    "DescribeGroups": (GROUP_KEY, lambda s, v: DescribeGroupsRequest([GROUP])),
    "DeleteGroups": (GROUP_KEY, lambda s, v: DeleteGroupsRequest([GROUP])),
    "OffsetDelete": (GROUP_KEY, offset_delete),
    "ConsumerGroupHeartbeat": (GROUP_KEY, lambda s, v: ConsumerGroupHeartbeatRequest(GROUP, "nobody", 5)),
    "ConsumerGroupDescribe": (GROUP_KEY, lambda s, v: ConsumerGroupDescribeRequest([GROUP])),
}

# --- answers ----------------------------------------------------------------------------------------------------


def plain(s: Stage, value: Any, name: str = "", topic: str = COPIED) -> Any:
    """An answer as values that can be compared: leaders by what they are, and no times."""
    if isinstance(value, Struct):
        found = {slot: plain(s, getattr(value, slot), slot, topic) for slot in value.__slots__ if slot not in IGNORED}
        return {slot: part for slot, part in found.items() if part not in (None, [], {})}
    if isinstance(value, list | tuple):
        return sorted((plain(s, item, name, topic) for item in value), key=str)
    if name.endswith("error_code"):
        return errors.name_of(value)
    if name in ("leader_id", "node_id"):
        return "the leader" if value == LEADER else value
    if name == "leader_epoch":
        return "the leader's" if value == s.epochs[topic] else value
    if name == "port":
        return "the leader's" if value == s.brokers.ports[LEADER] else "of another broker"
    if name == "topic_id":
        return "there" if value in s.topic_ids.values() else value
    if name == "records":
        return f"{len(value)} bytes" if value else value
    if name in ("producer_id", "producer_epoch", "transaction_start_time_ms", "last_timestamp", "timestamp"):
        return "there" if value not in (-1, 0) else value
    return value


def ask(s: Stage, node_id: int, request: Message, version: int, topic: str = COPIED) -> str:
    try:
        return pformat(plain(s, s.brokers.call(node_id, request, version), topic=topic), width=140)
    except Unanswered:
        return "the connection is closed"


def told_answers(brokers: ThreeBrokers) -> Iterator[tuple[str, str]]:
    """Each question, which is a request and the broker that it asks, and the answer, as text."""
    s = Stage(brokers)
    for name, about_partition in TO_LEADERS.items():
        for version in served_versions(name.split(" ")[0]):
            for topic in (COPIED, SINGLE):
                request = about_partition(s, topic, version)
                for who, node_id in (("the leader", LEADER), (ELSEWHERE, LEADER + 1)):
                    yield f"{name} v{version} of {topic} to {who}", ask(s, node_id, request, version, topic)
    for name, (key_type, to_coordinator) in TO_COORDINATORS.items():
        for version in served_versions(name):
            there = s.coordinators[key_type]
            for who, node_id in (("the coordinator", there), (ELSEWHERE, there % len(NODE_IDS) + 1)):
                yield f"{name} v{version} to {who}", ask(s, node_id, to_coordinator(s, version), version)
