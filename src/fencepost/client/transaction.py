"""Owns a transactional id: begins transactions, adds partitions and offsets, commits or aborts. Blocking.

Any process that knows the current `ProducerIdentity` can write the records. Two rules keep zombies out. InitProducerId
without an expected identity is sent once, when the owner starts. Every later one names the identity that it replaces,
so that it fails if another owner has fenced this one.

With TV2, EndTxn returns a new epoch for the next transaction; the owner asks for one only after a rest. With TV1, it
asks for one before each transaction. The two are never mixed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from fencepost.client.admin.configs import broker_setting, setting_of_every_broker
from fencepost.client.admin.offsets import OffsetToCommit, split_offsets
from fencepost.client.client import DEFAULT_DEADLINE_S, GROUP, TRANSACTION, KafkaClient, retry
from fencepost.client.failures import (
    BadClientSetting,
    BrokerError,
    ClientError,
    DeadlinePassed,
    Fenced,
    OutcomeUnknown,
    TransactionLost,
)
from fencepost.protocol import errors
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV1, TV2, TransactionVersion

ADD_PARTITIONS = 24
VERIFICATION = "transaction.partition.verification.enable"
FENCED = frozenset({errors.PRODUCER_FENCED, errors.INVALID_PRODUCER_EPOCH, errors.INVALID_PRODUCER_ID_MAPPING})
BUSY = frozenset({errors.CONCURRENT_TRANSACTIONS})
# Brokers forget an id that has rested for transactional.id.expiration.ms, seven days by default. A new epoch is cheaper
# than the question which brokers have less than that.
REST_S = 60.0


class ProducerIdentity(NamedTuple):
    """The fields that every request of a transaction has, and that a task needs to write into it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Transaction:
    """The owner of a transactional id. Call `begin`, then `commit` or `abort`, repeatedly and from one thread.

    is_verified: the user knows that every broker verifies writes (KIP-890), so brokers that do not say are believed to.
    at_most: TV1 also on a cluster that has TV2.
    """

    def __init__(
        self,
        client: KafkaClient,
        transactional_id: str,
        timeout_ms: int,
        *,
        is_verified: bool = False,
        at_most: TransactionVersion = TV2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._clock = clock
        self._used_at = clock()  # When the coordinator last began or ended something for this owner.
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.version = TV2 if min(client.transaction_version, at_most).bumps_epoch else TV1
        if self.version is TV1:
            self._check_verification(is_verified)
        self._identity = ProducerIdentity(transactional_id, -1, -1)
        self._is_open = False

    def _check_verification(self, is_verified: bool) -> None:
        """Ask every broker: each of them leads partitions, and some may be older or set up in another way."""
        enabled = retry(lambda: setting_of_every_broker(self._client, VERIFICATION), DEFAULT_DEADLINE_S)
        served = {id_: self._client.broker(id_).session.max_version(ADD_PARTITIONS) for id_ in enabled}
        if problem := find_unverified(served, enabled, is_verified):
            raise BadClientSetting(problem)

    @property
    def identity(self) -> ProducerIdentity:
        return self._identity

    @property
    def is_open(self) -> bool:
        """Whether something was added, so that the transaction has to be ended."""
        return self._is_open

    # --- identity -----------------------------------------------------------------------------------------

    def init(self) -> ProducerIdentity:
        """Take the transactional id over from its previous owner and abort its open transaction. Once per start."""
        return self._init(-1, -1)

    def renew(self) -> ProducerIdentity:
        """Get a new epoch and abort the open transaction. Raises Fenced if another owner has taken the id over."""
        if self._is_open and self.version is TV1:
            # Kafka: InitProducerId during an open transaction first fences the producer and answers
            # CONCURRENT_TRANSACTIONS. With TV1 the retry is then refused as a zombie's. EndTxn before it avoids this,
            # whatever its answer is, and even if the answer is lost.
            with suppress(OutcomeUnknown):
                self._ask_to_end(False, DEFAULT_DEADLINE_S)
        return self._init(self._identity.producer_id, self._identity.producer_epoch)

    def _init(self, producer_id: int, epoch: int) -> ProducerIdentity:
        request = InitProducerIdRequest(self.transactional_id, self.timeout_ms, producer_id, epoch)
        response = self._client.ask_coordinator(
            self.transactional_id, TRANSACTION, request, lambda r: int(r.error_code), at_most=5, retry_also=BUSY
        )
        if response.error_code == errors.INVALID_TRANSACTION_TIMEOUT:
            raise BadClientSetting(
                f"transaction.timeout.ms={self.timeout_ms} is more than the broker's transaction.max.timeout.ms="
                f"{self._longest_timeout()} allows\n\nhint: lower the first, or raise the second on all brokers"
            )
        self._check(response.error_code, "InitProducerId")
        self._identity = ProducerIdentity(self.transactional_id, response.producer_id, response.producer_epoch)
        self._is_open = False
        self._used_at = self._clock()
        return self._identity

    def _longest_timeout(self) -> str:
        try:
            shown = broker_setting(self._client, min(self._client.brokers()), "transaction.max.timeout.ms")
            return shown or "(unknown)"
        except ClientError:
            return "(unknown)"

    def _check(self, code: int, what: str, *, breaks: frozenset[int] = frozenset()) -> None:
        if code == errors.NONE:
            return
        id_, producer_id, epoch = self._identity
        if code in FENCED:
            raise Fenced(
                code,
                f"transaction `{id_}` is fenced in {what}: this producer has id {producer_id} and epoch {epoch}",
                "another producer registered the same transactional.id, or the id has expired"
                + (
                    ""
                    if self.version is TV2
                    else f", or its transaction outlived transaction.timeout.ms={self.timeout_ms}: with "
                    "transaction.version 1 the broker's answer is the same"
                ),
            )
        if code in breaks:
            raise TransactionLost(code, f"{what} of `{id_}` (producer {producer_id}, epoch {epoch})")
        raise BrokerError(code, f"{what} of `{id_}` (producer {producer_id}, epoch {epoch})")

    # --- one transaction ----------------------------------------------------------------------------------

    def begin(self) -> ProducerIdentity:
        """The identity for the next transaction. May have another producer id, if the cluster has forgotten this one.

        Raises Fenced if another owner has taken the id over.
        """
        assert not self._is_open, f"transaction `{self.transactional_id}` is still open"
        assert self._identity.producer_id >= 0, "init comes first"
        if needs_new_epoch(self.version, self._clock() - self._used_at):
            self.renew()
        return self._identity

    def add_partitions(self, partitions: Iterable[TopicPartition], deadline_s: float = DEFAULT_DEADLINE_S) -> None:
        """Call this before the first write to a partition. With TV2 it sends nothing: the write adds the partition."""
        self._is_open = True
        if self.version is TV2:
            return
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(t, p) for t, p in by_topic.items()]
        response = self._client.ask_coordinator(
            self.transactional_id,
            TRANSACTION,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self._identity.producer_id,
                v3_and_below_producer_epoch=self._identity.producer_epoch,
                v3_and_below_topics=topics,
            ),
            lambda r: _first_error(
                p.partition_error_code for t in r.results_by_topic_v3_and_below for p in t.results_by_partition
            ),
            at_most=3,
            retry_also=BUSY,
            deadline_s=deadline_s,
        )
        for topic in response.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                if result.partition_error_code != errors.OPERATION_NOT_ATTEMPTED:
                    self._check(
                        result.partition_error_code, f"AddPartitionsToTxn {topic.name}-{result.partition_index}"
                    )

    def commit_offsets(self, group_id: str, offsets: Iterable[OffsetToCommit]) -> None:
        """Commit offsets of a group as part of the transaction; the group must have no members."""
        self._is_open = True
        if self.version is TV1:
            response = self._client.ask_coordinator(
                self.transactional_id,
                TRANSACTION,
                AddOffsetsToTxnRequest(*self._identity, group_id),
                lambda r: int(r.error_code),
                at_most=3,
                retry_also=BUSY,
            )
            self._check(response.error_code, "AddOffsetsToTxn")
        for by_topic in split_offsets(group_id, offsets):
            self._commit_offsets(group_id, by_topic)

    def _commit_offsets(self, group_id: str, by_topic: Mapping[str, Iterable[OffsetToCommit]]) -> None:
        topic, entry = (
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic,
            TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
        )
        response = self._client.ask_coordinator(
            group_id,
            GROUP,
            TxnOffsetCommitRequest(
                self.transactional_id,
                group_id,
                self._identity.producer_id,
                self._identity.producer_epoch,
                topics=[
                    topic(name, [entry(o.partition, o.offset, -1, o.metadata) for o in of_topic])
                    for name, of_topic in by_topic.items()
                ],
            ),
            lambda r: _first_error(p.error_code for t in r.topics for p in t.partitions),
            at_most=5 if self.version is TV2 else 4,
            retry_also=BUSY,
        )
        breaks = frozenset({errors.INVALID_TXN_STATE, errors.TRANSACTION_ABORTABLE})
        for answer in response.topics:
            for result in answer.partitions:
                self._check(result.error_code, f"TxnOffsetCommit {answer.name}-{result.partition_index}", breaks=breaks)

    def commit(self, deadline_s: float = DEFAULT_DEADLINE_S) -> None:
        """Commit. Raises OutcomeUnknown if the cluster may have committed or not: then `renew`, and read what is there.

        Apache Kafka answers before it writes the markers, so readers see the records a moment after this returns.
        """
        self._end(True, deadline_s)

    def abort(self, deadline_s: float = DEFAULT_DEADLINE_S) -> None:
        """Abort. Does nothing if nothing was added."""
        if self._is_open:
            self._end(False, deadline_s)

    def _end(self, commit: bool, deadline_s: float) -> None:
        what = "commit" if commit else "abort"
        response = self._ask_to_end(commit, deadline_s)
        code = response.error_code
        if code in FENCED or code in (errors.INVALID_TXN_STATE, errors.UNKNOWN_SERVER_ERROR):
            id_, producer_id, epoch = self._identity
            raise OutcomeUnknown(
                f"the {what} of `{id_}` (producer {producer_id}, epoch {epoch}) was refused with "
                f"{errors.name_of(code)} ({code}): it timed out, or another producer took over"
            )
        self._check(code, f"EndTxn ({what})")
        self._is_open = False
        self._used_at = self._clock()
        if self.version is TV2:
            self._identity = ProducerIdentity(self.transactional_id, response.producer_id, response.producer_epoch)

    def _ask_to_end(self, commit: bool, deadline_s: float) -> EndTxnResponse:
        """Raises OutcomeUnknown if an answer was lost, and what comes after it does not tell either."""
        unanswered = f"the {'commit' if commit else 'abort'} of `{self.transactional_id}` was not answered"
        is_in_doubt = False

        def doubt() -> None:
            nonlocal is_in_doubt
            is_in_doubt = True

        try:
            response: EndTxnResponse = self._client.ask_coordinator(
                self.transactional_id,
                TRANSACTION,
                EndTxnRequest(*self._identity, commit),
                lambda r: int(r.error_code),
                at_most=5 if self.version is TV2 else 4,
                retry_also=BUSY,
                deadline_s=deadline_s,
                on_lost=doubt,
            )
        except DeadlinePassed as e:
            raise OutcomeUnknown(f"{unanswered}: {e}") from e
        except ClientError as e:
            if is_in_doubt:
                raise OutcomeUnknown(f"{unanswered} at first, and then failed: {e}") from e
            raise
        if is_in_doubt and response.error_code:
            code = response.error_code
            raise OutcomeUnknown(f"{unanswered} at first, and then refused with {errors.name_of(code)} ({code})")
        return response


