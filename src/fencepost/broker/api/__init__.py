"""The APIs that the broker serves: one module per API key, and one table with the versions of each.

A module is imported at the first request for its API. Its function `handle(ctx, req)` returns the response, or None
if it has arranged for `ctx.reply` to be called later. A module on the hot path also has
`answer_from_bytes(cluster, frame, pos, version, now_ms)`, which answers the commonest form of a request without
decoding it. For any other form it changes nothing and returns None, and the request is decoded in full.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from fencepost.protocol import messages


class Api(NamedTuple):
    key: int
    name: str
    first: int
    last: int
    # Produce is advertised from v0, because old versions of librdkafka ignore the whole list otherwise.
    advertised_first: int
    is_advertised: bool = True

    @property
    def module(self) -> str:
        words = "".join("_" + c.lower() if c.isupper() else c for c in self.name).lstrip("_")
        return f"fencepost.broker.api.k{self.key:02d}_{words}"

    def load(self) -> tuple[Callable[..., Any], Callable[..., bytes | None] | None, Any]:
        """The handler, the faster one for the commonest form if there is one, and the class of the requests."""
        module = import_module(self.module)
        return module.handle, getattr(module, "answer_from_bytes", None), getattr(messages, f"{self.name}Request")


def _api(
    key: int, name: str, first: int, last: int, advertised_first: int | None = None, is_advertised: bool = True
) -> Api:
    return Api(key, name, first, last, first if advertised_first is None else advertised_first, is_advertised)


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        _api(0, "Produce", 3, 13, advertised_first=0),
        _api(1, "Fetch", 4, 18),
        _api(2, "ListOffsets", 1, 11),
        _api(3, "Metadata", 0, 13),
        _api(8, "OffsetCommit", 2, 10),
        _api(9, "OffsetFetch", 1, 10),
        _api(10, "FindCoordinator", 0, 6),
        _api(11, "JoinGroup", 0, 9),
        _api(12, "Heartbeat", 0, 4),
        _api(13, "LeaveGroup", 0, 5),
        _api(14, "SyncGroup", 0, 5),
        _api(15, "DescribeGroups", 0, 6),
        _api(16, "ListGroups", 0, 5),
        _api(17, "SaslHandshake", 1, 1),
        _api(18, "ApiVersions", 0, 4),
        _api(19, "CreateTopics", 2, 7),
        _api(20, "DeleteTopics", 1, 6),
        _api(21, "DeleteRecords", 0, 2),
        _api(22, "InitProducerId", 0, 5),
        _api(23, "OffsetForLeaderEpoch", 2, 4),
        _api(24, "AddPartitionsToTxn", 0, 5),
        _api(25, "AddOffsetsToTxn", 0, 4),
        _api(26, "EndTxn", 0, 5),
        _api(27, "WriteTxnMarkers", 1, 2),
        _api(28, "TxnOffsetCommit", 0, 5),
        _api(29, "DescribeAcls", 1, 3),
        _api(30, "CreateAcls", 1, 3),
        _api(31, "DeleteAcls", 1, 3),
        _api(32, "DescribeConfigs", 1, 4),
        _api(33, "AlterConfigs", 0, 2),
        _api(35, "DescribeLogDirs", 1, 5),
        _api(36, "SaslAuthenticate", 0, 2),
        _api(37, "CreatePartitions", 0, 3),
        _api(42, "DeleteGroups", 0, 2),
        _api(43, "ElectLeaders", 0, 2),
        _api(44, "IncrementalAlterConfigs", 0, 1),
        _api(45, "AlterPartitionReassignments", 0, 1),
        _api(46, "ListPartitionReassignments", 0, 0),
        _api(47, "OffsetDelete", 0, 0),
        _api(48, "DescribeClientQuotas", 0, 1),
        _api(49, "AlterClientQuotas", 0, 1),
        _api(50, "DescribeUserScramCredentials", 0, 0),
        _api(51, "AlterUserScramCredentials", 0, 0),
        _api(55, "DescribeQuorum", 0, 2),
        _api(57, "UpdateFeatures", 0, 2),
        _api(60, "DescribeCluster", 0, 2),
        _api(61, "DescribeProducers", 0, 0),
        _api(65, "DescribeTransactions", 0, 0),
        _api(66, "ListTransactions", 0, 2),
        _api(68, "ConsumerGroupHeartbeat", 0, 1),
        _api(69, "ConsumerGroupDescribe", 0, 1),
        _api(71, "GetTelemetrySubscriptions", 0, 0, is_advertised=False),
        _api(72, "PushTelemetry", 0, 0, is_advertised=False),
        _api(74, "ListConfigResources", 0, 1),
        _api(75, "DescribeTopicPartitions", 0, 0),
        _api(10000, "DescribeRpcs", 0, 0),
        _api(10001, "OrderNodes", 0, 0),
    )
}
