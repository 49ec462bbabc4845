"""FindCoordinator (key 10), v0-6: which broker serves a group (key type 0) or a transactional id (key type 1).

v4 several keys at once; v6 share groups (key type 2), which are not served.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION = 0, 1
Coordinator = FindCoordinatorResponse.Coordinator


def handle(ctx: Context, req: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if ctx.version >= 4:
        return FindCoordinatorResponse(coordinators=[_find(ctx, req.key_type, key) for key in req.coordinator_keys])
    found = _find(ctx, req.key_type, req.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(ctx: Context, key_type: int, key: str) -> Coordinator:
    cluster = ctx.cluster
    try:
        if key_type == GROUP:
            index = cluster.groups.partition_of(key, ctx.now_ms)
        elif key_type == TRANSACTION:
            cluster.txns.ensure_shards(ctx.now_ms)
            index = cluster.txns.shard_index(key)
        else:
            return Coordinator(key, -1, "", -1, errors.INVALID_REQUEST, f"coordinator type {key_type} is unknown")
    except StorageFailed as e:
        return Coordinator(key, -1, "", -1, errors.COORDINATOR_NOT_AVAILABLE, str(e))
    broker = ctx.address_of(cluster.leader_of(index))
    return Coordinator(key, broker.node_id, broker.host, broker.port, errors.NONE, "NONE" if ctx.version < 4 else "")
