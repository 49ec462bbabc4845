"""What a task makes of a broker's answers, and how it waits for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest

from fencepost.client.failures import BrokerError, DeadlinePassed, Unreachable
from fencepost.protocol import errors
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.encode.record_batches import EncodedBatch
from fencepost.spark.lease.messages import Busy, FirstTouch, Granted, Reply, TaskAttempt, Want
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.task import run as task
from fencepost.spark.task.run import WANTS_AT_ONCE, TaskWriter, Verdict, first_turn, in_turn, judge, patiently


@pytest.mark.parametrize(
    ("codes", "verdict"),
    [
        ([0], Verdict.WRITTEN),
        # The leader moved, or nobody knows yet: the same bytes are a duplicate at worst.
        ([3, 5, 6, 7, 13, 19, 20, 51, 56], Verdict.AGAIN),
        ([10, 18], Verdict.TOO_LARGE),
        # Sequences, epochs, states: this transaction is over, the next may do.
        ([45, 46, 47, 48, 59, 90, 100, 120], Verdict.BROKEN),
        # What another attempt would hear as well.
        ([2, 17, 29, 31, 32, 53, 76, 87], Verdict.FATAL),
    ],
)
def test_every_answer_means_one_thing(codes: list[int], verdict: Verdict) -> None:
    assert {code: judge(code) for code in codes} == dict.fromkeys(codes, verdict)


def test_a_code_of_the_future_breaks_the_transaction() -> None:
    assert judge(9999) is Verdict.BROKEN


def test_tasks_of_one_row_reach_all_partitions_between_them() -> None:
    for count in (2, 3, 12, 16):
        turns = [first_turn(epoch, 0, partition_id) % count for epoch in (0, 1) for partition_id in range(100)]
        assert min(turns.count(partition) for partition in range(count)) > 200 / count / 3


def answers(*given: object) -> Callable[[], object]:
    left = list(given)

    def ask() -> object:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_brokers_that_cannot_be_reached_are_asked_again() -> None:
    assert patiently(answers(Unreachable("down"), Unreachable("down"), 3)) == 3


def test_a_refusal_is_not_asked_again_even_if_it_is_retriable_elsewhere() -> None:
    unknown = BrokerError(errors.UNKNOWN_TOPIC_OR_PARTITION, "topic orders")
    assert unknown.is_retriable
    with pytest.raises(BrokerError, match="topic orders"):
        patiently(answers(unknown, 3))


def test_patience_ends() -> None:
    with pytest.raises(DeadlinePassed, match="no broker"):
        patiently(answers(*[Unreachable("no broker")] * 9), deadline_s=0.05)


def test_rows_are_gathered_so_that_batches_get_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "GATHER_BYTES", 1000)
    small = pa.RecordBatch.from_pydict({"value": ["x" * 300]})
    gathered = list(task._gather([small, small.slice(0, 0), small, small, small, small]))
    assert [table.num_rows for table in gathered] == [4, 1]


# --- which leases it asks for -------------------------------------------------------------------------------


class Leases:
    """What a task says to the driver, by the rules of a real table. It counts what is named."""

    def __init__(self, table: LeaseTable, number: int = 0) -> None:
        self.table = table
        self.task = TaskAttempt(1, number, number)
        self.asked: list[list[TopicPartition]] = []
        self.granted: list[TopicPartition] = []

    def acquire(self, given: Iterable[Want]) -> Granted | None:
        wants = list(given)
        self.asked.append([(want.topic, want.partition) for want in wants])
        effects = self.table.acquire(len(self.asked), self.task, wants, 0)
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, FirstTouch):
                effects += self.table.touched(effect.partitions, 0)
            elif isinstance(effect, Reply) and isinstance(effect.outcome, Busy):
                return None
            elif isinstance(effect, Reply) and isinstance(effect.outcome, Granted):
                self.granted.append(effect.outcome[:2])
                return effect.outcome
        raise AssertionError(f"{self.task} would wait for ever: nobody else does anything")

    def release(self, lease: Granted, size_bytes: int) -> None:
        self.table.release(self.task, (lease.topic, lease.partition), lease.record_count, 0, size_bytes)

    @property
    def named(self) -> int:
        return sum(map(len, self.asked))


def writer_with(leases: Leases) -> TaskWriter:
    """One whose brokers acknowledge everything."""
    writer = TaskWriter.__new__(TaskWriter)
    writer._leases = leases  # type: ignore[assignment]
    writer._send = lambda sending: None  # type: ignore[method-assign]
    writer.counts = {}
    return writer


def batches(partitions: range, each: int = 1) -> list[EncodedBatch]:
    return [EncodedBatch("t", partition, 10, b"", 0, 0, 0, 0) for partition in partitions for _ in range(each)]


@pytest.mark.parametrize("at_once", [None, 1])
def test_what_a_task_asks_grows_with_its_batches_not_with_their_square(at_once: int | None) -> None:
    leases = Leases(LeaseTable(lease_timeout_ms=1000, first_touches_at_once=at_once))
    writer, waiting = writer_with(leases), in_turn(batches(range(1000), each=2), turn=7)
    while waiting:
        writer._send_some(waiting)
    assert writer.counts == {("t", partition): 20 for partition in range(1000)}
    assert max(map(len, leases.asked)) <= WANTS_AT_ONCE
    assert leases.named <= 2 * WANTS_AT_ONCE * 2000


def test_a_task_that_finds_nothing_free_asks_for_the_next_partitions_in_turn() -> None:
    table = LeaseTable(lease_timeout_ms=1000, first_touches_at_once=None)
    other = Leases(table, number=1)
    others = [("t", partition) for partition in range(2, 100)]
    for partition in [*others, ("t", 0), ("t", 1), *(("t", partition) for partition in range(100, 150))]:
        lease = other.acquire([Want(*partition, 1)])
        assert lease is not None
        other.release(lease, 0)  # A partition is first touched for one who holds nothing.
    for partition in others:
        assert other.acquire([Want(*partition, 1)]) is not None
    leases = Leases(table)
    writer = writer_with(leases)
    waiting = {(b.topic, b.partition): deque([b]) for b in batches(range(150))}
    writer._send_some(waiting)
    assert set(leases.granted) == {("t", partition) for partition in [0, 1, *range(100, 150)]}
    assert set(waiting) == set(others)


def test_tasks_with_many_partitions_name_them_in_different_orders() -> None:
    orders = [list(in_turn(batches(range(1000)), first_turn(0, 0, number))) for number in range(20)]
    assert len({where for order in orders for where in order[:WANTS_AT_ONCE]}) > 500
    assert all(sorted(order) == [("t", partition) for partition in range(1000)] for order in orders)


def test_the_batches_of_a_partition_keep_their_order() -> None:
    given = batches(range(100), each=3)
    for (_, partition), queue in in_turn(given, turn=3).items():
        assert [id(batch) for batch in queue] == [id(batch) for batch in given if batch.partition == partition]
