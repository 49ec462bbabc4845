"""Where reading starts, the sound record batches of an answer, and the transactional ids of their producers."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.transactions import list_transactions
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.diagnose.tail.outcomes import LogBatch
from fencepost.protocol.batch import BatchHeader, Buffer, Corrupt, decode_batch, decode_marker
from fencepost.protocol.records import iter_batches


class StartKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "an offset"
    LAST = "so many offsets before the end"
    TIME = "the first record at or after a time, in milliseconds since 1970"


class Start(NamedTuple):
    kind: StartKind
    number: int = 0


def start_offset(start: Start, where: NamedPartition, first: int, end: int, by_time: int = -1) -> tuple[int, str]:
    """The offset to begin with, within [first, end], and a remark if it is not what was asked for.

    `by_time` is the answer of ListOffsets for a time: -1 if there is no record that late.
    """
    if start.kind is StartKind.EARLIEST:
        return first, ""
    if start.kind is StartKind.LATEST:
        return end, ""
    if start.kind is StartKind.LAST:
        return max(first, end - start.number), ""
    if start.kind is StartKind.TIME:
        return (end if by_time < 0 else min(max(by_time, first), end)), ""
    if start.number < first:
        return first, f"{where} has no offset {start.number} any more: it starts at {first}"
    if start.number > end:
        return end, f"{where} has no offset {start.number} yet: it ends before {end}"
    return start.number, ""


class DamagedBatch(ClientError):
    """A batch that is not what its checksum says: nothing in it can be trusted."""

    def __init__(self, where: NamedPartition, header: BatchHeader, problem: Corrupt) -> None:
        super().__init__(f"{where}: the record batch at offset {header.base_offset} is damaged: {problem}")
        self.where = where
        self.next_offset = header.last_offset + 1


def sound_batches(
    where: NamedPartition, records: Buffer, position: int, end: int | None = None
) -> list[tuple[LogBatch, Buffer]]:
    """The batches of an answer that reach to the position or beyond, and begin before the end.

    Those before a damaged batch are returned. Raises DamagedBatch if there are none.
    """
    found: list[tuple[LogBatch, Buffer]] = []
    for header, batch in iter_batches(records):
        if end is not None and header.base_offset >= end:
            break
        try:
            decode_batch(batch)  # Verifies the checksum.
        except Corrupt as e:
            if found:
                break
            raise DamagedBatch(where, header, e) from None
        if header.last_offset >= position:
            found.append((LogBatch(header, decode_marker(batch)), batch))
    return found


# A producer id without a transactional id may get one: its coordinator was loading, or did not answer.
ASK_AGAIN_S = 10.0


class TransactionalIds:
    """Asks about each producer id once; about those without a transactional id again after a while."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._names: dict[int, str] = {}
        self._asked: dict[int, float] = {}
        self.problems: tuple[str, ...] = ()

    def learn(self, producer_ids: Collection[int]) -> None:
        now = time.monotonic()
        wanted = {
            id_
            for id_ in producer_ids
            if id_ >= 0 and id_ not in self._names and now - self._asked.get(id_, -ASK_AGAIN_S) >= ASK_AGAIN_S
        }
        if not wanted:
            return
        self._asked.update(dict.fromkeys(wanted, now))
        try:
            answers = list_transactions(self._client, producer_ids=wanted)
        except ClientError as e:
            self.problems = (f"transactional ids are unknown: {e}",)
            return
        self.problems = tuple(answers.problems)
        self._names.update((txn.producer_id, txn.transactional_id) for txn in answers.found.values())

    @property
    def known(self) -> Mapping[int, str]:
        """The transactional ids that were learned, by producer id."""
        return self._names

    def of(self, producer_id: int) -> str | None:
        return self._names.get(producer_id)
