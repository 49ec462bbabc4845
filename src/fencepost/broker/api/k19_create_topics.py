"""CreateTopics (key 19), v2-7: create topics.

v4 -1 asks for the default number of partitions; v5 answers with the settings.
"""

from __future__ import annotations

from collections import Counter

from fencepost.broker.api.k32_describe_configs import topic_settings
from fencepost.broker.metadata import MetadataDraft
from fencepost.broker.node import Context
from fencepost.broker.slices import WORK_A_SLICE, Sliced, in_saves
from fencepost.broker.topics import MAX_PARTITIONS_PER_REQUEST, TopicNames, TopicRefused, check_replication_factor
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import CreateTopicsRequest, CreateTopicsResponse

Wanted = CreateTopicsRequest.CreatableTopic
Result = CreateTopicsResponse.CreatableTopicResult
ConfigResult = CreateTopicsResponse.CreatableTopicConfigs


def handle(ctx: Context, req: CreateTopicsRequest) -> Sliced[CreateTopicsResponse]:
    times = Counter(wanted.name for wanted in req.topics)
    names = TopicNames(ctx.cluster.topics)
    total = sum(_partitions_of(ctx, wanted) for wanted in req.topics)
    results: dict[str, Result] = {}
    for part in in_saves(req.topics, lambda wanted: _partitions_of(ctx, wanted)):
        if results:
            yield WORK_A_SLICE
        results |= _create_all(ctx, part, names, times, total > MAX_PARTITIONS_PER_REQUEST, req.validate_only)
    return CreateTopicsResponse(topics=list(results.values()))


def _create_all(
    ctx: Context, part: list[Wanted], names: TopicNames, times: Counter[str], is_too_much: bool, validate_only: bool
) -> dict[str, Result]:
    results: dict[str, Result] = {}
    draft = ctx.cluster.draft()
    may_create_all = ctx.may(Operation.CREATE, ResourceType.CLUSTER, is_filter=True)
    for wanted in part:
        if times[wanted.name] > 1:
            error = "the request names this topic more than once"
            results[wanted.name] = Result(wanted.name, error_code=errors.INVALID_REQUEST, error_message=error)
        elif not may_create_all and not ctx.may(Operation.CREATE, ResourceType.TOPIC, wanted.name):
            error = "Authorization failed."
            code = errors.TOPIC_AUTHORIZATION_FAILED
            results[wanted.name] = Result(wanted.name, error_code=code, error_message=error)
        elif is_too_much:
            # Kafka: has the same limit and message.
            error = "Excessively large number of partitions per request."
            results[wanted.name] = Result(wanted.name, error_code=errors.POLICY_VIOLATION, error_message=error)
        else:
            results[wanted.name] = _create(ctx, draft, names, wanted, validate_only)
    try:
        if not validate_only:
            ctx.cluster.commit(draft, ctx.now_ms)
    except StorageFailed as e:
        for name, result in results.items():
            if not result.error_code:
                results[name] = Result(name, error_code=errors.KAFKA_STORAGE_ERROR, error_message=str(e))
    return results


def _partitions_of(ctx: Context, wanted: Wanted) -> int:
    default: int = ctx.cluster.config["num.partitions"]
    return len(wanted.assignments) or (default if wanted.num_partitions == -1 else max(wanted.num_partitions, 0))


def _create(ctx: Context, draft: MetadataDraft, names: TopicNames, wanted: Wanted, validate_only: bool) -> Result:
    try:
        other = names.colliding(wanted.name)
        if other is not None:
            reason = f"Topic '{wanted.name}' collides with existing topic: {other}"
            raise TopicRefused(errors.INVALID_TOPIC_EXCEPTION, reason)
        configs = _configs_of(wanted)
        partition_count, factor = _layout(ctx, draft, wanted)
        topic = ctx.cluster.draft_topic(draft, wanted.name, partition_count, configs, factor)
    except TopicRefused as e:
        return Result(wanted.name, error_code=e.code, error_message=str(e))
    topic_id = bytes(16) if validate_only else topic.topic_id
    if not ctx.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, is_filter=True):
        return Result(
            topic.name, topic_id, error_message=None, topic_config_error_code=errors.TOPIC_AUTHORIZATION_FAILED
        )
    settings = topic_settings(ctx.cluster, topic.configs)
    return Result(
        topic.name,
        topic_id,
        error_message=None,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=[ConfigResult(s.name, s.value, s.is_read_only, s.source, False) for s in settings],
    )


def _configs_of(wanted: Wanted) -> dict[str, str]:
    configs = {}
    for config in wanted.configs:
        if config.value is None:
            raise TopicRefused(errors.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}")
        configs[config.name] = config.value
    return configs


def _layout(ctx: Context, draft: MetadataDraft, wanted: Wanted) -> tuple[int, int]:
    """The number of partitions, and of replicas of each. Leaders that the request names go into the draft."""
    config, brokers = ctx.cluster.config, ctx.cluster.brokers
    if not wanted.assignments:
        factor = check_replication_factor(config, wanted.replication_factor, len(brokers))
        return config["num.partitions"] if wanted.num_partitions == -1 else wanted.num_partitions, factor
    if wanted.num_partitions != -1 or wanted.replication_factor != -1:
        raise TopicRefused(
            errors.INVALID_REQUEST, "with a replica assignment, partitions and replication factor must be -1"
        )
    known = {broker.node_id for broker in brokers}
    for assignment in wanted.assignments:
        ids = assignment.broker_ids
        if not ids or len(set(ids)) != len(ids) or not set(ids) <= known:
            raise TopicRefused(
                errors.INVALID_REPLICA_ASSIGNMENT,
                f"each partition has replicas on some of {sorted(known)}, each once; asked: {list(ids)}",
            )
        draft.leaders[wanted.name, assignment.partition_index] = ids[0]
    if sorted(a.partition_index for a in wanted.assignments) != list(range(len(wanted.assignments))):
        raise TopicRefused(errors.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without gaps")
    return len(wanted.assignments), len(wanted.assignments[0].broker_ids)
