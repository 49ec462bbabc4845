"""A transactional producer for pure nodes: it asks the nodes that the controller names."""

from __future__ import annotations

from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from tests.pure_broker import Pending
from tests.pure_nodes import PureNodes


class PureProducer:
    """`version`: of transactions, 1 or 2."""

    def __init__(self, nodes: PureNodes, transactional_id: str, version: int = 2) -> None:
        self.nodes = nodes
        self.transactional_id = transactional_id
        self.version = version
        self.sequences: dict[tuple[str, int], int] = {}
        self.producer_id, self.epoch = self.init()

    @property
    def coordinator(self) -> int:
        return self.nodes.coordinator_of(self.transactional_id)

    def init(self) -> tuple[int, int]:
        reply = self.nodes.call(self.coordinator, InitProducerIdRequest(self.transactional_id, 60_000), 5)
        assert reply.error_code == errors.NONE, errors.name_of(reply.error_code)
        self.sequences.clear()
        return reply.producer_id, reply.producer_epoch

    def add(self, topic: str, *indexes: int) -> str:
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(topic, list(indexes))]
        request = AddPartitionsToTxnRequest((), self.transactional_id, self.producer_id, self.epoch, topics)
        reply = self.nodes.call(self.coordinator, request, 3)
        return errors.name_of(reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce_request(self, topic: str, index: int, value: str = "x") -> ProduceRequest:
        sequence = self.sequences.get((topic, index), 0)
        records = [(None, value.encode())]
        now_ms = self.nodes.now_ms
        batch = encode_batch(records, now_ms, self.producer_id, self.epoch, sequence, transactional=True)
        data = ProduceRequest.PartitionProduceData(index, batch)
        return ProduceRequest(
            self.transactional_id, -1, 1000, [ProduceRequest.TopicProduceData(topic, partition_data=[data])]
        )

    def send(self, topic: str, index: int, value: str = "x", node_id: int | None = None) -> Pending:
        """Send a batch; the answer may need `nodes.deliver`."""
        to = self.nodes.leader(topic, index) if node_id is None else node_id
        return self.nodes.send(to, self.produce_request(topic, index, value), 12 if self.version == 2 else 11)

    def produce(self, topic: str, index: int, value: str = "x", node_id: int | None = None) -> str:
        pending = self.send(topic, index, value, node_id)
        self.nodes.deliver()
        error = produce_error(pending)
        if error == "NONE":
            self.sequences[topic, index] = self.sequences.get((topic, index), 0) + 1
        return error

    def offset_request(self, group_id: str, topic: str, offset: int) -> TxnOffsetCommitRequest:
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, offset, -1, "")
        topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(topic, [partition])]
        return TxnOffsetCommitRequest(self.transactional_id, group_id, self.producer_id, self.epoch, topics=topics)

    def commit_offset(self, group_id: str, topic: str, offset: int) -> str:
        request = self.offset_request(group_id, topic, offset)
        reply = self.nodes.call(self.nodes.coordinator_of_group(group_id), request, 5 if self.version == 2 else 3)
        return errors.name_of(reply.topics[0].partitions[0].error_code)

    def send_end(self, commit: bool = True) -> Pending:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        return self.nodes.send(self.coordinator, request, 5 if self.version == 2 else 4)

    def end(self, commit: bool = True) -> str:
        pending = self.send_end(commit)
        self.nodes.deliver()
        reply = pending.response
        assert reply is not None, "EndTxn was not answered"
        if reply.error_code == errors.NONE and self.version == 2:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
            self.sequences.clear()
        return errors.name_of(reply.error_code)


def produce_error(pending: Pending) -> str:
    assert pending.response is not None, "Produce was not answered"
    return errors.name_of(pending.response.responses[0].partition_responses[0].error_code)
