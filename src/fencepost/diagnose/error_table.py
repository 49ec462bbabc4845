"""Kafka's errors, for those whose program has just met one: what it means, whose doing it is, and what to do.

One row for every code that a transactional producer, or the consumer beside it, can meet; `error_lookup.py` finds them.
Whether a code is retriable is in `protocol/errors.py`; a test holds the Java names against Apache Kafka's own classes
and librdkafka's against the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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
LOCAL = "(in the client)"

ON_COORDINATOR = (INIT, ADD, ADD_OFFSETS, END, DESCRIBE)


class Who(Enum):
    PROGRAM = "this program"
    OTHER = "another producer or group member"
    OPERATOR = "whoever runs the cluster: settings or permissions"
    CLUSTER = "the cluster: something moves, loads or is broken"
    NETWORK = "the network, or a broker that went away"


class Then(Enum):
    """What a transactional program does with it."""

    NOTHING = "nothing: all is well"
    RETRY = "try again: clients do so by themselves until their own timeout"
    ABORT = "abort the transaction and begin a new one with the same producer"
    CLOSE = "close this producer; where it is meant to live on, make a new one, which registers again"
    FIX = "mend what is wrong first: it will be the same the next time"


class Effect(Enum):
    """Whether the request may have done something although it was answered with an error."""

    DONE = "it was done"
    NONE = "definite: the request had no effect"
    UNKNOWN = "not definite: it may have been done, or be done later"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEntry:
    code: int
    name: str
    meaning: str
    who: Who
    effect: Effect
    retriable: bool
    then: Then
    what_to_do: str
    apis: tuple[str, ...]
    # What Apache Kafka's Java client throws, and the family it belongs to (KIP-1050).
    java: str | None
    java_family: str | None
    librdkafka: str | None


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


def _local(code: int, name: str, then: Then, effect: Effect, who: Who, meaning: str, what_to_do: str) -> ErrorEntry:
    """A code that librdkafka makes up itself; it never crosses the wire."""
    return ErrorEntry(
        code=code,
        name=name,
        meaning=meaning,
        who=who,
        effect=effect,
        retriable=then is Then.RETRY,
        then=then,
        what_to_do=what_to_do,
        apis=(LOCAL,),
        java=None,
        java_family=None,
        librdkafka=name,
    )


RETRIABLE_FAMILY = "RetriableException"
REFRESH = "RefreshRetriableException"
RECOVERABLE = "ApplicationRecoverableException"
CONFIGURATION = "InvalidConfigurationException"

PROGRAM, OTHER, OPERATOR, CLUSTER, NETWORK = Who
NOTHING, RETRY, ABORT, CLOSE, FIX = Then
DONE, DEFINITE, UNKNOWN = Effect

_ROWS = (
    _row(
        -1, "UnknownServerException", CLUSTER, UNKNOWN, ABORT, (PRODUCE, INIT, END, COMMIT_OFFSETS, FETCH),
        "The broker ran into something that it has no code for.",
        "Look into the broker's log at that moment. After an EndTxn nobody can say whether it took place: register "
        "again (InitProducerId), read what is committed, and only then go on.",
        librdkafka="UNKNOWN",
    ),
    _row(0, "", PROGRAM, DONE, NOTHING, (), "No error.", "Nothing.", librdkafka="NO_ERROR"),
    _row(
        1, "OffsetOutOfRangeException", PROGRAM, DEFINITE, FIX, (FETCH,),
        "The consumer asked for an offset before the log's start or after its end.",
        "Its records were deleted by retention, or the topic was made anew. `auto.offset.reset` decides where to go "
        "on; with `none` the program decides.",
    ),
    _row(
        2, "CorruptRecordException", NETWORK, DEFINITE, RETRY, (PRODUCE, FETCH),
        "A batch does not match its checksum, or has a record without a key for a compacted topic.",
        "A damaged batch is sent again by the client. If it stays, look for records without a key.",
        RETRIABLE_FAMILY, "INVALID_MSG",
    ),
    _row(
        3, "UnknownTopicOrPartitionException", OPERATOR, DEFINITE, RETRY,
        (PRODUCE, FETCH, OFFSETS, METADATA, ADD, COMMIT_OFFSETS, MARKERS, PRODUCERS),
        "The broker has no such topic or partition, or has not heard of it yet.",
        "Right after a topic is created, wait: clients try again. Otherwise create it, or mend its name. In "
        "AddPartitionsToTxn nothing is added then, not even the other partitions of the request.",
        REFRESH, "UNKNOWN_TOPIC_OR_PART",
    ),
    _row(
        5, "LeaderNotAvailableException", CLUSTER, DEFINITE, RETRY, (METADATA, PRODUCE, FETCH),
        "The partition has no leader at the moment.",
        "Wait for the election. If it stays, all replicas of the partition are down.", REFRESH,
    ),
    _row(
        6, "NotLeaderOrFollowerException", CLUSTER, DEFINITE, RETRY, (PRODUCE, FETCH, OFFSETS, MARKERS, PRODUCERS),
        "The request went to a broker that does not lead the partition (any more).",
        "Clients ask for the new leader and send again.", REFRESH, "NOT_LEADER_FOR_PARTITION",
    ),
    _row(
        7, "TimeoutException", CLUSTER, UNKNOWN, RETRY, (PRODUCE, INIT, END, COMMIT_OFFSETS),
        "The broker could not finish in time, mostly because replicas did not acknowledge.",
        "A Produce of an idempotent producer is safe to send again: duplicates are found. If commit_transaction "
        "itself times out, call it again: only that finds out what became of it; do not begin anew before.",
        RETRIABLE_FAMILY,
    ),
    _row(
        10, "RecordTooLargeException", PROGRAM, DEFINITE, ABORT, (PRODUCE,),
        "A record or batch is larger than `message.max.bytes` of the broker or `max.message.bytes` of the topic.",
        "Abort, and split the record or raise the limit.", librdkafka="MSG_SIZE_TOO_LARGE",
    ),
    _row(
        12, "OffsetMetadataTooLarge", PROGRAM, DEFINITE, ABORT, (COMMIT_OFFSETS, PLAIN_COMMIT),
        "The text beside a committed offset is longer than `offset.metadata.max.bytes` (4096).",
        "Abort, and shorten it.",
    ),
    _row(
        13, "NetworkException", NETWORK, UNKNOWN, RETRY, (PRODUCE, END, COMMIT_OFFSETS),
        "The connection ended before the answer came.",
        "Clients connect and send again; the broker finds duplicates. The answer to a commit is found out by "
        "committing again.",
        REFRESH,
    ),
    _row(
        14, "CoordinatorLoadInProgressException", CLUSTER, DEFINITE, RETRY, (*ON_COORDINATOR, COMMIT_OFFSETS, LIST),
        "The coordinator has just become responsible and reads its log, or has no block of producer ids yet.",
        "Wait: it takes milliseconds to seconds. A long load means a long `__transaction_state` partition.",
        RETRIABLE_FAMILY,
    ),
    _row(
        15, "CoordinatorNotAvailableException", CLUSTER, UNKNOWN, RETRY, (FIND, *ON_COORDINATOR, COMMIT_OFFSETS),
        "There is no coordinator now, or it could not replicate its record in time.",
        "Clients look for it again. If it stays: is `__transaction_state` there, with a leader and enough replicas in "
        "sync (`transaction.state.log.min.isr`)?",
        REFRESH,
    ),
    _row(
        16, "NotCoordinatorException", CLUSTER, DEFINITE, RETRY, (*ON_COORDINATOR, COMMIT_OFFSETS),
        "The coordinator has moved to another broker.",
        "Clients ask FindCoordinator and send again. Waves of it come with broker restarts.", REFRESH,
    ),
    _row(
        17, "InvalidTopicException", PROGRAM, DEFINITE, FIX, (METADATA, PRODUCE),
        "The name is not a legal topic name, or is that of an internal topic.",
        "Use other letters (a-z, 0-9, `.`, `_`, `-`; 249 at most); internal topics are the broker's own.",
        CONFIGURATION, "TOPIC_EXCEPTION",
    ),
    _row(
        18, "RecordBatchTooLargeException", PROGRAM, DEFINITE, ABORT, (PRODUCE,),
        "A batch is larger than a segment of the log.",
        "Abort; make `batch.size` smaller or `segment.bytes` larger.", CONFIGURATION,
    ),
    _row(
        19, "NotEnoughReplicasException", CLUSTER, DEFINITE, RETRY, (PRODUCE,),
        "Fewer replicas are in sync than `min.insync.replicas` asks for. A producer below Produce v12 also sees it "
        "when the coordinator is busy with the transaction before.",
        "Clients try again. If it stays, brokers are down.", RETRIABLE_FAMILY,
    ),
    _row(
        20, "NotEnoughReplicasAfterAppendException", CLUSTER, UNKNOWN, RETRY, (PRODUCE,),
        "The batch was appended, but too few replicas have it.",
        "Clients send it again; an idempotent producer makes no duplicate of it.", RETRIABLE_FAMILY,
    ),
    _row(
        21, "InvalidRequiredAcksException", PROGRAM, DEFINITE, FIX, (PRODUCE,),
        "`acks` is none of 0, 1 and all; transactions need all.", "Set `acks=all`.", CONFIGURATION,
    ),
    _row(
        22, "IllegalGenerationException", OTHER, DEFINITE, ABORT, (COMMIT_OFFSETS, PLAIN_COMMIT, SYNC, HEARTBEAT),
        "The group has rebalanced: the offsets come from a member of an earlier generation, a zombie perhaps.",
        "Abort and poll: the partitions may belong to another member now, which goes on from the last commit.",
        RECOVERABLE,
    ),
    _row(
        23, "InconsistentGroupProtocolException", OTHER, DEFINITE, FIX, (JOIN, SYNC),
        "The consumer offers no assignor that all other members of the group have.",
        "Give all members of a group one `partition.assignment.strategy` in common.",
    ),
    _row(
        24, "InvalidGroupIdException", PROGRAM, DEFINITE, FIX, (COMMIT_OFFSETS, PLAIN_COMMIT, JOIN, FIND),
        "The group id is empty.", "Set `group.id`.",
    ),
    _row(
        25, "UnknownMemberIdException", OTHER, DEFINITE, ABORT, (COMMIT_OFFSETS, PLAIN_COMMIT, SYNC, HEARTBEAT, MEMBER),
        "The coordinator does not know this member (any more): it was silent for longer than its session, or took "
        "longer than `max.poll.interval.ms`.",
        "Abort and poll: the consumer joins again. If it is frequent, process less between two polls.",
        RECOVERABLE,
    ),
    _row(
        26, "InvalidSessionTimeoutException", PROGRAM, DEFINITE, FIX, (JOIN,),
        "`session.timeout.ms` is outside of what the broker allows (`group.min.` and `group.max.session.timeout.ms`).",
        "Choose one that lies between.",
    ),
    _row(
        27, "RebalanceInProgressException", OTHER, DEFINITE, ABORT, (PLAIN_COMMIT, SYNC, HEARTBEAT),
        "The group is rebalancing.", "Poll, and go on with the partitions that are assigned then.",
    ),
    _row(
        29, "TopicAuthorizationException", OPERATOR, DEFINITE, FIX,
        (PRODUCE, FETCH, METADATA, ADD, COMMIT_OFFSETS, PRODUCERS),
        "The principal may not write (or read) this topic.",
        "Abort; have WRITE (producers) or READ (consumers, offsets) granted on the topic.", CONFIGURATION,
    ),
    _row(
        30, "GroupAuthorizationException", OPERATOR, DEFINITE, FIX,
        (FIND, ADD_OFFSETS, COMMIT_OFFSETS, JOIN, FETCH_OFFSETS),
        "The principal may not use this consumer group.", "Abort; have READ granted on the group.", CONFIGURATION,
    ),
    _row(
        31, "ClusterAuthorizationException", OPERATOR, DEFINITE, FIX, (INIT, ADD, MARKERS),
        "The principal may not write idempotently, or may not send what brokers send among themselves.",
        "Idempotence needs WRITE on any topic (or IDEMPOTENT_WRITE on the cluster); aborting a hanging transaction "
        "needs ALTER or CLUSTER_ACTION on the cluster.",
        CONFIGURATION,
    ),
    _row(
        32, "InvalidTimestampException", PROGRAM, DEFINITE, ABORT, (PRODUCE,),
        "A record's time is further from the broker's than `message.timestamp.before.max.ms` or `.after.max.ms` allow.",
        "Abort; mend the timestamp or the clock.",
    ),
    _row(
        33, "UnsupportedSaslMechanismException", OPERATOR, DEFINITE, FIX, ("SaslHandshake",),
        "The broker does not take this `sasl.mechanism`.", "Use one that it lists in its answer.", CONFIGURATION,
    ),
    _row(
        34, "IllegalSaslStateException", PROGRAM, DEFINITE, FIX, (SASL,),
        "A request came before authentication was done, or an authentication where none is wanted.",
        "Set `security.protocol` to what the listener speaks.", CONFIGURATION,
    ),
    _row(
        35, "UnsupportedVersionException", PROGRAM, DEFINITE, FIX, (INIT, PRODUCE, MARKERS, "ApiVersions"),
        "The broker does not serve this version of the API, or not what was asked with it (`KeepPreparedTxn`).",
        "Use a client that fits the broker; two-phase commit (KIP-939) is not finished anywhere.", CONFIGURATION,
    ),
    _row(
        42, "InvalidRequestException", PROGRAM, DEFINITE, FIX, (INIT, ADD, END, DESCRIBE, PRODUCE, COMMIT_OFFSETS),
        "The request makes no sense: an empty transactional id, or only one of producer id and epoch.",
        "Set `transactional.id`; if it is set, the client library is at fault.",
    ),
    _row(
        43, "UnsupportedForMessageFormatException", OPERATOR, DEFINITE, FIX, (PRODUCE, MARKERS, COMMIT_OFFSETS),
        "The topic is kept in a message format from before transactions (below v2).",
        "Brokers before 3.0 only: set `log.message.format.version`.", CONFIGURATION,
    ),
    _row(
        45, "OutOfOrderSequenceException", PROGRAM, DEFINITE, ABORT, (PRODUCE,),
        "A batch is missing between the last one and this one of the same producer and partition: it was lost, or "
        "given up by the client.",
        "Abort. Outside transactions librdkafka calls it fatal; the Java client raises its epoch and goes on. If it "
        "is frequent, `delivery.timeout.ms` is too short for the cluster.",
    ),
    _row(
        46, "DuplicateSequenceException", PROGRAM, DONE, NOTHING, (PRODUCE,),
        "The batch was there already: a retry of a request whose answer was lost.",
        "Nothing: clients count it as success. Current brokers answer with the first offsets instead.",
    ),
    _row(
        47, "InvalidProducerEpochException", OTHER, DEFINITE, ABORT,
        (PRODUCE, COMMIT_OFFSETS, MARKERS, INIT, ADD, ADD_OFFSETS, END),
        "The epoch is older than the partition's or the coordinator's: another producer registered the same "
        "transactional.id, or the transaction timed out. Older versions of the RPCs say this instead of "
        "PRODUCER_FENCED.",
        "Abort; the abort then tells whether this producer is fenced (PRODUCER_FENCED: close it) or only its "
        "transaction is over. `fencepost txn history ID` shows which.",
        RECOVERABLE,
    ),
    _row(
        48, "InvalidTxnStateException", PROGRAM, DEFINITE, CLOSE, (END, PRODUCE, COMMIT_OFFSETS),
        "The request does not fit the state of the transaction: a commit of what was aborted after its timeout, a "
        "commit with nothing open, a write to a partition that was not added.",
        "See `fencepost txn history ID`: a PrepareAbort by the coordinator before it means a timeout. Close the "
        "producer, make a new one and do the work again.",
    ),
    _row(
        49, "InvalidPidMappingException", OTHER, DEFINITE, CLOSE, (ADD, ADD_OFFSETS, END, PRODUCE, COMMIT_OFFSETS),
        "The coordinator has another producer id, or none, for this transactional.id: it was forgotten after "
        "`transactional.id.expiration.ms` (7 days) without use, or its epochs ran out and it was given a new id.",
        "Close this producer and make a new one.", RECOVERABLE,
    ),
    _row(
        50, "InvalidTxnTimeoutException", PROGRAM, DEFINITE, FIX, (INIT,),
        "`transaction.timeout.ms` is 0 or less, or more than the broker's `transaction.max.timeout.ms` (15 minutes).",
        "Ask for less, or raise the limit; mind that readers wait so long for a producer that died.",
    ),
    _row(
        51, "ConcurrentTransactionsException", CLUSTER, DEFINITE, RETRY,
        (INIT, ADD, ADD_OFFSETS, END, PRODUCE, COMMIT_OFFSETS),
        "The coordinator is still busy with this transactional.id: it ends the transaction before, or aborts what an "
        "earlier producer left open.",
        "Clients try again after some 20 ms. If it stays, markers do not get through: `fencepost txn explain ID`.",
        RETRIABLE_FAMILY,
    ),
    _row(
        52, "TransactionCoordinatorFencedException", CLUSTER, DEFINITE, NOTHING, (MARKERS,),
        "A marker came from a coordinator that has been replaced by another broker.",
        "Nothing: the new coordinator writes it. Seen in brokers' logs, and by tools that write markers.",
    ),
    _row(
        53, "TransactionalIdAuthorizationException", OPERATOR, DEFINITE, FIX,
        (FIND, INIT, ADD, ADD_OFFSETS, END, PRODUCE, COMMIT_OFFSETS, DESCRIBE),
        "The principal may not use this transactional.id; or a transactional batch came without one.",
        "Have WRITE (and DESCRIBE) granted on the transactional id, or on its prefix.", CONFIGURATION,
    ),
    _row(
        55, "OperationNotAttemptedException", PROGRAM, DEFINITE, ABORT, (ADD,),
        "Another partition of the same request was refused, so nothing was added.",
        "Look at the error of that other partition; it is the real one.",
    ),
    _row(
        56, "KafkaStorageException", CLUSTER, UNKNOWN, RETRY, (PRODUCE, FETCH, MARKERS),
        "The broker's disk failed or is full.",
        "Make room or replace the disk; another replica may take over meanwhile.", REFRESH,
    ),
    _row(
        58, "SaslAuthenticationException", OPERATOR, DEFINITE, FIX, (SASL,),
        "The broker refused the credentials.", "Check `sasl.username` and `sasl.password`.", CONFIGURATION,
    ),
    _row(
        59, "UnknownProducerIdException", CLUSTER, DEFINITE, ABORT, (PRODUCE,),
        "The partition has forgotten the producer: its records were deleted by retention, or it was silent for "
        "`producer.id.expiration.ms`. Brokers since 2.5 hardly ever say it.",
        "Abort and go on; keep `producer.id.expiration.ms` above the longest silence.",
    ),
    _row(
        69, "GroupIdNotFoundException", PROGRAM, DEFINITE, ABORT, (COMMIT_OFFSETS, PLAIN_COMMIT, MEMBER),
        "There is no such consumer group.", "Abort and poll: the consumer joins again.",
    ),
    _row(
        70, "FetchSessionIdNotFoundException", CLUSTER, DEFINITE, RETRY, (FETCH,),
        "The broker has dropped the consumer's fetch session.", "Nothing: clients begin a new one.", RETRIABLE_FAMILY,
    ),
    _row(
        71, "InvalidFetchSessionEpochException", CLUSTER, DEFINITE, RETRY, (FETCH,),
        "The requests of a fetch session came out of order.", "Nothing: clients begin a new one.", RETRIABLE_FAMILY,
    ),
    _row(
        74, "FencedLeaderEpochException", CLUSTER, DEFINITE, RETRY, (FETCH, OFFSETS, "OffsetForLeaderEpoch"),
        "The client knows an older leader of the partition.", "Nothing: clients ask for metadata.", REFRESH,
    ),
    _row(
        75, "UnknownLeaderEpochException", CLUSTER, DEFINITE, RETRY, (FETCH, OFFSETS, "OffsetForLeaderEpoch"),
        "The client knows a newer leader of the partition than the broker does.", "Wait: the broker catches up.",
        RETRIABLE_FAMILY,
    ),
    _row(
        76, "UnsupportedCompressionTypeException", PROGRAM, DEFINITE, FIX, (PRODUCE, FETCH),
        "The version of the request does not know this codec (zstd needs Produce v7).",
        "Use a newer client, or another `compression.type`.",
    ),
    _row(
        78, "OffsetNotAvailableException", CLUSTER, DEFINITE, RETRY, (OFFSETS,),
        "A new leader does not know yet how far its log is safe.", "Wait: it takes a moment.", RETRIABLE_FAMILY,
    ),
    _row(
        79, "MemberIdRequiredException", PROGRAM, DEFINITE, RETRY, (JOIN,),
        "The first step of joining a group: the coordinator hands out a member id.", "Nothing: clients join with it.",
    ),
    _row(
        81, "GroupMaxSizeReachedException", OPERATOR, DEFINITE, FIX, (JOIN, MEMBER),
        "The group has as many members as `group.max.size` allows.", "Start fewer consumers, or raise the limit.",
    ),
    _row(
        82, "FencedInstanceIdException", OTHER, DEFINITE, CLOSE, (COMMIT_OFFSETS, PLAIN_COMMIT, JOIN, SYNC, HEARTBEAT),
        "Another consumer has joined with the same `group.instance.id`.",
        "Abort and close: two processes have one instance id.", RECOVERABLE,
    ),
    _row(
        87, "InvalidRecordException", PROGRAM, DEFINITE, FIX, (PRODUCE,),
        "The broker will not take the batch: a control batch from a client, a producer id without a sequence, more "
        "than one batch for a partition, or what a policy forbids.",
        "Abort; the message in the answer says which record.", CONFIGURATION,
    ),
    _row(
        88, "UnstableOffsetCommitException", OTHER, DEFINITE, RETRY, (FETCH_OFFSETS,),
        "The group's offsets are part of a transaction that is still open.",
        "Clients wait until it ends. If it stays: `fencepost txn lso __consumer_offsets` names the transaction.",
        RETRIABLE_FAMILY,
    ),
    _row(
        89, "ThrottlingQuotaExceededException", OPERATOR, DEFINITE, RETRY,
        ("CreateTopics", "CreatePartitions", "DeleteTopics"),
        "A quota on changes of topics is used up.", "Wait as long as the answer says.", RETRIABLE_FAMILY,
    ),
    _row(
        90, "ProducerFencedException", OTHER, DEFINITE, CLOSE, (INIT, ADD, ADD_OFFSETS, END),
        "A newer producer has registered the same transactional.id: this one is a zombie. Or its transaction timed "
        "out and the coordinator fenced it (TV1).",
        "Close this producer and do not try again with it. If nothing was restarted, two processes share a "
        "transactional.id: `fencepost txn history ID` shows them taking turns.",
        RECOVERABLE,
    ),
    _row(
        100, "UnknownTopicIdException", CLUSTER, DEFINITE, RETRY, (PRODUCE, FETCH, COMMIT_OFFSETS, METADATA),
        "The broker has no topic with this id: it is new, or was deleted and made again.",
        "Clients ask for metadata and send again.", REFRESH,
    ),
    _row(
        103, "InconsistentTopicIdException", CLUSTER, DEFINITE, RETRY, (FETCH,),
        "The topic was deleted and made again.", "Clients ask for metadata and go on.", REFRESH,
    ),
    _row(
        105, "TransactionalIdNotFoundException", PROGRAM, DEFINITE, FIX, (DESCRIBE,),
        "The coordinator knows no such transactional.id: it was never registered, or forgotten after 7 days without "
        "use.",
        "`fencepost txn list` shows those that there are.", librdkafka=None,
    ),
    _row(
        106, "FetchSessionTopicIdException", CLUSTER, DEFINITE, RETRY, (FETCH,),
        "A fetch session went from names to ids of topics, or back.", "Nothing: clients begin a new one.",
        RETRIABLE_FAMILY, None,
    ),
    _row(
        110, "FencedMemberEpochException", OTHER, DEFINITE, ABORT, (MEMBER, COMMIT_OFFSETS),
        "The group has moved on without this member (KIP-848).", "Abort and poll: the consumer joins again.",
    ),
    _row(
        113, "StaleMemberEpochException", OTHER, DEFINITE, ABORT, (COMMIT_OFFSETS, PLAIN_COMMIT, FETCH_OFFSETS),
        "The member's epoch is behind the group's (KIP-848): partitions have been given to others meanwhile.",
        "Abort and poll, and go on with the partitions that are assigned then.",
    ),
    _row(
        120, "TransactionAbortableException", PROGRAM, DEFINITE, ABORT, (PRODUCE, ADD, COMMIT_OFFSETS, END),
        "This transaction cannot be committed, for instance since a write came for a partition that is not part of "
        "it; the producer itself is well (KIP-890).",
        "Abort, and begin again with the same producer.",
    ),
    _row(
        128, "InvalidRegularExpression", PROGRAM, DEFINITE, FIX, (LIST, MEMBER),
        "The pattern is not a regular expression that the broker reads (RE2/J).", "Mend the pattern.",
    ),
    _row(
        129, "RebootstrapRequiredException", CLUSTER, DEFINITE, RETRY, (METADATA,),
        "What the client knows of the cluster is out of date.", "Clients begin again with `bootstrap.servers`.",
    ),
    _local(
        -144, "_FENCED", CLOSE, DEFINITE, OTHER,
        "librdkafka's word for PRODUCER_FENCED and INVALID_PRODUCER_EPOCH in a transactional producer; fatal.",
        "Close this producer. If nothing was restarted, two processes share a transactional.id: `fencepost txn "
        "history ID`.",
    ),
    _local(
        -172, "_STATE", FIX, DEFINITE, PROGRAM,
        "The call does not fit the producer's own state: a commit without begin_transaction, anything but an abort "
        "after an abortable error.",
        "Look at the error before it: if that was abortable, abort_transaction comes next.",
    ),
    _local(
        -185, "_TIMED_OUT", RETRY, UNKNOWN, NETWORK,
        "The call did not finish in the time it was given.",
        "init_transactions, commit_transaction and abort_transaction may be called again and then go on where they "
        "were; a commit must be, as nobody knows yet what became of it.",
    ),
    _local(
        -192, "_MSG_TIMED_OUT", ABORT, UNKNOWN, NETWORK,
        "A record was not delivered within `delivery.timeout.ms` (`message.timeout.ms`).",
        "Abort: the record may be in the log, but never in a committed transaction.",
    ),
    _local(
        -195, "_TRANSPORT", RETRY, UNKNOWN, NETWORK,
        "The connection to a broker ended.", "Nothing: the client connects again.",
    ),
    _local(
        -187, "_ALL_BROKERS_DOWN", RETRY, UNKNOWN, NETWORK,
        "No broker can be reached at the moment.", "Is the cluster up, and `bootstrap.servers` right? The client goes "
        "on trying.",
    ),
    _local(
        -150, "_FATAL", CLOSE, UNKNOWN, PROGRAM,
        "The producer has met a fatal error before; fatal_error() tells which.",
        "Close this producer and make a new one.",
    ),
    _local(
        -152, "_PURGE_QUEUE", ABORT, DEFINITE, PROGRAM,
        "The record was dropped before it was sent, since its transaction was aborted.", "Nothing: this is the abort.",
    ),
    _local(
        -151, "_PURGE_INFLIGHT", ABORT, UNKNOWN, PROGRAM,
        "The record was dropped while it was on its way, since its transaction was aborted.",
        "Nothing: it may be in the log, but never in a committed transaction.",
    ),
    _local(
        -148, "_GAPLESS_GUARANTEE", CLOSE, UNKNOWN, PROGRAM,
        "A record could not be delivered, and `enable.gapless.guarantee` forbids to go on without it.",
        "Close this producer and make a new one.",
    ),
    _local(
        -149, "_INCONSISTENT", CLOSE, UNKNOWN, CLUSTER,
        "Broker and client disagree about what was written.", "Close this producer and make a new one.",
    ),
    _local(
        -184, "_QUEUE_FULL", RETRY, DEFINITE, PROGRAM,
        "produce() is called faster than records are sent: `queue.buffering.max.messages` are waiting.",
        "Call poll() to make room, then produce() again.",
    ),
    _local(
        -173, "_CONFLICT", FIX, DEFINITE, PROGRAM,
        "A call does not go with one that was made before it, such as a commit after an abort had been begun.",
        "Finish with the call that was begun first.",
    ),
    _local(
        -177, "_PREV_IN_PROGRESS", RETRY, DEFINITE, PROGRAM,
        "The same call is still at work in another thread, or was not finished after its timeout.",
        "Call the one that was begun again until it returns.",
    ),
    _local(
        -180, "_WAIT_COORD", RETRY, DEFINITE, CLUSTER,
        "The coordinator is not known yet.", "Nothing: the client looks for it.",
    ),
    _local(
        -147, "_MAX_POLL_EXCEEDED", ABORT, DEFINITE, PROGRAM,
        "The consumer did not poll for `max.poll.interval.ms`: it has left the group.",
        "Abort and poll. Process less between two polls, or raise the limit.",
    ),
    _local(
        -142, "_ASSIGNMENT_LOST", ABORT, DEFINITE, OTHER,
        "The partitions were taken away before they could be given back.",
        "Abort: another member goes on from the last commit.",
    ),
    _local(
        -169, "_AUTHENTICATION", FIX, DEFINITE, OPERATOR,
        "The broker refused the credentials.", "Check `sasl.username` and `sasl.password`.",
    ),
    _local(
        -145, "_NOT_CONFIGURED", FIX, DEFINITE, PROGRAM,
        "A transactional call on a producer without `transactional.id`.", "Set `transactional.id`.",
    ),
)  # fmt: skip

TABLE: dict[int, ErrorEntry] = {entry.code: entry for entry in _ROWS}
assert len(TABLE) == len(_ROWS), "a code stands in the table twice"
