"""GetTelemetrySubscriptions (key 71), v0: no metrics of clients are wanted (KIP-714).

Kafka: not advertised while nothing would take the metrics, so clients do not ask; who asks is answered.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol.messages import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from fencepost.protocol.schema import NO_UUID

PUSH_INTERVAL_MS = 300_000
MAX_BYTES = 1_048_576
# Kafka: zstd, lz4, gzip, snappy.
COMPRESSIONS = (4, 3, 1, 2)
# Kafka: a checksum of what is wanted. Nothing ever is.
SUBSCRIPTION_ID = 0


def handle(ctx: Context, req: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    client = req.client_instance_id
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=ctx.cluster.rng.randbytes(16) if client == NO_UUID else client,
        subscription_id=SUBSCRIPTION_ID,
        accepted_compression_types=COMPRESSIONS,
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=MAX_BYTES,
        delta_temporality=True,
    )
