"""A data folder with everything that a broker keeps, and what its clients see of it.

`fill` makes the folder, always the same one. `look` asks a broker on it, or on a damaged copy, every question whose
answer is kept in files. An answer that a client cannot use is a `Noticed`: an error code, or a wrong checksum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.client.fetching import Isolation
from fencepost.machines.acl.acls import Operation
from fencepost.machines.txn.records import partition_for
from fencepost.protocol import errors
from fencepost.protocol.batch import Corrupt, decode_batch, encode_batch
from fencepost.protocol.messages import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
    DescribeTransactionsRequest,
    DescribeUserScramCredentialsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.records import iter_batches, iter_records
from tests.folder_broker import FolderBroker

SETTINGS = {
    "log.segment.bytes": "4096",
    "log.index.interval.bytes": "200",
    "log.cleaner.backoff.ms": "1000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SHARDS = 5  # As in PureBroker.
TOPICS = {"orders": 2, "payments": 1, "balances": 1, "audit": 1}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}
TXN_IDS = ("committed", "aborted", "open", "idle")
GROUPS = ("plain", "in-txns", "pending")
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
MOST_FETCHES = 500


class Noticed(NamedTuple):
    """A client gets this instead of an answer, after the part of it that is whole."""

    why: str
    part: tuple[Any, ...] = ()


View = dict[str, Any]


def log_of_group(group_id: str) -> str:
    return f"__consumer_offsets-{partition_for(group_id, SHARDS)}"


def log_of_txn(transactional_id: str) -> str:
    return f"__transaction_state-{partition_for(transactional_id, SHARDS)}"


# --- filling ------------------------------------------------------------------------------------------------


class Producer:
    """A producer with transaction version 2 and the broker's clock; without a transactional id, an idempotent one."""

    def __init__(self, broker: FolderBroker, transactional_id: str | None = None) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        reply = broker.call(InitProducerIdRequest(transactional_id, 60_000), 5)
        assert reply.error_code == errors.NONE, errors.name_of(reply.error_code)
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        self._sequences: dict[tuple[str, int], int] = {}

    def send(self, topic: str, index: int, *records: tuple[bytes | None, bytes]) -> int:
        """Return an error code."""
        sequence = self._sequences.get((topic, index), 0)
        self._sequences[topic, index] = sequence + len(records)
        is_txn = self.transactional_id is not None
        batch = encode_batch(records, self.broker.now_ms, self.producer_id, self.epoch, sequence, transactional=is_txn)
        data = ProduceRequest.TopicProduceData(
            topic, partition_data=[ProduceRequest.PartitionProduceData(index, batch)]
        )
        reply = self.broker.call(ProduceRequest(self.transactional_id, -1, 1000, [data]), 12)
        code: int = reply.responses[0].partition_responses[0].error_code
        return code

    def commit_offset(self, group_id: str, offset: int) -> int:
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, offset, -1, "")
        topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic("orders", [part])]
        request = TxnOffsetCommitRequest(
            self.transactional_id or "", group_id, self.producer_id, self.epoch, topics=topics
        )
        code: int = self.broker.call(request, 5).topics[0].partitions[0].error_code
        return code

    def end(self, commit: bool) -> int:
        request = EndTxnRequest(self.transactional_id or "", self.producer_id, self.epoch, commit)
        reply = self.broker.call(request, 5)
        if reply.error_code == errors.NONE:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
            self._sequences.clear()
        code: int = reply.error_code
        return code


def commit_offset(broker: FolderBroker, group_id: str, offset: int) -> int:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, committed_metadata="")
    topic = OffsetCommitRequest.OffsetCommitRequestTopic("orders", partitions=[partition])
    code: int = broker.call(OffsetCommitRequest(group_id, topics=[topic]), 7).topics[0].partitions[0].error_code
    return code


