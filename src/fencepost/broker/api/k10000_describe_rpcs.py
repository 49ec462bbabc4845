"""DescribeRpcs (key 10000), v0: the last requests of transactional ids, with their senders and results.

Not an API of Kafka. Keys from 10000 on are for vendors; clients ignore keys that they do not know.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeRpcsRequest, DescribeRpcsResponse

RpcsOfTransaction = DescribeRpcsResponse.RpcsOfTransaction
Rpc = DescribeRpcsResponse.Rpc


# For each id, all kept requests are searched.
MAX_IDS = 100
NAME_NOTHING = frozenset({"InitProducerId", "EndTxn"})  # The others name topics or groups.


def handle(ctx: Context, req: DescribeRpcsRequest) -> DescribeRpcsResponse:
    if len(req.transactional_ids) > MAX_IDS:
        return DescribeRpcsResponse(error_code=errors.INVALID_REQUEST)
    # A client that may describe the cluster may see the names of all topics (DescribeLogDirs) and groups (ListGroups).
    sees_names = ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER, is_filter=True)
    return DescribeRpcsResponse(
        transactions=[
            RpcsOfTransaction(
                id_,
                [
                    Rpc(*(rpc if sees_names or rpc.name in NAME_NOTHING else rpc._replace(about="")))
                    for rpc in ctx.cluster.recent_rpcs(id_)
                ],
            )
            for id_ in dict.fromkeys(req.transactional_ids)
            if ctx.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, id_)
        ]
    )
