"""Which clicks cause which error: one recipe for every error that a request of a transaction can be answered with.

Most errors have a real cause here. A recipe that ends with the button `inject` is for an error that this broker does
not give by itself, or only at a moment that cannot be hit: the broker then refuses one request with the error.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.diagnose.errors.entry import ErrorEntry
from fencepost.diagnose.errors.kafka_codes import KAFKA_CODES
from fencepost.protocol import errors
from fencepost.web.learn.playground.buttons import TRANSACTION_APIS, B, Click, says


class Recipe(NamedTuple):
    code: int
    clicks: tuple[Click, ...]  # After `reset`. The last request is answered with the error.
    note: str = ""

    @property
    def name(self) -> str:
        return errors.name_of(self.code)

    @property
    def is_injected(self) -> bool:
        return any(click.button == "inject" for click in self.clicks)

    def document(self) -> dict[str, object]:
        return {
            "code": self.code,
            "name": self.name,
            "is_injected": self.is_injected,
            "note": self.note,
            "clicks": [{**click._asdict(), "says": says(click)} for click in self.clicks],
        }


def can_meet(entry: ErrorEntry) -> bool:
    """Whether a request of a transaction can be answered with this error."""
    return entry.code != errors.NONE and bool(set(entry.apis) & set(TRANSACTION_APIS))


REGISTER, BEGIN, PRODUCE, OFFSETS, COMMIT, JOIN = (
    Click(name) for name in ("register", "begin", "produce", "add-offsets", "commit", "join")
)
REGISTER_B = Click("register", producer=B)
OLDER = Click("client", "older")
CUT = Click("cut")
BEGUN = (REGISTER, BEGIN)
OPEN = (*BEGUN, PRODUCE)
_LAST = {
    "InitProducerId": (REGISTER,),
    "Produce": OPEN,
    "TxnOffsetCommit": (*BEGUN, OFFSETS),
    "EndTxn": (*OPEN, COMMIT),
}


def _produce(mistake: str) -> tuple[Click, ...]:
    return (*BEGUN, Click("produce", mistake))


def _offsets(mistake: str) -> tuple[Click, ...]:
    return (*BEGUN, Click("add-offsets", mistake))


def _injected(api: str, code: int) -> tuple[Click, ...]:
    *before, last = _LAST[api]
    return (*before, Click("inject", f"{api} {errors.name_of(code)}"), last)


RECIPES = {
    recipe.code: recipe
    for recipe in (
        Recipe(errors.UNKNOWN_SERVER_ERROR, _injected("EndTxn", errors.UNKNOWN_SERVER_ERROR)),
        Recipe(errors.CORRUPT_MESSAGE, _produce("damaged")),
        Recipe(errors.UNKNOWN_TOPIC_OR_PARTITION, _produce("unknown-partition")),
        Recipe(errors.LEADER_NOT_AVAILABLE, _injected("Produce", errors.LEADER_NOT_AVAILABLE)),
        Recipe(
            errors.NOT_LEADER_OR_FOLLOWER,
            (*OPEN, Click("move-leader"), PRODUCE),
            "Produce again: the producer has asked for the new leader.",
        ),
        Recipe(errors.REQUEST_TIMED_OUT, _injected("EndTxn", errors.REQUEST_TIMED_OUT)),
        Recipe(errors.MESSAGE_TOO_LARGE, _produce("too-large")),
        Recipe(errors.OFFSET_METADATA_TOO_LARGE, _offsets("long-metadata")),
        Recipe(
            errors.NETWORK_EXCEPTION,
            (*OPEN, Click("lose-answer", "EndTxn"), COMMIT),
            "The transaction is committed, and the producer does not know it. Commit again: with an epoch for each "
            "transaction, the coordinator recognizes the retry.",
        ),
        Recipe(errors.COORDINATOR_LOAD_IN_PROGRESS, _injected("InitProducerId", errors.COORDINATOR_LOAD_IN_PROGRESS)),
        Recipe(errors.COORDINATOR_NOT_AVAILABLE, _injected("EndTxn", errors.COORDINATOR_NOT_AVAILABLE)),
        Recipe(
            errors.NOT_COORDINATOR,
            (*OPEN, Click("move-coordinator"), COMMIT),
            "Commit again: the producer has asked for the new coordinator.",
        ),
        Recipe(errors.INVALID_TOPIC_EXCEPTION, _produce("internal-topic")),
        Recipe(errors.RECORD_LIST_TOO_LARGE, _injected("Produce", errors.RECORD_LIST_TOO_LARGE)),
        Recipe(
            errors.NOT_ENOUGH_REPLICAS,
            (OLDER, *OPEN, COMMIT, BEGIN, Click("add-partitions"), CUT, PRODUCE),
            "The leader cannot ask the coordinator, on the other node, whether the partition is in the transaction.",
        ),
        Recipe(errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _injected("Produce", errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND)),
        Recipe(errors.INVALID_REQUIRED_ACKS, _produce("wrong-acks")),
        Recipe(errors.ILLEGAL_GENERATION, (JOIN, *_offsets("old-generation"))),
        Recipe(errors.INVALID_GROUP_ID, _offsets("no-group")),
        Recipe(errors.UNKNOWN_MEMBER_ID, (JOIN, *_offsets("unknown-member"))),
        Recipe(errors.TOPIC_AUTHORIZATION_FAILED, (*BEGUN, Click("forbid", "topic"), PRODUCE)),
        Recipe(errors.GROUP_AUTHORIZATION_FAILED, (*BEGUN, Click("forbid", "group"), OFFSETS)),
        Recipe(
            errors.CLUSTER_AUTHORIZATION_FAILED,
            (Click("forbid", "cluster"), Click("register", "no-id")),
            "Only a producer without a transactional id meets it.",
        ),
        Recipe(errors.INVALID_TIMESTAMP, _produce("year-2100")),
        Recipe(errors.UNSUPPORTED_VERSION, _injected("InitProducerId", errors.UNSUPPORTED_VERSION)),
        Recipe(errors.INVALID_REQUEST, (Click("register", "empty-id"),)),
        Recipe(errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, _injected("Produce", errors.UNSUPPORTED_FOR_MESSAGE_FORMAT)),
        Recipe(errors.OUT_OF_ORDER_SEQUENCE_NUMBER, (*OPEN, Click("produce", "skip-sequence"))),
        Recipe(errors.DUPLICATE_SEQUENCE_NUMBER, _injected("Produce", errors.DUPLICATE_SEQUENCE_NUMBER)),
        Recipe(
            errors.INVALID_PRODUCER_EPOCH,
            (*OPEN, REGISTER_B, PRODUCE),
            "B took the transactional id over, so the epoch of A is old.",
        ),
        Recipe(errors.INVALID_TXN_STATE, (REGISTER, COMMIT), "There is no transaction to commit."),
        Recipe(
            errors.INVALID_PRODUCER_ID_MAPPING,
            (*OPEN, COMMIT, Click("clock", "expiration"), BEGIN, PRODUCE),
            "The id was not used for 7 days, so the coordinator has forgotten it.",
        ),
        Recipe(errors.INVALID_TRANSACTION_TIMEOUT, (Click("register", "timeout-too-long"),)),
        Recipe(
            errors.CONCURRENT_TRANSACTIONS,
            (*OPEN, CUT, COMMIT, COMMIT),
            "The commit is decided, but its marker cannot reach the other node. Mend the network to complete it.",
        ),
        Recipe(errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, (Click("forbid", "transactional-id"), REGISTER)),
        Recipe(
            errors.OPERATION_NOT_ATTEMPTED,
            (OLDER, *BEGUN, Click("add-partitions", "one-unknown")),
            "The answer has an error for each partition: the cause is that of the other one.",
        ),
        Recipe(errors.KAFKA_STORAGE_ERROR, _injected("Produce", errors.KAFKA_STORAGE_ERROR)),
        Recipe(errors.UNKNOWN_PRODUCER_ID, _injected("Produce", errors.UNKNOWN_PRODUCER_ID)),
        Recipe(errors.GROUP_ID_NOT_FOUND, _injected("TxnOffsetCommit", errors.GROUP_ID_NOT_FOUND)),
        Recipe(errors.UNSUPPORTED_COMPRESSION_TYPE, _produce("unknown-codec")),
        Recipe(errors.FENCED_INSTANCE_ID, (JOIN, *_offsets("taken-instance"))),
        Recipe(errors.INVALID_RECORD, _produce("control-batch")),
        Recipe(
            errors.PRODUCER_FENCED,
            (*OPEN, REGISTER_B, COMMIT),
            "A is a zombie: B has registered the same transactional id.",
        ),
        Recipe(errors.UNKNOWN_TOPIC_ID, _produce("unknown-topic-id")),
        Recipe(errors.FENCED_MEMBER_EPOCH, _injected("TxnOffsetCommit", errors.FENCED_MEMBER_EPOCH)),
        Recipe(errors.STALE_MEMBER_EPOCH, _injected("TxnOffsetCommit", errors.STALE_MEMBER_EPOCH)),
        Recipe(
            errors.TRANSACTION_ABORTABLE,
            (OLDER, *BEGUN, Click("produce", "not-added")),
            "The partition is not part of the transaction, so no marker would end it there.",
        ),
    )
}
WANTED = {entry.code for entry in KAFKA_CODES if can_meet(entry)}
