# Generated from definitions/ by `python -m fencepost.protocol.stubs`. Do not edit.
from collections.abc import Sequence

from fencepost.protocol.schema import Message, Struct

class AddOffsetsToTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    def __init__(self, transactional_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., group_id: str = ...) -> None: ...

class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...

class AddPartitionsToTxnRequest(Message):
    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
        def __init__(self, transactional_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., verify_only: bool = ..., topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...) -> None: ...
    class AddPartitionsToTxnTopic(Struct):
        name: str
        partitions: Sequence[int]
        def __init__(self, name: str = ..., partitions: Sequence[int] = ...) -> None: ...
    transactions: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
    def __init__(self, transactions: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = ..., v3_and_below_transactional_id: str = ..., v3_and_below_producer_id: int = ..., v3_and_below_producer_epoch: int = ..., v3_and_below_topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...) -> None: ...

class AddPartitionsToTxnResponse(Message):
    class AddPartitionsToTxnResult(Struct):
        transactional_id: str
        topic_results: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
        def __init__(self, transactional_id: str = ..., topic_results: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...) -> None: ...
    class AddPartitionsToTxnTopicResult(Struct):
        name: str
        results_by_partition: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]
        def __init__(self, name: str = ..., results_by_partition: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...) -> None: ...
    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int
        partition_error_code: int
        def __init__(self, partition_index: int = ..., partition_error_code: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    results_by_transaction: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., results_by_transaction: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = ..., results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...) -> None: ...

class AlterClientQuotasRequest(Message):
    class EntryData(Struct):
        entity: Sequence[AlterClientQuotasRequest.EntityData]
        ops: Sequence[AlterClientQuotasRequest.OpData]
        def __init__(self, entity: Sequence[AlterClientQuotasRequest.EntityData] = ..., ops: Sequence[AlterClientQuotasRequest.OpData] = ...) -> None: ...
    class EntityData(Struct):
        entity_type: str
        entity_name: str | None
        def __init__(self, entity_type: str = ..., entity_name: str | None = ...) -> None: ...
    class OpData(Struct):
        key: str
        value: float
        remove: bool
        def __init__(self, key: str = ..., value: float = ..., remove: bool = ...) -> None: ...
    entries: Sequence[AlterClientQuotasRequest.EntryData]
    validate_only: bool
    def __init__(self, entries: Sequence[AlterClientQuotasRequest.EntryData] = ..., validate_only: bool = ...) -> None: ...

class AlterClientQuotasResponse(Message):
    class EntryData(Struct):
        error_code: int
        error_message: str | None
        entity: Sequence[AlterClientQuotasResponse.EntityData]
        def __init__(self, error_code: int = ..., error_message: str | None = ..., entity: Sequence[AlterClientQuotasResponse.EntityData] = ...) -> None: ...
    class EntityData(Struct):
        entity_type: str
        entity_name: str | None
        def __init__(self, entity_type: str = ..., entity_name: str | None = ...) -> None: ...
    throttle_time_ms: int
    entries: Sequence[AlterClientQuotasResponse.EntryData]
    def __init__(self, throttle_time_ms: int = ..., entries: Sequence[AlterClientQuotasResponse.EntryData] = ...) -> None: ...

