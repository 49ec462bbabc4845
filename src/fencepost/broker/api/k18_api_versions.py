"""ApiVersions (key 18), v0-4: the APIs, versions and features of this broker.

v3 flexible, with features: a client uses TV2 only if `transaction.version` is finalized at 2 here. Below v4 a
supported feature whose minimum is 0 is left out, because old clients fail on it.
"""

from __future__ import annotations

from fencepost.broker.api import APIS
from fencepost.broker.cluster import Cluster
from fencepost.broker.node import Context
from fencepost.protocol import errors
from fencepost.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SUPPORTED_FEATURES = {GROUP_VERSION: (0, 1), TRANSACTION_VERSION: (0, 2)}  # Name -> first and last level.


def _api_keys() -> list[ApiVersionsResponse.ApiVersion]:
    return [
        ApiVersionsResponse.ApiVersion(api.key, api.advertised_first, api.last)
        for api in APIS.values()
        if api.is_advertised
    ]


def feature_levels(cluster: Cluster) -> dict[str, int]:
    return {GROUP_VERSION: cluster.metadata.group_version, TRANSACTION_VERSION: cluster.transaction_version}


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in v0, to an unknown version of ApiVersions."""
    api = APIS[18]
    return ApiVersionsResponse(
        error_code=errors.UNSUPPORTED_VERSION,
        api_keys=[ApiVersionsResponse.ApiVersion(api.key, api.first, api.last)],
    )


def handle(ctx: Context, req: ApiVersionsRequest) -> ApiVersionsResponse:
    cluster = ctx.cluster
    if ctx.version >= 3 and not (_is_name(req.client_software_name) and _is_name(req.client_software_version)):
        return ApiVersionsResponse(error_code=errors.INVALID_REQUEST)
    supported = [
        ApiVersionsResponse.SupportedFeatureKey(name, first, last)
        for name, (first, last) in SUPPORTED_FEATURES.items()
        if ctx.version >= 4 or first > 0
    ]
    finalized = [
        ApiVersionsResponse.FinalizedFeatureKey(name, level, level)
        for name, level in feature_levels(cluster).items()
        if level > 0
    ]
    return ApiVersionsResponse(
        api_keys=_api_keys(),
        supported_features=supported,
        finalized_features_epoch=cluster.metadata.features_epoch,
        finalized_features=finalized,
    )


def _is_name(text: str) -> bool:
    """Kafka: a client's name begins and ends with a letter or digit and may have '.' and '-' in between."""
    return bool(text) and text[0].isalnum() and text[-1].isalnum() and all(c.isalnum() or c in ".-" for c in text)
