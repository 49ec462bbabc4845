"""GetTelemetrySubscriptions (key 71), v0: the broker wants no client metrics (KIP-714).

Kafka: does not advertise this API without a receiver for the metrics, but answers a client that calls it.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol.messages import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from fencepost.protocol.schema import NO_UUID

PUSH_INTERVAL_MS = 300_000
MAX_BYTES = 1_048_576
# Kafka: zstd, lz4, gzip, snappy.
COMPRESSIONS = (4, 3, 1, 2)
# Kafka: a checksum of the subscriptions. Here there are none.
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
