"""AddOffsetsToTxn (key 25), v0-4: add a group's offsets to a transaction.

This adds the group's partition of `__consumer_offsets`. v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.broker.topics import OFFSETS_TOPIC
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from fencepost.protocol.transaction_version import TV0


def handle(ctx: Context, req: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    if not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, req.transactional_id):
        return AddOffsetsToTxnResponse(error_code=errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.may(Operation.READ, ResourceType.GROUP, req.group_id):
        return AddOffsetsToTxnResponse(error_code=errors.GROUP_AUTHORIZATION_FAILED)
    index = ctx.cluster.groups.partition_of(req.group_id, ctx.now_ms)
    # Kafka: treats every client as TV0 here.
    error = ctx.cluster.txns.add_partitions(
        req.transactional_id, req.producer_id, req.producer_epoch, {(OFFSETS_TOPIC, index)}, TV0, ctx.now_ms
    )
    if error == errors.PRODUCER_FENCED and ctx.version < 2:
        error = errors.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)
