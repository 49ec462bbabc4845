"""Placements of data, markers and open transactions in a partition, and everything that a reader can ask about them.

A placement is a word: `a` is a write by producer A, `c` its commit, `x` its abort; `b`, `d` and `y` are B's; `p` is a
write without a transaction. `placements(4)` are all words of that length that can be, except those that are others with
A and B exchanged. Each gets a partition and transactional ids of its own, and they are played side by side, letter by
letter: so the requests of one letter may share a request, and markers are waited for once.

    assert observed(theirs, "t", words, TV2) == observed(ours, "t", words, TV2)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from fencepost.protocol import errors
from fencepost.protocol.batch import BatchHeader, Buffer, assemble, decode_marker, encode_varint
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from fencepost.protocol.records import iter_batches, iter_records
from tests.transcripts.target import Target

LETTERS = "abcxdyp"
WRITERS = {"a": "A", "b": "B"}
ENDS = {"c": ("A", True), "x": ("A", False), "d": ("B", True), "y": ("B", False)}
TV1, TV2 = 1, 2
# How long before the beginning the times of the data are, so that markers are always later.
EARLIER_MS = 600_000
# What ListOffsets is asked for: its special times, and those counted from the first that data may have.
SPECIAL_TIMES = (-1, -2, -3)
TIMES = (-1000, 0, 15, 20, 30, 100)
PATIENCE = 2000
# Two of the batches that are written here fit, three do not.
LITTLE_BYTES = 170


def placements(length: int) -> list[str]:
    return ["".join(letters) for letters in product(LETTERS, repeat=length) if is_possible(letters)]


def is_possible(letters: tuple[str, ...]) -> bool:
    """Whether only open transactions end, and A is the first of the two to write."""
    is_open = {"A": False, "B": False}
    has_a_written = False
    for letter in letters:
        if letter in WRITERS:
            has_a_written = has_a_written or letter == "a"
            if not has_a_written:
                return False
            is_open[WRITERS[letter]] = True
        elif letter in ENDS:
            who, _ = ENDS[letter]
            if not is_open[who]:
                return False
            is_open[who] = False
    return True


def data(base_ms: int, place: int, letter: str, producer: tuple[int, int] = (-1, -1), sequence: int = -1) -> bytes:
    """The batch of the letter at `place` of a word. Times go up and down; A's batches have two records."""
    at_ms = base_ms + place * 7 % 5 * 10
    records = b"".join(record(f"{letter}{place}.{n}".encode(), n * 5, n) for n in range(2 if letter == "a" else 1))
    count = 2 if letter == "a" else 1
    attributes = 0x10 if letter in WRITERS else 0
    return assemble(records, count, attributes, at_ms, at_ms + 5 * (count - 1), *producer, sequence)


def record(value: bytes, timestamp_delta: int, offset_delta: int) -> bytes:
    fields = (encode_varint(timestamp_delta), encode_varint(offset_delta), encode_varint(-1))
    body = b"\0" + b"".join(fields) + encode_varint(len(value)) + value + b"\0"
    return encode_varint(len(body)) + body


