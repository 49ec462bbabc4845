"""ListTransactions (key 66), v0-2: the transactional ids of this coordinator, filtered.

v1 by duration (KIP-994); v2 by a pattern that must match the whole id (KIP-1152).
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.pattern import BadPattern, matching
from fencepost.machines.txn.states import BY_KAFKA_NAME
from fencepost.protocol import errors
from fencepost.protocol.messages import ListTransactionsRequest, ListTransactionsResponse

TransactionState = ListTransactionsResponse.TransactionState


def handle(ctx: Context, req: ListTransactionsRequest) -> ListTransactionsResponse:
    states = {BY_KAFKA_NAME[name] for name in req.state_filters if name in BY_KAFKA_NAME}
    unknown = [name for name in req.state_filters if name not in BY_KAFKA_NAME]
    found = (
        []
        if unknown and not states  # Kafka: unknown states match nothing.
        else ctx.cluster.txns.list_txns(states, set(req.producer_id_filters), req.duration_filter, ctx.now_ms)
    )
    if req.transactional_id_pattern:
        try:
            ids = matching(req.transactional_id_pattern, [txn.transactional_id for txn in found])
            found = [txn for txn in found if txn.transactional_id in ids]
        except BadPattern:
            return ListTransactionsResponse(error_code=errors.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(txn.transactional_id, txn.producer_id, txn.state.kafka_name)
            for txn in found
            if ctx.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, txn.transactional_id, is_filter=True)
        ],
    )
