"""OrderNodes (key 10001), v0: stop, start, pause and resume nodes, move leaders; answers with all nodes.

Not an API of Kafka. Keys from 10000 on are for vendors; clients ignore keys that they do not know.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.broker.peers import DESCRIBE, NodeDescription, NodeOrder
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import OrderNodesRequest, OrderNodesResponse

Node = OrderNodesResponse.DescribedNode


def handle(ctx: Context, req: OrderNodesRequest) -> None:
    def done(refusal: str | None, nodes: list[NodeDescription]) -> None:
        code = errors.NONE if refusal is None else errors.INVALID_REQUEST
        ctx.reply(OrderNodesResponse(0, code, refusal, [Node(*node) for node in nodes]))

    operation = Operation.DESCRIBE if req.order == DESCRIBE else Operation.ALTER
    if not ctx.may(operation, ResourceType.CLUSTER):
        message = (
            f"{operation.name} on the cluster is not allowed to {ctx.connection.principal}\n\n"
            "hint: an administrator can allow it with an ACL, or a super user can give the order"
        )
        ctx.reply(OrderNodesResponse(0, errors.CLUSTER_AUTHORIZATION_FAILED, message, []))
        return
    order = NodeOrder(req.order, req.node_id, req.topic, req.partition, req.transactional_id)
    ctx.cluster.order_nodes(order, done)
