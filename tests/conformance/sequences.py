"""What a producer may send to a partition, in which order: sequences, duplicates, gaps and epochs.

A story is a word, and each letter a batch that is chosen by what was accepted before; see `Sender.batch`. `|` ends the
transaction of all stories. Each story has a partition of its own; all have the same producer.

    assert told_sequences(theirs, "t", stories, None) == told_sequences(ours, "t", stories, None)
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from fencepost.protocol import errors
from fencepost.protocol.batch import MAX_SEQUENCE, encode_batch
from fencepost.protocol.messages import AddPartitionsToTxnRequest, EndTxnRequest, ProduceRequest
from fencepost.protocol.records import iter_batches
from tests.conformance.placements import Play
from tests.transcripts.target import Target

LETTERS = {
    "n": "the next batch",
    "t": "the next batch, of two records",
    "r": "the last batch again",
    "5": "the fifth last batch again",
    "6": "the sixth last batch again",
    "o": "the last batch again, with a record more",
    "g": "a batch after a gap",
    "z": "sequence 0",
    "m": "the last sequence that there is, and the two after it",
    "e": "a new epoch",
    "f": "a new epoch that does not begin at 0",
    "l": "an epoch that is over",
}
IN_TRANSACTIONS = "ntrogzel"
STARTS = ("", "m", "nnnnnn")
FIRST_EPOCH = 3
# With version 1 Apache Kafka refuses what comes after these: it has been asked to verify a lower sequence. See
# deviations.md.
NEVER_BEHIND = {f"n|{first}{second}" for first in "roze" for second in "nt"}


def stories(length: int) -> list[str]:
    """For a producer without transactions: who is unknown, at the end of the sequence numbers, or long known."""
    return [start + "".join(letters) for start in STARTS for letters in product(LETTERS, repeat=length)]


def transactional_stories() -> list[str]:
    """Across the end of a transaction: anything before it, or a batch before it and anything twice after it."""
    before = ["".join((a, "|", b)) for a, b in product(IN_TRANSACTIONS, repeat=2)]
    return before + ["".join(("n|", a, b)) for a, b in product(IN_TRANSACTIONS, repeat=2)]


class Batch(NamedTuple):
    epoch: int
    sequence: int
    record_count: int


class Sender:
    """The producer of one story, as far as it knows."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next = 0
        self.accepted: list[Batch] = []

    def batch(self, letter: str) -> Batch:
        last = self.accepted[-1] if self.accepted else Batch(self.epoch, 0, 1)
        match letter:
            case "n":
                return Batch(self.epoch, self.next, 1)
            case "t":
                return Batch(self.epoch, self.next, 2)
            case "r":
                return last
            case "5" | "6":
                back = int(letter)
                return self.accepted[-back] if len(self.accepted) >= back else Batch(self.epoch, back, 1)
            case "o":
                return last._replace(record_count=last.record_count + 1)
            case "g":
                return Batch(self.epoch, self.next + 1 & MAX_SEQUENCE, 1)
            case "z":
                return Batch(self.epoch, 0, 1)
            case "m":
                return Batch(self.epoch, MAX_SEQUENCE, 3)
            case "e":
                return Batch(self.epoch + 1, 0, 1)
            case "f":
                return Batch(self.epoch + 1, 1, 1)
            case "l":
                return Batch(self.epoch - 1, self.next, 1)
        raise AssertionError(letter)

    def accept(self, batch: Batch) -> None:
        """The broker took it, or had it already."""
        if batch not in self.accepted:
            self.accepted.append(batch)
            self.epoch, self.next = batch.epoch, batch.sequence + batch.record_count & MAX_SEQUENCE


