"""The errors that librdkafka raises by itself, without an answer from a broker, and its text for every code.

confluent-kafka has the same texts, which users find in their logs. A test compares them with the library.
"""

from __future__ import annotations

from fencepost.diagnose.errors.entry import (
    ABORT,
    CLOSE,
    CLUSTER,
    DEFINITE,
    EXIT,
    FIX,
    NETWORK,
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

LOCAL = "(in the client)"


def _local(code: int, name: str, then: Then, effect: Effect, who: Who, meaning: str, what_to_do: str) -> ErrorEntry:
    """A code that only librdkafka has; no broker sends it."""
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


LIBRDKAFKA_CODES = (
    _local(
        -144, "_FENCED", EXIT, DEFINITE, OTHER,
        "librdkafka's code for PRODUCER_FENCED and INVALID_PRODUCER_EPOCH in a transactional producer. It is fatal.",
        "End this process, and do not create another producer with the id in it. If nothing was restarted, two "
        "processes share the transactional.id: see `fencepost txn history ID`.",
    ),
    _local(
        -172, "_STATE", FIX, DEFINITE, PROGRAM,
        "The call does not fit the state of the producer: for example a commit without begin_transaction, or any call "
        "but abort_transaction after an abortable error.",
        "Look at the error before it: if it was abortable, call abort_transaction.",
    ),
    _local(
        -185, "_TIMED_OUT", RETRY, UNKNOWN, NETWORK,
        "The call did not finish within its timeout.",
        "Call init_transactions, commit_transaction or abort_transaction again: they continue where they were. A "
        "commit must be called again, because its outcome is not known yet.",
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
        "No broker can be reached at the moment.", "Check that the cluster runs and that `bootstrap.servers` is right. "
        "The client continues to try.",
    ),
    _local(
        -150, "_FATAL", CLOSE, UNKNOWN, PROGRAM,
        "The producer has raised a fatal error before; fatal_error() returns it.",
        "Close this producer and create a new one.",
    ),
    _local(
        -152, "_PURGE_QUEUE", ABORT, DEFINITE, PROGRAM,
        "The record was removed before it was sent, because its transaction was aborted.",
        "Nothing: this is the abort.",
    ),
    _local(
        -151, "_PURGE_INFLIGHT", ABORT, UNKNOWN, PROGRAM,
        "The record was removed while it was in flight, because its transaction was aborted.",
        "Nothing: it may be in the log, but never in a committed transaction.",
    ),
    _local(
        -148, "_GAPLESS_GUARANTEE", CLOSE, UNKNOWN, PROGRAM,
        "A record could not be delivered, and `enable.gapless.guarantee` does not allow to continue without it.",
        "Close this producer and create a new one.",
    ),
    _local(
        -149, "_INCONSISTENT", CLOSE, UNKNOWN, CLUSTER,
        "Broker and client disagree about what was written.", "Close this producer and create a new one.",
    ),
    _local(
        -184, "_QUEUE_FULL", RETRY, DEFINITE, PROGRAM,
        "produce() is called faster than records are sent: `queue.buffering.max.messages` records are in the queue.",
        "Call poll() to make room, then produce() again.",
    ),
    _local(
        -173, "_CONFLICT", FIX, DEFINITE, PROGRAM,
        "The call conflicts with an earlier one, for example a commit after an abort has begun.",
        "Finish with the call that began first.",
    ),
    _local(
        -177, "_PREV_IN_PROGRESS", RETRY, DEFINITE, PROGRAM,
        "The same call is still running in another thread, or did not finish before its timeout.",
        "Repeat the call that has begun until it returns.",
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
        "The consumer lost its partitions before it could give them up.",
        "Abort: another member continues from the last commit.",
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


LIBRDKAFKA_TEXTS: dict[int, str] = {
    -195: "Local: Broker transport failure",
    -192: "Local: Message timed out",
    -187: "Local: All broker connections are down",
    -185: "Local: Timed out",
    -184: "Local: Queue full",
    -180: "Local: Waiting for coordinator",
    -177: "Local: Previous operation in progress",
    -173: "Local: Conflicting use",
    -172: "Local: Erroneous state",
    -169: "Local: Authentication failure",
    -152: "Local: Purged in queue",
    -151: "Local: Purged in flight",
    -150: "Local: Fatal error",
    -149: "Local: Inconsistent state",
    -148: "Local: Gap-less ordering would not be guaranteed if proceeding",
    -147: "Local: Maximum application poll interval (max.poll.interval.ms) exceeded",
    -145: "Local: Functionality not configured",
    -144: "Local: This instance has been fenced by a newer instance",
    -142: "Local: Group partition assignment lost",
    -1: "Unknown broker error",
    1: "Broker: Offset out of range",
    2: "Broker: Invalid message",
    3: "Broker: Unknown topic or partition",
    4: "Broker: Invalid message size",
    5: "Broker: Leader not available",
    6: "Broker: Not leader for partition",
    7: "Broker: Request timed out",
    8: "Broker: Broker not available",
    9: "Broker: Replica not available",
    10: "Broker: Message size too large",
    11: "Broker: StaleControllerEpochCode",
    12: "Broker: Offset metadata string too large",
    13: "Broker: Broker disconnected before response received",
    14: "Broker: Coordinator load in progress",
    15: "Broker: Coordinator not available",
    16: "Broker: Not coordinator",
    17: "Broker: Invalid topic",
    18: "Broker: Message batch larger than configured server segment size",
    19: "Broker: Not enough in-sync replicas",
    20: "Broker: Message(s) written to insufficient number of in-sync replicas",
    21: "Broker: Invalid required acks value",
    22: "Broker: Specified group generation id is not valid",
    23: "Broker: Inconsistent group protocol",
    24: "Broker: Invalid group.id",
    25: "Broker: Unknown member",
    26: "Broker: Invalid session timeout",
    27: "Broker: Group rebalance in progress",
    28: "Broker: Commit offset data size is not valid",
    29: "Broker: Topic authorization failed",
    30: "Broker: Group authorization failed",
    31: "Broker: Cluster authorization failed",
    32: "Broker: Invalid timestamp",
    33: "Broker: Unsupported SASL mechanism",
    34: "Broker: Request not valid in current SASL state",
    35: "Broker: API version not supported",
    36: "Broker: Topic already exists",
    37: "Broker: Invalid number of partitions",
    38: "Broker: Invalid replication factor",
    39: "Broker: Invalid replica assignment",
    40: "Broker: Configuration is invalid",
    41: "Broker: Not controller for cluster",
    42: "Broker: Invalid request",
    43: "Broker: Message format on broker does not support request",
    44: "Broker: Policy violation",
    45: "Broker: Broker received an out of order sequence number",
    46: "Broker: Broker received a duplicate sequence number",
    47: "Broker: Producer attempted an operation with an old epoch",
    48: "Broker: Producer attempted a transactional operation in an invalid state",
    49: "Broker: Producer attempted to use a producer id which is not currently assigned to its transactional id",
    50: (
        "Broker: Transaction timeout is larger than the maximum value allowed by the broker's "
        "max.transaction.timeout.ms"
    ),
    51: (
        "Broker: Producer attempted to update a transaction while another concurrent "
        "operation on the same transaction was ongoing"
    ),
    52: (
        "Broker: Indicates that the transaction coordinator sending a WriteTxnMarker is no "
        "longer the current coordinator for a given producer"
    ),
    53: "Broker: Transactional Id authorization failed",
    54: "Broker: Security features are disabled",
    55: "Broker: Operation not attempted",
    56: "Broker: Disk error when trying to access log file on disk",
    57: "Broker: The user-specified log directory is not found in the broker config",
    58: "Broker: SASL Authentication failed",
    59: "Broker: Unknown Producer Id",
    60: "Broker: Partition reassignment is in progress",
    61: "Broker: Delegation Token feature is not enabled",
    62: "Broker: Delegation Token is not found on server",
    63: "Broker: Specified Principal is not valid Owner/Renewer",
    64: "Broker: Delegation Token requests are not allowed on this connection",
    65: "Broker: Delegation Token authorization failed",
    66: "Broker: Delegation Token is expired",
    67: "Broker: Supplied principalType is not supported",
    68: "Broker: The group is not empty",
    69: "Broker: The group id does not exist",
    70: "Broker: The fetch session ID was not found",
    71: "Broker: The fetch session epoch is invalid",
    72: "Broker: No matching listener",
    73: "Broker: Topic deletion is disabled",
    74: "Broker: Leader epoch is older than broker epoch",
    75: "Broker: Leader epoch is newer than broker epoch",
    76: "Broker: Unsupported compression type",
    77: "Broker: Broker epoch has changed",
    78: "Broker: Leader high watermark is not caught up",
    79: "Broker: Group member needs a valid member ID",
    80: "Broker: Preferred leader was not available",
    81: "Broker: Consumer group has reached maximum size",
    82: "Broker: Static consumer fenced by other consumer with same group.instance.id",
    83: "Broker: Eligible partition leaders are not available",
    84: "Broker: Leader election not needed for topic partition",
    85: "Broker: No partition reassignment is in progress",
    86: "Broker: Deleting offsets of a topic while the consumer group is subscribed to it",
    87: "Broker: Broker failed to validate record",
    88: "Broker: There are unstable offsets that need to be cleared",
    89: "Broker: Throttling quota has been exceeded",
    90: "Broker: There is a newer producer with the same transactionalId which fences the current one",
    91: "Broker: Request illegally referred to resource that does not exist",
    92: "Broker: Request illegally referred to the same resource twice",
    93: "Broker: Requested credential would not meet criteria for acceptability",
    94: (
        "Broker: Indicates that the either the sender or recipient of a voter-only request is "
        "not one of the expected voters"
    ),
    95: "Broker: Invalid update version",
    96: "Broker: Unable to update finalized features due to server error",
    97: "Broker: Request principal deserialization failed during forwarding",
    100: "Broker: Unknown topic id",
    103: "Broker: The log's topic ID did not match the topic ID in the request",
    110: "Broker: The member epoch is fenced by the group coordinator",
    111: "Broker: The instance ID is still used by another member in the consumer group",
    112: "Broker: The assignor or its version range is not supported by the consumer group",
    113: "Broker: The member epoch is stale",
    114: "Broker: The request was sent to an endpoint of the wrong type",
    115: "Broker: This endpoint type is not supported yet",
    116: "Broker: This controller ID is not known",
    117: "Broker: Client sent a push telemetry request with an invalid or outdated subscription ID",
    118: "Broker: Client sent a push telemetry request larger than the maximum size the broker will accept",
    119: "Broker: The controller has considered the broker registration to be invalid",
    120: "Broker: The server encountered an error with the transaction",
    121: "Broker: The record state is invalid",
    122: "Broker: The share session was not found",
    123: "Broker: The share session epoch is invalid",
    124: "Broker: The share-group state epoch did not match",
    125: "Broker: The voter key doesn't match the receiving replica's key",
    126: "Broker: The voter is already part of the set of voters",
    127: "Broker: The voter is not part of the set of voters",
    128: "Broker: The regular expression is not valid",
    129: "Broker: Client metadata is stale, client should rebootstrap to obtain new metadata",
    130: "Broker: The supplied topology is invalid",
    131: "Broker: The supplied topology epoch is invalid",
    132: "Broker: The supplied topology epoch is outdated",
    133: "Broker: The limit of share sessions has been reached",
}