def fill(path: Path, end: str) -> None:
    """Segments with plain, committed, aborted and open records, groups, ids, ACLs, a user; then stop or kill.

    The values of records begin with how they were written: only `plain` and `committed` ones may ever be read by a
    read_committed reader.
    """
    broker = FolderBroker(path, SETTINGS, boot="an earlier boot")
    kind = CreateTopicsRequest.CreatableTopic
    config = CreateTopicsRequest.CreatableTopicConfig
    topics = [
        kind(name, count, 1, configs=[config(*item) for item in COMPACTED.items()] if name == "balances" else [])
        for name, count in TOPICS.items()
    ]
    for wanted in topics:
        assert broker.call(CreateTopicsRequest([wanted], 1000), 7).topics[0].error_code == errors.NONE
    before = Producer(broker)
    for number in range(3):
        assert before.send("orders", 0, (None, b"plain %d before the power loss" % number)) == errors.NONE
    broker.kill()
    broker = FolderBroker(path, SETTINGS)  # The next leader epoch.
    acl = CreateAclsRequest.AclCreation(2, "orders", 3, "User:alice", "*", Operation.READ, 3)
    assert broker.call(CreateAclsRequest([acl]), 3).results[0].error_code == errors.NONE
    user = AlterUserScramCredentialsRequest.ScramCredentialUpsertion("alice", 1, 4096, b"salt" * 4, b"password" * 4)
    assert broker.call(AlterUserScramCredentialsRequest([], [user]), 0).results[0].error_code == errors.NONE

    plain, committed, aborted = Producer(broker), Producer(broker, "committed"), Producer(broker, "aborted")
    Producer(broker, "idle")
    padding = b" " + b"x" * 40
    done = []
    for number in range(24):
        name = b" %d" % number + padding
        for producer, word, index in ((committed, b"committed", 0), (aborted, b"aborted", 0), (plain, b"plain", 1)):
            done.append(producer.send("orders", index, (None, word + name), (b"key", word + name)))
        done.append(plain.send("payments", 0, (b"key", b"plain" + name)))
        done.append(committed.send("payments", 0, (b"key", b"committed" + name)))
        done.append(aborted.send("payments", 0, (b"key", b"aborted" + name)))
        done.append(plain.send("audit", 0, (None, b"plain" + name)))
        done.append(plain.send("balances", 0, (b"key-%d" % (number % 5), b"plain" + name)))
        done.append(commit_offset(broker, "plain", number))
        done += [committed.commit_offset("in-txns", number), aborted.commit_offset("in-txns", 1000 + number)]
        done += [committed.end(True), aborted.end(False)]
    records = DeleteRecordsRequest.DeleteRecordsTopic("audit", [DeleteRecordsRequest.DeleteRecordsPartition(0, 7)])
    deleted = broker.call(DeleteRecordsRequest([records], 1000), 2).topics[0].partitions[0]
    assert (deleted.error_code, deleted.low_watermark) == (errors.NONE, 7)
    broker.advance(5000)  # The cleaner runs.
    done.append(plain.send("balances", 0, (b"key-1", b"plain after the cleaner")))
    unfinished = Producer(broker, "open")
    for topic, index in (("orders", 0), ("payments", 0), ("balances", 0)):
        done.append(unfinished.send(topic, index, (b"key-2", b"open" + padding)))
    done.append(unfinished.commit_offset("pending", 5))
    assert set(done) == {errors.NONE}, [errors.name_of(code) for code in set(done)]
    getattr(broker, end)()


# --- looking ------------------------------------------------------------------------------------------------


def look(broker: FolderBroker) -> View:
    """Everything that the folder keeps, by name, as clients see it."""
    view: View = {}
    for topic, count in TOPICS.items():
        for index in range(count):
            name = f"{topic}-{index}"
            view[f"{name} start"] = offset_of(broker, topic, index, -2)
            view[f"{name} end"] = offset_of(broker, topic, index, -1)
            view[f"{name} epochs"] = end_of_epoch(broker, topic, index, 0)
            view[f"{name} uncommitted"] = read(broker, topic, index, READ_UNCOMMITTED)
            view[f"{name} committed"] = read(broker, topic, index, READ_COMMITTED)
    for group_id in GROUPS:
        view[f"group {group_id}"] = committed_offset(broker, group_id)
    for transactional_id in TXN_IDS:
        view[f"id {transactional_id}"] = described(broker, transactional_id)
    view["topics"] = topics_of(broker)
    view["acls"] = acls_of(broker)
    view["users"] = users_of(broker)
    view["producer ids"] = broker.cluster.metadata.next_producer_id
    return view