class Sequences(Play):
    """Stories that are told on one broker. `transaction_version` is None without transactions."""

    def __init__(self, target: Target, topic: str, words: list[str], transaction_version: int | None) -> None:
        super().__init__(target, topic, words, transaction_version or 0)
        self.replies: dict[str, list[str]] = {word: [] for word in words}

    def tell(self) -> dict[str, list[str]]:
        self.create()
        self.init(self.topic)
        self.owner = self.init(self.topic)  # Again, so that there is an epoch before its own.
        first_epoch = FIRST_EPOCH if self.version == 0 else self.owner.epoch
        self.senders = [Sender(first_epoch) for _ in self.words]
        if self.version == 1:
            self.add_all()
        for place in range(max(map(len, self.words))):
            if any(word[place : place + 1] == "|" for word in self.words):
                self.end_all()
            elif self.version == 0:
                self.send({i: word[place] for i, word in enumerate(self.words) if place < len(word)})
            else:
                for i, word in enumerate(self.words):
                    if place < len(word):
                        self.send({i: word[place]})
        for index, word in enumerate(self.words):
            self.replies[word].append(self.log(index))
        seen: dict[str, list[str]] = {word: [] for word in self.words}
        self.describe_producers(seen)
        return {word: replies + seen[word] for word, replies in self.replies.items()}

    def send(self, letters: dict[int, str]) -> None:
        """A request with a batch for each of these stories."""
        batches = {index: self.senders[index].batch(letter) for index, letter in letters.items()}
        parts = [ProduceRequest.PartitionProduceData(index, self.encode(batch)) for index, batch in batches.items()]
        topics = [ProduceRequest.TopicProduceData(self.topic, partition_data=parts)]
        name = self.owner.transactional_id if self.version else None
        reply = self.target.call(ProduceRequest(name, -1, 30_000, topics), 12 if self.version == 2 else 11)
        for found in reply.responses[0].partition_responses:
            is_duplicate = found.log_append_time_ms >= 0
            self.replies[self.words[found.index]].append(
                f"{letters[found.index]} {batches[found.index]}: {errors.name_of(found.error_code)}"
                f" offset={found.base_offset} start={found.log_start_offset} duplicate={is_duplicate}"
            )
            if found.error_code == 0:
                self.senders[found.index].accept(batches[found.index])

    def encode(self, batch: Batch) -> bytes:
        values = [(None, f"{batch.sequence}.{n}".encode()) for n in range(batch.record_count)]
        who = (self.owner.producer_id, batch.epoch, batch.sequence)
        return encode_batch(values, self.target.now_ms, *who, transactional=self.version > 0)

    def add_all(self) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(self.topic, list(range(len(self.words))))
        who = (self.owner.transactional_id, self.owner.producer_id, self.owner.epoch)
        reply = self.target.call(AddPartitionsToTxnRequest((), *who, [topic]), 3)
        results = reply.results_by_topic_v3_and_below[0].results_by_partition
        assert {r.partition_error_code for r in results} == {0}

    def end_all(self) -> None:
        owner = self.owner
        request = EndTxnRequest(owner.transactional_id, owner.producer_id, owner.epoch, True)
        reply = self.target.call(request, 5 if self.version == 2 else 4)
        assert reply.error_code == 0, errors.name_of(reply.error_code)
        self.wait_until_complete([owner.transactional_id])
        if self.version == 1:
            self.add_all()
            return
        owner.epoch = reply.producer_epoch
        for sender in self.senders:
            # The client goes on in the epoch that it was given, and may repeat what it sent before.
            sender.epoch, sender.next = owner.epoch, 0

    def log(self, index: int) -> str:
        fetched = self.fetch(index)
        return " ".join(
            f"{header.base_offset}:{header.attributes}:{header.producer_epoch}:{header.base_sequence}:{header.record_count}"
            for header, _ in iter_batches(fetched)
        )

    def who(self, index: int, producer_id: int) -> str:
        return "it" if producer_id == self.owner.producer_id else str(producer_id)


def told_sequences(
    target: Target, topic: str, words: list[str], transaction_version: int | None
) -> dict[str, list[str]]:
    return Sequences(target, topic, words, transaction_version).tell()
