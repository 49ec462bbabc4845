"""What a task makes of a broker's answers, and how it waits for one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from fencepost.client.failures import BrokerError, DeadlinePassed, Unreachable
from fencepost.protocol import errors
from fencepost.spark import task
from fencepost.spark.task import Verdict, first_turn, judge, patiently


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
