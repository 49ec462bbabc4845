"""ElectLeaders (key 43), v0-2: answers that no election is needed, because a partition's only replica leads it.

v1 adds the kind of election: of the preferred replica (0) or unclean (1).
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import ElectLeadersRequest, ElectLeadersResponse

ELECTION_TYPES = (0, 1)
Result = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = ElectLeadersResponse.PartitionResult


def handle(ctx: Context, req: ElectLeadersRequest) -> ElectLeadersResponse:
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER):
        return _denied(req)
    is_known = req.election_type in ELECTION_TYPES
    error = errors.NONE if is_known else errors.INVALID_REQUEST
    if req.topic_partitions is None:
        # Kafka: asked for all partitions, it leaves out those that need no election.
        results = [Result(name) for name in ctx.cluster.topics] if is_known else []
        return ElectLeadersResponse(error_code=error, replica_election_results=results)
    results = []
    for wanted in req.topic_partitions:
        if is_known:
            found = [PartitionResult(index, *_elect(ctx, wanted.topic, index)) for index in wanted.partitions]
        else:
            message = f"Unknown election type {req.election_type}"
            found = [PartitionResult(index, error, message) for index in wanted.partitions]
        results.append(Result(wanted.topic, found))
    return ElectLeadersResponse(error_code=error, replica_election_results=results)


def _denied(req: ElectLeadersRequest) -> ElectLeadersResponse:
    error = errors.CLUSTER_AUTHORIZATION_FAILED
    results = [
        Result(wanted.topic, [PartitionResult(index, error) for index in wanted.partitions])
        for wanted in req.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=error, replica_election_results=results)


def _elect(ctx: Context, topic: str, index: int) -> tuple[int, str]:
    if topic not in ctx.cluster.topics:
        return errors.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}"
    if not ctx.cluster.has_partition(topic, index):
        return errors.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}"
    return errors.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
