"""EndTxn (key 26), v0-5: commit or abort the open transaction of one producer.

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v5 answers with the producer id and epoch to use next (KIP-890).
The response is encoded here: it is on the hot path.
"""

from __future__ import annotations

import struct

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import EndTxnRequest
from fencepost.protocol.transaction_version import TV0, TV2

_V0 = struct.Struct(">ih")
_V3 = struct.Struct(">ihb")
_V5 = struct.Struct(">ihqhb")


def handle(ctx: Context, req: EndTxnRequest) -> bytes | None:
    version = ctx.version
    if not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, req.transactional_id):
        return encode(version, errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)
    if req.transactional_id == "":
        return encode(version, errors.INVALID_REQUEST, -1, -1)

    def reply(error: int, producer_id: int, epoch: int) -> None:
        if error == errors.PRODUCER_FENCED and version < 2:
            error = errors.INVALID_PRODUCER_EPOCH
        ctx.reply(encode(version, error, producer_id, epoch))

    ctx.cluster.txns.end_txn(
        req.transactional_id,
        req.producer_id,
        req.producer_epoch,
        req.committed,
        TV2 if version >= 5 else TV0,
        ctx.now_ms,
        reply,
    )
    return None


def encode(version: int, error: int, producer_id: int, epoch: int) -> bytes:
    if version >= 5:
        return _V5.pack(0, error, producer_id, epoch, 0)
    return _V3.pack(0, error, 0) if version >= 3 else _V0.pack(0, error)