class AlterConfigsRequest(Message):
    class AlterConfigsResource(Struct):
        resource_type: int
        resource_name: str
        configs: Sequence[AlterConfigsRequest.AlterableConfig]
        def __init__(self, resource_type: int = ..., resource_name: str = ..., configs: Sequence[AlterConfigsRequest.AlterableConfig] = ...) -> None: ...
    class AlterableConfig(Struct):
        name: str
        value: str | None
        def __init__(self, name: str = ..., value: str | None = ...) -> None: ...
    resources: Sequence[AlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    def __init__(self, resources: Sequence[AlterConfigsRequest.AlterConfigsResource] = ..., validate_only: bool = ...) -> None: ...

class AlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(self, error_code: int = ..., error_message: str | None = ..., resource_type: int = ..., resource_name: str = ...) -> None: ...
    throttle_time_ms: int
    responses: Sequence[AlterConfigsResponse.AlterConfigsResourceResponse]
    def __init__(self, throttle_time_ms: int = ..., responses: Sequence[AlterConfigsResponse.AlterConfigsResourceResponse] = ...) -> None: ...

class AlterPartitionReassignmentsRequest(Message):
    class ReassignableTopic(Struct):
        name: str
        partitions: Sequence[AlterPartitionReassignmentsRequest.ReassignablePartition]
        def __init__(self, name: str = ..., partitions: Sequence[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...) -> None: ...
    class ReassignablePartition(Struct):
        partition_index: int
        replicas: Sequence[int] | None
        def __init__(self, partition_index: int = ..., replicas: Sequence[int] | None = ...) -> None: ...
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: Sequence[AlterPartitionReassignmentsRequest.ReassignableTopic]
    def __init__(self, timeout_ms: int = ..., allow_replication_factor_change: bool = ..., topics: Sequence[AlterPartitionReassignmentsRequest.ReassignableTopic] = ...) -> None: ...

class AlterPartitionReassignmentsResponse(Message):
    class ReassignableTopicResponse(Struct):
        name: str
        partitions: Sequence[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]
        def __init__(self, name: str = ..., partitions: Sequence[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ...) -> None: ...
    class ReassignablePartitionResponse(Struct):
        partition_index: int
        error_code: int
        error_message: str | None
        def __init__(self, partition_index: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: Sequence[AlterPartitionReassignmentsResponse.ReassignableTopicResponse]
    def __init__(self, throttle_time_ms: int = ..., allow_replication_factor_change: bool = ..., error_code: int = ..., error_message: str | None = ..., responses: Sequence[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = ...) -> None: ...

class AlterUserScramCredentialsRequest(Message):
    class ScramCredentialDeletion(Struct):
        name: str
        mechanism: int
        def __init__(self, name: str = ..., mechanism: int = ...) -> None: ...
    class ScramCredentialUpsertion(Struct):
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        def __init__(self, name: str = ..., mechanism: int = ..., iterations: int = ..., salt: bytes = ..., salted_password: bytes = ...) -> None: ...
    deletions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialDeletion]
    upsertions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialUpsertion]
    def __init__(self, deletions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = ..., upsertions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = ...) -> None: ...

class AlterUserScramCredentialsResponse(Message):
    class AlterUserScramCredentialsResult(Struct):
        user: str
        error_code: int
        error_message: str | None
        def __init__(self, user: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    results: Sequence[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult]
    def __init__(self, throttle_time_ms: int = ..., results: Sequence[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = ...) -> None: ...

class ApiVersionsRequest(Message):
    client_software_name: str
    client_software_version: str
    def __init__(self, client_software_name: str = ..., client_software_version: str = ...) -> None: ...

class ApiVersionsResponse(Message):
    class ApiVersion(Struct):
        api_key: int
        min_version: int
        max_version: int
        def __init__(self, api_key: int = ..., min_version: int = ..., max_version: int = ...) -> None: ...
    class SupportedFeatureKey(Struct):
        name: str
        min_version: int
        max_version: int
        def __init__(self, name: str = ..., min_version: int = ..., max_version: int = ...) -> None: ...
    class FinalizedFeatureKey(Struct):
        name: str
        max_version_level: int
        min_version_level: int
        def __init__(self, name: str = ..., max_version_level: int = ..., min_version_level: int = ...) -> None: ...
    error_code: int
    api_keys: Sequence[ApiVersionsResponse.ApiVersion]
    throttle_time_ms: int
    supported_features: Sequence[ApiVersionsResponse.SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: Sequence[ApiVersionsResponse.FinalizedFeatureKey]
    zk_migration_ready: bool
    def __init__(self, error_code: int = ..., api_keys: Sequence[ApiVersionsResponse.ApiVersion] = ..., throttle_time_ms: int = ..., supported_features: Sequence[ApiVersionsResponse.SupportedFeatureKey] = ..., finalized_features_epoch: int = ..., finalized_features: Sequence[ApiVersionsResponse.FinalizedFeatureKey] = ..., zk_migration_ready: bool = ...) -> None: ...

class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class ConsumerGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Struct):
        topic_id: bytes
        partitions: Sequence[int]
        assignment_epochs: Sequence[int] | None
        def __init__(self, topic_id: bytes = ..., partitions: Sequence[int] = ..., assignment_epochs: Sequence[int] | None = ...) -> None: ...
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: Sequence[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    partitions_pending_revocation: Sequence[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    def __init__(self, member_epoch: int = ..., previous_member_epoch: int = ..., state: int = ..., assigned_partitions: Sequence[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ..., partitions_pending_revocation: Sequence[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...) -> None: ...

class ConsumerGroupDescribeRequest(Message):
    group_ids: Sequence[str]
    include_authorized_operations: bool
    def __init__(self, group_ids: Sequence[str] = ..., include_authorized_operations: bool = ...) -> None: ...

class ConsumerGroupDescribeResponse(Message):
    class DescribedGroup(Struct):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: Sequence[ConsumerGroupDescribeResponse.Member]
        authorized_operations: int
        def __init__(self, error_code: int = ..., error_message: str | None = ..., group_id: str = ..., group_state: str = ..., group_epoch: int = ..., assignment_epoch: int = ..., assignor_name: str = ..., members: Sequence[ConsumerGroupDescribeResponse.Member] = ..., authorized_operations: int = ...) -> None: ...
    class Member(Struct):
        member_id: str
        instance_id: str | None
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: Sequence[str]
        subscribed_topic_regex: str | None
        assignment: ConsumerGroupDescribeResponse.Assignment | None
        target_assignment: ConsumerGroupDescribeResponse.Assignment | None
        member_type: int
        def __init__(self, member_id: str = ..., instance_id: str | None = ..., rack_id: str | None = ..., member_epoch: int = ..., client_id: str = ..., client_host: str = ..., subscribed_topic_names: Sequence[str] = ..., subscribed_topic_regex: str | None = ..., assignment: ConsumerGroupDescribeResponse.Assignment | None = ..., target_assignment: ConsumerGroupDescribeResponse.Assignment | None = ..., member_type: int = ...) -> None: ...
    class Assignment(Struct):
        topic_partitions: Sequence[ConsumerGroupDescribeResponse.TopicPartitions]
        def __init__(self, topic_partitions: Sequence[ConsumerGroupDescribeResponse.TopicPartitions] = ...) -> None: ...
    class TopicPartitions(Struct):
        topic_id: bytes
        topic_name: str
        partitions: Sequence[int]
        def __init__(self, topic_id: bytes = ..., topic_name: str = ..., partitions: Sequence[int] = ...) -> None: ...
    throttle_time_ms: int
    groups: Sequence[ConsumerGroupDescribeResponse.DescribedGroup]
    def __init__(self, throttle_time_ms: int = ..., groups: Sequence[ConsumerGroupDescribeResponse.DescribedGroup] = ...) -> None: ...

class ConsumerGroupHeartbeatRequest(Message):
    class TopicPartitions(Struct):
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(self, topic_id: bytes = ..., partitions: Sequence[int] = ...) -> None: ...
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: Sequence[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions] | None
    def __init__(self, group_id: str = ..., member_id: str = ..., member_epoch: int = ..., instance_id: str | None = ..., rack_id: str | None = ..., rebalance_timeout_ms: int = ..., subscribed_topic_names: Sequence[str] | None = ..., subscribed_topic_regex: str | None = ..., server_assignor: str | None = ..., topic_partitions: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = ...) -> None: ...

class ConsumerGroupHeartbeatResponse(Message):
    class Assignment(Struct):
        topic_partitions: Sequence[ConsumerGroupHeartbeatResponse.TopicPartitions]
        def __init__(self, topic_partitions: Sequence[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...) -> None: ...
    class TopicPartitions(Struct):
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(self, topic_id: bytes = ..., partitions: Sequence[int] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., member_id: str | None = ..., member_epoch: int = ..., heartbeat_interval_ms: int = ..., assignment: ConsumerGroupHeartbeatResponse.Assignment | None = ...) -> None: ...

class ConsumerGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class ConsumerGroupMemberMetadataValue(Message):
    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int
        supported_protocols: Sequence[ConsumerGroupMemberMetadataValue.ClassicProtocol]
        def __init__(self, session_timeout_ms: int = ..., supported_protocols: Sequence[ConsumerGroupMemberMetadataValue.ClassicProtocol] = ...) -> None: ...
    class ClassicProtocol(Struct):
        name: str
        metadata: bytes
        def __init__(self, name: str = ..., metadata: bytes = ...) -> None: ...
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None
    def __init__(self, instance_id: str | None = ..., rack_id: str | None = ..., client_id: str = ..., client_host: str = ..., subscribed_topic_names: Sequence[str] = ..., subscribed_topic_regex: str | None = ..., rebalance_timeout_ms: int = ..., server_assignor: str | None = ..., classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = ...) -> None: ...

class ConsumerGroupMetadataKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class ConsumerGroupMetadataValue(Message):
    epoch: int
    metadata_hash: int
    def __init__(self, epoch: int = ..., metadata_hash: int = ...) -> None: ...

class ConsumerGroupRegularExpressionKey(Message):
    group_id: str
    regular_expression: str
    def __init__(self, group_id: str = ..., regular_expression: str = ...) -> None: ...

class ConsumerGroupRegularExpressionValue(Message):
    topics: Sequence[str]
    version: int
    timestamp: int
    def __init__(self, topics: Sequence[str] = ..., version: int = ..., timestamp: int = ...) -> None: ...

class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class ConsumerGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Struct):
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(self, topic_id: bytes = ..., partitions: Sequence[int] = ...) -> None: ...
    topic_partitions: Sequence[ConsumerGroupTargetAssignmentMemberValue.TopicPartition]
    def __init__(self, topic_partitions: Sequence[ConsumerGroupTargetAssignmentMemberValue.TopicPartition] = ...) -> None: ...

class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    def __init__(self, assignment_epoch: int = ..., assignment_timestamp: int = ...) -> None: ...

class ConsumerProtocolAssignment(Message):
    class TopicPartition(Struct):
        topic: str
        partitions: Sequence[int]
        def __init__(self, topic: str = ..., partitions: Sequence[int] = ...) -> None: ...
    assigned_partitions: Sequence[ConsumerProtocolAssignment.TopicPartition]
    user_data: bytes | None
    def __init__(self, assigned_partitions: Sequence[ConsumerProtocolAssignment.TopicPartition] = ..., user_data: bytes | None = ...) -> None: ...

class ConsumerProtocolSubscription(Message):
    class TopicPartition(Struct):
        topic: str
        partitions: Sequence[int]
        def __init__(self, topic: str = ..., partitions: Sequence[int] = ...) -> None: ...
    topics: Sequence[str]
    user_data: bytes | None
    owned_partitions: Sequence[ConsumerProtocolSubscription.TopicPartition]
    generation_id: int
    rack_id: str | None
    def __init__(self, topics: Sequence[str] = ..., user_data: bytes | None = ..., owned_partitions: Sequence[ConsumerProtocolSubscription.TopicPartition] = ..., generation_id: int = ..., rack_id: str | None = ...) -> None: ...

class CreateAclsRequest(Message):
    class AclCreation(Struct):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(self, resource_type: int = ..., resource_name: str = ..., resource_pattern_type: int = ..., principal: str = ..., host: str = ..., operation: int = ..., permission_type: int = ...) -> None: ...
    creations: Sequence[CreateAclsRequest.AclCreation]
    def __init__(self, creations: Sequence[CreateAclsRequest.AclCreation] = ...) -> None: ...

class CreateAclsResponse(Message):
    class AclCreationResult(Struct):
        error_code: int
        error_message: str | None
        def __init__(self, error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    results: Sequence[CreateAclsResponse.AclCreationResult]
    def __init__(self, throttle_time_ms: int = ..., results: Sequence[CreateAclsResponse.AclCreationResult] = ...) -> None: ...

class CreatePartitionsRequest(Message):
    class CreatePartitionsTopic(Struct):
        name: str
        count: int
        assignments: Sequence[CreatePartitionsRequest.CreatePartitionsAssignment] | None
        def __init__(self, name: str = ..., count: int = ..., assignments: Sequence[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...) -> None: ...
    class CreatePartitionsAssignment(Struct):
        broker_ids: Sequence[int]
        def __init__(self, broker_ids: Sequence[int] = ...) -> None: ...
    topics: Sequence[CreatePartitionsRequest.CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(self, topics: Sequence[CreatePartitionsRequest.CreatePartitionsTopic] = ..., timeout_ms: int = ..., validate_only: bool = ...) -> None: ...

class CreatePartitionsResponse(Message):
    class CreatePartitionsTopicResult(Struct):
        name: str
        error_code: int
        error_message: str | None
        def __init__(self, name: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    results: Sequence[CreatePartitionsResponse.CreatePartitionsTopicResult]
    def __init__(self, throttle_time_ms: int = ..., results: Sequence[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...) -> None: ...

class CreateTopicsRequest(Message):
    class CreatableTopic(Struct):
        name: str
        num_partitions: int
        replication_factor: int
        assignments: Sequence[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: Sequence[CreateTopicsRequest.CreatableTopicConfig]
        def __init__(self, name: str = ..., num_partitions: int = ..., replication_factor: int = ..., assignments: Sequence[CreateTopicsRequest.CreatableReplicaAssignment] = ..., configs: Sequence[CreateTopicsRequest.CreatableTopicConfig] = ...) -> None: ...
    class CreatableReplicaAssignment(Struct):
        partition_index: int
        broker_ids: Sequence[int]
        def __init__(self, partition_index: int = ..., broker_ids: Sequence[int] = ...) -> None: ...
    class CreatableTopicConfig(Struct):
        name: str
        value: str | None
        def __init__(self, name: str = ..., value: str | None = ...) -> None: ...
    topics: Sequence[CreateTopicsRequest.CreatableTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(self, topics: Sequence[CreateTopicsRequest.CreatableTopic] = ..., timeout_ms: int = ..., validate_only: bool = ...) -> None: ...

class CreateTopicsResponse(Message):
    class CreatableTopicResult(Struct):
        name: str
        topic_id: bytes
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: Sequence[CreateTopicsResponse.CreatableTopicConfigs] | None
        def __init__(self, name: str = ..., topic_id: bytes = ..., error_code: int = ..., error_message: str | None = ..., topic_config_error_code: int = ..., num_partitions: int = ..., replication_factor: int = ..., configs: Sequence[CreateTopicsResponse.CreatableTopicConfigs] | None = ...) -> None: ...
    class CreatableTopicConfigs(Struct):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        def __init__(self, name: str = ..., value: str | None = ..., read_only: bool = ..., config_source: int = ..., is_sensitive: bool = ...) -> None: ...
    throttle_time_ms: int
    topics: Sequence[CreateTopicsResponse.CreatableTopicResult]
    def __init__(self, throttle_time_ms: int = ..., topics: Sequence[CreateTopicsResponse.CreatableTopicResult] = ...) -> None: ...

class DeleteAclsRequest(Message):
    class DeleteAclsFilter(Struct):
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int
        def __init__(self, resource_type_filter: int = ..., resource_name_filter: str | None = ..., pattern_type_filter: int = ..., principal_filter: str | None = ..., host_filter: str | None = ..., operation: int = ..., permission_type: int = ...) -> None: ...
    filters: Sequence[DeleteAclsRequest.DeleteAclsFilter]
    def __init__(self, filters: Sequence[DeleteAclsRequest.DeleteAclsFilter] = ...) -> None: ...

class DeleteAclsResponse(Message):
    class DeleteAclsFilterResult(Struct):
        error_code: int
        error_message: str | None
        matching_acls: Sequence[DeleteAclsResponse.DeleteAclsMatchingAcl]
        def __init__(self, error_code: int = ..., error_message: str | None = ..., matching_acls: Sequence[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...) -> None: ...
    class DeleteAclsMatchingAcl(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(self, error_code: int = ..., error_message: str | None = ..., resource_type: int = ..., resource_name: str = ..., pattern_type: int = ..., principal: str = ..., host: str = ..., operation: int = ..., permission_type: int = ...) -> None: ...
    throttle_time_ms: int
    filter_results: Sequence[DeleteAclsResponse.DeleteAclsFilterResult]
    def __init__(self, throttle_time_ms: int = ..., filter_results: Sequence[DeleteAclsResponse.DeleteAclsFilterResult] = ...) -> None: ...

class DeleteGroupsRequest(Message):
    groups_names: Sequence[str]
    def __init__(self, groups_names: Sequence[str] = ...) -> None: ...

class DeleteGroupsResponse(Message):
    class DeletableGroupResult(Struct):
        group_id: str
        error_code: int
        def __init__(self, group_id: str = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    results: Sequence[DeleteGroupsResponse.DeletableGroupResult]
    def __init__(self, throttle_time_ms: int = ..., results: Sequence[DeleteGroupsResponse.DeletableGroupResult] = ...) -> None: ...

class DeleteRecordsRequest(Message):
    class DeleteRecordsTopic(Struct):
        name: str
        partitions: Sequence[DeleteRecordsRequest.DeleteRecordsPartition]
        def __init__(self, name: str = ..., partitions: Sequence[DeleteRecordsRequest.DeleteRecordsPartition] = ...) -> None: ...
    class DeleteRecordsPartition(Struct):
        partition_index: int
        offset: int
        def __init__(self, partition_index: int = ..., offset: int = ...) -> None: ...
    topics: Sequence[DeleteRecordsRequest.DeleteRecordsTopic]
    timeout_ms: int
    def __init__(self, topics: Sequence[DeleteRecordsRequest.DeleteRecordsTopic] = ..., timeout_ms: int = ...) -> None: ...

class DeleteRecordsResponse(Message):
    class DeleteRecordsTopicResult(Struct):
        name: str
        partitions: Sequence[DeleteRecordsResponse.DeleteRecordsPartitionResult]
        def __init__(self, name: str = ..., partitions: Sequence[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...) -> None: ...
    class DeleteRecordsPartitionResult(Struct):
        partition_index: int
        low_watermark: int
        error_code: int
        def __init__(self, partition_index: int = ..., low_watermark: int = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    topics: Sequence[DeleteRecordsResponse.DeleteRecordsTopicResult]
    def __init__(self, throttle_time_ms: int = ..., topics: Sequence[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...) -> None: ...

class DeleteTopicsRequest(Message):
    class DeleteTopicState(Struct):
        name: str | None
        topic_id: bytes
        def __init__(self, name: str | None = ..., topic_id: bytes = ...) -> None: ...
    topics: Sequence[DeleteTopicsRequest.DeleteTopicState]
    topic_names: Sequence[str]
    timeout_ms: int
    def __init__(self, topics: Sequence[DeleteTopicsRequest.DeleteTopicState] = ..., topic_names: Sequence[str] = ..., timeout_ms: int = ...) -> None: ...

class DeleteTopicsResponse(Message):
    class DeletableTopicResult(Struct):
        name: str | None
        topic_id: bytes
        error_code: int
        error_message: str | None
        def __init__(self, name: str | None = ..., topic_id: bytes = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    responses: Sequence[DeleteTopicsResponse.DeletableTopicResult]
    def __init__(self, throttle_time_ms: int = ..., responses: Sequence[DeleteTopicsResponse.DeletableTopicResult] = ...) -> None: ...

class DescribeAclsRequest(Message):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    def __init__(self, resource_type_filter: int = ..., resource_name_filter: str | None = ..., pattern_type_filter: int = ..., principal_filter: str | None = ..., host_filter: str | None = ..., operation: int = ..., permission_type: int = ...) -> None: ...

class DescribeAclsResponse(Message):
    class DescribeAclsResource(Struct):
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: Sequence[DescribeAclsResponse.AclDescription]
        def __init__(self, resource_type: int = ..., resource_name: str = ..., pattern_type: int = ..., acls: Sequence[DescribeAclsResponse.AclDescription] = ...) -> None: ...
    class AclDescription(Struct):
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(self, principal: str = ..., host: str = ..., operation: int = ..., permission_type: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: Sequence[DescribeAclsResponse.DescribeAclsResource]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., resources: Sequence[DescribeAclsResponse.DescribeAclsResource] = ...) -> None: ...

class DescribeClientQuotasRequest(Message):
    class ComponentData(Struct):
        entity_type: str
        match_type: int
        match: str | None
        def __init__(self, entity_type: str = ..., match_type: int = ..., match: str | None = ...) -> None: ...
    components: Sequence[DescribeClientQuotasRequest.ComponentData]
    strict: bool
    def __init__(self, components: Sequence[DescribeClientQuotasRequest.ComponentData] = ..., strict: bool = ...) -> None: ...

class DescribeClientQuotasResponse(Message):
    class EntryData(Struct):
        entity: Sequence[DescribeClientQuotasResponse.EntityData]
        values: Sequence[DescribeClientQuotasResponse.ValueData]
        def __init__(self, entity: Sequence[DescribeClientQuotasResponse.EntityData] = ..., values: Sequence[DescribeClientQuotasResponse.ValueData] = ...) -> None: ...
    class EntityData(Struct):
        entity_type: str
        entity_name: str | None
        def __init__(self, entity_type: str = ..., entity_name: str | None = ...) -> None: ...
    class ValueData(Struct):
        key: str
        value: float
        def __init__(self, key: str = ..., value: float = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: Sequence[DescribeClientQuotasResponse.EntryData] | None
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., entries: Sequence[DescribeClientQuotasResponse.EntryData] | None = ...) -> None: ...

class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool
    def __init__(self, include_cluster_authorized_operations: bool = ..., endpoint_type: int = ..., include_fenced_brokers: bool = ...) -> None: ...

class DescribeClusterResponse(Message):
    class DescribeClusterBroker(Struct):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        def __init__(self, broker_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ..., is_fenced: bool = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribeClusterResponse.DescribeClusterBroker]
    cluster_authorized_operations: int
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., endpoint_type: int = ..., cluster_id: str = ..., controller_id: int = ..., brokers: Sequence[DescribeClusterResponse.DescribeClusterBroker] = ..., cluster_authorized_operations: int = ...) -> None: ...

class DescribeConfigsRequest(Message):
    class DescribeConfigsResource(Struct):
        resource_type: int
        resource_name: str
        configuration_keys: Sequence[str] | None
        def __init__(self, resource_type: int = ..., resource_name: str = ..., configuration_keys: Sequence[str] | None = ...) -> None: ...
    resources: Sequence[DescribeConfigsRequest.DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(self, resources: Sequence[DescribeConfigsRequest.DescribeConfigsResource] = ..., include_synonyms: bool = ..., include_documentation: bool = ...) -> None: ...

class DescribeConfigsResponse(Message):
    class DescribeConfigsResult(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: Sequence[DescribeConfigsResponse.DescribeConfigsResourceResult]
        def __init__(self, error_code: int = ..., error_message: str | None = ..., resource_type: int = ..., resource_name: str = ..., configs: Sequence[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...) -> None: ...
    class DescribeConfigsResourceResult(Struct):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        synonyms: Sequence[DescribeConfigsResponse.DescribeConfigsSynonym]
        config_type: int
        documentation: str | None
        def __init__(self, name: str = ..., value: str | None = ..., read_only: bool = ..., config_source: int = ..., is_sensitive: bool = ..., synonyms: Sequence[DescribeConfigsResponse.DescribeConfigsSynonym] = ..., config_type: int = ..., documentation: str | None = ...) -> None: ...
    class DescribeConfigsSynonym(Struct):
        name: str
        value: str | None
        source: int
        def __init__(self, name: str = ..., value: str | None = ..., source: int = ...) -> None: ...
    throttle_time_ms: int
    results: Sequence[DescribeConfigsResponse.DescribeConfigsResult]
    def __init__(self, throttle_time_ms: int = ..., results: Sequence[DescribeConfigsResponse.DescribeConfigsResult] = ...) -> None: ...

class DescribeGroupsRequest(Message):
    groups: Sequence[str]
    include_authorized_operations: bool
    def __init__(self, groups: Sequence[str] = ..., include_authorized_operations: bool = ...) -> None: ...

class DescribeGroupsResponse(Message):
    class DescribedGroup(Struct):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: Sequence[DescribeGroupsResponse.DescribedGroupMember]
        authorized_operations: int
        def __init__(self, error_code: int = ..., error_message: str | None = ..., group_id: str = ..., group_state: str = ..., protocol_type: str = ..., protocol_data: str = ..., members: Sequence[DescribeGroupsResponse.DescribedGroupMember] = ..., authorized_operations: int = ...) -> None: ...
    class DescribedGroupMember(Struct):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes
        def __init__(self, member_id: str = ..., group_instance_id: str | None = ..., client_id: str = ..., client_host: str = ..., member_metadata: bytes = ..., member_assignment: bytes = ...) -> None: ...
    throttle_time_ms: int
    groups: Sequence[DescribeGroupsResponse.DescribedGroup]
    def __init__(self, throttle_time_ms: int = ..., groups: Sequence[DescribeGroupsResponse.DescribedGroup] = ...) -> None: ...

class DescribeLogDirsRequest(Message):
    class DescribableLogDirTopic(Struct):
        topic: str
        partitions: Sequence[int]
        def __init__(self, topic: str = ..., partitions: Sequence[int] = ...) -> None: ...
    topics: Sequence[DescribeLogDirsRequest.DescribableLogDirTopic] | None
    def __init__(self, topics: Sequence[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...) -> None: ...

class DescribeLogDirsResponse(Message):
    class DescribeLogDirsResult(Struct):
        error_code: int
        log_dir: str
        topics: Sequence[DescribeLogDirsResponse.DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool
        def __init__(self, error_code: int = ..., log_dir: str = ..., topics: Sequence[DescribeLogDirsResponse.DescribeLogDirsTopic] = ..., total_bytes: int = ..., usable_bytes: int = ..., is_cordoned: bool = ...) -> None: ...
    class DescribeLogDirsTopic(Struct):
        name: str
        partitions: Sequence[DescribeLogDirsResponse.DescribeLogDirsPartition]
        def __init__(self, name: str = ..., partitions: Sequence[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...) -> None: ...
    class DescribeLogDirsPartition(Struct):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool
        def __init__(self, partition_index: int = ..., partition_size: int = ..., offset_lag: int = ..., is_future_key: bool = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    results: Sequence[DescribeLogDirsResponse.DescribeLogDirsResult]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., results: Sequence[DescribeLogDirsResponse.DescribeLogDirsResult] = ...) -> None: ...

class DescribeProducersRequest(Message):
    class TopicRequest(Struct):
        name: str
        partition_indexes: Sequence[int]
        def __init__(self, name: str = ..., partition_indexes: Sequence[int] = ...) -> None: ...
    topics: Sequence[DescribeProducersRequest.TopicRequest]
    def __init__(self, topics: Sequence[DescribeProducersRequest.TopicRequest] = ...) -> None: ...

class DescribeProducersResponse(Message):
    class TopicResponse(Struct):
        name: str
        partitions: Sequence[DescribeProducersResponse.PartitionResponse]
        def __init__(self, name: str = ..., partitions: Sequence[DescribeProducersResponse.PartitionResponse] = ...) -> None: ...
    class PartitionResponse(Struct):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: Sequence[DescribeProducersResponse.ProducerState]
        def __init__(self, partition_index: int = ..., error_code: int = ..., error_message: str | None = ..., active_producers: Sequence[DescribeProducersResponse.ProducerState] = ...) -> None: ...
    class ProducerState(Struct):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int
        def __init__(self, producer_id: int = ..., producer_epoch: int = ..., last_sequence: int = ..., last_timestamp: int = ..., coordinator_epoch: int = ..., current_txn_start_offset: int = ...) -> None: ...
    throttle_time_ms: int
    topics: Sequence[DescribeProducersResponse.TopicResponse]
    def __init__(self, throttle_time_ms: int = ..., topics: Sequence[DescribeProducersResponse.TopicResponse] = ...) -> None: ...

class DescribeQuorumRequest(Message):
    class TopicData(Struct):
        topic_name: str
        partitions: Sequence[DescribeQuorumRequest.PartitionData]
        def __init__(self, topic_name: str = ..., partitions: Sequence[DescribeQuorumRequest.PartitionData] = ...) -> None: ...
    class PartitionData(Struct):
        partition_index: int
        def __init__(self, partition_index: int = ...) -> None: ...
    topics: Sequence[DescribeQuorumRequest.TopicData]
    def __init__(self, topics: Sequence[DescribeQuorumRequest.TopicData] = ...) -> None: ...

class DescribeQuorumResponse(Message):
    class TopicData(Struct):
        topic_name: str
        partitions: Sequence[DescribeQuorumResponse.PartitionData]
        def __init__(self, topic_name: str = ..., partitions: Sequence[DescribeQuorumResponse.PartitionData] = ...) -> None: ...
    class PartitionData(Struct):
        partition_index: int
        error_code: int
        error_message: str | None
        leader_id: int
        leader_epoch: int
        high_watermark: int
        current_voters: Sequence[DescribeQuorumResponse.ReplicaState]
        observers: Sequence[DescribeQuorumResponse.ReplicaState]
        def __init__(self, partition_index: int = ..., error_code: int = ..., error_message: str | None = ..., leader_id: int = ..., leader_epoch: int = ..., high_watermark: int = ..., current_voters: Sequence[DescribeQuorumResponse.ReplicaState] = ..., observers: Sequence[DescribeQuorumResponse.ReplicaState] = ...) -> None: ...
    class ReplicaState(Struct):
        replica_id: int
        replica_directory_id: bytes
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int
        def __init__(self, replica_id: int = ..., replica_directory_id: bytes = ..., log_end_offset: int = ..., last_fetch_timestamp: int = ..., last_caught_up_timestamp: int = ...) -> None: ...
    class Node(Struct):
        node_id: int
        listeners: Sequence[DescribeQuorumResponse.Listener]
        def __init__(self, node_id: int = ..., listeners: Sequence[DescribeQuorumResponse.Listener] = ...) -> None: ...
    class Listener(Struct):
        name: str
        host: str
        port: int
        def __init__(self, name: str = ..., host: str = ..., port: int = ...) -> None: ...
    error_code: int
    error_message: str | None
    topics: Sequence[DescribeQuorumResponse.TopicData]
    nodes: Sequence[DescribeQuorumResponse.Node]
    def __init__(self, error_code: int = ..., error_message: str | None = ..., topics: Sequence[DescribeQuorumResponse.TopicData] = ..., nodes: Sequence[DescribeQuorumResponse.Node] = ...) -> None: ...

class DescribeRpcsRequest(Message):
    transactional_ids: Sequence[str]
    def __init__(self, transactional_ids: Sequence[str] = ...) -> None: ...

class DescribeRpcsResponse(Message):
    class RpcsOfTransaction(Struct):
        transactional_id: str
        rpcs: Sequence[DescribeRpcsResponse.Rpc]
        def __init__(self, transactional_id: str = ..., rpcs: Sequence[DescribeRpcsResponse.Rpc] = ...) -> None: ...
    class Rpc(Struct):
        at_ms: int
        name: str
        version: int
        client_id: str | None
        host: str
        port: int
        producer_id: int
        producer_epoch: int
        about: str
        error_code: int
        duration_us: int
        def __init__(self, at_ms: int = ..., name: str = ..., version: int = ..., client_id: str | None = ..., host: str = ..., port: int = ..., producer_id: int = ..., producer_epoch: int = ..., about: str = ..., error_code: int = ..., duration_us: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    transactions: Sequence[DescribeRpcsResponse.RpcsOfTransaction]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., transactions: Sequence[DescribeRpcsResponse.RpcsOfTransaction] = ...) -> None: ...

class DescribeTopicPartitionsRequest(Message):
    class TopicRequest(Struct):
        name: str
        def __init__(self, name: str = ...) -> None: ...
    class Cursor(Struct):
        topic_name: str
        partition_index: int
        def __init__(self, topic_name: str = ..., partition_index: int = ...) -> None: ...
    topics: Sequence[DescribeTopicPartitionsRequest.TopicRequest]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequest.Cursor | None
    def __init__(self, topics: Sequence[DescribeTopicPartitionsRequest.TopicRequest] = ..., response_partition_limit: int = ..., cursor: DescribeTopicPartitionsRequest.Cursor | None = ...) -> None: ...

class DescribeTopicPartitionsResponse(Message):
    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: Sequence[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int
        def __init__(self, error_code: int = ..., name: str | None = ..., topic_id: bytes = ..., is_internal: bool = ..., partitions: Sequence[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = ..., topic_authorized_operations: int = ...) -> None: ...
    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: Sequence[int]
        isr_nodes: Sequence[int]
        eligible_leader_replicas: Sequence[int] | None
        last_known_elr: Sequence[int] | None
        offline_replicas: Sequence[int]
        def __init__(self, error_code: int = ..., partition_index: int = ..., leader_id: int = ..., leader_epoch: int = ..., replica_nodes: Sequence[int] = ..., isr_nodes: Sequence[int] = ..., eligible_leader_replicas: Sequence[int] | None = ..., last_known_elr: Sequence[int] | None = ..., offline_replicas: Sequence[int] = ...) -> None: ...
    class Cursor(Struct):
        topic_name: str
        partition_index: int
        def __init__(self, topic_name: str = ..., partition_index: int = ...) -> None: ...
    throttle_time_ms: int
    topics: Sequence[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None
    def __init__(self, throttle_time_ms: int = ..., topics: Sequence[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = ..., next_cursor: DescribeTopicPartitionsResponse.Cursor | None = ...) -> None: ...

class DescribeTransactionsRequest(Message):
    transactional_ids: Sequence[str]
    def __init__(self, transactional_ids: Sequence[str] = ...) -> None: ...

class DescribeTransactionsResponse(Message):
    class TransactionState(Struct):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: Sequence[DescribeTransactionsResponse.TopicData]
        def __init__(self, error_code: int = ..., transactional_id: str = ..., transaction_state: str = ..., transaction_timeout_ms: int = ..., transaction_start_time_ms: int = ..., producer_id: int = ..., producer_epoch: int = ..., topics: Sequence[DescribeTransactionsResponse.TopicData] = ...) -> None: ...
    class TopicData(Struct):
        topic: str
        partitions: Sequence[int]
        def __init__(self, topic: str = ..., partitions: Sequence[int] = ...) -> None: ...
    throttle_time_ms: int
    transaction_states: Sequence[DescribeTransactionsResponse.TransactionState]
    def __init__(self, throttle_time_ms: int = ..., transaction_states: Sequence[DescribeTransactionsResponse.TransactionState] = ...) -> None: ...

class DescribeUserScramCredentialsRequest(Message):
    class UserName(Struct):
        name: str
        def __init__(self, name: str = ...) -> None: ...
    users: Sequence[DescribeUserScramCredentialsRequest.UserName] | None
    def __init__(self, users: Sequence[DescribeUserScramCredentialsRequest.UserName] | None = ...) -> None: ...

class DescribeUserScramCredentialsResponse(Message):
    class DescribeUserScramCredentialsResult(Struct):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: Sequence[DescribeUserScramCredentialsResponse.CredentialInfo]
        def __init__(self, user: str = ..., error_code: int = ..., error_message: str | None = ..., credential_infos: Sequence[DescribeUserScramCredentialsResponse.CredentialInfo] = ...) -> None: ...
    class CredentialInfo(Struct):
        mechanism: int
        iterations: int
        def __init__(self, mechanism: int = ..., iterations: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., results: Sequence[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = ...) -> None: ...

class ElectLeadersRequest(Message):
    class TopicPartitions(Struct):
        topic: str
        partitions: Sequence[int]
        def __init__(self, topic: str = ..., partitions: Sequence[int] = ...) -> None: ...
    election_type: int
    topic_partitions: Sequence[ElectLeadersRequest.TopicPartitions] | None
    timeout_ms: int
    def __init__(self, election_type: int = ..., topic_partitions: Sequence[ElectLeadersRequest.TopicPartitions] | None = ..., timeout_ms: int = ...) -> None: ...

class ElectLeadersResponse(Message):
    class ReplicaElectionResult(Struct):
        topic: str
        partition_result: Sequence[ElectLeadersResponse.PartitionResult]
        def __init__(self, topic: str = ..., partition_result: Sequence[ElectLeadersResponse.PartitionResult] = ...) -> None: ...
    class PartitionResult(Struct):
        partition_id: int
        error_code: int
        error_message: str | None
        def __init__(self, partition_id: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    replica_election_results: Sequence[ElectLeadersResponse.ReplicaElectionResult]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., replica_election_results: Sequence[ElectLeadersResponse.ReplicaElectionResult] = ...) -> None: ...

class EndTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    def __init__(self, transactional_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., committed: bool = ...) -> None: ...

class EndTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., producer_id: int = ..., producer_epoch: int = ...) -> None: ...

class EndTxnMarker(Message):
    coordinator_epoch: int
    def __init__(self, coordinator_epoch: int = ...) -> None: ...

class FetchRequest(Message):
    class ReplicaState(Struct):
        replica_id: int
        replica_epoch: int
        def __init__(self, replica_id: int = ..., replica_epoch: int = ...) -> None: ...
    class FetchTopic(Struct):
        topic: str
        topic_id: bytes
        partitions: Sequence[FetchRequest.FetchPartition]
        def __init__(self, topic: str = ..., topic_id: bytes = ..., partitions: Sequence[FetchRequest.FetchPartition] = ...) -> None: ...
    class FetchPartition(Struct):
        partition: int
        current_leader_epoch: int
        fetch_offset: int
        last_fetched_epoch: int
        log_start_offset: int
        partition_max_bytes: int
        replica_directory_id: bytes
        high_watermark: int
        def __init__(self, partition: int = ..., current_leader_epoch: int = ..., fetch_offset: int = ..., last_fetched_epoch: int = ..., log_start_offset: int = ..., partition_max_bytes: int = ..., replica_directory_id: bytes = ..., high_watermark: int = ...) -> None: ...
    class ForgottenTopic(Struct):
        topic: str
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(self, topic: str = ..., topic_id: bytes = ..., partitions: Sequence[int] = ...) -> None: ...
    cluster_id: str | None
    replica_id: int
    replica_state: FetchRequest.ReplicaState | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[FetchRequest.FetchTopic]
    forgotten_topics_data: Sequence[FetchRequest.ForgottenTopic]
    rack_id: str
    def __init__(self, cluster_id: str | None = ..., replica_id: int = ..., replica_state: FetchRequest.ReplicaState | None = ..., max_wait_ms: int = ..., min_bytes: int = ..., max_bytes: int = ..., isolation_level: int = ..., session_id: int = ..., session_epoch: int = ..., topics: Sequence[FetchRequest.FetchTopic] = ..., forgotten_topics_data: Sequence[FetchRequest.ForgottenTopic] = ..., rack_id: str = ...) -> None: ...

class FetchResponse(Message):
    class FetchableTopicResponse(Struct):
        topic: str
        topic_id: bytes
        partitions: Sequence[FetchResponse.PartitionData]
        def __init__(self, topic: str = ..., topic_id: bytes = ..., partitions: Sequence[FetchResponse.PartitionData] = ...) -> None: ...
    class PartitionData(Struct):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: int
        log_start_offset: int
        diverging_epoch: FetchResponse.EpochEndOffset | None
        current_leader: FetchResponse.LeaderIdAndEpoch | None
        snapshot_id: FetchResponse.SnapshotId | None
        aborted_transactions: Sequence[FetchResponse.AbortedTransaction] | None
        preferred_read_replica: int
        records: bytes | None
        def __init__(self, partition_index: int = ..., error_code: int = ..., high_watermark: int = ..., last_stable_offset: int = ..., log_start_offset: int = ..., diverging_epoch: FetchResponse.EpochEndOffset | None = ..., current_leader: FetchResponse.LeaderIdAndEpoch | None = ..., snapshot_id: FetchResponse.SnapshotId | None = ..., aborted_transactions: Sequence[FetchResponse.AbortedTransaction] | None = ..., preferred_read_replica: int = ..., records: bytes | None = ...) -> None: ...
    class EpochEndOffset(Struct):
        epoch: int
        end_offset: int
        def __init__(self, epoch: int = ..., end_offset: int = ...) -> None: ...
    class LeaderIdAndEpoch(Struct):
        leader_id: int
        leader_epoch: int
        def __init__(self, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
    class SnapshotId(Struct):
        end_offset: int
        epoch: int
        def __init__(self, end_offset: int = ..., epoch: int = ...) -> None: ...
    class AbortedTransaction(Struct):
        producer_id: int
        first_offset: int
        def __init__(self, producer_id: int = ..., first_offset: int = ...) -> None: ...
    class NodeEndpoint(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(self, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: Sequence[FetchResponse.FetchableTopicResponse]
    node_endpoints: Sequence[FetchResponse.NodeEndpoint]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., session_id: int = ..., responses: Sequence[FetchResponse.FetchableTopicResponse] = ..., node_endpoints: Sequence[FetchResponse.NodeEndpoint] = ...) -> None: ...

class FindCoordinatorRequest(Message):
    key: str
    key_type: int
    coordinator_keys: Sequence[str]
    def __init__(self, key: str = ..., key_type: int = ..., coordinator_keys: Sequence[str] = ...) -> None: ...

class FindCoordinatorResponse(Message):
    class Coordinator(Struct):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None
        def __init__(self, key: str = ..., node_id: int = ..., host: str = ..., port: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: Sequence[FindCoordinatorResponse.Coordinator]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., node_id: int = ..., host: str = ..., port: int = ..., coordinators: Sequence[FindCoordinatorResponse.Coordinator] = ...) -> None: ...

class GetTelemetrySubscriptionsRequest(Message):
    client_instance_id: bytes
    def __init__(self, client_instance_id: bytes = ...) -> None: ...

class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: int
    error_code: int
    client_instance_id: bytes
    subscription_id: int
    accepted_compression_types: Sequence[int]
    push_interval_ms: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: Sequence[str]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., client_instance_id: bytes = ..., subscription_id: int = ..., accepted_compression_types: Sequence[int] = ..., push_interval_ms: int = ..., telemetry_max_bytes: int = ..., delta_temporality: bool = ..., requested_metrics: Sequence[str] = ...) -> None: ...

class GroupMetadataKey(Message):
    group: str
    def __init__(self, group: str = ...) -> None: ...

class GroupMetadataValue(Message):
    class MemberMetadata(Struct):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        rebalance_timeout: int
        session_timeout: int
        subscription: bytes
        assignment: bytes
        def __init__(self, member_id: str = ..., group_instance_id: str | None = ..., client_id: str = ..., client_host: str = ..., rebalance_timeout: int = ..., session_timeout: int = ..., subscription: bytes = ..., assignment: bytes = ...) -> None: ...
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: Sequence[GroupMetadataValue.MemberMetadata]
    def __init__(self, protocol_type: str = ..., generation: int = ..., protocol: str | None = ..., leader: str | None = ..., current_state_timestamp: int = ..., members: Sequence[GroupMetadataValue.MemberMetadata] = ...) -> None: ...

class HeartbeatRequest(Message):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    def __init__(self, group_id: str = ..., generation_id: int = ..., member_id: str = ..., group_instance_id: str | None = ...) -> None: ...

class HeartbeatResponse(Message):
    throttle_time_ms: int
    error_code: int
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...

class IncrementalAlterConfigsRequest(Message):
    class AlterConfigsResource(Struct):
        resource_type: int
        resource_name: str
        configs: Sequence[IncrementalAlterConfigsRequest.AlterableConfig]
        def __init__(self, resource_type: int = ..., resource_name: str = ..., configs: Sequence[IncrementalAlterConfigsRequest.AlterableConfig] = ...) -> None: ...
    class AlterableConfig(Struct):
        name: str
        config_operation: int
        value: str | None
        def __init__(self, name: str = ..., config_operation: int = ..., value: str | None = ...) -> None: ...
    resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    def __init__(self, resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource] = ..., validate_only: bool = ...) -> None: ...

class IncrementalAlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(self, error_code: int = ..., error_message: str | None = ..., resource_type: int = ..., resource_name: str = ...) -> None: ...
    throttle_time_ms: int
    responses: Sequence[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse]
    def __init__(self, throttle_time_ms: int = ..., responses: Sequence[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...) -> None: ...

class InitProducerIdRequest(Message):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool
    def __init__(self, transactional_id: str | None = ..., transaction_timeout_ms: int = ..., producer_id: int = ..., producer_epoch: int = ..., enable2_pc: bool = ..., keep_prepared_txn: bool = ...) -> None: ...

class InitProducerIdResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., producer_id: int = ..., producer_epoch: int = ..., ongoing_txn_producer_id: int = ..., ongoing_txn_producer_epoch: int = ...) -> None: ...

class JoinGroupRequest(Message):
    class JoinGroupRequestProtocol(Struct):
        name: str
        metadata: bytes
        def __init__(self, name: str = ..., metadata: bytes = ...) -> None: ...
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: Sequence[JoinGroupRequest.JoinGroupRequestProtocol]
    reason: str | None
    def __init__(self, group_id: str = ..., session_timeout_ms: int = ..., rebalance_timeout_ms: int = ..., member_id: str = ..., group_instance_id: str | None = ..., protocol_type: str = ..., protocols: Sequence[JoinGroupRequest.JoinGroupRequestProtocol] = ..., reason: str | None = ...) -> None: ...

class JoinGroupResponse(Message):
    class JoinGroupResponseMember(Struct):
        member_id: str
        group_instance_id: str | None
        metadata: bytes
        def __init__(self, member_id: str = ..., group_instance_id: str | None = ..., metadata: bytes = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: Sequence[JoinGroupResponse.JoinGroupResponseMember]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., generation_id: int = ..., protocol_type: str | None = ..., protocol_name: str | None = ..., leader: str = ..., skip_assignment: bool = ..., member_id: str = ..., members: Sequence[JoinGroupResponse.JoinGroupResponseMember] = ...) -> None: ...

class LeaveGroupRequest(Message):
    class MemberIdentity(Struct):
        member_id: str
        group_instance_id: str | None
        reason: str | None
        def __init__(self, member_id: str = ..., group_instance_id: str | None = ..., reason: str | None = ...) -> None: ...
    group_id: str
    member_id: str
    members: Sequence[LeaveGroupRequest.MemberIdentity]
    def __init__(self, group_id: str = ..., member_id: str = ..., members: Sequence[LeaveGroupRequest.MemberIdentity] = ...) -> None: ...

class LeaveGroupResponse(Message):
    class MemberResponse(Struct):
        member_id: str
        group_instance_id: str | None
        error_code: int
        def __init__(self, member_id: str = ..., group_instance_id: str | None = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    members: Sequence[LeaveGroupResponse.MemberResponse]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., members: Sequence[LeaveGroupResponse.MemberResponse] = ...) -> None: ...

class ListConfigResourcesRequest(Message):
    resource_types: Sequence[int]
    def __init__(self, resource_types: Sequence[int] = ...) -> None: ...

class ListConfigResourcesResponse(Message):
    class ConfigResource(Struct):
        resource_name: str
        resource_type: int
        def __init__(self, resource_name: str = ..., resource_type: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    config_resources: Sequence[ListConfigResourcesResponse.ConfigResource]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., config_resources: Sequence[ListConfigResourcesResponse.ConfigResource] = ...) -> None: ...

class ListGroupsRequest(Message):
    states_filter: Sequence[str]
    types_filter: Sequence[str]
    def __init__(self, states_filter: Sequence[str] = ..., types_filter: Sequence[str] = ...) -> None: ...

class ListGroupsResponse(Message):
    class ListedGroup(Struct):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str
        def __init__(self, group_id: str = ..., protocol_type: str = ..., group_state: str = ..., group_type: str = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    groups: Sequence[ListGroupsResponse.ListedGroup]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., groups: Sequence[ListGroupsResponse.ListedGroup] = ...) -> None: ...

class ListOffsetsRequest(Message):
    class ListOffsetsTopic(Struct):
        name: str
        partitions: Sequence[ListOffsetsRequest.ListOffsetsPartition]
        def __init__(self, name: str = ..., partitions: Sequence[ListOffsetsRequest.ListOffsetsPartition] = ...) -> None: ...
    class ListOffsetsPartition(Struct):
        partition_index: int
        current_leader_epoch: int
        timestamp: int
        def __init__(self, partition_index: int = ..., current_leader_epoch: int = ..., timestamp: int = ...) -> None: ...
    replica_id: int
    isolation_level: int
    topics: Sequence[ListOffsetsRequest.ListOffsetsTopic]
    timeout_ms: int
    def __init__(self, replica_id: int = ..., isolation_level: int = ..., topics: Sequence[ListOffsetsRequest.ListOffsetsTopic] = ..., timeout_ms: int = ...) -> None: ...

class ListOffsetsResponse(Message):
    class ListOffsetsTopicResponse(Struct):
        name: str
        partitions: Sequence[ListOffsetsResponse.ListOffsetsPartitionResponse]
        def __init__(self, name: str = ..., partitions: Sequence[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...) -> None: ...
    class ListOffsetsPartitionResponse(Struct):
        partition_index: int
        error_code: int
        timestamp: int
        offset: int
        leader_epoch: int
        def __init__(self, partition_index: int = ..., error_code: int = ..., timestamp: int = ..., offset: int = ..., leader_epoch: int = ...) -> None: ...
    throttle_time_ms: int
    topics: Sequence[ListOffsetsResponse.ListOffsetsTopicResponse]
    def __init__(self, throttle_time_ms: int = ..., topics: Sequence[ListOffsetsResponse.ListOffsetsTopicResponse] = ...) -> None: ...

class ListPartitionReassignmentsRequest(Message):
    class ListPartitionReassignmentsTopics(Struct):
        name: str
        partition_indexes: Sequence[int]
        def __init__(self, name: str = ..., partition_indexes: Sequence[int] = ...) -> None: ...
    timeout_ms: int
    topics: Sequence[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None
    def __init__(self, timeout_ms: int = ..., topics: Sequence[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = ...) -> None: ...

class ListPartitionReassignmentsResponse(Message):
    class OngoingTopicReassignment(Struct):
        name: str
        partitions: Sequence[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]
        def __init__(self, name: str = ..., partitions: Sequence[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...) -> None: ...
    class OngoingPartitionReassignment(Struct):
        partition_index: int
        replicas: Sequence[int]
        adding_replicas: Sequence[int]
        removing_replicas: Sequence[int]
        def __init__(self, partition_index: int = ..., replicas: Sequence[int] = ..., adding_replicas: Sequence[int] = ..., removing_replicas: Sequence[int] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: Sequence[ListPartitionReassignmentsResponse.OngoingTopicReassignment]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., topics: Sequence[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...) -> None: ...

class ListTransactionsRequest(Message):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: int
    transactional_id_pattern: str | None
    def __init__(self, state_filters: Sequence[str] = ..., producer_id_filters: Sequence[int] = ..., duration_filter: int = ..., transactional_id_pattern: str | None = ...) -> None: ...

class ListTransactionsResponse(Message):
    class TransactionState(Struct):
        transactional_id: str
        producer_id: int
        transaction_state: str
        def __init__(self, transactional_id: str = ..., producer_id: int = ..., transaction_state: str = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListTransactionsResponse.TransactionState]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., unknown_state_filters: Sequence[str] = ..., transaction_states: Sequence[ListTransactionsResponse.TransactionState] = ...) -> None: ...

class MetadataRequest(Message):
    class MetadataRequestTopic(Struct):
        topic_id: bytes
        name: str | None
        def __init__(self, topic_id: bytes = ..., name: str | None = ...) -> None: ...
    topics: Sequence[MetadataRequest.MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    def __init__(self, topics: Sequence[MetadataRequest.MetadataRequestTopic] | None = ..., allow_auto_topic_creation: bool = ..., include_cluster_authorized_operations: bool = ..., include_topic_authorized_operations: bool = ...) -> None: ...

class MetadataResponse(Message):
    class MetadataResponseBroker(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(self, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
    class MetadataResponseTopic(Struct):
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: Sequence[MetadataResponse.MetadataResponsePartition]
        topic_authorized_operations: int
        def __init__(self, error_code: int = ..., name: str | None = ..., topic_id: bytes = ..., is_internal: bool = ..., partitions: Sequence[MetadataResponse.MetadataResponsePartition] = ..., topic_authorized_operations: int = ...) -> None: ...
    class MetadataResponsePartition(Struct):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: Sequence[int]
        isr_nodes: Sequence[int]
        offline_replicas: Sequence[int]
        def __init__(self, error_code: int = ..., partition_index: int = ..., leader_id: int = ..., leader_epoch: int = ..., replica_nodes: Sequence[int] = ..., isr_nodes: Sequence[int] = ..., offline_replicas: Sequence[int] = ...) -> None: ...
    throttle_time_ms: int
    brokers: Sequence[MetadataResponse.MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[MetadataResponse.MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int
    def __init__(self, throttle_time_ms: int = ..., brokers: Sequence[MetadataResponse.MetadataResponseBroker] = ..., cluster_id: str | None = ..., controller_id: int = ..., topics: Sequence[MetadataResponse.MetadataResponseTopic] = ..., cluster_authorized_operations: int = ..., error_code: int = ...) -> None: ...

class OffsetCommitRequest(Message):
    class OffsetCommitRequestTopic(Struct):
        name: str
        topic_id: bytes
        partitions: Sequence[OffsetCommitRequest.OffsetCommitRequestPartition]
        def __init__(self, name: str = ..., topic_id: bytes = ..., partitions: Sequence[OffsetCommitRequest.OffsetCommitRequestPartition] = ...) -> None: ...
    class OffsetCommitRequestPartition(Struct):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None
        def __init__(self, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., committed_metadata: str | None = ...) -> None: ...
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: Sequence[OffsetCommitRequest.OffsetCommitRequestTopic]
    def __init__(self, group_id: str = ..., generation_id_or_member_epoch: int = ..., member_id: str = ..., group_instance_id: str | None = ..., retention_time_ms: int = ..., topics: Sequence[OffsetCommitRequest.OffsetCommitRequestTopic] = ...) -> None: ...

class OffsetCommitResponse(Message):
    class OffsetCommitResponseTopic(Struct):
        name: str
        topic_id: bytes
        partitions: Sequence[OffsetCommitResponse.OffsetCommitResponsePartition]
        def __init__(self, name: str = ..., topic_id: bytes = ..., partitions: Sequence[OffsetCommitResponse.OffsetCommitResponsePartition] = ...) -> None: ...
    class OffsetCommitResponsePartition(Struct):
        partition_index: int
        error_code: int
        def __init__(self, partition_index: int = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    topics: Sequence[OffsetCommitResponse.OffsetCommitResponseTopic]
    def __init__(self, throttle_time_ms: int = ..., topics: Sequence[OffsetCommitResponse.OffsetCommitResponseTopic] = ...) -> None: ...

class OffsetCommitKey(Message):
    group: str
    topic: str
    partition: int
    def __init__(self, group: str = ..., topic: str = ..., partition: int = ...) -> None: ...

class OffsetCommitValue(Message):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: bytes
    def __init__(self, offset: int = ..., leader_epoch: int = ..., metadata: str = ..., commit_timestamp: int = ..., expire_timestamp: int = ..., topic_id: bytes = ...) -> None: ...

class OffsetDeleteRequest(Message):
    class OffsetDeleteRequestTopic(Struct):
        name: str
        partitions: Sequence[OffsetDeleteRequest.OffsetDeleteRequestPartition]
        def __init__(self, name: str = ..., partitions: Sequence[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...) -> None: ...
    class OffsetDeleteRequestPartition(Struct):
        partition_index: int
        def __init__(self, partition_index: int = ...) -> None: ...
    group_id: str
    topics: Sequence[OffsetDeleteRequest.OffsetDeleteRequestTopic]
    def __init__(self, group_id: str = ..., topics: Sequence[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...) -> None: ...

class OffsetDeleteResponse(Message):
    class OffsetDeleteResponseTopic(Struct):
        name: str
        partitions: Sequence[OffsetDeleteResponse.OffsetDeleteResponsePartition]
        def __init__(self, name: str = ..., partitions: Sequence[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...) -> None: ...
    class OffsetDeleteResponsePartition(Struct):
        partition_index: int
        error_code: int
        def __init__(self, partition_index: int = ..., error_code: int = ...) -> None: ...
    error_code: int
    throttle_time_ms: int
    topics: Sequence[OffsetDeleteResponse.OffsetDeleteResponseTopic]
    def __init__(self, error_code: int = ..., throttle_time_ms: int = ..., topics: Sequence[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...) -> None: ...

class OffsetFetchRequest(Message):
    class OffsetFetchRequestTopic(Struct):
        name: str
        partition_indexes: Sequence[int]
        def __init__(self, name: str = ..., partition_indexes: Sequence[int] = ...) -> None: ...
    class OffsetFetchRequestGroup(Struct):
        group_id: str
        member_id: str | None
        member_epoch: int
        topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopics] | None
        def __init__(self, group_id: str = ..., member_id: str | None = ..., member_epoch: int = ..., topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...) -> None: ...
    class OffsetFetchRequestTopics(Struct):
        name: str
        topic_id: bytes
        partition_indexes: Sequence[int]
        def __init__(self, name: str = ..., topic_id: bytes = ..., partition_indexes: Sequence[int] = ...) -> None: ...
    group_id: str
    topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopic] | None
    groups: Sequence[OffsetFetchRequest.OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(self, group_id: str = ..., topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ..., groups: Sequence[OffsetFetchRequest.OffsetFetchRequestGroup] = ..., require_stable: bool = ...) -> None: ...

class OffsetFetchResponse(Message):
    class OffsetFetchResponseTopic(Struct):
        name: str
        partitions: Sequence[OffsetFetchResponse.OffsetFetchResponsePartition]
        def __init__(self, name: str = ..., partitions: Sequence[OffsetFetchResponse.OffsetFetchResponsePartition] = ...) -> None: ...
    class OffsetFetchResponsePartition(Struct):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(self, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., metadata: str | None = ..., error_code: int = ...) -> None: ...
    class OffsetFetchResponseGroup(Struct):
        group_id: str
        topics: Sequence[OffsetFetchResponse.OffsetFetchResponseTopics]
        error_code: int
        def __init__(self, group_id: str = ..., topics: Sequence[OffsetFetchResponse.OffsetFetchResponseTopics] = ..., error_code: int = ...) -> None: ...
    class OffsetFetchResponseTopics(Struct):
        name: str
        topic_id: bytes
        partitions: Sequence[OffsetFetchResponse.OffsetFetchResponsePartitions]
        def __init__(self, name: str = ..., topic_id: bytes = ..., partitions: Sequence[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...) -> None: ...
    class OffsetFetchResponsePartitions(Struct):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(self, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., metadata: str | None = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    topics: Sequence[OffsetFetchResponse.OffsetFetchResponseTopic]
    error_code: int
    groups: Sequence[OffsetFetchResponse.OffsetFetchResponseGroup]
    def __init__(self, throttle_time_ms: int = ..., topics: Sequence[OffsetFetchResponse.OffsetFetchResponseTopic] = ..., error_code: int = ..., groups: Sequence[OffsetFetchResponse.OffsetFetchResponseGroup] = ...) -> None: ...

class OffsetForLeaderEpochRequest(Message):
    class OffsetForLeaderTopic(Struct):
        topic: str
        partitions: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]
        def __init__(self, topic: str = ..., partitions: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...) -> None: ...
    class OffsetForLeaderPartition(Struct):
        partition: int
        current_leader_epoch: int
        leader_epoch: int
        def __init__(self, partition: int = ..., current_leader_epoch: int = ..., leader_epoch: int = ...) -> None: ...
    replica_id: int
    topics: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderTopic]
    def __init__(self, replica_id: int = ..., topics: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...) -> None: ...

class OffsetForLeaderEpochResponse(Message):
    class OffsetForLeaderTopicResult(Struct):
        topic: str
        partitions: Sequence[OffsetForLeaderEpochResponse.EpochEndOffset]
        def __init__(self, topic: str = ..., partitions: Sequence[OffsetForLeaderEpochResponse.EpochEndOffset] = ...) -> None: ...
    class EpochEndOffset(Struct):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int
        def __init__(self, error_code: int = ..., partition: int = ..., leader_epoch: int = ..., end_offset: int = ...) -> None: ...
    throttle_time_ms: int
    topics: Sequence[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult]
    def __init__(self, throttle_time_ms: int = ..., topics: Sequence[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...) -> None: ...

class OrderNodesRequest(Message):
    order: str
    node_id: int
    topic: str
    partition: int
    transactional_id: str
    def __init__(self, order: str = ..., node_id: int = ..., topic: str = ..., partition: int = ..., transactional_id: str = ...) -> None: ...

class OrderNodesResponse(Message):
    class DescribedNode(Struct):
        node_id: int
        host: str
        port: int
        state: str
        leaders: int
        coordinators: int
        def __init__(self, node_id: int = ..., host: str = ..., port: int = ..., state: str = ..., leaders: int = ..., coordinators: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    nodes: Sequence[OrderNodesResponse.DescribedNode]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., nodes: Sequence[OrderNodesResponse.DescribedNode] = ...) -> None: ...

class ProduceRequest(Message):
    class TopicProduceData(Struct):
        name: str
        topic_id: bytes
        partition_data: Sequence[ProduceRequest.PartitionProduceData]
        def __init__(self, name: str = ..., topic_id: bytes = ..., partition_data: Sequence[ProduceRequest.PartitionProduceData] = ...) -> None: ...
    class PartitionProduceData(Struct):
        index: int
        records: bytes | memoryview | None
        def __init__(self, index: int = ..., records: bytes | memoryview | None = ...) -> None: ...
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: Sequence[ProduceRequest.TopicProduceData]
    def __init__(self, transactional_id: str | None = ..., acks: int = ..., timeout_ms: int = ..., topic_data: Sequence[ProduceRequest.TopicProduceData] = ...) -> None: ...

class ProduceResponse(Message):
    class TopicProduceResponse(Struct):
        name: str
        topic_id: bytes
        partition_responses: Sequence[ProduceResponse.PartitionProduceResponse]
        def __init__(self, name: str = ..., topic_id: bytes = ..., partition_responses: Sequence[ProduceResponse.PartitionProduceResponse] = ...) -> None: ...
    class PartitionProduceResponse(Struct):
        index: int
        error_code: int
        base_offset: int
        log_append_time_ms: int
        log_start_offset: int
        record_errors: Sequence[ProduceResponse.BatchIndexAndErrorMessage]
        error_message: str | None
        current_leader: ProduceResponse.LeaderIdAndEpoch | None
        def __init__(self, index: int = ..., error_code: int = ..., base_offset: int = ..., log_append_time_ms: int = ..., log_start_offset: int = ..., record_errors: Sequence[ProduceResponse.BatchIndexAndErrorMessage] = ..., error_message: str | None = ..., current_leader: ProduceResponse.LeaderIdAndEpoch | None = ...) -> None: ...
    class BatchIndexAndErrorMessage(Struct):
        batch_index: int
        batch_index_error_message: str | None
        def __init__(self, batch_index: int = ..., batch_index_error_message: str | None = ...) -> None: ...
    class LeaderIdAndEpoch(Struct):
        leader_id: int
        leader_epoch: int
        def __init__(self, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
    class NodeEndpoint(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(self, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
    responses: Sequence[ProduceResponse.TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: Sequence[ProduceResponse.NodeEndpoint]
    def __init__(self, responses: Sequence[ProduceResponse.TopicProduceResponse] = ..., throttle_time_ms: int = ..., node_endpoints: Sequence[ProduceResponse.NodeEndpoint] = ...) -> None: ...

class PushTelemetryRequest(Message):
    client_instance_id: bytes
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes
    def __init__(self, client_instance_id: bytes = ..., subscription_id: int = ..., terminating: bool = ..., compression_type: int = ..., metrics: bytes = ...) -> None: ...

class PushTelemetryResponse(Message):
    throttle_time_ms: int
    error_code: int
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...

class SaslAuthenticateRequest(Message):
    auth_bytes: bytes
    def __init__(self, auth_bytes: bytes = ...) -> None: ...

class SaslAuthenticateResponse(Message):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    def __init__(self, error_code: int = ..., error_message: str | None = ..., auth_bytes: bytes = ..., session_lifetime_ms: int = ...) -> None: ...

class SaslHandshakeRequest(Message):
    mechanism: str
    def __init__(self, mechanism: str = ...) -> None: ...

class SaslHandshakeResponse(Message):
    error_code: int
    mechanisms: Sequence[str]
    def __init__(self, error_code: int = ..., mechanisms: Sequence[str] = ...) -> None: ...

class SyncGroupRequest(Message):
    class SyncGroupRequestAssignment(Struct):
        member_id: str
        assignment: bytes
        def __init__(self, member_id: str = ..., assignment: bytes = ...) -> None: ...
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Sequence[SyncGroupRequest.SyncGroupRequestAssignment]
    def __init__(self, group_id: str = ..., generation_id: int = ..., member_id: str = ..., group_instance_id: str | None = ..., protocol_type: str | None = ..., protocol_name: str | None = ..., assignments: Sequence[SyncGroupRequest.SyncGroupRequestAssignment] = ...) -> None: ...

class SyncGroupResponse(Message):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., protocol_type: str | None = ..., protocol_name: str | None = ..., assignment: bytes = ...) -> None: ...

class TransactionLogKey(Message):
    transactional_id: str
    def __init__(self, transactional_id: str = ...) -> None: ...

class TransactionLogValue(Message):
    class PartitionsSchema(Struct):
        topic: str
        partition_ids: Sequence[int]
        def __init__(self, topic: str = ..., partition_ids: Sequence[int] = ...) -> None: ...
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: Sequence[TransactionLogValue.PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int
    def __init__(self, producer_id: int = ..., previous_producer_id: int = ..., next_producer_id: int = ..., producer_epoch: int = ..., next_producer_epoch: int = ..., transaction_timeout_ms: int = ..., transaction_status: int = ..., transaction_partitions: Sequence[TransactionLogValue.PartitionsSchema] | None = ..., transaction_last_update_timestamp_ms: int = ..., transaction_start_timestamp_ms: int = ..., client_transaction_version: int = ...) -> None: ...

class TxnOffsetCommitRequest(Message):
    class TxnOffsetCommitRequestTopic(Struct):
        name: str
        partitions: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]
        def __init__(self, name: str = ..., partitions: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...) -> None: ...
    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None
        def __init__(self, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., committed_metadata: str | None = ...) -> None: ...
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]
    def __init__(self, transactional_id: str = ..., group_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., generation_id: int = ..., member_id: str = ..., group_instance_id: str | None = ..., topics: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = ...) -> None: ...

class TxnOffsetCommitResponse(Message):
    class TxnOffsetCommitResponseTopic(Struct):
        name: str
        partitions: Sequence[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]
        def __init__(self, name: str = ..., partitions: Sequence[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...) -> None: ...
    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: int
        error_code: int
        def __init__(self, partition_index: int = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    topics: Sequence[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]
    def __init__(self, throttle_time_ms: int = ..., topics: Sequence[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = ...) -> None: ...

class UpdateFeaturesRequest(Message):
    class FeatureUpdateKey(Struct):
        feature: str
        max_version_level: int
        allow_downgrade: bool
        upgrade_type: int
        def __init__(self, feature: str = ..., max_version_level: int = ..., allow_downgrade: bool = ..., upgrade_type: int = ...) -> None: ...
    timeout_ms: int
    feature_updates: Sequence[UpdateFeaturesRequest.FeatureUpdateKey]
    validate_only: bool
    def __init__(self, timeout_ms: int = ..., feature_updates: Sequence[UpdateFeaturesRequest.FeatureUpdateKey] = ..., validate_only: bool = ...) -> None: ...

class UpdateFeaturesResponse(Message):
    class UpdatableFeatureResult(Struct):
        feature: str
        error_code: int
        error_message: str | None
        def __init__(self, feature: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[UpdateFeaturesResponse.UpdatableFeatureResult]
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., results: Sequence[UpdateFeaturesResponse.UpdatableFeatureResult] = ...) -> None: ...

class WriteTxnMarkersRequest(Message):
    class WritableTxnMarker(Struct):
        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: Sequence[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int
        def __init__(self, producer_id: int = ..., producer_epoch: int = ..., transaction_result: bool = ..., topics: Sequence[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ..., coordinator_epoch: int = ..., transaction_version: int = ...) -> None: ...
    class WritableTxnMarkerTopic(Struct):
        name: str
        partition_indexes: Sequence[int]
        def __init__(self, name: str = ..., partition_indexes: Sequence[int] = ...) -> None: ...
    markers: Sequence[WriteTxnMarkersRequest.WritableTxnMarker]
    def __init__(self, markers: Sequence[WriteTxnMarkersRequest.WritableTxnMarker] = ...) -> None: ...

class WriteTxnMarkersResponse(Message):
    class WritableTxnMarkerResult(Struct):
        producer_id: int
        topics: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]
        def __init__(self, producer_id: int = ..., topics: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...) -> None: ...
    class WritableTxnMarkerTopicResult(Struct):
        name: str
        partitions: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]
        def __init__(self, name: str = ..., partitions: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...) -> None: ...
    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: int
        error_code: int
        def __init__(self, partition_index: int = ..., error_code: int = ...) -> None: ...
    markers: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerResult]
    def __init__(self, markers: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerResult] = ...) -> None: ...
