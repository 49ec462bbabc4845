"""ApiVersions (key 18), v0-5: which APIs and versions this broker serves, and its features.

v3 flexible, with features: a client speaks transaction version 2 only if `transaction.version` is finalized
at 2 here. Below v4 a supported feature whose minimum is 0 is left out, since old clients choke on it.
"""

from __future__ import annotations

from fencepost.broker.api import APIS
from fencepost.broker.node import Context
from fencepost.protocol import errors
from fencepost.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

TRANSACTION_VERSION = "transaction.version"
SUPPORTED_TRANSACTION_VERSIONS = (0, 2)


def _api_keys() -> list[ApiVersionsResponse.ApiVersion]:
    return [ApiVersionsResponse.ApiVersion(api.key, api.advertised_first, api.last) for api in APIS.values()]


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in v0, to a version of ApiVersions that this broker does not know."""
    api = APIS[18]
    return ApiVersionsResponse(
        error_code=errors.UNSUPPORTED_VERSION,
        api_keys=[ApiVersionsResponse.ApiVersion(api.key, api.first, api.last)],
    )


def handle(ctx: Context, req: ApiVersionsRequest) -> ApiVersionsResponse:
    cluster = ctx.cluster
    if ctx.version >= 3 and not (_is_name(req.client_software_name) and _is_name(req.client_software_version)):
        return ApiVersionsResponse(error_code=errors.INVALID_REQUEST)
    first, last = SUPPORTED_TRANSACTION_VERSIONS
    supported = []
    if ctx.version >= 4 or first > 0:
        supported = [ApiVersionsResponse.SupportedFeatureKey(TRANSACTION_VERSION, first, last)]
    finalized = []
    if cluster.transaction_version > 0:
        level = cluster.transaction_version
        finalized = [ApiVersionsResponse.FinalizedFeatureKey(TRANSACTION_VERSION, level, level)]
    return ApiVersionsResponse(
        api_keys=_api_keys(),
        supported_features=supported,
        finalized_features_epoch=cluster.features_epoch,
        finalized_features=finalized,
    )


def _is_name(text: str) -> bool:
    """Kafka: a client's name begins and ends with a letter or digit; '.' and '-' may stand between."""
    return bool(text) and text[0].isalnum() and text[-1].isalnum() and all(c.isalnum() or c in ".-" for c in text)
