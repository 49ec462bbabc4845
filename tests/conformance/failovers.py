"""The coordinator of transactions is lost while they are Ongoing, PrepareCommit and PrepareAbort.

    told_by_failover(brokers) == expected()

Three brokers of Apache Kafka told what failover.txt says, line by line, and `--brokers 3` must tell the same.

Broker A coordinates every transactional id here, and leads `copied`. Broker B alone has partition 0 of `single`, and C
partition 1. Every transaction writes to all three partitions, and commits an offset of a group. B is cut off from the
others, so a decided transaction has to wait for its marker. Then A is lost. B is connected again when another broker
coordinates.

Clients try again after an error of RETRIABLE and after a lost connection. How often they have to depends on how fast
a broker is, so that is not compared; every other answer is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.client.client import KafkaClient
from fencepost.machines.txn.records import partition_for
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    MetadataRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.schema import Message
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.testing.contents import read_committed
from tests.conformance.three_brokers import (
    COORDINATOR_PARTITIONS,
    GROUP_KEY,
    NODE_IDS,
    PATIENCE_S,
    TXN_KEY,
    ThreeBrokers,
    Unanswered,
    wait_until,
)

SINGLE, COPIED = "single-failover", "copied-failover"
ON_A, ON_B, ON_C = (COPIED, 0), (SINGLE, 0), (SINGLE, 1)
PLACES = (ON_A, ON_B, ON_C)
TIMEOUT_MS = 900_000
FETCH_VERSION = 16
# A client looks for the coordinator or the leader again, or waits, and repeats the request.
RETRIABLE = {
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_LEADER_OR_FOLLOWER",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PARTITION",
}
BUSY, UNSTABLE = "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT"
NO_ANSWER = "no answer"
EXPECTED = Path(__file__).with_name("failover.txt")


class Versions(NamedTuple):
    """Of the requests that a producer of one transaction version sends."""

    produce: int
    txn_offset_commit: int
    end: int
    adds_partitions: bool

    @property
    def returns_epoch(self) -> bool:
        """Whether EndTxn tells the producer which epoch to go on with."""
        return self.end >= 5


TRANSACTION_VERSIONS = {"TV1": Versions(11, 4, 4, True), "TV2": Versions(12, 5, 5, False)}


class Producer:
    """A transactional producer that does what its test says, and remembers what it was told."""

    def __init__(self, stage: Failover, name: str, version: str) -> None:
        self.stage = stage
        self.name = name
        self.versions = TRANSACTION_VERSIONS[version]
        self.transactional_id = stage.id_at_a(name)
        self.sequences: dict[TopicPartition, int] = {}
        self.producer_id, self.epoch = -1, -1

    def tell(self, step: str, answer: str) -> None:
        self.stage.tell(f"{self.name}: {step}", answer)

    def init(self) -> None:
        request = InitProducerIdRequest(self.transactional_id, TIMEOUT_MS)
        reply = self.stage.ask_coordinator(self.transactional_id, request, 5, retriable=RETRIABLE | {BUSY})
        assert reply.error_code == 0, errors.name_of(reply.error_code)
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        self.sequences.clear()

    def commit_offset(self, offset: int) -> None:
        """Make the offset of a group that has the producer's name part of the transaction."""
        who = (self.transactional_id, self.producer_id, self.epoch)
        if self.versions.adds_partitions:
            request = AddOffsetsToTxnRequest(*who, self.name)
            reply = self.stage.ask_coordinator(self.transactional_id, request, 3, RETRIABLE | {BUSY})
            self.tell(f"AddOffsetsToTxn {offset}", in_words(self.stage.errors_in(reply)))
        partitions = [TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, offset, -1, "")]
        topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(COPIED, partitions)]
        commit = TxnOffsetCommitRequest(who[0], self.name, *who[1:], topics=topics)
        reply = self.stage.ask_group(self.name, commit, self.versions.txn_offset_commit, RETRIABLE | {BUSY})
        self.tell(f"TxnOffsetCommit {offset}", in_words(self.stage.errors_in(reply)))

    def read_offset(self) -> None:
        wanted = [OffsetFetchRequest.OffsetFetchRequestTopics(COPIED, partition_indexes=[0])]
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(self.name, topics=wanted)]
        request = OffsetFetchRequest(groups=groups, require_stable=True)
        reply = self.stage.ask_group(self.name, request, 8, RETRIABLE | {UNSTABLE})
        self.tell("committed offset", str(reply.groups[0].topics[0].partitions[0].committed_offset))

    def write_everywhere(self, value: str) -> None:
        if self.versions.adds_partitions:
            topics = [
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(topic, [i for name, i in PLACES if name == topic])
                for topic in (SINGLE, COPIED)
            ]
            who = (self.transactional_id, self.producer_id, self.epoch)
            reply = self.stage.ask_coordinator(
                self.transactional_id, AddPartitionsToTxnRequest((), *who, topics), 3, retriable=RETRIABLE | {BUSY}
            )
            self.tell(f"AddPartitionsToTxn {value}", in_words(self.stage.errors_in(reply)))
        for where in PLACES:
            self.tell(f"Produce {value} to {place(where)}", self.write(where, value, RETRIABLE | {BUSY}))

    def write(self, where: TopicPartition, value: str, retriable: set[str]) -> str:
        sequence = self.sequences.get(where, 0)
        now_ms = time.time_ns() // 1_000_000
        batch = encode_batch(
            [(None, f"{self.name} {value}".encode())],
            now_ms,
            self.producer_id,
            self.epoch,
            sequence,
            transactional=True,
        )
        data = [ProduceRequest.PartitionProduceData(where[1], batch)]
        topics = [ProduceRequest.TopicProduceData(where[0], partition_data=data)]
        request = ProduceRequest(self.transactional_id, -1, 30_000, topics)
        found = self.stage.errors_in(self.stage.ask_leader(where, request, self.versions.produce, retriable))
        if not found:
            self.sequences[where] = sequence + 1
        return in_words(found)

    def decide(self, commit: bool) -> None:
        """End the transaction, whose markers have to wait, and tell the answer.

        On a busy machine the first answer may be lost, and the answer to the next request is that the first one is
        being carried out. Then the state says what the first answer was: the producer and epoch to go on with.
        """
        unanswered_before = self.stage.unanswered
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        reply = self.stage.ask_coordinator(self.transactional_id, request, self.versions.end, RETRIABLE)
        if self.stage.unanswered > unanswered_before and errors.name_of(reply.error_code) == BUSY:
            reply.error_code = errors.NONE
            if self.versions.returns_epoch:
                found = self.state()
                reply.producer_id, reply.producer_epoch = found.producer_id, found.producer_epoch
        self.tell("EndTxn", self._granted(reply))

    def end(self, step: str, commit: bool, retriable: set[str] = RETRIABLE) -> Any:
        """End the transaction, and tell the answer."""
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        reply = self.stage.ask_coordinator(self.transactional_id, request, self.versions.end, retriable)
        self.tell(step, self._granted(reply))
        return reply

    def go_on_with(self, reply: Any) -> None:
        if reply.producer_id >= 0:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
            self.sequences.clear()

    def init_by_another(self, step: str) -> None:
        request = InitProducerIdRequest(self.transactional_id, TIMEOUT_MS)
        reply = self.stage.ask_coordinator(self.transactional_id, request, 5, RETRIABLE)
        self.tell(step, self._granted(reply))

    def describe(self, step: str) -> None:
        self.tell(step, self.described())

    def await_state(self, state: str) -> None:
        wait_until(f"{self.name} is {state}", lambda: self.described().startswith(f"{state},"))

    def state(self) -> DescribeTransactionsResponse.TransactionState:
        request = DescribeTransactionsRequest([self.transactional_id])
        [txn] = self.stage.ask_coordinator(self.transactional_id, request, 0, RETRIABLE).transaction_states
        assert isinstance(txn, DescribeTransactionsResponse.TransactionState)
        return txn

    def described(self) -> str:
        txn = self.state()
        partitions = sorted((topic.topic, index) for topic in txn.topics for index in topic.partitions)
        if txn.transaction_state.startswith("Prepare"):
            # Kafka leaves out those whose markers are written, and how many are written is a matter of time.
            partitions = [where for where in partitions if where == ON_B]
        assert (txn.error_code, txn.transaction_timeout_ms) == (0, TIMEOUT_MS), txn
        words = [
            txn.transaction_state,
            self.named(txn.producer_id, txn.producer_epoch),
            "begun" if txn.transaction_start_time_ms > 0 else "not begun",
            *map(place, partitions),
        ]
        return ", ".join(words)

    def _granted(self, reply: Any) -> str:
        """The answer to EndTxn or InitProducerId."""
        error = errors.name_of(reply.error_code)
        return error if reply.producer_id == -1 else f"{error}, {self.named(reply.producer_id, reply.producer_epoch)}"

    def named(self, producer_id: int, epoch: int) -> str:
        who = "same producer" if producer_id == self.producer_id else "another producer"
        return f"{who}, epoch {epoch - self.epoch:+}"


