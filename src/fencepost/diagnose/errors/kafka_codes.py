"""The errors that a broker returns to a transactional producer, or to the consumer beside it."""

from __future__ import annotations

from fencepost.diagnose.errors.entry import (
    ABORT,
    CLOSE,
    CLUSTER,
    DEFINITE,
    DONE,
    EXIT,
    FIX,
    NETWORK,
    NOTHING,
    OPERATOR,
    OTHER,
    PROGRAM,
    RETRY,
    UNKNOWN,
    Effect,
    ErrorEntry,
    Then,
    Who,
)
from fencepost.protocol import errors

PRODUCE = "Produce"
FETCH = "Fetch"
OFFSETS = "ListOffsets"
METADATA = "Metadata"
FIND = "FindCoordinator"
INIT = "InitProducerId"
ADD = "AddPartitionsToTxn"
ADD_OFFSETS = "AddOffsetsToTxn"
END = "EndTxn"
COMMIT_OFFSETS = "TxnOffsetCommit"
MARKERS = "WriteTxnMarkers"
DESCRIBE = "DescribeTransactions"
LIST = "ListTransactions"
PRODUCERS = "DescribeProducers"
FETCH_OFFSETS = "OffsetFetch"
PLAIN_COMMIT = "OffsetCommit"
JOIN = "JoinGroup"
SYNC = "SyncGroup"
HEARTBEAT = "Heartbeat"
MEMBER = "ConsumerGroupHeartbeat"
SASL = "SaslAuthenticate"

ON_COORDINATOR = (INIT, ADD, ADD_OFFSETS, END, DESCRIBE)

RETRIABLE_FAMILY = "RetriableException"
REFRESH = "RefreshRetriableException"
RECOVERABLE = "ApplicationRecoverableException"
CONFIGURATION = "InvalidConfigurationException"


def _row(
    code: int,
    java: str,
    who: Who,
    effect: Effect,
    then: Then,
    apis: tuple[str, ...],
    meaning: str,
    what_to_do: str,
    family: str = "ApiException",
    librdkafka: str | None = "",
) -> ErrorEntry:
    name = errors.name_of(code)
    return ErrorEntry(
        code=code,
        name=name,
        meaning=meaning,
        who=who,
        effect=effect,
        retriable=code in errors.RETRIABLE,
        then=then,
        what_to_do=what_to_do,
        apis=apis,
        java=java or None,
        java_family=family if java else None,
        librdkafka=name if librdkafka == "" else librdkafka,
    )


