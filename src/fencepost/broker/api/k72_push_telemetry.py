"""PushTelemetry (key 72), v0: accepts client metrics and discards them (KIP-714)."""

from __future__ import annotations

from fencepost.broker.api.k71_get_telemetry_subscriptions import COMPRESSIONS, MAX_BYTES, SUBSCRIPTION_ID
from fencepost.broker.node import Context
from fencepost.protocol import errors
from fencepost.protocol.messages import PushTelemetryRequest, PushTelemetryResponse
from fencepost.protocol.schema import NO_UUID

UNCOMPRESSED = 0


def handle(ctx: Context, req: PushTelemetryRequest) -> PushTelemetryResponse:
    error = errors.NONE
    if req.client_instance_id == NO_UUID:
        error = errors.INVALID_REQUEST
    elif req.subscription_id != SUBSCRIPTION_ID:
        error = errors.UNKNOWN_SUBSCRIPTION_ID
    elif req.compression_type not in (UNCOMPRESSED, *COMPRESSIONS):
        error = errors.UNSUPPORTED_COMPRESSION_TYPE
    elif len(req.metrics) > MAX_BYTES:
        error = errors.TELEMETRY_TOO_LARGE
    return PushTelemetryResponse(error_code=error)
