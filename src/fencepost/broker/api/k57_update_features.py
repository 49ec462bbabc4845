"""UpdateFeatures (key 57), v0-2: change `transaction.version` or `group.version` while the broker runs.

All updates are made, or none. v1 adds whether a downgrade is intended; v2 answers once for all features.
"""

from __future__ import annotations

from fencepost.broker.api.k18_api_versions import (
    GROUP_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    feature_levels,
)
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from fencepost.protocol.transaction_version import TransactionVersion

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
Update = UpdateFeaturesRequest.FeatureUpdateKey
Result = UpdateFeaturesResponse.UpdatableFeatureResult


def handle(ctx: Context, req: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER):
        return UpdateFeaturesResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED)
    # Kafka: if a feature is updated twice, the later update counts.
    updates = {update.feature: update for update in req.feature_updates}
    for update in updates.values():
        reason = _why_not(ctx, update)
        if reason:
            message = (
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}"
            )
            return UpdateFeaturesResponse(error_code=errors.INVALID_UPDATE_VERSION, error_message=message)
    if updates and not req.validate_only:
        levels = feature_levels(ctx.cluster) | {u.feature: u.max_version_level for u in updates.values()}
        try:
            ctx.cluster.change_features(TransactionVersion(levels[TRANSACTION_VERSION]), levels[GROUP_VERSION])
        except StorageFailed as e:
            return UpdateFeaturesResponse(error_code=errors.KAFKA_STORAGE_ERROR, error_message=str(e))
    results = [Result(update.feature, errors.NONE, "NONE") for update in req.feature_updates]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _why_not(ctx: Context, update: Update) -> str | None:
    """The reason to refuse an update, in Kafka's words; None if there is none."""
    level, kind = update.max_version_level, update.upgrade_type
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if update.feature not in SUPPORTED_FEATURES:
        return f"Local controller {ctx.node.node_id} does not support this feature."
    first, last = SUPPORTED_FEATURES[update.feature]
    if not first <= level <= last:
        return f"Local controller {ctx.node.node_id} only supports versions {first}-{last}"
    current = feature_levels(ctx.cluster)[update.feature]
    if level < current and kind == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if level > current and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    return None
