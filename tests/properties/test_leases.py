"""The lease table under any mix of retries, copies, deaths, slow brokers and late answers.

The model is the brokers' side: which sequences were granted, which records were acknowledged, and who wrote them. It
never looks into the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.protocol.batch import MAX_SEQUENCE, advance_sequence
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
from fencepost.spark.lease.rules import LeaseTable

TIMEOUT_MS = 1_000
INPUTS = 6
OUTPUTS: list[TopicPartition] = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
which = st.integers(0, 30)
some_outputs = st.lists(st.sampled_from(OUTPUTS), min_size=1, max_size=4, unique=True)
# Near the largest sequence, one record batch wraps it around.
counts = st.sampled_from([1, 2, MAX_SEQUENCE - 1])


@dataclass
class Attempt:
    """A task attempt from its own point of view."""

    task: TaskAttempt
    ticket: int | None = None  # Of its open question.
    asked_for: dict[TopicPartition, int] = field(default_factory=dict)
    held: dict[TopicPartition, int] = field(default_factory=dict)
    written: dict[TopicPartition, int] = field(default_factory=dict)
    was_granted: bool = False
    result: TaskResult | None = None
    is_alive: bool = True
    was_refused: bool = False

    @property
    def may_act(self) -> bool:
        return self.is_alive and self.ticket is None and self.result is None and not self.was_refused


class LeaseRules(RuleBasedStateMachine):
    @initialize(at_once=st.sampled_from([None, 1, 2]), share=st.sampled_from([1, 2, 100]), is_calm=st.booleans())
    def start(self, at_once: int | None, share: int, is_calm: bool) -> None:
        # In a calm run nothing happens that breaks the transaction, so it gets far.
        self.is_calm = is_calm
        self.table = LeaseTable(lease_timeout_ms=TIMEOUT_MS, first_touches_at_once=at_once, tasks_that_share=share)
        self.at_once = at_once
        self.tasks_that_share = share
        self.now_ms = 0
        self.attempts = [Attempt(TaskAttempt(1, n, n)) for n in range(INPUTS)]
        self.asking: dict[int, Attempt] = {}
        self.tickets = 0
        self.to_touch: list[TopicPartition] = []
        self.touched: set[TopicPartition] = set()
        self.next_sequence = dict.fromkeys(OUTPUTS, 0)
        self.acknowledged = dict.fromkeys(OUTPUTS, 0)
        self.broken: MustAbort | None = None
        self.should_break = False

    # --- effects of the table -----------------------------------------------------------------------------

    def take(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(ticket, outcome):
                    assert isinstance(ticket, int)
                    self.hear(self.asking.pop(ticket), outcome)
                case FirstTouch(partitions):
                    self.to_touch += partitions
                case MustAbort():
                    assert self.broken is None, "said once"
                    assert self.should_break, effect.reason
                    self.broken = effect

    def hear(self, attempt: Attempt, outcome: Outcome) -> None:
        attempt.ticket = None
        match outcome:
            case Granted(leases):
                assert attempt.is_alive
                assert leases
                later = [lease for lease in leases if self.acknowledged[lease.topic, lease.partition]]
                assert len(later) <= self.most_leases(), "only first batches may be more than the share of a task"
                for lease in leases:
                    self.hear_lease(attempt, lease)
            case Busy():
                assert attempt.held
            case Written(result):
                attempt.result = result
            case LeaseRefused():
                assert self.should_break
                attempt.was_refused = True

    def most_leases(self) -> int:
        """The share of a task that asks now: it counts, and so does everyone who has leases or waits for the first."""
        writing = {a.task.input for a in self.attempts if a.is_alive and a.result is None and (a.held or a.ticket)}
        return -(-len(OUTPUTS) // max(1, min(len(writing), self.tasks_that_share)))

    def hear_lease(self, attempt: Attempt, lease: Lease) -> None:
        at = lease.topic, lease.partition
        assert attempt.asked_for[at] == lease.record_count, "what it asked for"
        # TV2: a task that sends the first batch of a partition may do so for others too, which adds them.
        assert at in self.touched or (self.at_once is not None and self.holds_first_batch(attempt))
        self.touched.add(at)
        assert not any(at in other.held for other in self.attempts), "one batch in flight"
        assert lease.base_sequence == self.next_sequence[at], "no gap, and nothing twice"
        self.next_sequence[at] = advance_sequence(lease.base_sequence, lease.record_count)
        attempt.held[at] = lease.record_count
        attempt.was_granted = True

    def holds_first_batch(self, attempt: Attempt) -> bool:
        return any(self.acknowledged[at] == 0 for at in attempt.held)

    def pick(self, n: int, among: list[Attempt]) -> Attempt | None:
        return among[n % len(among)] if among else None

    # --- tasks --------------------------------------------------------------------------------------------

    @rule(partition_id=st.integers(0, INPUTS - 1), wanted=some_outputs)
    def spark_starts_another_attempt(self, partition_id: int, wanted: list[TopicPartition]) -> None:
        self.attempts.append(Attempt(TaskAttempt(1, partition_id, len(self.attempts))))
        self.ask_for(self.attempts[-1], wanted, 1)

    @rule(n=which, wanted=some_outputs, count=counts)
    def ask(self, n: int, wanted: list[TopicPartition], count: int) -> None:
        if attempt := self.pick(n, [a for a in self.attempts if a.may_act]):
            self.ask_for(attempt, wanted, count)

    def ask_for(self, attempt: Attempt, wanted: list[TopicPartition], count: int) -> None:
        self.tickets += 1
        attempt.ticket = self.tickets
        # Different numbers of records, so that a lease cannot be taken for that of another partition.
        attempt.asked_for = {at: max(1, count - n) for n, at in enumerate(wanted)}
        self.asking[self.tickets] = attempt
        self.take(self.table.acquire(self.tickets, attempt.task, attempt.asked_for, self.now_ms))

    @rule(n=which, most=st.integers(1, 4))
    def brokers_acknowledge(self, n: int, most: int) -> None:
        """Some of what a task has in flight, in one message."""
        if attempt := self.pick(n, [a for a in self.attempts if a.is_alive and a.held]):
            self.acknowledge(attempt, most)

    def acknowledge(self, attempt: Attempt, most: int) -> None:
        acknowledged = dict(attempt.held.popitem() for _ in range(min(most, len(attempt.held))))
        for at, count in acknowledged.items():
            attempt.written[at] = attempt.written.get(at, 0) + count
            self.acknowledged[at] += count
        self.take(self.table.release(attempt.task, acknowledged, self.now_ms))

    @rule(n=which, has_no_rows=st.integers(0, 5).map(lambda n: n == 0))
    def end(self, n: int, has_no_rows: bool) -> None:
        able = [a for a in self.attempts if a.may_act and not a.held and (a.written or has_no_rows)]
        if attempt := self.pick(n, able):
            self.say_done(attempt)

    def say_done(self, attempt: Attempt) -> None:
        self.tickets += 1
        attempt.ticket = self.tickets
        attempt.asked_for = {}
        self.asking[self.tickets] = attempt
        self.take(self.table.done(self.tickets, attempt.task, attempt.written, self.now_ms))

    @rule(n=which, throws=st.booleans(), has_written=st.integers(0, 5).map(lambda n: n == 0))
    def die(self, n: int, throws: bool, has_written: bool) -> None:
        mortal = [a for a in self.attempts if a.is_alive and not (throws and a.ticket)]
        if self.is_calm or not has_written:
            mortal = [a for a in mortal if not a.was_granted or a.result]
        attempt = self.pick(n, mortal)
        if attempt is None:
            return
        attempt.is_alive = False
        self.should_break |= attempt.was_granted and attempt.result is None
        lost = (
            self.table.fail(attempt.task, "it threw", False, self.now_ms)
            if throws
            else self.table.lost(attempt.task, self.now_ms)
        )
        self.take(lost)
        self.asking.pop(attempt.ticket or 0, None)
        attempt.held.clear()

    # --- driver -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.to_touch)
    @rule()
    def partitions_are_added(self) -> None:
        partitions, self.to_touch = self.to_touch, []
        self.touched.update(partitions)
        self.take(self.table.touched(partitions, self.now_ms))

    @rule(ms=st.sampled_from([1, 50, 400]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += 0 if self.is_calm else ms
        deadline_ms = self.table.next_deadline_ms
        is_held = any(a.held for a in self.attempts)
        assert self.broken or (deadline_ms is not None) == is_held
        self.should_break |= deadline_ms is not None and self.now_ms >= deadline_ms
        self.take(self.table.tick(self.now_ms))

    # --- invariants ---------------------------------------------------------------------------------------

    @invariant()
    def nobody_waits_with_a_lease_in_hand(self) -> None:
        assert not any(a.held and a.ticket for a in self.attempts if a.is_alive)

    @invariant()
    def nobody_waits_for_a_partition_that_is_free(self) -> None:
        held = {at for attempt in self.attempts for at in attempt.held}
        writing = [a for a in self.attempts if a.ticket and a.is_alive and self.is_first_of_its_input(a)]
        free = {at for at in OUTPUTS if self.acknowledged[at] and at not in held}
        assert self.broken or not any(free & set(a.asked_for) for a in writing)

    def is_first_of_its_input(self, attempt: Attempt) -> bool:
        """Is it the one that owns its input partition, as far as the others show? A copy has to wait."""
        return all(a is attempt or not a.is_alive for a in self.attempts if a.task.input == attempt.task.input)

    @invariant()
    def one_attempt_writes_the_rows_of_an_input_partition(self) -> None:
        if not self.broken:
            writers = [a.task.input for a in self.attempts if a.was_granted]
            assert len(writers) == len(set(writers))

    @invariant()
    def a_broken_transaction_keeps_nobody_waiting(self) -> None:
        assert not self.broken or not self.asking
        assert bool(self.broken) == self.should_break

    @invariant()
    def first_batches_go_out_from_one_task_at_a_time(self) -> None:
        touching = [attempt for attempt in self.attempts if self.holds_first_batch(attempt)]
        assert self.at_once is None or len(touching) <= self.at_once

    def teardown(self) -> None:
        """From any state, a transaction whose tasks live on comes to its end, and the counts agree."""
        if not hasattr(self, "table"):
            return
        for _ in range(200):
            if self.to_touch:
                self.partitions_are_added()
            for attempt in self.attempts:
                if attempt.is_alive and attempt.held:
                    self.acknowledge(attempt, most=len(attempt.held))
                elif attempt.may_act:
                    self.say_done(attempt)
        assert not self.asking, "every waiting task was answered"
        # Spark may accept any one of several attempts.
        accepted = {a.task.input: a.result for a in self.attempts if a.is_alive and a.result}
        dead_but_done = {a.task.input: a.result for a in self.attempts if not a.is_alive and a.result}
        verdict, effects = self.table.finish((dead_but_done | accepted).values())
        self.take(effects)
        if self.broken:
            assert verdict == self.broken
            return
        assert verdict == Finished({at: n for at, n in self.acknowledged.items() if n})
        assert sum(n for r in (dead_but_done | accepted).values() for *_, n in r.counts) == sum(
            self.acknowledged.values()
        )


TestLeases = LeaseRules.TestCase
TestLeases.settings = settings(max_examples=200, stateful_step_count=50)
