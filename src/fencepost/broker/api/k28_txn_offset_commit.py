"""TxnOffsetCommit (key 28), v0-5: offsets of a group as part of a transaction; they count when it commits.

v3 member and generation are checked (KIP-447); v4 TRANSACTION_ABORTABLE; v5 adds the group to the transaction (TV2).
"""

from __future__ import annotations

from functools import partial

from fencepost.broker.coordinator.elsewhere import add_partitions as ask_coordinator
from fencepost.broker.coordinator.groups import Verified
from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.node import Context
from fencepost.broker.topics import OFFSETS_TOPIC
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.commits import CommitDecision, Committer, OffsetToCommit
from fencepost.protocol import errors
from fencepost.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from fencepost.protocol.transaction_version import TV2

TopicResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def handle(ctx: Context, req: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | None:
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
            if found is None or not 0 <= p.partition_index < found.partition_count:
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

    def answer(decision: CommitDecision) -> None:
        error = _seen_by_client(decision.error_code, ctx.version)
        for i, slot in enumerate(slots):
            slot.error_code = error or decision.partition_errors[i]
        ctx.reply(TxnOffsetCommitResponse(topics=responses))

    if not asked:
        return TxnOffsetCommitResponse(topics=responses)
    if not req.group_id:
        answer(CommitDecision(errors.INVALID_GROUP_ID))
        return None
    try:
        ctx.cluster.groups.commit_txn_offsets(
            req.group_id,
            Committer(req.generation_id, req.member_id, req.group_instance_id),
            asked,
            req.producer_id,
            req.producer_epoch,
            partial(_verify, ctx, req),
            ctx.now_ms,
            answer,
        )
    except NotCoordinator:
        answer(CommitDecision(errors.NOT_COORDINATOR))
    return None


def _verify(ctx: Context, req: TxnOffsetCommitRequest, then: Verified) -> None:
    """The group's partition must be in the transaction; from v5 on it is put there."""
    txns = ctx.cluster.txns
    where = (OFFSETS_TOPIC, ctx.cluster.groups.partition_of(req.group_id, ctx.now_ms))
    who = (req.transactional_id, req.producer_id, req.producer_epoch)
    adds = ctx.version >= 5
    if not adds and not ctx.cluster.config["transaction.partition.verification.enable"]:
        then(errors.NONE, ctx.now_ms)
    elif not txns.is_here(req.transactional_id, ctx.now_ms):
        ask_coordinator(
            ctx.cluster, *who, [where], not adds, ctx.now_ms, lambda found, at_ms: then(found[where], at_ms)
        )
    elif adds:
        then(txns.add_partitions(*who, {where}, TV2, ctx.now_ms), ctx.now_ms)
    else:
        then(txns.verify(*who, where), ctx.now_ms)


def _seen_by_client(error: int, version: int) -> int:
    if error == errors.PRODUCER_FENCED:
        return errors.INVALID_PRODUCER_EPOCH
    if error == errors.TRANSACTION_ABORTABLE and version < 4:
        return errors.INVALID_TXN_STATE
    if error == errors.COORDINATOR_LOAD_IN_PROGRESS and version < 2:
        return errors.COORDINATOR_NOT_AVAILABLE
    return error
