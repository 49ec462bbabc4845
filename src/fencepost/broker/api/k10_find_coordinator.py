"""FindCoordinator (key 10), v0-6: which broker serves a group (key type 0) or a transactional id (key type 1).

v4 several keys at once; v6 share groups (key type 2), which are not served.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.broker.slices import Sliced, each
from fencepost.broker.topics import OFFSETS_TOPIC, TXN_TOPIC
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION = 0, 1
Coordinator = FindCoordinatorResponse.Coordinator


def handle(ctx: Context, req: FindCoordinatorRequest) -> Sliced[FindCoordinatorResponse]:
    if ctx.version >= 4:
        coordinators = yield from each(req.coordinator_keys, lambda key: _find(ctx, req.key_type, key))
        return FindCoordinatorResponse(coordinators=coordinators)
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
    if key_type == GROUP and not ctx.may(Operation.DESCRIBE, ResourceType.GROUP, key):
        return _denied(ctx, key, errors.GROUP_AUTHORIZATION_FAILED)
    if key_type == TRANSACTION and not ctx.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
        return _denied(ctx, key, errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        if key_type == GROUP:
            broker = cluster.broker_of(OFFSETS_TOPIC, cluster.groups.partition_of(key, ctx.now_ms))
        elif key_type == TRANSACTION:
            broker = cluster.broker_of(TXN_TOPIC, cluster.txns.partition_of(key, ctx.now_ms))
        else:
            return Coordinator(key, -1, "", -1, errors.INVALID_REQUEST, f"coordinator type {key_type} is unknown")
    except StorageFailed as e:
        return Coordinator(key, -1, "", -1, errors.COORDINATOR_NOT_AVAILABLE, str(e))
    broker = ctx.address_of(broker)
    return Coordinator(key, broker.node_id, broker.host, broker.port, errors.NONE, "NONE" if ctx.version < 4 else "")


def _denied(ctx: Context, key: str, error: int) -> Coordinator:
    return Coordinator(key, -1, "", -1, error, errors.name_of(error) if ctx.version < 4 else "")