KAFKA_CODES = (
    _row(
        -1, "UnknownServerException", CLUSTER, UNKNOWN, ABORT, (PRODUCE, INIT, END, COMMIT_OFFSETS, FETCH),
        "The broker failed with an error that has no code.",
        "Look at the broker's log at that time. After an EndTxn the outcome is unknown: register again "
        "(InitProducerId), read what is committed, and only then continue.",
        librdkafka="UNKNOWN",
    ),
    _row(0, "", PROGRAM, DONE, NOTHING, (), "No error.", "Nothing.", librdkafka="NO_ERROR"),
    _row(
        1, "OffsetOutOfRangeException", PROGRAM, DEFINITE, FIX, (FETCH,),
        "The consumer asked for an offset before the log's start or after its end.",
        "Retention deleted its records, or the topic was deleted and created again. `auto.offset.reset` decides where "
        "the consumer continues; with `none` the program decides.",
    ),
    _row(
        2, "CorruptRecordException", NETWORK, DEFINITE, RETRY, (PRODUCE, FETCH),
        "A batch does not match its checksum, or has a record without a key for a compacted topic.",
        "The client sends a damaged batch again. If the error stays, look for records without a key.",
        RETRIABLE_FAMILY, "INVALID_MSG",
    ),
    _row(
        3, "UnknownTopicOrPartitionException", OPERATOR, DEFINITE, RETRY,
        (PRODUCE, FETCH, OFFSETS, METADATA, ADD, COMMIT_OFFSETS, MARKERS, PRODUCERS),
        "The broker has no such topic or partition, or does not know it yet.",
        "Right after a topic is created, wait: clients retry. Otherwise create the topic, or correct its name. "
        "AddPartitionsToTxn then adds nothing, not even the other partitions of the request.",
        REFRESH, "UNKNOWN_TOPIC_OR_PART",
    ),
    _row(
        5, "LeaderNotAvailableException", CLUSTER, DEFINITE, RETRY, (METADATA, PRODUCE, FETCH),
        "The partition has no leader at the moment.",
        "Wait for the election. If the error stays, all replicas of the partition are down.", REFRESH,
    ),
    _row(
        6, "NotLeaderOrFollowerException", CLUSTER, DEFINITE, RETRY, (PRODUCE, FETCH, OFFSETS, MARKERS, PRODUCERS),
        "The broker does not lead the partition, or does not lead it any more.",
        "Clients find the new leader and send the request again.", REFRESH, "NOT_LEADER_FOR_PARTITION",
    ),
    _row(
        7, "TimeoutException", CLUSTER, UNKNOWN, RETRY, (PRODUCE, INIT, END, COMMIT_OFFSETS),
        "The broker did not finish in time, mostly because replicas did not acknowledge.",
        "An idempotent producer can send a Produce again: the broker recognizes duplicates. If commit_transaction "
        "times out, call it again before anything else: only this shows its outcome.",
        RETRIABLE_FAMILY,
    ),
    _row(
        10, "RecordTooLargeException", PROGRAM, DEFINITE, ABORT, (PRODUCE,),
        "A record or batch is larger than `message.max.bytes` of the broker or `max.message.bytes` of the topic.",
        "Abort, and split the record or raise the limit.", librdkafka="MSG_SIZE_TOO_LARGE",
    ),
    _row(
        12, "OffsetMetadataTooLarge", PROGRAM, DEFINITE, ABORT, (COMMIT_OFFSETS, PLAIN_COMMIT),
        "The metadata of a committed offset is longer than `offset.metadata.max.bytes` (4096).",
        "Abort, and shorten the metadata.",
    ),
    _row(
        13, "NetworkException", NETWORK, UNKNOWN, RETRY, (PRODUCE, END, COMMIT_OFFSETS),
        "The connection ended before the answer arrived.",
        "Clients connect and send again; the broker recognizes duplicates. To learn the outcome of a commit, commit "
        "again.",
        REFRESH,
    ),
    _row(
        14, "CoordinatorLoadInProgressException", CLUSTER, DEFINITE, RETRY, (*ON_COORDINATOR, COMMIT_OFFSETS, LIST),
        "The coordinator has just taken over and is reading its log, or has no block of producer ids yet.",
        "Wait: this takes milliseconds to seconds. If it takes longer, the `__transaction_state` partition is large.",
        RETRIABLE_FAMILY,
    ),
    _row(
        15, "CoordinatorNotAvailableException", CLUSTER, UNKNOWN, RETRY, (FIND, *ON_COORDINATOR, COMMIT_OFFSETS),
        "There is no coordinator, or it could not replicate its record in time.",
        "Clients retry. If the error stays, check that `__transaction_state` exists, has a leader and has enough "
        "replicas in sync (`transaction.state.log.min.isr`).",
        REFRESH,
    ),
    _row(
        16, "NotCoordinatorException", CLUSTER, DEFINITE, RETRY, (*ON_COORDINATOR, COMMIT_OFFSETS),
        "The coordinator has moved to another broker.",
        "Clients find the new coordinator and send again. The error is frequent while brokers restart.", REFRESH,
    ),
    _row(
        17, "InvalidTopicException", PROGRAM, DEFINITE, FIX, (METADATA, PRODUCE),
        "The name is not a legal topic name, or is the name of an internal topic.",
        "Use only letters, digits, `.`, `_` and `-`, at most 249 characters; only brokers write to internal topics.",
        CONFIGURATION, "TOPIC_EXCEPTION",
    ),
    _row(
        18, "RecordBatchTooLargeException", PROGRAM, DEFINITE, ABORT, (PRODUCE,),
        "A batch is larger than a segment of the log.",
        "Abort; make `batch.size` smaller or `segment.bytes` larger.", CONFIGURATION,
    ),
    _row(
        19, "NotEnoughReplicasException", CLUSTER, DEFINITE, RETRY, (PRODUCE,),
        "Fewer replicas are in sync than `min.insync.replicas` asks for. With Produce below v12, also: the "
        "coordinator is still busy with the previous transaction.",
        "Clients retry. If the error stays, brokers are down.", RETRIABLE_FAMILY,
    ),
    _row(
        20, "NotEnoughReplicasAfterAppendException", CLUSTER, UNKNOWN, RETRY, (PRODUCE,),
        "The leader has appended the batch, but too few replicas have it.",
        "Clients send it again; with an idempotent producer this makes no duplicate.", RETRIABLE_FAMILY,
    ),
    _row(
        21, "InvalidRequiredAcksException", PROGRAM, DEFINITE, FIX, (PRODUCE,),
        "`acks` is not 0, 1 or all; transactions need all.", "Set `acks=all`.", CONFIGURATION,
    ),
    _row(
        22, "IllegalGenerationException", OTHER, DEFINITE, ABORT, (COMMIT_OFFSETS, PLAIN_COMMIT, SYNC, HEARTBEAT),
        "The group has rebalanced: the offsets come from a member of an earlier generation, possibly a zombie.",
        "Abort and poll: the partitions may belong to another member now, which continues from the last commit.",
        RECOVERABLE,
    ),
    _row(
        23, "InconsistentGroupProtocolException", OTHER, DEFINITE, FIX, (JOIN, SYNC),
        "The consumer has no assignor in common with all other members of the group.",
        "Give all members of the group a common `partition.assignment.strategy`.",
    ),
    _row(
        24, "InvalidGroupIdException", PROGRAM, DEFINITE, FIX, (COMMIT_OFFSETS, PLAIN_COMMIT, JOIN, FIND),
        "The group id is empty.", "Set `group.id`.",
    ),
    _row(
        25, "UnknownMemberIdException", OTHER, DEFINITE, ABORT, (COMMIT_OFFSETS, PLAIN_COMMIT, SYNC, HEARTBEAT, MEMBER),
        "The coordinator does not know this member: it sent no heartbeat for longer than `session.timeout.ms`, or did "
        "not poll for longer than `max.poll.interval.ms`.",
        "Abort and poll: the consumer joins again. If the error is frequent, process fewer records between two polls.",
        RECOVERABLE,
    ),
    _row(
        26, "InvalidSessionTimeoutException", PROGRAM, DEFINITE, FIX, (JOIN,),
        "`session.timeout.ms` is outside `group.min.session.timeout.ms` to `group.max.session.timeout.ms` of the "
        "broker.",
        "Choose a value in this range.",
    ),
    _row(
        27, "RebalanceInProgressException", OTHER, DEFINITE, ABORT, (PLAIN_COMMIT, SYNC, HEARTBEAT),
        "The group is rebalancing.", "Poll, and continue with the partitions that are then assigned.",
    ),
    _row(
        29, "TopicAuthorizationException", OPERATOR, DEFINITE, FIX,
        (PRODUCE, FETCH, METADATA, ADD, COMMIT_OFFSETS, PRODUCERS),
        "The user is not allowed to write or read this topic.",
        "Abort, and grant the user WRITE (producers) or READ (consumers, offsets) on the topic.", CONFIGURATION,
    ),
    _row(
        30, "GroupAuthorizationException", OPERATOR, DEFINITE, FIX,
        (FIND, ADD_OFFSETS, COMMIT_OFFSETS, JOIN, FETCH_OFFSETS),
        "The user is not allowed to use this consumer group.",
        "Abort, and grant the user READ on the group.", CONFIGURATION,
    ),
    _row(
        31, "ClusterAuthorizationException", OPERATOR, DEFINITE, FIX, (INIT, ADD, MARKERS),
        "The user is not allowed to write idempotently, or to send requests that only brokers send.",
        "Idempotence needs WRITE on any topic (or IDEMPOTENT_WRITE on the cluster); aborting a hanging transaction "
        "needs ALTER on the cluster (CLUSTER_ACTION before Kafka 3.8).",
        CONFIGURATION,
    ),
    _row(
        32, "InvalidTimestampException", PROGRAM, DEFINITE, ABORT, (PRODUCE,),
        "A record's time is further from the broker's than `message.timestamp.before.max.ms` or `.after.max.ms` allow.",
        "Abort, and correct the timestamp or the clock.",
    ),
    _row(
        33, "UnsupportedSaslMechanismException", OPERATOR, DEFINITE, FIX, ("SaslHandshake",),
        "The broker does not accept this `sasl.mechanism`.",
        "Use one that the broker lists in its answer.", CONFIGURATION,
    ),
    _row(
        34, "IllegalSaslStateException", PROGRAM, DEFINITE, FIX, (SASL,),
        "A request arrived before authentication was complete, or the listener expects no authentication.",
        "Set `security.protocol` to the protocol of the listener.", CONFIGURATION,
    ),
    _row(
        35, "UnsupportedVersionException", PROGRAM, DEFINITE, FIX, (INIT, PRODUCE, MARKERS, "ApiVersions"),
        "The broker does not support this version of the API, or this use of it (`KeepPreparedTxn`).",
        "Use a client that fits the broker; no broker supports all of two-phase commit (KIP-939) yet.", CONFIGURATION,
    ),
    _row(
        42, "InvalidRequestException", PROGRAM, DEFINITE, FIX, (INIT, ADD, END, DESCRIBE, PRODUCE, COMMIT_OFFSETS),
        "The request is invalid: for example an empty transactional id, or only one of producer id and epoch.",
        "Set `transactional.id`; if it is set, this is a bug of the client library.",
    ),
    _row(
        43, "UnsupportedForMessageFormatException", OPERATOR, DEFINITE, FIX, (PRODUCE, MARKERS, COMMIT_OFFSETS),
        "The topic has a message format without transactions (below v2).",
        "Only with brokers before 3.0: set `log.message.format.version`.", CONFIGURATION,
    ),
    _row(
        45, "OutOfOrderSequenceException", PROGRAM, DEFINITE, ABORT, (PRODUCE,),
        "A batch is missing between the previous batch of this producer on the partition and this one: it was lost, or "
        "the client gave it up.",
        "Abort. Outside transactions, librdkafka treats the error as fatal; the Java client raises its epoch and "
        "continues. If the error is frequent, `delivery.timeout.ms` is too short for the cluster.",
    ),
    _row(
        46, "DuplicateSequenceException", PROGRAM, DONE, NOTHING, (PRODUCE,),
        "The broker already has the batch: this is a retry of a request whose answer was lost.",
        "Nothing: clients treat it as success. Current brokers answer with the offsets of the batch instead.",
    ),
    _row(
        47, "InvalidProducerEpochException", OTHER, DEFINITE, ABORT,
        (PRODUCE, COMMIT_OFFSETS, MARKERS, INIT, ADD, ADD_OFFSETS, END),
        "The epoch is older than that of the partition or the coordinator: another producer registered the same "
        "transactional.id, or the transaction timed out. Older versions of the requests return this error instead of "
        "PRODUCER_FENCED.",
        "Abort. If the abort returns PRODUCER_FENCED, end the process; otherwise only its transaction has ended. "
        "`fencepost txn history ID` shows the cause.",
        RECOVERABLE,
    ),
    _row(
        48, "InvalidTxnStateException", PROGRAM, DEFINITE, CLOSE, (END, PRODUCE, COMMIT_OFFSETS),
        "The request does not fit the state of the transaction: for example a commit after the timeout has aborted "
        "it, a commit without an open transaction, or a write to a partition that was not added.",
        "See `fencepost txn history ID`: a PrepareAbort by the coordinator before it means a timeout. Close the "
        "producer, create a new one and do the work again.",
    ),
    _row(
        49, "InvalidPidMappingException", OTHER, DEFINITE, CLOSE, (ADD, ADD_OFFSETS, END, PRODUCE, COMMIT_OFFSETS),
        "The coordinator has another producer id, or none, for this transactional.id: it expired after "
        "`transactional.id.expiration.ms` (7 days) without use, or it received a new producer id because its epochs "
        "were used up.",
        "Close this producer and create a new one.", RECOVERABLE,
    ),
    _row(
        50, "InvalidTxnTimeoutException", PROGRAM, DEFINITE, FIX, (INIT,),
        "`transaction.timeout.ms` is 0 or less, or more than the broker's `transaction.max.timeout.ms` (15 minutes).",
        "Lower the timeout, or raise the limit. Readers wait that long for a producer that has died.",
    ),
    _row(
        51, "ConcurrentTransactionsException", CLUSTER, DEFINITE, RETRY,
        (INIT, ADD, ADD_OFFSETS, END, PRODUCE, COMMIT_OFFSETS),
        "The coordinator is still busy with this transactional.id: it is ending the previous transaction, or aborting "
        "the open transaction of an earlier producer.",
        "Clients retry after about 20 ms. If the error stays, the coordinator cannot write its markers: "
        "`fencepost txn explain ID` shows where.",
        RETRIABLE_FAMILY,
    ),
    _row(
        52, "TransactionCoordinatorFencedException", CLUSTER, DEFINITE, NOTHING, (MARKERS,),
        "A marker came from a coordinator that another broker has replaced.",
        "Nothing: the new coordinator writes the marker. Only the logs of brokers and tools that write markers show "
        "this error.",
    ),
    _row(
        53, "TransactionalIdAuthorizationException", OPERATOR, DEFINITE, FIX,
        (FIND, INIT, ADD, ADD_OFFSETS, END, PRODUCE, COMMIT_OFFSETS, DESCRIBE),
        "The user is not allowed to use this transactional.id; or a transactional batch came without one.",
        "Grant the user WRITE and DESCRIBE on the transactional id or on its prefix.", CONFIGURATION,
    ),
    _row(
        55, "OperationNotAttemptedException", PROGRAM, DEFINITE, ABORT, (ADD,),
        "The broker refused another partition of the same request, so it added none.",
        "Look at the error of that other partition, which is the cause.",
    ),
    _row(
        56, "KafkaStorageException", CLUSTER, UNKNOWN, RETRY, (PRODUCE, FETCH, MARKERS),
        "The broker's disk failed or is full.",
        "Free space or replace the disk; another replica may take over meanwhile.", REFRESH,
    ),
    _row(
        58, "SaslAuthenticationException", OPERATOR, DEFINITE, FIX, (SASL,),
        "The broker refused the credentials.", "Check `sasl.username` and `sasl.password`.", CONFIGURATION,
    ),
    _row(
        59, "UnknownProducerIdException", CLUSTER, DEFINITE, ABORT, (PRODUCE,),
        "The partition no longer knows the producer: retention deleted its records, or it wrote nothing for "
        "`producer.id.expiration.ms`. Brokers since 2.5 rarely return this error.",
        "Abort and continue; keep `producer.id.expiration.ms` above the longest pause between writes.",
    ),
    _row(
        69, "GroupIdNotFoundException", PROGRAM, DEFINITE, ABORT, (COMMIT_OFFSETS, PLAIN_COMMIT, MEMBER),
        "There is no such consumer group.", "Abort and poll: the consumer joins again.",
    ),
    _row(
        70, "FetchSessionIdNotFoundException", CLUSTER, DEFINITE, RETRY, (FETCH,),
        "The broker has closed the fetch session of the consumer.",
        "Nothing: clients begin a new session.", RETRIABLE_FAMILY,
    ),
    _row(
        71, "InvalidFetchSessionEpochException", CLUSTER, DEFINITE, RETRY, (FETCH,),
        "The requests of a fetch session arrived out of order.",
        "Nothing: clients begin a new session.", RETRIABLE_FAMILY,
    ),
    _row(
        74, "FencedLeaderEpochException", CLUSTER, DEFINITE, RETRY, (FETCH, OFFSETS, "OffsetForLeaderEpoch"),
        "The client uses an older leader epoch of the partition.", "Nothing: clients refresh their metadata.", REFRESH,
    ),
    _row(
        75, "UnknownLeaderEpochException", CLUSTER, DEFINITE, RETRY, (FETCH, OFFSETS, "OffsetForLeaderEpoch"),
        "The client uses a newer leader epoch of the partition than the broker.", "Wait: the broker catches up.",
        RETRIABLE_FAMILY,
    ),
    _row(
        76, "UnsupportedCompressionTypeException", PROGRAM, DEFINITE, FIX, (PRODUCE, FETCH),
        "This version of the request does not support the codec (zstd needs Produce v7).",
        "Use a newer client, or another `compression.type`.",
    ),
    _row(
        78, "OffsetNotAvailableException", CLUSTER, DEFINITE, RETRY, (OFFSETS,),
        "A new leader does not know its high watermark yet.", "Wait: this takes a moment.", RETRIABLE_FAMILY,
    ),
    _row(
        79, "MemberIdRequiredException", PROGRAM, DEFINITE, RETRY, (JOIN,),
        "The first step of joining a group: the coordinator assigns a member id.", "Nothing: clients join with it.",
    ),
    _row(
        81, "GroupMaxSizeReachedException", OPERATOR, DEFINITE, FIX, (JOIN, MEMBER),
        "The group has as many members as `group.max.size` allows.", "Start fewer consumers, or raise the limit.",
    ),
    _row(
        82, "FencedInstanceIdException", OTHER, DEFINITE, CLOSE, (COMMIT_OFFSETS, PLAIN_COMMIT, JOIN, SYNC, HEARTBEAT),
        "Another consumer has joined with the same `group.instance.id`.",
        "Abort and close: two processes have the same instance id.", RECOVERABLE,
    ),
    _row(
        87, "InvalidRecordException", PROGRAM, DEFINITE, FIX, (PRODUCE,),
        "The broker does not accept the batch: a control batch from a client, a producer id without a sequence, more "
        "than one batch for a partition, or a record that a policy forbids.",
        "Abort; the message in the answer names the record.", CONFIGURATION,
    ),
    _row(
        88, "UnstableOffsetCommitException", OTHER, DEFINITE, RETRY, (FETCH_OFFSETS,),
        "The group's offsets are part of a transaction that is still open.",
        "Clients wait until it ends. If the error stays, `fencepost txn lso __consumer_offsets` names the transaction.",
        RETRIABLE_FAMILY,
    ),
    _row(
        89, "ThrottlingQuotaExceededException", OPERATOR, DEFINITE, RETRY,
        ("CreateTopics", "CreatePartitions", "DeleteTopics"),
        "The quota for creating and deleting topics is used up.", "Wait for the time in the answer.", RETRIABLE_FAMILY,
    ),
    _row(
        90, "ProducerFencedException", OTHER, DEFINITE, EXIT, (INIT, ADD, ADD_OFFSETS, END),
        "A newer producer has registered the same transactional.id, so this producer is a zombie. Or its transaction "
        "timed out and the coordinator fenced it (TV1).",
        "End this process, and do not create another producer with the id in it: that one would fence its successor, "
        "which then does the same. If nothing was restarted, two processes share the transactional.id: `fencepost txn "
        "history ID` shows them in turn. After a timeout, a restarted process registers again.",
        RECOVERABLE,
    ),
    _row(
        100, "UnknownTopicIdException", CLUSTER, DEFINITE, RETRY, (PRODUCE, FETCH, COMMIT_OFFSETS, METADATA),
        "The broker has no topic with this id: it is new, or was deleted and created again.",
        "Clients refresh their metadata and send again.", REFRESH,
    ),
    _row(
        103, "InconsistentTopicIdException", CLUSTER, DEFINITE, RETRY, (FETCH,),
        "The topic was deleted and created again.", "Clients refresh their metadata and continue.", REFRESH,
    ),
    _row(
        105, "TransactionalIdNotFoundException", PROGRAM, DEFINITE, FIX, (DESCRIBE,),
        "The coordinator does not know this transactional.id: no producer registered it, or it expired after 7 days "
        "without use.",
        "`fencepost txn list` lists all ids.", librdkafka=None,
    ),
    _row(
        106, "FetchSessionTopicIdException", CLUSTER, DEFINITE, RETRY, (FETCH,),
        "A fetch session changed between names and ids of topics.", "Nothing: clients begin a new session.",
        RETRIABLE_FAMILY, None,
    ),
    _row(
        110, "FencedMemberEpochException", OTHER, DEFINITE, ABORT, (MEMBER, COMMIT_OFFSETS),
        "The group coordinator has removed this member (KIP-848).", "Abort and poll: the consumer joins again.",
    ),
    _row(
        113, "StaleMemberEpochException", OTHER, DEFINITE, ABORT, (COMMIT_OFFSETS, PLAIN_COMMIT, FETCH_OFFSETS),
        "The member's epoch is behind the group's (KIP-848): other members may have its partitions now.",
        "Abort and poll, and continue with the partitions that are then assigned.",
    ),
    _row(
        120, "TransactionAbortableException", PROGRAM, DEFINITE, ABORT, (PRODUCE, ADD, COMMIT_OFFSETS, END),
        "This transaction cannot be committed, for example because of a write to a partition that is not part of it. "
        "The producer itself remains usable (KIP-890).",
        "Abort, and begin again with the same producer.",
    ),
    _row(
        128, "InvalidRegularExpression", PROGRAM, DEFINITE, FIX, (LIST, MEMBER),
        "The pattern is not a regular expression that the broker supports (RE2/J).", "Correct the pattern.",
    ),
    _row(
        129, "RebootstrapRequiredException", CLUSTER, DEFINITE, RETRY, (METADATA,),
        "The metadata of the client is out of date.", "Clients connect again through `bootstrap.servers`.",
    ),
)  # fmt: skip