class Failover:
    def __init__(self, brokers: ThreeBrokers) -> None:
        self.brokers = brokers
        self.told: list[str] = []
        self.seen: set[str] = set()  # The errors after which a client tried again.
        self.unanswered = 0  # The requests whose outcome their client does not know.
        self.living = set(NODE_IDS)
        self.a = self._await_coordinator(self.id_at_a("first"))
        self.c, self.b = (node_id for node_id in NODE_IDS if node_id != self.a)

    def _await_coordinator(self, transactional_id: str) -> int:
        """Creates the topic of the coordinators; the one of this id is ready when it gives a producer id."""
        reply = self.ask_coordinator(
            transactional_id, InitProducerIdRequest(transactional_id, TIMEOUT_MS), 5, RETRIABLE
        )
        assert reply.error_code == 0, errors.name_of(reply.error_code)
        self.seen.clear()
        return self.brokers.coordinator(NODE_IDS[0], transactional_id, TXN_KEY)

    def id_at_a(self, name: str) -> str:
        """A transactional id in partition 0 of the coordinators' topic."""
        ids = (f"{name}-{n}" for n in range(1000))
        return next(found for found in ids if partition_for(found, COORDINATOR_PARTITIONS) == 0)

    def tell(self, step: str, answer: str) -> None:
        self.told.append(f"{step} -> {answer}")

    def run(self) -> list[str]:
        a, b, c = self.a, self.b, self.c
        self.brokers.create_topic(SINGLE, [[b], [c]])
        self.brokers.create_topic(COPIED, [[a, c, b]])
        epoch_before = self.brokers.leader_and_epoch(c, *ON_A)[1]
        by_case = {
            case: [Producer(self, f"{version} {case}", version) for version in TRANSACTION_VERSIONS]
            for case in ("committed", "aborted", "ongoing", "fenced")
        }
        everyone = [producer for producers in by_case.values() for producer in producers]
        for producer in everyone:
            producer.init()
            producer.write_everywhere("before")
            producer.commit_offset(1)

        self.brokers.cut_off(b)
        for commit, producer in self._decided(by_case):
            self._decide(producer, commit)
        for producer in (*by_case["ongoing"], *by_case["fenced"]):
            producer.describe("described before")
        request = DescribeTransactionsRequest([everyone[0].transactional_id])
        self.tell("described at another broker", self._errors_at(c, request, 0))

        self.living.discard(a)
        self.brokers.lose(a)
        for producer in everyone:
            producer.describe("described after the failover")
        for commit, producer in self._decided(by_case):
            producer.end("EndTxn after the failover", commit)

        self.brokers.reconnect(b)
        for commit, producer in self._decided(by_case):
            self._finish(producer, commit)
        for producer in by_case["ongoing"]:
            self._go_on(producer)
        for producer in by_case["fenced"]:
            self._fence(producer)
        self._fetch_in_old_epoch(epoch_before)
        self.told += self._values()
        for producer in everyone:
            producer.read_offset()

        self.brokers.heal()
        self.living.add(a)
        self._ask_replaced(everyone[0])
        assert self.seen <= RETRIABLE | {BUSY, UNSTABLE, NO_ANSWER}
        return self.told

    @staticmethod
    def _decided(by_case: dict[str, list[Producer]]) -> list[tuple[bool, Producer]]:
        return [(case == "committed", producer) for case in ("committed", "aborted") for producer in by_case[case]]

    def _decide(self, producer: Producer, commit: bool) -> None:
        producer.decide(commit)
        producer.describe("described when decided")
        producer.end("EndTxn again", commit)
        producer.end("EndTxn, the other outcome", not commit)
        producer.init_by_another("InitProducerId")

    def _finish(self, producer: Producer, commit: bool) -> None:
        """The new coordinator finishes what was decided; the client had no answer and asks again."""
        producer.await_state("CompleteCommit" if commit else "CompleteAbort")
        producer.describe("described when complete")
        reply = producer.end("EndTxn when complete", commit)
        producer.end("EndTxn when complete, the other outcome", not commit)
        producer.go_on_with(reply)
        producer.write_everywhere("next")
        producer.go_on_with(producer.end("EndTxn of the next transaction", True, RETRIABLE | {BUSY}))
        producer.await_state("CompleteCommit")

    def _go_on(self, producer: Producer) -> None:
        producer.write_everywhere("after")
        producer.commit_offset(2)
        producer.end("EndTxn", True, RETRIABLE | {BUSY})
        producer.await_state("CompleteCommit")
        producer.describe("described at the end")

    def _fence(self, zombie: Producer) -> None:
        successor = Producer(self, zombie.name, next(v for v in TRANSACTION_VERSIONS if zombie.name.startswith(v)))
        successor.init()
        zombie.tell("the next producer", zombie.named(successor.producer_id, successor.epoch))
        for where in PLACES:
            zombie.tell(f"Produce of the zombie to {place(where)}", zombie.write(where, "zombie", RETRIABLE))
        zombie.end("EndTxn of the zombie", True)
        zombie.describe("described after the zombie")
        successor.write_everywhere("successor")
        successor.end("EndTxn of the next producer", True, RETRIABLE | {BUSY})
        successor.await_state("CompleteCommit")

    def _fetch_in_old_epoch(self, epoch: int) -> None:
        """A consumer that knows the lost leader is told the new one (KIP-951)."""
        leader, new_epoch = self._leader(ON_A)
        wanted = [MetadataRequest.MetadataRequestTopic(name=COPIED)]
        [topic] = self.brokers.call(leader, MetadataRequest(wanted), 12).topics
        partitions = [FetchRequest.FetchPartition(0, epoch, 0, partition_max_bytes=1000)]
        topics = [FetchRequest.FetchTopic("", topic.topic_id, partitions)]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1, topics=topics)
        reply = self.brokers.call(leader, request, FETCH_VERSION)
        found = reply.responses[0].partitions[0]
        is_new = (found.current_leader.leader_id, found.current_leader.leader_epoch) == (leader, new_epoch)
        ports = [node.port for node in reply.node_endpoints]
        named = is_new and ports == [self.brokers.ports[leader]]
        error = in_words(self.errors_in(reply))
        self.tell("Fetch in the old epoch", f"{error}, {'the new leader' if named else 'no leader'}")

    def _values(self) -> list[str]:
        servers = ",".join(f"127.0.0.1:{self.brokers.ports[node_id]}" for node_id in sorted(self.living))
        with KafkaClient({"bootstrap.servers": servers}) as client:
            return sorted(
                f"read committed from {place((topic, record.partition))} -> {(record.value or b'').decode()}"
                for topic in (SINGLE, COPIED)
                for record in read_committed(client, topic)
            )

    def _ask_replaced(self, producer: Producer) -> None:
        """The broker that was lost is back, and knows that it coordinates and leads nothing of this."""
        described = DescribeTransactionsRequest([producer.transactional_id])
        commit = EndTxnRequest(producer.transactional_id, producer.producer_id, producer.epoch, True)
        for name, request, version in (
            ("DescribeTransactions", described, 0),
            ("EndTxn", commit, producer.versions.end),
        ):
            wait_until(f"an answer of broker {self.a}", self._is_answered, self.a, request, version)
            self.tell(f"{name} at the replaced coordinator", self._errors_at(self.a, request, version))

    # --- clients --------------------------------------------------------------------------------------------

    def ask_coordinator(self, transactional_id: str, request: Message, version: int, retriable: set[str]) -> Any:
        def there(ask: int) -> int:
            return self.brokers.coordinator(ask, transactional_id, TXN_KEY)

        return self._ask(there, request, version, retriable)

    def ask_group(self, group_id: str, request: Message, version: int, retriable: set[str]) -> Any:
        return self._ask(lambda ask: self.brokers.coordinator(ask, group_id, GROUP_KEY), request, version, retriable)

    def ask_leader(self, where: TopicPartition, request: Message, version: int, retriable: set[str]) -> Any:
        return self._ask(lambda ask: self.brokers.leader_and_epoch(ask, *where)[0], request, version, retriable)

    def _ask(self, there: Callable[[int], int], request: Message, version: int, retriable: set[str]) -> Any:
        """Ask the broker that another one names, as often as the answer says to try again."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                node_id = there(min(self.living))
                if node_id in self.living:
                    reply = self.brokers.call(node_id, request, version)
                    found = set(self.errors_in(reply))
                    if not found & retriable:
                        return reply
                    self.seen |= found & retriable
                    self.unanswered += found != {BUSY}
            except Unanswered:
                self.seen.add(NO_ANSWER)
                self.unanswered += 1
            assert time.monotonic() < deadline, f"{request} was not answered for {PATIENCE_S:g} s: {self.seen}"
            time.sleep(0.05)

    def _leader(self, where: TopicPartition) -> tuple[int, int]:
        return self.brokers.leader_and_epoch(min(self.living), *where)

    def _errors_at(self, node_id: int, request: Message, version: int) -> str:
        try:
            return in_words(self.errors_in(self.brokers.call(node_id, request, version)))
        except Unanswered:
            return NO_ANSWER

    def _is_answered(self, node_id: int, request: Message, version: int) -> bool:
        return self._errors_at(node_id, request, version) != NO_ANSWER

    @staticmethod
    def errors_in(value: Any) -> list[str]:
        """All errors anywhere in a reply, by name."""
        if isinstance(value, list | tuple):
            return [error for item in value for error in Failover.errors_in(item)]
        found = []
        for name in getattr(value, "__slots__", ()):
            part = getattr(value, name)
            if name.endswith("error_code"):
                found += [errors.name_of(part)] if part else []
            else:
                found += Failover.errors_in(part)
        return found


def place(where: TopicPartition) -> str:
    return {ON_A: "copied", ON_B: "single-0", ON_C: "single-1"}.get(where, f"{where[0]}-{where[1]}")


def in_words(found: list[str]) -> str:
    return ", ".join(found) or "NONE"


def expected() -> str:
    return "\n".join(line for line in EXPECTED.read_text().splitlines() if line and not line.startswith("#"))


def told_by_failover(brokers: ThreeBrokers) -> str:
    """What clients are told, a line for each answer."""
    return "\n".join(Failover(brokers).run())
