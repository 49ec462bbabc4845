"""Owns the sink's transactional id, and knows the commit note that its last transaction left in Kafka.

Whenever it is unclear how a transaction ended, the owner takes a new epoch, which ends any open transaction, and reads
the note again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, repeat

from fencepost.client.admin.offsets import OffsetToCommit, all_committed_offsets
from fencepost.client.client import TRANSACTION, KafkaClient
from fencepost.client.failures import BrokerError, ClientError, Fenced, OutcomeUnknown, TransactionLost
from fencepost.client.transaction import ProducerIdentity, Transaction
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeTransactionsRequest
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.checkpoint.offsets import MicroBatchOffsets
from fencepost.spark.driver.commit_note import (
    CommitNote,
    TokenNote,
    UnreadableNote,
    decode_note,
    decode_token_note,
    encode_note,
    newest,
    note_group,
    token_group,
    with_ends,
    without_ends,
)
from fencepost.spark.driver.note_offsets import NOTE_PARTITION, note_offsets
from fencepost.spark.failures import BatchBroken, SinkError
from fencepost.spark.settings import SOURCE_PREFIX

log = logging.getLogger("fencepost.spark")

# The ends of a micro-batch may be many. So they are in the notes on a few topics, in case one of those is deleted.
COPIES_WITH_ENDS = 3


def glance_at_note(client: KafkaClient, transactional_id: str) -> CommitNote | UnreadableNote | None:
    """The commit note as it is while another owner may still commit. Good enough to refuse, never to skip or run."""
    committed = all_committed_offsets(client, note_group(transactional_id), require_stable=False)
    return newest(decode_note(metadata) for _, metadata in committed.values())


class TransactionOwner:
    """Creating one takes the transactional id over from its previous owner."""

    def __init__(
        self, client: KafkaClient, transactional_id: str, timeout_ms: int, *, is_verified: bool = False
    ) -> None:
        self._client = client
        self._transaction = Transaction(client, transactional_id, timeout_ms, is_verified=is_verified)
        self._is_settled = False  # True: it is known how the last transaction ended.
        self._last_number = 0
        self.was_registered_anew = False  # True: the id may have had another owner since this one started.
        self.note: CommitNote | UnreadableNote | None = None
        # The only InitProducerId without an expected producer: it fences any previous owner.
        self._transaction.init()
        self._read_notes()

    @property
    def identity(self) -> ProducerIdentity:
        return self._transaction.identity

    @property
    def is_settled(self) -> bool:
        """Is it known how the last transaction ended, and is none open?"""
        return self._is_settled and not self._transaction.is_open

    @property
    def transaction_version(self) -> int:
        return self._transaction.version

    @property
    def add_partitions(self) -> Callable[[Iterable[TopicPartition]], None]:
        return self._transaction.add_partitions

    def current(self) -> str | None:
        """The producer that has the transactional id now, if the cluster says so."""
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

    # --- the commit note ------------------------------------------------------------------------------------

    @property
    def _note_group(self) -> str:
        return note_group(self._transaction.transactional_id)

    def _read_notes(self) -> list[CommitNote | UnreadableNote]:
        """Always after InitProducerId: until then an older owner may still commit."""
        self._is_settled = False
        committed = all_committed_offsets(self._client, self._note_group)
        found = [decode_note(metadata) for _, metadata in committed.values()]
        self.note = newest(found)
        self._last_number = max((note.number for note in found if isinstance(note, CommitNote)), default=0)
        self._is_settled = True
        return found

    def read_token_notes(self, token: str) -> list[TokenNote | UnreadableNote]:
        """The notes of a frame that was written with this token: one, with a copy on each topic."""
        group = token_group(self._transaction.transactional_id, token)
        return [decode_token_note(metadata) for _, metadata in all_committed_offsets(self._client, group).values()]

    def next_note(self, query_id: str, batch_id: int, offsets: MicroBatchOffsets) -> CommitNote:
        note = CommitNote(query_id, batch_id, offsets.digest, self._last_number + 1, offsets.timestamp_ms)
        return with_ends(note, offsets.ends)

    def settle(self) -> None:
        """If it is unclear whether and how the last transaction ended: take a new epoch, and read the note.

        A second Ctrl-C may keep the driver from aborting a transaction.
        """
        if not self.is_settled:
            self._renew()

    def _renew(self) -> list[CommitNote | UnreadableNote]:
        self._is_settled = False
        before = self._transaction.identity
        identity = self._transaction.renew()  # Raises Fenced if the id has another owner now.
        self._note_new_registration(before, identity)
        return self._read_notes()

    # --- one transaction ------------------------------------------------------------------------------------

    def begin(self) -> ProducerIdentity:
        """The identity for the next transaction. May change `note`: decide by the note that is there afterwards."""
        before = self._transaction.identity
        identity = self._transaction.begin()
        if self._note_new_registration(before, identity):
            self._read_notes()
        return identity

    def _note_new_registration(self, before: ProducerIdentity, now: ProducerIdentity) -> bool:
        """Another producer id: the epochs ran out, or the cluster had forgotten the id, which may have had an owner."""
        is_new = now.producer_id != before.producer_id
        self.was_registered_anew = self.was_registered_anew or is_new
        return is_new

    def add_offsets(
        self,
        topics: Collection[str],
        note: CommitNote | TokenNote | None,
        group_id: str | None,
        consumed: Mapping[TopicPartition, int],
        written: Collection[TopicPartition] = (),
    ) -> None:
        """Add the commit note to the transaction, and the offsets of a group.

        topics: those with records of the transaction; written: their partitions with records.

        Raises BatchBroken if the transaction is lost.
        """
        offsets = [OffsetToCommit(topic, p, offset) for (topic, p), offset in sorted(consumed.items())]
        try:
            if note is not None and topics:
                places = note_offsets(self._client, sorted(topics), written)
                texts = chain(repeat(encode_note(note), COPIES_WITH_ENDS), repeat(encode_note(without_ends(note))))
                notes = [
                    OffsetToCommit(topic, NOTE_PARTITION, offset, text)
                    for (topic, offset), text in zip(places.items(), texts, strict=False)
                ]
                self._transaction.commit_offsets(self._group_of(note), notes)
            if group_id is not None and offsets:
                self._commit_group(group_id, offsets)
        except (TransactionLost, Fenced) as e:
            # With TV2 a transaction that timed out looks like a fenced one. A new epoch shows which it was.
            self._renew()
            raise BatchBroken(str(e)) from e

    def commit(self, topics: Collection[str], note: CommitNote | TokenNote | None) -> None:
        """Commit the records of these topics, and what `add_offsets` added.

        Raises BatchBroken if nothing was committed, and OutcomeUnknown if there is no note that would tell, or it
        cannot be read now.
        """
        self._is_settled = False  # Also if it is interrupted after the answer, before the note is stored here.
        try:
            self._transaction.commit()
        except OutcomeUnknown as e:
            self._resolve(e, note)
        if isinstance(note, CommitNote) and topics:
            self.note, self._last_number = note, note.number
        self._is_settled = True

    def _group_of(self, note: CommitNote | TokenNote) -> str:
        if isinstance(note, CommitNote):
            return self._note_group
        return token_group(self._transaction.transactional_id, note.token)

    def _commit_group(self, group_id: str, offsets: list[OffsetToCommit]) -> None:
        try:
            self._transaction.commit_offsets(group_id, offsets)
        except BrokerError as e:
            if e.code != errors.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise SinkError(
                f"the source offsets of the micro-batch cannot be committed to group.id {group_id}: {e}\n\nhint: a "
                "topic that the query reads was deleted, or is in another cluster; in that case set "
                f"{SOURCE_PREFIX}bootstrap.servers"
            ) from e

    def _resolve(self, problem: OutcomeUnknown, note: CommitNote | TokenNote | None) -> None:
        """The commit has no clear answer. Take a new epoch, which ends any open transaction, and look for the note."""
        try:
            found: Sequence[object] = self._renew()
        except ClientError as e:
            if isinstance(e, Fenced) and note is not None:
                raise  # The new owner of the id reads the note.
            hint = (
                "look into the output topics before you write these rows again"
                if note is None
                else "start it again: the note of the transaction tells whether it was committed"
            )
            why = str(e).partition("\n\n")[0]
            raise OutcomeUnknown(f"{problem}; and its outcome cannot be looked up: {why}\n\nhint: {hint}") from e
        if note is None:
            raise problem
        if isinstance(note, TokenNote):
            found = self.read_token_notes(note.token)
        if note not in found:
            raise BatchBroken(str(problem))

    def abort(self) -> None:
        """End the transaction without its records, so that readers do not wait for it."""
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
