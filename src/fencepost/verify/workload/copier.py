"""Copiers: consume, process, produce. One output for each input, and the group's offsets in the same transaction."""

from __future__ import annotations

import random
from collections.abc import Callable

from fencepost.verify.history import SendOffsets, TxnOutcome
from fencepost.verify.workload.notes import Notes, Unfinished, now
from fencepost.verify.workload.producer import Abortable, Broken, InputPlace, InputSource, TxnProducer
from fencepost.verify.workload.writer import COMMIT_PROBABILITY, ClientOrders, GaveUp, TxnWriter

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
