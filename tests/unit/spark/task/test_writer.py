"""Which leases a task asks for, and in which order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import pytest

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.encode.record_batches import EncodedRecordBatch
from fencepost.spark.lease.messages import Busy, FirstTouch, Granted, Lease, Reply, TaskAttempt
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.task.sender import Leased
from fencepost.spark.task.writer import WANTS_AT_ONCE, TaskWriter, first_turn, in_turn


class Leases:
    """The driver's side of the leases, by the rules of a real table. Counts the partitions that a task names."""

    def __init__(self, table: LeaseTable, number: int = 0) -> None:
        self.table = table
        self.task = TaskAttempt(1, number, number)
        self.asked: list[list[TopicPartition]] = []
        self.granted: list[TopicPartition] = []

    def acquire(self, wants: Mapping[TopicPartition, int]) -> list[Lease]:
        self.asked.append(list(wants))
        effects = self.table.acquire(len(self.asked), self.task, wants, 0)
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, FirstTouch):
                effects += self.table.touched(effect.partitions, 0)
            elif isinstance(effect, Reply) and isinstance(effect.outcome, Busy):
                return []
            elif isinstance(effect, Reply) and isinstance(effect.outcome, Granted):
                self.granted += [(lease.topic, lease.partition) for lease in effect.outcome.leases]
                return list(effect.outcome.leases)
        raise AssertionError(f"{self.task} would wait for ever: no other task does anything")

    def release(self, leases: Sequence[Lease], size_bytes: int) -> None:
        records = {(lease.topic, lease.partition): lease.record_count for lease in leases}
        self.table.release(self.task, records, 0, size_bytes)

    @property
    def named(self) -> int:
        return sum(map(len, self.asked))


class AcknowledgesAll:
    """Stands for brokers that acknowledge everything."""

    def send(self, leased: list[Leased]) -> None:
        pass


def writer_with(leases: Leases) -> TaskWriter:
    writer = TaskWriter.__new__(TaskWriter)
    writer._leases = leases  # type: ignore[assignment]
    writer._sender = AcknowledgesAll()  # type: ignore[assignment]
    writer.counts = {}
    return writer


def batches(partitions: range, each: int = 1) -> list[EncodedRecordBatch]:
    return [EncodedRecordBatch("t", partition, 10, b"", 0, 0, 0) for partition in partitions for _ in range(each)]


@pytest.mark.parametrize("at_once", [None, 1])
def test_the_questions_of_a_task_grow_with_its_record_batches_and_not_with_their_square(at_once: int | None) -> None:
    leases = Leases(LeaseTable(lease_timeout_ms=1000, first_touches_at_once=at_once))
    count = 4 * WANTS_AT_ONCE
    writer, waiting = writer_with(leases), in_turn(batches(range(count), each=2), turn=7)
    while waiting:
        writer._send_some(waiting)
    assert writer.counts == {("t", partition): 20 for partition in range(count)}
    assert max(map(len, leases.asked)) <= WANTS_AT_ONCE
    assert leases.named <= 2 * 2 * count


def test_a_task_gets_what_is_free_with_one_question_and_keeps_the_rest_for_later() -> None:
    table = LeaseTable(lease_timeout_ms=1000, first_touches_at_once=None)
    other = Leases(table, number=1)
    other.release(other.acquire({("t", partition): 1 for partition in range(100)}), 0)
    assert len(other.acquire({("t", partition): 1 for partition in range(2, 90)})) == 88
    leases = Leases(table)
    writer = writer_with(leases)
    waiting = {(b.topic, b.partition): deque([b]) for b in batches(range(100))}
    writer._send_some(waiting)
    assert set(leases.granted) == {("t", partition) for partition in [0, 1, *range(90, 100)]}
    assert set(waiting) == {("t", partition) for partition in range(2, 90)}
    assert len(leases.asked) == 1


def test_a_task_names_first_what_it_has_not_named_lately() -> None:
    leases = Leases(LeaseTable(lease_timeout_ms=1000, first_touches_at_once=None))
    writer, waiting = writer_with(leases), in_turn(batches(range(2 * WANTS_AT_ONCE)), turn=7)
    writer._send_some(waiting)
    writer._send_some(waiting)
    assert not set(leases.asked[0]) & set(leases.asked[1])


def test_tasks_with_many_partitions_name_them_in_different_orders() -> None:
    count = 8 * WANTS_AT_ONCE
    orders = [list(in_turn(batches(range(count)), first_turn(0, 0, number))) for number in range(20)]
    assert len({where for order in orders for where in order[:WANTS_AT_ONCE]}) > count * 0.8
    assert all(sorted(order) == [("t", partition) for partition in range(count)] for order in orders)


def test_the_record_batches_of_a_partition_keep_their_order() -> None:
    given = batches(range(100), each=3)
    for (_, partition), queue in in_turn(given, turn=3).items():
        assert [id(batch) for batch in queue] == [id(batch) for batch in given if batch.partition == partition]


def test_tasks_of_one_row_reach_all_partitions_between_them() -> None:
    for count in (2, 3, 12, 16):
        turns = [first_turn(epoch, 0, partition_id) % count for epoch in (0, 1) for partition_id in range(100)]
        assert min(turns.count(partition) for partition in range(count)) > 200 / count / 3
