"""InitProducerId (key 22), v0-5: give a producer its id and epoch, and fence the previous one of its transactional id.

v3 the producer may send its present id and epoch (KIP-360); v4 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.
v6 (KIP-939) is unstable in Kafka, so it is not served.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import InitProducerIdRequest, InitProducerIdResponse


def handle(ctx: Context, req: InitProducerIdRequest) -> InitProducerIdResponse | None:
    if req.transactional_id is not None:
        if not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, req.transactional_id):
            error = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return InitProducerIdResponse(error_code=error, producer_epoch=-1)
    elif not ctx.may_any(Operation.WRITE, ResourceType.TOPIC) and not ctx.may(
        Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER
    ):
        return InitProducerIdResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED, producer_epoch=-1)
    if (req.producer_id == -1) != (req.producer_epoch == -1):
        return InitProducerIdResponse(error_code=errors.INVALID_REQUEST, producer_epoch=-1)
    if req.transactional_id is None:
        return _idempotent(ctx)
    if req.transactional_id == "":
        return InitProducerIdResponse(error_code=errors.INVALID_REQUEST, producer_epoch=-1)
    if not 0 < req.transaction_timeout_ms <= ctx.cluster.config["transaction.max.timeout.ms"]:
        return InitProducerIdResponse(error_code=errors.INVALID_TRANSACTION_TIMEOUT, producer_epoch=-1)

    def reply(error: int, producer_id: int, epoch: int) -> None:
        if error == errors.PRODUCER_FENCED and ctx.version < 4:
            error = errors.INVALID_PRODUCER_EPOCH
        ctx.reply(InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch))

    ctx.cluster.txns.init_producer_id(
        req.transactional_id, req.producer_id, req.producer_epoch, req.transaction_timeout_ms, ctx.now_ms, reply
    )
    return None


def _idempotent(ctx: Context) -> InitProducerIdResponse:
    """Give a new id to a producer without transactions."""
    try:
        return InitProducerIdResponse(producer_id=ctx.cluster.allocate_producer_id(), producer_epoch=0)
    except StorageFailed:
        return InitProducerIdResponse(error_code=errors.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1)
