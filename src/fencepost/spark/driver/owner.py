"""Owns the sink's transactional id, and knows the marker that its last transaction left in Kafka.

The marker is offset metadata in a group of the sink's own, on partition 0 of every topic that the transaction wrote to:
it is there if and only if the records are. Whenever it is unclear how a transaction ended, the owner takes a new epoch,
which ends whatever is open, and reads the marker again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from fencepost.client.client import TRANSACTION, KafkaClient
from fencepost.client.failures import Broken as TransactionLost
from fencepost.client.failures import BrokerError, ClientError, Fenced, OutcomeUnknown
from fencepost.client.transaction import OffsetToCommit, ProducerIdentity, Transaction
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeTransactionsRequest
from fencepost.spark.driver import decision as decide
from fencepost.spark.failures import BatchBroken, SinkError
from fencepost.spark.settings import SOURCE_PREFIX

log = logging.getLogger("fencepost.spark")

MARKER_GROUP = "fencepost-marker-"


class Owner:
    """Making one takes the transactional id over, from whoever had it."""

    def __init__(self, client: KafkaClient, transactional_id: str, timeout_ms: int) -> None:
        self._client = client
        self._transaction = Transaction(client, transactional_id, timeout_ms)
        self._is_settled = False  # How the last transaction ended is known, and nothing of it is open.
        self._last_number = 0
        self.marker: decide.Marker | decide.Unreadable | None = None
        # The one time that nobody is expected: whoever had the id is fenced now.
        self._transaction.init()
        self._look()

    @property
    def identity(self) -> ProducerIdentity:
        return self._transaction.identity

    @property
    def transaction_version(self) -> int:
        return self._transaction.version

    @property
    def add_partitions(self) -> Callable[[Iterable[tuple[str, int]]], None]:
        return self._transaction.add_partitions

    def current(self) -> str | None:
        """Who has the transactional id, if the cluster tells."""
        id_ = self._transaction.transactional_id
        try:
            response = self._client.ask_coordinator(
                id_,
                TRANSACTION,
                DescribeTransactionsRequest([id_]),
                lambda r: int(r.transaction_states[0].error_code),
                deadline_s=5.0,
            )
        except ClientError:
            return None
        found = response.transaction_states[0]
        return None if found.error_code else f"producer {found.producer_id}, epoch {found.producer_epoch}"

    # --- the marker -----------------------------------------------------------------------------------------

    @property
    def _marker_group(self) -> str:
        return MARKER_GROUP + self._transaction.transactional_id

    def _look(self) -> list[decide.Marker | decide.Unreadable]:
        """After every init, never before it: an older owner may commit until it is fenced."""
        self._is_settled = False
        committed = self._client.all_committed(self._marker_group)
        found = [decide.decode_marker(metadata) for _, metadata in committed.values()]
        self.marker = decide.newest(found)
        self._last_number = max((m.number for m in found if isinstance(m, decide.Marker)), default=0)
        self._is_settled = True
        return found

    def next_marker(self, query_id: str, batch_id: int, digest: str) -> decide.Marker:
        return decide.Marker(query_id, batch_id, digest, self._last_number + 1)

    def settle(self) -> None:
        """If the last batch ended in the dark: be the owner again, end what is open, and see what was committed."""
        if not self._is_settled:
            self._renew()

    def _renew(self) -> list[decide.Marker | decide.Unreadable]:
        self._is_settled = False
        self._transaction.renew()  # Raises Fenced if somebody else owns the id now.
        return self._look()

    # --- one transaction ------------------------------------------------------------------------------------

    def begin(self) -> ProducerIdentity:
        """The identity for the next transaction. The marker may be another one afterwards: decide by that."""
        before = self._transaction.identity
        identity = self._transaction.begin()
        if identity.producer_id != before.producer_id:
            # Its epochs ran out, or the cluster had forgotten the id, and then somebody else may have had it since.
            self._look()
        return identity

    def commit(
        self,
        topics: Iterable[str],
        marker: decide.Marker | None,
        group_id: str | None,
        consumed: Mapping[tuple[str, int], int],
    ) -> None:
        """Commit what was written to these topics, with its marker, and the offsets of a group.

        Raises BatchBroken if nothing was committed, and OutcomeUnknown only where there is no marker to ask.
        """
        topics = sorted(topics)
        offsets = [OffsetToCommit(topic, p, offset) for (topic, p), offset in sorted(consumed.items())]
        try:
            if marker is not None and topics:
                text = decide.encode_marker(marker)
                at_zero = [OffsetToCommit(topic, 0, marker.batch_id, text) for topic in topics]
                self._transaction.commit_offsets(self._marker_group, at_zero)
            if group_id is not None and offsets:
                self._commit_group(group_id, offsets)
        except (TransactionLost, Fenced) as e:
            # With version 2 a transaction that timed out looks like one that was fenced, until we ask for an epoch.
            self._renew()
            raise BatchBroken(str(e)) from e
        try:
            self._transaction.commit()
        except OutcomeUnknown as e:
            self._resolve(e, marker)
        if marker is not None and topics:
            self.marker, self._last_number = marker, marker.number

    def _commit_group(self, group_id: str, offsets: list[OffsetToCommit]) -> None:
        try:
            self._transaction.commit_offsets(group_id, offsets)
        except BrokerError as e:
            if e.code != errors.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise SinkError(
                f"the offsets of the batch's sources cannot be committed to group.id {group_id}: {e}\n\nhint: a topic "
                f"that the query reads was deleted, or is in another cluster: set {SOURCE_PREFIX}bootstrap.servers then"
            ) from e

    def _resolve(self, problem: OutcomeUnknown, marker: decide.Marker | None) -> None:
        """The commit has no clear answer. Take a new epoch, which ends what is open, and look at the marker."""
        found = self._renew()
        if marker is None:
            raise problem
        if marker not in found:
            raise BatchBroken(str(problem))

    def abort(self) -> None:
        """Whatever went wrong: nothing of the batch is to be seen, and readers are not to wait for it."""
        is_unclear = not self._is_settled
        self._is_settled = False
        try:
            self._transaction.abort()
        except OutcomeUnknown as e:
            log.warning("%s; taking a new epoch", e)
            is_unclear = True
        if is_unclear:
            self._renew()
        self._is_settled = True
