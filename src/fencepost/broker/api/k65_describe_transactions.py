"""DescribeTransactions (key 65), v0: the state of transactional ids at their coordinator."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.broker.slices import Sliced, each
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.txn.records import group_by_topic
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse

TransactionState = DescribeTransactionsResponse.TransactionState
TopicData = DescribeTransactionsResponse.TopicData


def handle(ctx: Context, req: DescribeTransactionsRequest) -> Sliced[DescribeTransactionsResponse]:
    # Differs: Fencepost describes a transactional id once, however often a DescribeTransactions names it.
    states = yield from each(dict.fromkeys(req.transactional_ids), lambda id_: _describe(ctx, id_))
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(ctx: Context, transactional_id: str) -> TransactionState:
    if not ctx.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        error = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return TransactionState(error_code=error, transactional_id=transactional_id)
    txn = ctx.cluster.txns.find(transactional_id)
    if not transactional_id:
        return TransactionState(error_code=errors.INVALID_REQUEST, transactional_id=transactional_id)
    if txn is None:
        is_here = ctx.cluster.txns.is_here(transactional_id, ctx.now_ms)
        error = errors.TRANSACTIONAL_ID_NOT_FOUND if is_here else errors.NOT_COORDINATOR
        return TransactionState(error_code=error, transactional_id=transactional_id)
    return TransactionState(
        errors.NONE,
        transactional_id,
        txn.state.kafka_name,
        txn.timeout_ms,
        txn.start_ms,
        txn.producer_id,
        txn.producer_epoch,
        # Differs: Kafka leaves out the partitions of a decided transaction whose markers are written. Fencepost lists
        # all of them until the transaction is complete.
        [
            TopicData(topic, indexes)
            for topic, indexes in group_by_topic(txn.partitions).items()
            if ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, topic, is_filter=True)
        ],
    )
