"""The errors that librdkafka raises by itself, without an answer from a broker."""

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