def needs_new_epoch(version: TransactionVersion, rested_s: float) -> bool:
    """Before a transaction: does the owner have to ask for an epoch, or will the cluster still know the one it has?

    The first write under an id that the cluster has forgotten is refused, which a query with state would not survive.
    """
    return version is TV1 or rested_s >= REST_S


def find_unverified(served: Mapping[int, int], enabled: Mapping[int, str | None], is_verified: bool) -> str | None:
    """The broker on which a late write of an old transaction could become part of the next one. None: there is none.

    served: the highest version of AddPartitionsToTxn of each broker; enabled: its setting, None if it does not show it.
    """
    late = "a write that arrives late could become part of the next transaction"
    for broker_id, version in served.items():
        if version < 4:
            return (
                f"broker {broker_id} serves AddPartitionsToTxn up to v{version}: it cannot verify that a write belongs "
                f"to an open transaction (KIP-890), so {late}\n\nhint: Apache Kafka 3.6 or later can"
            )
    for broker_id, value in enabled.items():
        hint = f"\n\nhint: set {VERIFICATION}=true on every broker, or upgrade the feature transaction.version to 2"
        if value is not None and value != "true":
            return (
                f"broker {broker_id} has {VERIFICATION}={value}, and the cluster does not have transaction.version 2: "
                f"{late}{hint}"
            )
        if value is None and not is_verified:
            return (
                f"broker {broker_id} does not show {VERIFICATION}, and the cluster does not have transaction.version "
                f"2: without the setting, {late}{hint}; or allow this user to DescribeConfigs on the cluster, or set "
                f"fencepost.{VERIFICATION}=true if every broker has it"
            )
    return None


def _first_error(codes: Iterable[int]) -> int:
    return next((code for code in codes if code), errors.NONE)
