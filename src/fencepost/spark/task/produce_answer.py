"""The meaning of a broker's answer to a Produce request for the task, the transaction and the query. Pure."""

from __future__ import annotations

from enum import Enum

from fencepost.protocol import errors


class ProduceVerdict(Enum):
    WRITTEN = "written"
    AGAIN = "send the same bytes again"
    TOO_LARGE = "the record batch is too large"
    BROKEN = "the transaction is over"
    FATAL = "every attempt would fail"


_AGAIN = frozenset(
    {
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.NOT_LEADER_OR_FOLLOWER,
        errors.LEADER_NOT_AVAILABLE,
        errors.REQUEST_TIMED_OUT,
        errors.NETWORK_EXCEPTION,
        errors.NOT_ENOUGH_REPLICAS,
        errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        errors.CONCURRENT_TRANSACTIONS,
        errors.KAFKA_STORAGE_ERROR,
        errors.FENCED_LEADER_EPOCH,
        errors.UNKNOWN_LEADER_EPOCH,
    }
)
_FATAL = frozenset(
    {
        errors.TOPIC_AUTHORIZATION_FAILED,
        errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        errors.CLUSTER_AUTHORIZATION_FAILED,
        errors.INVALID_RECORD,
        errors.CORRUPT_MESSAGE,
        errors.UNSUPPORTED_COMPRESSION_TYPE,
        errors.INVALID_TIMESTAMP,
        errors.INVALID_TOPIC_EXCEPTION,
    }
)


def judge(code: int) -> ProduceVerdict:
    """The verdict on an error code. An unknown code breaks the transaction: the write may or may not have happened."""
    if code == errors.NONE:
        return ProduceVerdict.WRITTEN
    if code in _AGAIN:
        return ProduceVerdict.AGAIN
    if code in (errors.MESSAGE_TOO_LARGE, errors.RECORD_LIST_TOO_LARGE):
        return ProduceVerdict.TOO_LARGE
    return ProduceVerdict.FATAL if code in _FATAL else ProduceVerdict.BROKEN