def read(broker: FolderBroker, topic: str, index: int, isolation_level: int) -> tuple[Any, ...] | Noticed:
    """The (offset, value) of each record that a consumer gets, from the log's start on. It checks all checksums."""
    seen: list[tuple[int, bytes]] = []
    offset = offset_of(broker, topic, index, -2)
    if isinstance(offset, Noticed):
        return offset
    leader_epoch = broker.cluster.leader_of(topic, index).epoch  # As Metadata says it.
    for number in range(MOST_FETCHES):
        partition = FetchRequest.FetchPartition(
            index,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=1 << 20 if number % 2 else 300,
        )
        wanted = FetchRequest.FetchTopic(topic, partitions=[partition])
        request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, isolation_level=isolation_level, topics=[wanted])
        found = broker.call(request, 11).responses[0].partitions[0]
        if found.error_code:
            return Noticed(errors.name_of(found.error_code), tuple(seen))
        limit = found.last_stable_offset if isolation_level == READ_COMMITTED else found.high_watermark
        if not found.records and offset >= limit:
            return tuple(seen)
        isolation = Isolation((a.first_offset, a.producer_id) for a in found.aborted_transactions or ())
        before = offset
        try:
            for header, batch in iter_batches(found.records or b""):
                decode_batch(batch)
                if isolation.delivers(header, batch):
                    seen += [(r.offset, r.value or b"") for r in iter_records(batch) if r.offset >= offset]
                offset = header.last_offset + 1
        except Corrupt as error:
            return Noticed(str(error), tuple(seen))
        if offset <= before:
            return Noticed(f"no record at offset {before}, the log ends at {limit}", tuple(seen))
    raise AssertionError(f"{topic}-{index}: {MOST_FETCHES} fetches, and no end")


def end_of_epoch(broker: FolderBroker, topic: str, index: int, epoch: int) -> Any:
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(index, -1, epoch)
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic, [partition])
    found = broker.call(OffsetForLeaderEpochRequest(-1, [wanted]), 4).topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def offset_of(broker: FolderBroker, topic: str, index: int, timestamp: int) -> Any:
    partition = ListOffsetsRequest.ListOffsetsPartition(index, timestamp=timestamp)
    request = ListOffsetsRequest(-1, 0, [ListOffsetsRequest.ListOffsetsTopic(topic, [partition])])
    found = broker.call(request, 6).topics[0].partitions[0]
    return Noticed(errors.name_of(found.error_code)) if found.error_code else found.offset


def committed_offset(broker: FolderBroker, group_id: str) -> Any:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic("orders", [0])
    reply = broker.call(OffsetFetchRequest(group_id, [topic], require_stable=group_id == "pending"), 7)
    code = reply.error_code or reply.topics[0].partitions[0].error_code
    if code == errors.UNSTABLE_OFFSET_COMMIT:
        return "pending"
    return Noticed(errors.name_of(code)) if code else reply.topics[0].partitions[0].committed_offset


def described(broker: FolderBroker, transactional_id: str) -> Any:
    found = broker.call(DescribeTransactionsRequest([transactional_id]), 0).transaction_states[0]
    if found.error_code not in (errors.NONE, errors.TRANSACTIONAL_ID_NOT_FOUND):
        return Noticed(errors.name_of(found.error_code))
    partitions = sorted((topic.topic, tuple(sorted(topic.partitions))) for topic in found.topics)
    return found.error_code, found.transaction_state, found.producer_id, found.producer_epoch, tuple(partitions)


def topics_of(broker: FolderBroker) -> Mapping[str, Any]:
    topics = broker.call(MetadataRequest(None), 12).topics
    resource = DescribeConfigsRequest.DescribeConfigsResource(2, "balances", ["cleanup.policy", "segment.bytes"])
    configs = broker.call(DescribeConfigsRequest([resource]), 4).results[0].configs
    found = {topic.name: (topic.topic_id, len(topic.partitions)) for topic in topics}
    return found | {"configs of balances": tuple((config.name, config.value) for config in configs)}


def acls_of(broker: FolderBroker) -> Sequence[Any]:
    reply = broker.call(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
    return [
        (r.resource_type, r.resource_name, r.pattern_type, a.principal, a.host, a.operation, a.permission_type)
        for r in reply.resources
        for a in r.acls
    ]


def users_of(broker: FolderBroker) -> Any:
    broker.call(DescribeUserScramCredentialsRequest(None), 0)
    return broker.cluster.metadata.users
