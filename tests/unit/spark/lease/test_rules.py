"""The rules of the lease table, one by one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fencepost.protocol.batch import MAX_SEQUENCE
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.messages import (
    Busy,
    Effect,
    Finished,
    FirstTouch,
    Granted,
    Lease,
    LeaseRefused,
    MustAbort,
    Outcome,
    Reply,
    TaskAttempt,
    TaskResult,
    Written,
)
from fencepost.spark.lease.rules import TASKS_THAT_SHARE, LeaseTable

TIMEOUT_MS = 10_000
REFUNDS, OTHER_REFUNDS, AUDIT = ("refunds", 0), ("refunds", 1), ("audit", 0)


def task(partition_id: int, attempt: int | None = None, write: int = 1) -> TaskAttempt:
    return TaskAttempt(write, partition_id, 100 + partition_id if attempt is None else attempt)


class Driver:
    """A table whose driver adds partitions at once, unless `adds` is False."""

    def __init__(self, *, at_once: int | None = None, adds: bool = True, sharing: int = TASKS_THAT_SHARE) -> None:
        self.table = LeaseTable(lease_timeout_ms=TIMEOUT_MS, first_touches_at_once=at_once, tasks_that_share=sharing)
        self.adds = adds
        self.now_ms = 0
        self.answers: dict[object, Outcome] = {}
        self.touches: list[TopicPartition] = []
        self.breaks: list[MustAbort] = []
        self.tickets = 0

    def take(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.ticket not in self.answers
                self.answers[effect.ticket] = effect.outcome
            elif isinstance(effect, FirstTouch):
                self.touches += effect.partitions
                if self.adds:
                    self.take(self.table.touched(effect.partitions, self.now_ms))
            else:
                self.breaks.append(effect)

    def ask(self, who: TaskAttempt, *partitions: TopicPartition, count: int = 10) -> int:
        self.tickets += 1
        self.take(self.table.acquire(self.tickets, who, dict.fromkeys(partitions, count), self.now_ms))
        return self.tickets

    def acquire(self, who: TaskAttempt, *partitions: TopicPartition, count: int = 10) -> Outcome | None:
        return self.answers.get(self.ask(who, *partitions, count=count))

    def release(self, who: TaskAttempt, *partitions: TopicPartition, count: int = 10) -> None:
        self.take(self.table.release(who, dict.fromkeys(partitions, count), self.now_ms))

    def write(self, who: TaskAttempt, partition: TopicPartition, count: int = 10) -> int:
        base_sequence = granted_at(self.acquire(who, partition, count=count))
        self.release(who, partition, count=count)
        return base_sequence

    def say_done(self, who: TaskAttempt, counts: dict[TopicPartition, int]) -> int:
        self.tickets += 1
        self.take(self.table.done(self.tickets, who, counts, self.now_ms))
        return self.tickets

    def done(self, who: TaskAttempt, counts: dict[TopicPartition, int]) -> Outcome | None:
        return self.answers.get(self.say_done(who, counts))

    def lose(self, who: TaskAttempt) -> None:
        self.take(self.table.lost(who, self.now_ms))

    def finish(self, results: Iterable[TaskResult], partitions: dict[int, int] | None = None) -> Finished | MustAbort:
        verdict, effects = self.table.finish(results, partitions)
        self.take(effects)
        return verdict


def leases_in(outcome: Outcome | None) -> dict[TopicPartition, int]:
    """The base sequence of each partition."""
    assert isinstance(outcome, Granted)
    return {(lease.topic, lease.partition): lease.base_sequence for lease in outcome.leases}


def granted_at(outcome: Outcome | None) -> int:
    """The base sequence of the only lease."""
    (base_sequence,) = leases_in(outcome).values()
    return base_sequence


def result_of(outcome: Outcome | None) -> TaskResult:
    assert isinstance(outcome, Written)
    return outcome.result


# --- sequences ----------------------------------------------------------------------------------------------


def test_after_the_highest_sequence_comes_zero() -> None:
    driver = Driver()
    driver.write(task(0), REFUNDS, count=MAX_SEQUENCE - 3)
    assert driver.write(task(0), REFUNDS, count=10) == MAX_SEQUENCE - 3
    assert driver.write(task(0), REFUNDS) == 6


def test_a_task_that_holds_a_lease_gets_busy_instead_of_waiting_for_another_lease() -> None:
    driver = Driver()
    driver.acquire(task(0), REFUNDS)
    driver.acquire(task(1), OTHER_REFUNDS)
    assert driver.acquire(task(0), OTHER_REFUNDS) == Busy()
    assert driver.acquire(task(1), REFUNDS) == Busy()
    driver.release(task(1), OTHER_REFUNDS)
    assert granted_at(driver.acquire(task(0), OTHER_REFUNDS)) == 10


# --- several leases in one answer ---------------------------------------------------------------------------


def partitions(count: int) -> list[TopicPartition]:
    return [("refunds", n) for n in range(count)]


def written_once(driver: Driver, *where: TopicPartition) -> None:
    """Every partition has had its first batch, so that only the leases decide who writes next."""
    for partition in where:
        driver.write(task(99), partition, count=1)
    driver.done(task(99), dict.fromkeys(where, 1))


def test_a_task_alone_gets_all_its_partitions_and_several_tasks_share_them() -> None:
    driver = Driver()
    written_once(driver, *partitions(6))
    assert len(leases_in(driver.acquire(task(0), *partitions(6)))) == 6
    waiting = [driver.ask(task(n), *partitions(6)) for n in (1, 2)]
    driver.release(task(0), *partitions(6))
    assert [len(leases_in(driver.answers[ticket])) for ticket in waiting] == [2, 2]
    assert len(leases_in(driver.acquire(task(0), *partitions(6)))) == 2
    for who in (task(1), task(2)):
        driver.release(who, *leases_in(driver.answers[waiting[who.partition_id - 1]]))
        driver.done(who, dict.fromkeys(leases_in(driver.answers[waiting[who.partition_id - 1]]), 10))
    driver.release(task(0), ("refunds", 4), ("refunds", 5))
    assert len(leases_in(driver.acquire(task(0), *partitions(6)))) == 6, "the others are done"


@pytest.mark.parametrize("count", [60, 1000])
def test_among_many_tasks_no_share_is_smaller_than_an_eighth_of_the_partitions(count: int) -> None:
    driver = Driver()
    written_once(driver, *partitions(count))
    assert len(leases_in(driver.acquire(task(0), *partitions(count)))) == count
    waiting = [driver.ask(task(n), *partitions(count)) for n in range(1, 30)]
    driver.release(task(0), *partitions(count))
    held = [len(leases_in(driver.answers[ticket])) for ticket in waiting[:TASKS_THAT_SHARE]]
    share = -(-count // TASKS_THAT_SHARE)
    assert held[:-1] == [share] * (TASKS_THAT_SHARE - 1)
    assert sum(held) == count
    assert not any(ticket in driver.answers for ticket in waiting[TASKS_THAT_SHARE:])


def test_one_lease_of_several_that_is_not_held_breaks_the_transaction_and_grants_nothing() -> None:
    driver = Driver()
    written_once(driver, REFUNDS, AUDIT)
    driver.acquire(task(0), REFUNDS)
    waiting = driver.ask(task(1), REFUNDS)
    driver.release(task(0), REFUNDS, AUDIT)
    (broken,) = driver.breaks
    assert "gave back a lease of audit-0 that it does not hold" in broken.reason
    assert driver.answers[waiting] == LeaseRefused(*broken)


def test_with_version_1_partitions_that_were_added_together_are_granted_together() -> None:
    driver = Driver(at_once=None, adds=False)
    ticket = driver.ask(task(0), *partitions(5))
    driver.take(driver.table.touched(partitions(5), 0))
    assert leases_in(driver.answers[ticket]) == dict.fromkeys(partitions(5), 0)


@pytest.mark.parametrize(
    "wants", [{}, {("t", 0): 0}, {("t", 0): MAX_SEQUENCE + 1}, {("t", -1): 1}, {("", 0): 1}, {("t", 0): 1, ("t", 1): 0}]
)
def test_a_senseless_request_is_an_error(wants: dict[TopicPartition, int]) -> None:
    with pytest.raises(ValueError):
        LeaseTable(lease_timeout_ms=1).acquire(1, task(0), wants, 0)


def test_a_second_question_before_the_first_is_answered_is_an_error() -> None:
    driver = Driver()
    driver.acquire(task(0), REFUNDS)
    driver.ask(task(1), REFUNDS)
    with pytest.raises(ValueError):
        driver.ask(task(1), AUDIT)


# --- first touches ------------------------------------------------------------------------------------------


def test_with_version_1_all_partitions_that_a_task_has_rows_for_are_added_together() -> None:
    table = LeaseTable(lease_timeout_ms=TIMEOUT_MS, first_touches_at_once=None)
    effects = table.acquire(1, task(0), dict.fromkeys((REFUNDS, OTHER_REFUNDS, AUDIT), 1), 0)
    assert effects == [FirstTouch((REFUNDS, OTHER_REFUNDS, AUDIT))]


def test_with_version_2_a_task_with_a_lease_does_not_wait_for_the_first_touches_of_another() -> None:
    driver = Driver(at_once=1)
    driver.write(task(1), REFUNDS)
    driver.acquire(task(0), AUDIT)
    assert isinstance(driver.acquire(task(1), REFUNDS), Granted)
    assert isinstance(driver.acquire(task(1), OTHER_REFUNDS), Busy)


def test_a_partition_that_cannot_be_added_breaks_the_transaction() -> None:
    driver = Driver(adds=False)
    ticket = driver.ask(task(0), REFUNDS)
    driver.take(driver.table.break_transaction("AddPartitionsToTxn: PRODUCER_FENCED", is_fatal=True))
    assert driver.answers[ticket] == LeaseRefused("AddPartitionsToTxn: PRODUCER_FENCED", True)


# --- owners -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acknowledged", [False, True], ids=["in flight", "acknowledged"])
def test_an_owner_lost_after_it_was_granted_anything_breaks_the_transaction_for_all(acknowledged: bool) -> None:
    driver = Driver()
    driver.acquire(task(0), REFUNDS)
    waiting = driver.ask(task(1), REFUNDS)
    parked = driver.ask(task(0, attempt=9), REFUNDS)
    if acknowledged:
        driver.release(task(0), REFUNDS)
        driver.release(task(1), REFUNDS)
    driver.lose(task(0))
    (broken,) = driver.breaks
    assert "task 100 (write 1, input partition 0) was lost after it had begun to write" in broken.reason
    assert not broken.is_fatal
    assert driver.answers[parked] == LeaseRefused(*broken)
    assert acknowledged or driver.answers[waiting] == LeaseRefused(*broken)
    assert driver.acquire(task(5), AUDIT) == LeaseRefused(*broken)
    assert driver.done(task(6), {}) == LeaseRefused(*broken)
    assert driver.finish([]) == broken


def test_a_new_stage_attempt_is_known_by_its_task_attempt_id() -> None:
    driver = Driver()
    driver.write(task(7, attempt=1), REFUNDS)
    assert driver.acquire(task(7, attempt=31), REFUNDS) is None


def test_two_attempts_with_the_same_number_are_of_two_attempts_at_the_stage_and_break_the_transaction() -> None:
    driver = Driver()
    # A retry and a speculative copy have attempt numbers of their own, as do each input partition and each write.
    for who, number in ((task(7, 1), 0), (task(7, 2), 1), (task(7, 3), 2), (task(8, 4), 0), (task(7, 5, write=2), 0)):
        driver.take(driver.table.met(who, number))
    driver.take(driver.table.met(task(7, 1), 0))
    assert driver.breaks == []
    waiting = driver.ask(task(8, 4), REFUNDS)
    driver.take(driver.table.met(task(7, 6), 0))
    (broken,) = driver.breaks
    assert "Spark runs the stage of input partition 7 of write 1 again" in broken.reason
    assert "tasks 1 and 6 are both attempt 0" in broken.reason
    assert not broken.is_fatal
    assert driver.answers[waiting] == Granted((Lease(*REFUNDS, 0, 10, TIMEOUT_MS * 9 // 10),))
    assert driver.acquire(task(8, 4), AUDIT) == LeaseRefused(*broken)


def test_the_same_partition_of_another_write_is_another_task() -> None:
    driver = Driver()
    driver.write(task(7, attempt=1, write=1), REFUNDS)
    assert driver.write(task(7, attempt=2, write=2), REFUNDS) == 10


# --- broken transactions ------------------------------------------------------------------------------------


def test_a_transaction_that_the_broker_has_aborted_by_now_is_broken_whatever_its_tasks_do() -> None:
    driver = Driver()
    driver.table = LeaseTable(lease_timeout_ms=TIMEOUT_MS, first_touches_at_once=1, transaction_timeout_ms=60_000)
    driver.now_ms = 5_000
    assert driver.table.next_deadline_ms is None, "nothing is open before the first partition is added"
    driver.write(task(1), REFUNDS)
    driver.now_ms = 40_000
    driver.write(task(1), AUDIT)
    assert driver.table.next_deadline_ms == 65_000
    driver.take(driver.table.tick(64_999))
    assert driver.breaks == []
    driver.take(driver.table.tick(65_000))
    assert driver.breaks == [MustAbort("the transaction was open for transaction.timeout.ms=60000", False)]
    assert driver.table.next_deadline_ms is None


def test_the_time_counts_in_which_the_oldest_record_batch_was_not_acknowledged() -> None:
    driver = Driver()
    patience_ms = TIMEOUT_MS // 100
    driver.acquire(task(0), REFUNDS)
    driver.now_ms = 2_000
    driver.acquire(task(1), AUDIT)
    driver.take(driver.table.tick(3_000))
    assert driver.table.stalls.total_ms == 3_000 - patience_ms
    driver.now_ms = 4_000
    driver.release(task(0), REFUNDS)
    driver.now_ms = 5_000
    driver.release(task(1), AUDIT)
    assert driver.table.stalls.total_ms == 5_000 - patience_ms, "two record batches at the same time count once"
    driver.take(driver.table.tick(20_000))
    assert driver.table.stalls.total_ms == 5_000 - patience_ms, "nothing was out"


def test_acknowledgements_that_come_in_time_are_no_stall() -> None:
    driver = Driver()
    for n in range(100):
        driver.acquire(task(0), REFUNDS)
        driver.now_ms = (n + 1) * (TIMEOUT_MS // 100)
        driver.release(task(0), REFUNDS)
    assert driver.table.stalls.total_ms == 0


def test_a_lease_past_its_deadline_breaks_the_transaction() -> None:
    driver = Driver()
    driver.acquire(task(0), REFUNDS)
    driver.now_ms = 4_000
    driver.acquire(task(1), AUDIT)
    assert driver.table.next_deadline_ms == TIMEOUT_MS
    driver.take(driver.table.tick(TIMEOUT_MS - 1))
    assert not driver.breaks
    driver.release(task(0), REFUNDS)
    assert driver.table.next_deadline_ms == TIMEOUT_MS + 4_000
    driver.take(driver.table.tick(TIMEOUT_MS + 4_000))
    assert "task 101 (write 1, input partition 1) held the lease of audit-0 for 10000 ms" in driver.breaks[0].reason
    assert driver.table.next_deadline_ms is None


@pytest.mark.parametrize("count", [0, 9, 11])
def test_a_batch_that_was_not_acknowledged_in_full_breaks_the_transaction(count: int) -> None:
    driver = Driver()
    driver.acquire(task(0), REFUNDS)
    driver.release(task(0), REFUNDS, count=count)
    assert f"wrote {count} of the 10 records for refunds-0" in driver.breaks[0].reason


def test_a_task_whose_count_differs_from_the_brokers_breaks_the_transaction() -> None:
    driver = Driver()
    driver.write(task(0), REFUNDS)
    driver.say_done(task(0), {REFUNDS: 11})
    assert "counted refunds-0: 11, but the brokers acknowledged refunds-0: 10" in driver.breaks[0].reason


def test_a_task_that_is_done_with_a_lease_in_its_hand_breaks_the_transaction() -> None:
    driver = Driver()
    driver.acquire(task(0), REFUNDS)
    refused = driver.done(task(0), {REFUNDS: 10})
    assert isinstance(refused, LeaseRefused)
    assert "holds refunds-0" in refused.reason


def test_a_fatal_failure_breaks_the_transaction_even_before_the_first_batch() -> None:
    driver = Driver()
    driver.take(driver.table.fail(task(0), "topic refunds: a record of 2 MB; 1 MB allowed", True, 0))
    assert driver.breaks == [MustAbort("topic refunds: a record of 2 MB; 1 MB allowed", True)]


def test_a_task_that_throws_before_its_first_batch_may_be_tried_again() -> None:
    driver = Driver()
    driver.ask(task(7, attempt=1), REFUNDS)
    driver.take(driver.table.fail(task(8, attempt=2), "ZeroDivisionError", False, 0))
    assert not driver.breaks
    assert driver.write(task(8, attempt=3), AUDIT) == 0


def test_a_task_that_throws_after_its_first_batch_breaks_the_transaction() -> None:
    driver = Driver()
    driver.write(task(0), REFUNDS)
    driver.take(driver.table.fail(task(0), "ZeroDivisionError", False, 0))
    assert "ZeroDivisionError" in driver.breaks[0].reason


def test_a_task_that_is_done_may_write_nothing_more() -> None:
    driver = Driver()
    driver.write(task(0), REFUNDS)
    driver.done(task(0), {REFUNDS: 10})
    assert isinstance(driver.acquire(task(0), REFUNDS), LeaseRefused)
    assert not driver.breaks


# --- the end ------------------------------------------------------------------------------------------------


def written(driver: Driver, partitions: int = 2) -> list[TaskResult]:
    results = []
    for n in range(partitions):
        driver.write(task(n), REFUNDS, count=n + 1)
        driver.write(task(n), AUDIT, count=n + 1)
        results.append(result_of(driver.done(task(n), {REFUNDS: n + 1, AUDIT: n + 1})))
    return results


def test_no_task_may_write_after_the_end() -> None:
    driver = Driver()
    driver.finish(written(driver))
    assert isinstance(driver.acquire(task(9), REFUNDS), LeaseRefused)
    driver.lose(task(0))
    assert not driver.breaks


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: [r[0]], "Spark accepted no result for input partition 1 of write 1"),
        (lambda r: [r[0], r[0], r[1]], "two results for input partition 0"),
        (lambda r: [r[0], r[1]._replace(task_attempt_id=999)], "by task 999"),
        (lambda r: [r[0], r[1]._replace(counts=())], "Spark accepted nothing by task 101"),
        (lambda r: [*r, TaskResult(1, 2, 102, ())], "never said that it was done"),
    ],
    ids=["one missing", "one twice", "another attempt", "another count", "one too many"],
)
def test_a_transaction_does_not_finish_with_results_of_other_writes(change, reason: str) -> None:  # type: ignore[no-untyped-def]
    driver = Driver()
    broken = driver.finish(change(written(driver)))
    assert isinstance(broken, MustAbort)
    assert reason in broken.reason


def test_a_transaction_does_not_finish_before_every_input_partition_has_a_result() -> None:
    driver = Driver()
    broken = driver.finish(written(driver), {1: 3})
    assert isinstance(broken, MustAbort)
    assert "no result for input partition 2 of write 1 (1 of 3)" in broken.reason
