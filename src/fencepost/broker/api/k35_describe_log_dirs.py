"""DescribeLogDirs (key 35), v1-5: the data folder, and the size of each partition in it.

v4 adds the size of the disk; v5 whether the folder is cordoned off from new partitions, which it never is.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse

Result = DescribeLogDirsResponse.DescribeLogDirsResult
TopicResult = DescribeLogDirsResponse.DescribeLogDirsTopic
PartitionResult = DescribeLogDirsResponse.DescribeLogDirsPartition


def handle(ctx: Context, req: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED)
    wanted: dict[str, set[int]] | None = None
    if req.topics is not None:
        wanted = {}
        for topic in req.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
    found = []
    for name in ctx.cluster.topics if wanted is None else wanted:
        partitions = _sizes(ctx, name, None if wanted is None else wanted[name])
        if partitions:
            found.append(TopicResult(name, partitions))
    disk = ctx.cluster.disk()
    result = Result(log_dir=disk.log_dir, topics=found, total_bytes=disk.total_bytes, usable_bytes=disk.usable_bytes)
    return DescribeLogDirsResponse(results=[result])


def _sizes(ctx: Context, name: str, wanted: set[int] | None) -> list[PartitionResult]:
    """The sizes of the wanted partitions that this broker leads; None asks for all."""
    topic = ctx.cluster.topics.get(name)
    return [
        PartitionResult(index, partition.log.end_address - partition.log.start_address)
        for index, partition in (topic.partitions if topic else {}).items()
        if wanted is None or index in wanted
    ]
