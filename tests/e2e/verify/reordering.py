"""A client whose requests a test can hold back, so that they arrive in another order, and the history of what it saw.

With version 1 it has one producer epoch for all its transactions, as librdkafka and Java clients before 4.0 have. This
package's own client takes a new epoch for each transaction, so requests that come late cannot harm it.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fencepost.client.admin.topics import create_topic
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.client.transaction import ProducerIdentity, Transaction
from fencepost.protocol.messages import EndTxnRequest, ProduceRequest
from fencepost.protocol.transaction_version import TransactionVersion
from fencepost.verify.checkers import check_history
from fencepost.verify.checkers.arranging import arrange
from fencepost.verify.checkers.kinds import Anomaly
from fencepost.verify.history import Event, Header, Rest, decode, encode_header, merge
from fencepost.verify.workload.last_reads import BY, await_rest, last_reads
from fencepost.verify.workload.notes import Notes, now
from fencepost.verify.workload.own import OwnProducer
from fencepost.verify.workload.writer import ClientOrders, GaveUp, TxnWriter
from tests.wire.proxy import Held, Proxy

PATIENCE_MS = 1000  # Before the client asks again, over another connection.
REST_S = 5.0
TXN_TIMEOUT_MS = 60_000


class _OneEpoch(Transaction):
    """The transactions of a version 1 client as the protocol has them: one epoch for all."""

    def _check_verification(self, is_verified: bool) -> None:
        """Such clients do not ask whether brokers verify writes."""

    def begin(self) -> ProducerIdentity:
        return self.identity

    def _end(self, commit: bool, deadline_s: float) -> None:
        code = self._ask_to_end(commit, deadline_s).error_code
        self._is_open = False
        if code:
            raise BrokerError(code, "EndTxn")


class ReorderedProducer(OwnProducer):
    def _open(self) -> Transaction:
        if self._version.bumps_epoch:
            return super()._open()
        return _OneEpoch(self.client, self._transactional_id, TXN_TIMEOUT_MS, at_most=self._version)

    def begin(self) -> None:
        if self._version.bumps_epoch:
            super().begin()
        else:
            self._added.clear()

    def add(self, topic: str, partition: int) -> None:
        self.transaction.add_partitions([(topic, partition)])
        self._added.add((topic, partition))


class _Unheard(Notes):
    """The client has given up, and does not hear the answer."""

    by = ""

    def __init__(self) -> None:
        pass

    def note(self, event: Event) -> None:
        pass


class Story:
    """One client, one topic with two partitions, and a proxy between them."""

    def __init__(
        self, servers: str, proxy: Proxy, folder: Path, topic: str, version: TransactionVersion, by: str = "writer"
    ) -> None:
        self.topic = topic
        self.group = f"{topic}-group"
        self.notes = Notes(folder / f"{by}.part", by)
        self._servers, self._proxy, self._folder, self._version = servers, proxy, folder, version
        self._settings = {"bootstrap.servers": proxy.bootstrap_servers, "request.timeout.ms": str(PATIENCE_MS)}
        self.producer = self._open()
        self.producer.init()
        self._writer = TxnWriter(self.notes, random.Random(0), ClientOrders(pause_s=0), self._open, {topic: 2})

    def _open(self) -> ReorderedProducer:
        return ReorderedProducer(self._settings, self.notes, f"{self.topic}-{self.notes.by}", self._version)

    def begin(self) -> int:
        txn = self.notes.begin()
        self.producer.begin()
        return txn

    def send(self, txn: int, partition: int, source: tuple[str, int, int] | None = None) -> None:
        """The record is in the log afterwards."""
        self.producer.send(self.topic, partition, self.notes.send(txn, self.topic, partition, source))
        self.producer.flush()

    def send_unheard(self, txn: int, partition: int) -> None:
        """The record is in the log. Its client has no answer, and gives its sequence number to the next record."""
        sequences = dict(self.producer._sequences)
        self.producer._notes = _Unheard()
        self.send(txn, partition)
        self.producer._notes, self.producer._sequences = self.notes, sequences

    def end(self, txn: int, commit: bool) -> None:
        """A transaction that cannot be ended is over when the next producer is initialised."""
        try:
            self._writer.end(self.producer, txn, commit)
        except GaveUp as e:
            self.producer = self._open()
            self.producer.init()
            self.notes.ended(*e.unfinished)

    def end_twice(self, txn: int, commit: bool) -> Held:
        """The first EndTxn is still on its way, the client has repeated it, and it was answered."""
        late = self._proxy.hold_request(EndTxnRequest)
        ending = _in_thread(lambda: self.end(txn, commit))
        late.wait_until_arrived()
        ending()
        return late

    def send_late(self, txn: int, partition: int) -> Held:
        """A Produce is on its way, and its client has given it up."""
        value = self.notes.send(txn, self.topic, partition)
        if not self.producer.transaction.version.bumps_epoch:
            self.producer.add(self.topic, partition)
        sender = copy.copy(self.producer)  # It counts the same sequence numbers.
        sender.client = KafkaClient(self._settings | {"request.timeout.ms": str(TXN_TIMEOUT_MS)})
        sender._notes = _Unheard()
        sender.client.leader(self.topic, partition)
        late = self._proxy.hold_request(ProduceRequest)

        def produce() -> None:
            try:
                sender._produce((self.topic, partition), [value])
            except ClientError:
                return  # Refused.

        _in_thread(produce)
        late.wait_until_arrived()
        return late

    def beside(self, by: str) -> Story:
        """Another client of the same topic, in the same history."""
        return Story(self._servers, self._proxy, self._folder, self.topic, self._version, by)

    def anomalies(self) -> list[Anomaly]:
        """What the checkers say, after everything was read; without what Kafka allows."""
        with KafkaClient({"bootstrap.servers": self._servers}) as client:
            reads = Notes(self._folder / "reads.part", BY)
            await_rest(client, {self.topic: 2}, REST_S)
            reads.note(Rest(now(), BY))
            last_reads(client, {self.topic: 2}, {self.group: self.topic}, reads.note)
        parts = [part.read_bytes().splitlines(keepends=True) for part in sorted(self._folder.glob("*.part"))]
        header, events = decode([encode_header(Header(0, {"verify": "a story"}, {self.topic: 2})), *merge(parts)])
        return [found for found in check_history(arrange(header, events)) if found.kind != "G0"]


@contextmanager
def told_on(servers: str, folder: Path, topic: str, version: TransactionVersion) -> Iterator[Story]:
    with KafkaClient({"bootstrap.servers": servers}) as client:
        create_topic(client, topic, 2, 1)
    with Proxy(servers) as proxy:
        yield Story(servers, proxy, folder, topic, version)


def _in_thread(work: Callable[[], None]) -> Callable[[], None]:
    """Starts it; the result waits for its end, and raises what it raised."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join() -> None:
        thread.join(60)
        assert not thread.is_alive()
        assert not failures, failures

    return join
