"""Transactional clients: writers, which commit or abort some records per transaction, and copiers.

A copier consumes, processes and produces: one output for each input, and the group's offsets in the same transaction. A
client that cannot end its transaction is discarded. The next producer initialises the same transactional id, which ends
the transaction; only then it is noted as over.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping

from fencepost.verify.history import SendOffsets, TxnOutcome
from fencepost.verify.workload.notes import Notes, Unfinished, now
from fencepost.verify.workload.producer import Abortable, Broken, InputPlace, InputSource, TxnProducer

COMMIT_PROBABILITY = 0.75
# Between two rounds, so that a transaction has several record batches in a partition.
FLUSH_PROBABILITY = 0.5
ROUNDS = (1, 1, 2, 3)
RECORDS_PER_TOPIC = (1, 1, 2)
RETRY_PAUSE_S = 0.2


class GaveUp(Exception):
    def __init__(self, unfinished: Unfinished) -> None:
        super().__init__(str(unfinished))
        self.unfinished = unfinished


class ClientOrders:
    """Orders to a client: `stop` after the current transaction; `retire`: another client has taken over its id.

    It pauses between two transactions, `pause_s` at most.
    """

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.stop = threading.Event()
        self.retire = threading.Event()


class TxnWriter:
    """`open_producer` makes a producer; it is called again for each that is discarded."""

    def __init__(
        self,
        notes: Notes,
        rng: random.Random,
        orders: ClientOrders,
        open_producer: Callable[[], TxnProducer],
        topics: Mapping[str, int],
    ) -> None:
        self.notes = notes
        self.rng = rng
        self.orders = orders
        self._open_producer = open_producer
        self._topics = topics  # Partitions by topic.

    def run(self) -> None:
        unfinished = self.notes.left_behind
        while unfinished is not None or not self.orders.stop.is_set():
            unfinished = self._live(unfinished)
            if self.orders.retire.is_set():
                if unfinished is not None:
                    # Its successor was initialised before it was told to retire.
                    self.notes.ended(*unfinished)
                return

    def _live(self, unfinished: Unfinished | None) -> Unfinished | None:
        """The life of one producer; returns the transaction that it leaves behind."""
        producer = self._open_producer()
        try:
            producer.init()
            if unfinished is not None:
                self.notes.ended(*unfinished)
                unfinished = None
            self.begin_life(producer)
            while not self.orders.stop.is_set():
                time.sleep(self.rng.random() * self.orders.pause_s)
                self.transact(producer)
                if self.orders.retire.is_set():
                    break
        except GaveUp as leaving:
            return leaving.unfinished
        except (Abortable, Broken):
            # It could not be initialised, or a copier could not read its offsets: the next one tries it again.
            self.orders.stop.wait(RETRY_PAUSE_S)
            return unfinished
        finally:
            self.end_life()
            producer.close()
        return None

    def begin_life(self, producer: TxnProducer) -> None:
        """A producer was initialised."""

    def end_life(self) -> None:
        """It is about to be discarded."""

    def transact(self, producer: TxnProducer) -> None:
        txn = self.notes.begin()
        commit = self.rng.random() < COMMIT_PROBABILITY
        try:
            producer.begin()
            for _ in range(self.rng.choice(ROUNDS)):
                self._send_to_each_topic(producer, txn)
                if self.rng.random() < FLUSH_PROBABILITY:
                    producer.flush()
            if not commit:
                producer.flush()  # Aborted records should reach the log.
        except Abortable as e:
            self.abort(producer, txn, e.error)
        except Broken as e:
            raise GaveUp(Unfinished(txn, TxnOutcome.ABORTED, e.error)) from e
        else:
            self.end(producer, txn, commit)

    def _send_to_each_topic(self, producer: TxnProducer, txn: int) -> None:
        for topic, partitions in self._topics.items():
            for _ in range(self.rng.choice(RECORDS_PER_TOPIC)):
                partition = self.rng.randrange(partitions)
                producer.send(topic, partition, self.notes.send(txn, topic, partition))

    def end(self, producer: TxnProducer, txn: int, commit: bool) -> bool:
        """Returns whether it was committed."""
        if not commit:
            self.abort(producer, txn)
            return False
        self.notes.end(txn, True)
        try:
            producer.commit()
        except Abortable as e:
            self.abort(producer, txn, e.error)
            return False
        except Broken as e:
            raise GaveUp(Unfinished(txn, TxnOutcome.UNKNOWN, e.error)) from e
        self.notes.ended(txn, TxnOutcome.COMMITTED)
        return True

    def abort(self, producer: TxnProducer, txn: int, why: str = "") -> None:
        """Abort a transaction that the broker was not asked to commit, or that it refused to commit."""
        self.notes.end(txn, False)
        try:
            producer.abort()
        except (Abortable, Broken) as e:
            raise GaveUp(Unfinished(txn, TxnOutcome.ABORTED, why or e.error)) from e
        self.notes.ended(txn, TxnOutcome.ABORTED, why)


INPUTS_PER_TXN = (1, 5, 20)


class Copier(TxnWriter):
    """`open_source` makes the source of a producer."""

    def __init__(
        self,
        notes: Notes,
        rng: random.Random,
        orders: ClientOrders,
        open_producer: Callable[[], TxnProducer],
        open_source: Callable[[TxnProducer], InputSource],
        target: str,
    ) -> None:
        super().__init__(notes, rng, orders, open_producer, {})
        self._open_source = open_source
        self._source: InputSource | None = None
        self._target = target

    def begin_life(self, producer: TxnProducer) -> None:
        self._source = self._open_source(producer)

    def end_life(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def transact(self, producer: TxnProducer) -> None:
        assert self._source is not None
        inputs = self._source.poll(self.rng.choice(INPUTS_PER_TXN))
        if inputs and not self._copy(producer, self._source, inputs):
            self._source.rewind()

    def _copy(self, producer: TxnProducer, source: InputSource, inputs: list[InputPlace]) -> bool:
        """Returns whether it was committed."""
        txn = self.notes.begin()
        try:
            producer.begin()
            for one in inputs:
                producer.send(self._target, one.partition, self.notes.send(txn, self._target, one.partition, one))
            following = {(one.topic, one.partition): one.offset + 1 for one in inputs}
            offsets = [InputPlace(topic, partition, offset) for (topic, partition), offset in following.items()]
            self.notes.note(SendOffsets(now(), self.notes.by, txn, source.group_id, offsets))
            source.send_offsets(offsets)
        except Abortable as e:
            self.abort(producer, txn, e.error)
            return False
        except Broken as e:
            raise GaveUp(Unfinished(txn, TxnOutcome.ABORTED, e.error)) from e
        return self.end(producer, txn, self.rng.random() < COMMIT_PROBABILITY)
