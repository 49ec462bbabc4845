"""TxnOffsetCommit (key 28), v0-5: offsets of a group as part of a transaction; they count when it commits.

v3 member and generation are checked (KIP-447); v4 TRANSACTION_ABORTABLE; v5 adds the group to the transaction (TV2).
"""

from __future__ import annotations

from fencepost.broker.internal_topics import OFFSETS_TOPIC
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.commits import Committer, OffsetToCommit
from fencepost.protocol import errors
from fencepost.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from fencepost.protocol.transaction_version import TV2

TopicResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def handle(ctx: Context, req: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    refusal = errors.NONE
    if not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, req.transactional_id):
        refusal = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not ctx.may(Operation.READ, ResourceType.GROUP, req.group_id):
        refusal = errors.GROUP_AUTHORIZATION_FAILED
    responses: list[TopicResponse] = []
    asked: list[OffsetToCommit] = []
    slots: list[PartitionResponse] = []
    for topic in req.topics:
        found = ctx.cluster.topics.get(topic.name)
        is_denied = not refusal and not ctx.may(Operation.READ, ResourceType.TOPIC, topic.name)
        partitions = []
        for p in topic.partitions:
            slot = PartitionResponse(p.partition_index)
            partitions.append(slot)
            if refusal or is_denied:
                slot.error_code = refusal or errors.TOPIC_AUTHORIZATION_FAILED
                continue
            if found is None or not 0 <= p.partition_index < len(found.partitions):
                slot.error_code = errors.UNKNOWN_TOPIC_OR_PARTITION
                continue
            slots.append(slot)
            asked.append(
                OffsetToCommit(
                    topic.name,
                    p.partition_index,
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.committed_metadata,
                    # Differs: Kafka 4.3 stores no topic id with the offsets of a transaction. Fencepost stores it, so
                    # that they never count for a later topic of the same name.
                    topic_id=found.topic_id,
                )
            )
        responses.append(TopicResponse(topic.name, partitions))
    if asked:
        error, codes = _commit(ctx, req, asked)
        for i, slot in enumerate(slots):
            slot.error_code = error or codes[i]
    return TxnOffsetCommitResponse(topics=responses)


def _commit(ctx: Context, req: TxnOffsetCommitRequest, asked: list[OffsetToCommit]) -> tuple[int, tuple[int, ...]]:
    if not req.group_id:
        return errors.INVALID_GROUP_ID, ()
    decision = ctx.cluster.groups.commit_txn_offsets(
        req.group_id,
        Committer(req.generation_id, req.member_id, req.group_instance_id),
        asked,
        req.producer_id,
        req.producer_epoch,
        lambda: _verify(ctx, req),
        ctx.now_ms,
    )
    return _seen_by_client(decision.error_code, ctx.version), decision.partition_errors


def _verify(ctx: Context, req: TxnOffsetCommitRequest) -> int:
    """The group's partition must be in the transaction; from v5 on it is put there."""
    txns = ctx.cluster.txns
    where = (OFFSETS_TOPIC, ctx.cluster.groups.partition_of(req.group_id, ctx.now_ms))
    if ctx.version >= 5:
        return txns.add_partitions(req.transactional_id, req.producer_id, req.producer_epoch, {where}, TV2, ctx.now_ms)
    if not ctx.cluster.config["transaction.partition.verification.enable"]:
        return errors.NONE
    return txns.verify(req.transactional_id, req.producer_id, req.producer_epoch, where)


def _seen_by_client(error: int, version: int) -> int:
    if error == errors.PRODUCER_FENCED:
        return errors.INVALID_PRODUCER_EPOCH
    if error == errors.TRANSACTION_ABORTABLE and version < 4:
        return errors.INVALID_TXN_STATE
    if error == errors.COORDINATOR_LOAD_IN_PROGRESS and version < 2:
        return errors.COORDINATOR_NOT_AVAILABLE
    return error