class Owner:
    """A transactional id that writes to one partition."""

    def __init__(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0
        self.is_open = False


class Key(NamedTuple):
    partition: int
    who: str


class Play:
    """Words that are played on one broker, each in a partition of one topic."""

    def __init__(self, target: Target, topic: str, words: list[str], version: int) -> None:
        self.target = target
        self.topic = topic
        self.words = words
        self.version = version
        self.base_ms = target.now_ms - EARLIER_MS
        self.owners: dict[Key, Owner] = {}

    def run(self) -> None:
        self.create()
        for index, word in enumerate(self.words):
            for who in ("A", "B"):
                if any(WRITERS.get(letter) == who for letter in word):
                    self.owners[Key(index, who)] = self.init(f"{self.topic}-{index}-{who}")
        for place in range(max(map(len, self.words))):
            self.run_letters(place)
            self.target.advance(2)

    def create(self) -> None:
        new = CreateTopicsRequest.CreatableTopic(self.topic, len(self.words), 1)
        found = self.target.call(CreateTopicsRequest([new], 30_000), 5).topics[0]
        assert found.error_code == 0, found
        for _ in range(PATIENCE):
            # Metadata names a leader before the leader itself knows; a leader that answers ListOffsets knows.
            if all(found.error_code == 0 for found in self.offsets(-1, 0)):
                return
            self.target.advance(20)
        raise AssertionError(f"{self.topic} has no leaders")

    def init(self, transactional_id: str) -> Owner:
        for _ in range(PATIENCE):
            reply = self.target.call(InitProducerIdRequest(transactional_id, 600_000), 4)
            if reply.error_code == 0:
                return Owner(transactional_id, reply.producer_id, reply.producer_epoch)
            self.target.advance(20)
        raise AssertionError(errors.name_of(reply.error_code))

    def run_letters(self, place: int) -> None:
        plain, ended = [], []
        for index, word in enumerate(self.words):
            letter = word[place : place + 1]
            if letter in WRITERS:
                self.write(self.owners[Key(index, WRITERS[letter])], index, place, letter)
            elif letter in ENDS:
                who, commit = ENDS[letter]
                ended.append(self.end(self.owners[Key(index, who)], commit))
            elif letter:
                plain.append((index, data(self.base_ms, place, letter)))
        if plain:
            self.produce(None, plain)
        if ended:
            self.wait_until_complete(ended)

    def write(self, owner: Owner, index: int, place: int, letter: str) -> None:
        if self.version == TV1 and not owner.is_open:
            topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(self.topic, [index])
            who = (owner.transactional_id, owner.producer_id, owner.epoch)
            reply = self.target.call(AddPartitionsToTxnRequest((), *who, [topic]), 3)
            [result] = reply.results_by_topic_v3_and_below[0].results_by_partition
            assert result.partition_error_code == 0, errors.name_of(result.partition_error_code)
        batch = data(self.base_ms, place, letter, (owner.producer_id, owner.epoch), owner.sequence)
        self.produce(owner.transactional_id, [(index, batch)])
        owner.sequence += 2 if letter == "a" else 1
        owner.is_open = True

    def produce(self, transactional_id: str | None, parts: list[tuple[int, bytes]]) -> None:
        kind = ProduceRequest.TopicProduceData
        topics = [kind(self.topic, partition_data=[ProduceRequest.PartitionProduceData(*part) for part in parts])]
        request = ProduceRequest(transactional_id, -1, 30_000, topics)
        reply = self.target.call(request, 12 if self.version == TV2 else 11)
        for found in reply.responses[0].partition_responses:
            assert found.error_code == 0, (self.words[found.index], errors.name_of(found.error_code))

    def end(self, owner: Owner, commit: bool) -> str:
        request = EndTxnRequest(owner.transactional_id, owner.producer_id, owner.epoch, commit)
        reply = self.target.call(request, 5 if self.version == TV2 else 4)
        assert reply.error_code == 0, errors.name_of(reply.error_code)
        owner.is_open = False
        if self.version == TV2:
            assert (reply.producer_id, reply.producer_epoch) == (owner.producer_id, owner.epoch + 1)
            owner.epoch, owner.sequence = reply.producer_epoch, 0
        return owner.transactional_id

    def wait_until_complete(self, transactional_ids: list[str]) -> None:
        for _ in range(PATIENCE):
            found = self.target.call(DescribeTransactionsRequest(transactional_ids), 0).transaction_states
            if all(state.transaction_state.startswith("Complete") for state in found):
                return
            self.target.advance(20)
        raise AssertionError("the markers do not come")

    # --- looking --------------------------------------------------------------------------------------------

    def observe(self) -> dict[str, list[str]]:
        """Of each word, line by line: what fetches, ListOffsets and DescribeProducers say."""
        seen: dict[str, list[str]] = {word: [] for word in self.words}
        ends = self.fetch_all(seen, "read_uncommitted", dict.fromkeys(range(len(self.words)), 0))
        for offset in range(max(ends.values()) + 1):
            wanted = {index: offset for index, end in ends.items() if end >= offset}
            self.fetch_all(seen, "read_uncommitted", wanted)
            self.fetch_all(seen, "read_committed", wanted)
            self.fetch_all(seen, "read_committed, a little", wanted, LITTLE_BYTES)
        for isolation in (0, 1):
            for timestamp in SPECIAL_TIMES:
                self.list_offsets(seen, str(timestamp), timestamp, isolation)
            for since_ms in TIMES:
                self.list_offsets(seen, f"time {since_ms}", self.base_ms + since_ms, isolation)
        self.describe_producers(seen)
        return seen

    def fetch_all(
        self, seen: dict[str, list[str]], how: str, wanted: dict[int, int], limit_bytes: int = 1 << 20
    ) -> dict[int, int]:
        partitions = [
            FetchRequest.FetchPartition(index, -1, offset, partition_max_bytes=limit_bytes)
            for index, offset in wanted.items()
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=50 << 20,
            isolation_level=int(how.startswith("read_committed")),
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(self.topic, partitions=partitions)],
        )
        reply = self.target.call(request, 11)
        ends = {}
        for found in reply.responses[0].partitions:
            index = found.partition_index
            ends[index] = found.high_watermark
            batches = list(iter_batches(found.records or b""))
            aborted = found.aborted_transactions
            if aborted is not None:
                # Apache Kafka may also name some that begin behind the records; see deviations.md.
                end = batches[-1][0].last_offset + 1 if batches else 0
                aborted = [(self.who(index, a.producer_id), a.first_offset) for a in aborted if a.first_offset < end]
            seen[self.words[index]].append(
                f"{how} from {wanted[index]}: {errors.name_of(found.error_code)} lso={found.last_stable_offset}"
                f" hw={found.high_watermark} start={found.log_start_offset} aborted={aborted}"
                f" {' '.join(self.line(index, *batch) for batch in batches)}"
            )
        assert len(ends) == len(wanted)
        return ends

    def fetch(self, index: int) -> bytes:
        """All that is in a partition."""
        partition = FetchRequest.FetchPartition(index, -1, 0, partition_max_bytes=1 << 20)
        topics = [FetchRequest.FetchTopic(self.topic, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)
        records: bytes = self.target.call(request, 11).responses[0].partitions[0].records
        return records

    def line(self, index: int, header: BatchHeader, batch: Buffer) -> str:
        marker = decode_marker(batch) if header.is_control else None
        who = self.who(index, header.producer_id)
        if marker is not None:
            what = f"{'COMMIT' if marker.commit else 'ABORT'}"
        else:
            what = ",".join(f"{(r.value or b'').decode()}@{r.timestamp - self.base_ms}" for r in iter_records(batch))
        return f"{header.base_offset}:{what}:{who}/{header.producer_epoch}/{header.base_sequence}"

    def who(self, index: int, producer_id: int) -> str:
        for who in ("A", "B"):
            owner = self.owners.get(Key(index, who))
            if owner is not None and owner.producer_id == producer_id:
                return who
        return str(producer_id)

    def list_offsets(self, seen: dict[str, list[str]], name: str, timestamp: int, isolation: int) -> None:
        for found in self.offsets(timestamp, isolation):
            since = found.timestamp - self.base_ms
            when = found.timestamp if found.timestamp < 0 else since if since < 1000 else "a marker's"
            seen[self.words[found.partition_index]].append(
                f"offset for {name}, isolation {isolation}:"
                f" {errors.name_of(found.error_code)} {found.offset} at {when} epoch={found.leader_epoch}"
            )

    def offsets(self, timestamp: int, isolation: int) -> list[Any]:
        kind = ListOffsetsRequest.ListOffsetsPartition
        partitions = [kind(index, -1, timestamp) for index in range(len(self.words))]
        topics = [ListOffsetsRequest.ListOffsetsTopic(self.topic, partitions)]
        found: list[Any] = self.target.call(ListOffsetsRequest(-1, isolation, topics), 8).topics[0].partitions
        return found

    def describe_producers(self, seen: dict[str, list[str]]) -> None:
        wanted = [DescribeProducersRequest.TopicRequest(self.topic, list(range(len(self.words))))]
        reply = self.target.call(DescribeProducersRequest(wanted), 0)
        for found in reply.topics[0].partitions:
            index = found.partition_index
            lines = sorted(
                f"{self.who(index, p.producer_id)}/{p.producer_epoch} sequence={p.last_sequence}"
                f" ended={p.coordinator_epoch >= 0} open={p.current_txn_start_offset}"
                for p in found.active_producers
            )
            seen[self.words[index]].append(f"producers: {errors.name_of(found.error_code)} {lines}")


def observed(target: Target, topic: str, words: list[str], version: int) -> dict[str, list[str]]:
    play = Play(target, topic, words, version)
    play.run()
    return play.observe()


def differences(theirs: dict[str, list[str]], ours: dict[str, list[str]]) -> Iterator[str]:
    """Each line that is not the same, of both."""
    for word, lines in theirs.items():
        for n, (their, our) in enumerate(zip(lines, ours[word], strict=True)):
            if their != our:
                yield f"{word} {n}\n  Apache Kafka: {their}\n  Fencepost:    {our}"


def described(*found: Any) -> str:
    return "\n".join(differences(*found))
