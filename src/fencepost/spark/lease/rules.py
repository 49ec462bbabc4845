"""The rules of leases: which task may write to which partition, at which sequence, in one transaction. Pure.

Many tasks write under one producer id and epoch, and a broker accepts the record batches of a partition only in the
order of their sequences. So a task asks for the leases of output partitions, gets the base sequences of its next
record batches, and gives the leases back once the brokers acknowledged them. Two promises carry everything else:

- A sequence that was granted counts as written and is never granted again. If it is unclear whether a record batch was
  written, the transaction is broken.
- The rows of an input partition are written by one attempt, its owner. Another attempt waits, and then reports the
  result of the owner. An owner that is lost after its first lease breaks the transaction.

Every method returns effects for the caller to carry out: replies to tickets, which the caller chose, and partitions
to add.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from fencepost.protocol.batch import MAX_SEQUENCE, advance_sequence
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.comparing import compare_counts, compare_results
from fencepost.spark.lease.messages import (
    Busy,
    Effect,
    Finished,
    FirstTouch,
    Granted,
    InputPartition,
    Lease,
    LeaseRefused,
    MustAbort,
    Outcome,
    Reply,
    TaskAttempt,
    TaskResult,
    Ticket,
    Topics,
    Written,
)
from fencepost.spark.lease.stalls import Stalls
from fencepost.spark.lease.wording import input_name_of, name_of

# Among how many tasks the partitions are shared, if there are so many. Fewer tasks with more leases each need fewer
# messages; more tasks send at the same time. `docs/internals/leases-at-scale.md` has the measurements.
TASKS_THAT_SHARE = 8


class Touch(Enum):
    NOT_YET = "not yet"
    PENDING = "pending"
    DONE = "done"


@dataclass(slots=True, eq=False)
class _Ask:
    """A question that waits for its answer: for leases (`wants`), or whether a task's counts are right (`counts`)."""

    ticket: Ticket
    task: TaskAttempt
    wants: Mapping[TopicPartition, int] | None
    counts: Mapping[TopicPartition, int] | None = None
    topics: Topics = ()
    leases: list[Lease] = field(default_factory=list)  # Granted in this call of the table, which ends with the answer.
    is_over: bool = False  # Answered, or its task is gone. A queue drops such entries when it reaches them.


@dataclass(slots=True)
class _Output:
    touch: Touch = Touch.NOT_YET
    next_sequence: int = 0
    holder: TaskAttempt | None = None
    granted: int = 0
    acknowledged: int = 0
    queue: deque[_Ask] = field(default_factory=deque)

    def oldest_ask(self, share: int) -> _Ask | None:
        """The task that has waited longest, without those that have their share of leases: they are answered now."""
        queue = self.queue
        while queue and (queue[0].is_over or len(queue[0].leases) >= share):
            queue.popleft()
        return queue[0] if queue else None


@dataclass(slots=True)
class _Input:
    owner: TaskAttempt | None = None
    has_written: bool = False
    held: set[TopicPartition] = field(default_factory=set)
    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    result: TaskResult | None = None
    ask: _Ask | None = None
    parked: list[_Ask] = field(default_factory=list)


class LeaseTable:
    """The leases of one transaction.

    first_touches_at_once: how many tasks may have first record batches of partitions in flight.
        TV2: one. The first record batch adds its partition, and the coordinator rejects concurrent additions with
        error 51, which some brokers turn into 19. One task may touch any number of partitions: a broker adds all
        partitions of a request at once. A task in a Python worker sends one request after another. A task in Spark's
        JVM sends to all leaders first, so it may get these errors, and sends the same record batches again.
        TV1: None, which means any number. The driver adds the partitions itself.

    transaction_timeout_ms: the broker aborts the transaction this long after its first partition was added. Tasks that
    go on after that work for nothing, and some never end by themselves.

    tasks_that_share: a task gets its share of the partitions at once, as if there were at most this many tasks.
    """

    def __init__(
        self,
        *,
        lease_timeout_ms: int,
        first_touches_at_once: int | None = 1,
        transaction_timeout_ms: int | None = None,
        tasks_that_share: int = TASKS_THAT_SHARE,
    ) -> None:
        assert lease_timeout_ms > 0
        assert first_touches_at_once is None or first_touches_at_once > 0
        self.lease_timeout_ms = lease_timeout_ms
        self._within_ms = lease_timeout_ms * 9 // 10
        self.broken: MustAbort | None = None
        self.finished: Finished | None = None
        self.record_batches = 0
        self.bytes = 0
        self.stalls = Stalls(lease_timeout_ms)
        self._at_once = first_touches_at_once
        self._tasks_that_share = tasks_that_share
        self._owners = 0  # Tasks that own an input partition and are not done with it.
        self._transaction_timeout_ms = transaction_timeout_ms
        self._ends_ms: int | None = None  # When the broker aborts the transaction.
        self._outputs: dict[TopicPartition, _Output] = {}
        self._inputs: dict[InputPartition, _Input] = {}
        self._met: dict[tuple[InputPartition, int], TaskAttempt] = {}
        self._deadlines: dict[TopicPartition, int] = {}  # Of the granted leases, oldest first.
        # Added to the transaction, and not held. A partition that comes back goes to the next task in its queue, so
        # these have no queue.
        self._free: set[TopicPartition] = set()
        self._first_touches: set[TopicPartition] = set()
        self._untouched: deque[TopicPartition] = deque()
        self._to_touch: list[TopicPartition] = []
        self._granted: list[_Ask] = []  # Questions that get leases in this call.
        self._effects: list[Effect] = []

    # --- requests of a task ---------------------------------------------------------------------------------

    def met(self, task: TaskAttempt, attempt_number: int) -> list[Effect]:
        """A task has begun. If two attempts at an input partition have the same number, Spark runs the stage again.

        Spark does so when the output of an earlier shuffle is lost. The new run may give other rows, or the same rows
        in another order, while some tasks of the first run have already written theirs.
        """
        earlier = self._met.setdefault((task.input, attempt_number), task)
        if earlier != task:
            self._break(
                f"Spark runs the stage of {input_name_of(task.input)} again, which may give other rows than before "
                f"(tasks {earlier.task_attempt_id} and {task.task_attempt_id} are both attempt {attempt_number})"
            )
        return self._take()

    def acquire(
        self, ticket: Ticket, task: TaskAttempt, wants: Mapping[TopicPartition, int], now_ms: int
    ) -> list[Effect]:
        """Ask for leases of the partitions that a task has a record batch for; earlier ones are preferred.

        wants: the number of records in the next record batch of each partition.

        The reply has at least one lease, and those of all partitions that are free, up to the task's share. It may come
        at once or as an effect of a later call.
        """
        _check(wants)
        self._admit(_Ask(ticket, task, wants), now_ms)
        if self._to_touch and self._ends_ms is None and self._transaction_timeout_ms is not None:
            self._ends_ms = now_ms + self._transaction_timeout_ms
        return self._take()

    def release(
        self, task: TaskAttempt, acknowledged: Mapping[TopicPartition, int], now_ms: int, size_bytes: int = 0
    ) -> list[Effect]:
        """The brokers acknowledged the record batches of these leases. If not all of it, the transaction is broken.

        acknowledged: the number of records in each partition. size_bytes: of all the record batches.
        """
        if self.broken or self.finished:
            return []
        self.stalls.look(self._deadlines.values(), now_ms)
        for partition, count in acknowledged.items():
            output = self._outputs.get(partition)
            if output is None or output.holder != task:
                self._break(f"{task} gave back a lease of {name_of(partition)} that it does not hold")
                return self._take()
            if count != output.granted:
                self._break(f"{task} wrote {count} of the {output.granted} records for {name_of(partition)}")
                return self._take()
        self.bytes += size_bytes
        self._settle(self._inputs[task.input], acknowledged)
        for partition in acknowledged:
            if self._serve(self._outputs[partition], partition, now_ms) is None:
                self._free.add(partition)
        self._start_first_touches()
        return self._take()

    def done(
        self,
        ticket: Ticket,
        task: TaskAttempt,
        counts: Mapping[TopicPartition, int],
        now_ms: int,
        topics: Topics = (),
    ) -> list[Effect]:
        """A task has no more rows, and wrote this many. It must not yield its result before the reply."""
        self._admit(_Ask(ticket, task, None, counts, topics), now_ms)
        return self._take()

    def fail(self, task: TaskAttempt, reason: str, is_fatal: bool, now_ms: int) -> list[Effect]:
        """A task gives up. `is_fatal`: another attempt would fail as well."""
        if is_fatal:
            self._break(reason, is_fatal=True)
        else:
            self._lose(task, reason, now_ms)
        return self._take()

    # --- lost tasks, and time -------------------------------------------------------------------------------

    def lost(self, task: TaskAttempt, now_ms: int) -> list[Effect]:
        """The connection to a task has ended, so the task counts as dead."""
        self._lose(task, "its connection was lost", now_ms)
        return self._take()

    def tick(self, now_ms: int) -> list[Effect]:
        """To be called at `next_deadline_ms`: breaks the transaction if a lease or the transaction has expired."""
        if not self.broken:
            self.stalls.look(self._deadlines.values(), now_ms)
        for partition, deadline_ms in self._deadlines.items():
            if now_ms >= deadline_ms:
                holder = self._outputs[partition].holder
                self._break(
                    f"{holder} held the lease of {name_of(partition)} for {self.lease_timeout_ms} ms without an "
                    "acknowledgement"
                )
            break  # All leases last equally long, so the oldest expires first.
        if self._ends_ms is not None and now_ms >= self._ends_ms:
            self._break(f"the transaction was open for transaction.timeout.ms={self._transaction_timeout_ms}")
        return self._take()

    @property
    def next_deadline_ms(self) -> int | None:
        if self.broken or self.finished:
            return None
        deadlines = [next(iter(self._deadlines.values()), None), self._ends_ms]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # --- calls of the driver ----------------------------------------------------------------------------------

    def touched(self, partitions: Iterable[TopicPartition], now_ms: int) -> list[Effect]:
        """The partitions of a `FirstTouch` are added to the transaction."""
        for partition in partitions:
            output = self._outputs[partition]
            if output.touch is not Touch.PENDING:
                continue
            output.touch = Touch.DONE
            ask = self._serve(output, partition, now_ms)
            if ask is not None:
                self._touch_others(ask, now_ms)
            elif self._at_once is None:
                self._free.add(partition)
            else:
                # The task that asked is gone or got another lease, so another partition may have its first touch.
                output.touch = Touch.NOT_YET
                self._first_touches.discard(partition)
        self._start_first_touches()
        return self._take()

    def break_transaction(self, reason: str, *, is_fatal: bool = False) -> list[Effect]:
        """For reasons outside these rules: the driver gives up, or a task disputes the result of another attempt."""
        self._break(reason, is_fatal)
        return self._take()

    def finish(
        self, results: Iterable[TaskResult], input_partitions: Mapping[int, int] | None = None
    ) -> tuple[Finished | MustAbort, list[Effect]]:
        """Before EndTxn: did Spark accept exactly what the brokers acknowledged? No task may write after this.

        input_partitions: the number of input partitions of each write.
        """
        if self.finished:
            return self.finished, []
        if not self.broken:
            inputs = self._inputs.items()
            written = {input_: of.result for input_, of in inputs if of.result is not None}
            owners = {input_: of.owner for input_, of in inputs if of.owner is not None}
            if problem := compare_results(results, written, owners, input_partitions or {}):
                self._break(problem)
        if self.broken:
            return self.broken, self._take()
        assert not self._deadlines, "every owner is done, so no lease is out"
        self.finished = Finished({p: o.acknowledged for p, o in self._outputs.items() if o.acknowledged})
        return self.finished, self._take()

    # --- rules ----------------------------------------------------------------------------------------------

    def _admit(self, ask: _Ask, now_ms: int) -> None:
        if self.broken:
            return self._reply(ask, LeaseRefused(*self.broken))
        if self.finished:
            reason = "the transaction is being committed: nothing more can be written"
            return self._reply(ask, LeaseRefused(reason, is_fatal=True))
        of = self._inputs.setdefault(ask.task.input, _Input())
        if any(other.task == ask.task and not other.is_over for other in [of.ask, *of.parked] if other):
            raise ValueError(f"{ask.task} asks before its last question was answered")
        if of.owner is None:
            of.owner = ask.task
            self._owners += 1
        if of.owner != ask.task and of.result is None:
            # Not refused: a refusal would count as a task failure for Spark, and a waiting copy does no harm.
            of.parked.append(ask)
            return None
        if of.result is not None:
            if of.owner == ask.task and ask.wants is not None:
                return self._reply(ask, LeaseRefused(f"{ask.task} is done and may write nothing more", True))
            return self._reply(ask, Written(of.result))
        of.ask = ask
        if ask.wants is None:
            return self._complete(of, ask)
        return self._queue(of, ask, ask.wants, now_ms)

    def _queue(self, of: _Input, ask: _Ask, wants: Mapping[TopicPartition, int], now_ms: int) -> None:
        outputs = self._outputs
        for partition in () if wants.keys() <= outputs.keys() else wants:
            outputs.setdefault(partition, _Output())
        for partition in wants if self._free else ():
            if partition in self._free and len(ask.leases) < self._share():
                self._grant(outputs[partition], partition, ask, now_ms)
        self._touch_others(ask, now_ms)
        if ask.leases:
            return None
        if of.held:
            return self._reply(ask, Busy())
        for partition in wants:
            output = outputs[partition]
            output.queue.append(ask)
            if output.touch is Touch.NOT_YET:
                self._untouched.append(partition)
        return self._start_first_touches()

    def _share(self) -> int:
        """The most leases that a task gets at once, so that one task does not hold everything while others wait."""
        return -(-len(self._outputs) // max(1, min(self._owners, self._tasks_that_share)))

    def _touch_others(self, ask: _Ask, now_ms: int) -> None:
        """TV2: a task that makes first touches makes those of all its partitions, whatever its share.

        The first touches of the next task have to wait until those of this one are acknowledged.
        """
        first = next(iter(self._first_touches), None)
        if self._at_once is None or first is None or self._outputs[first].holder != ask.task or ask.wants is None:
            return
        for partition in ask.wants:
            output = self._outputs[partition]
            if output.touch is Touch.NOT_YET:
                output.touch = Touch.DONE
                self._first_touches.add(partition)
                self._grant(output, partition, ask, now_ms)

    def _start_first_touches(self) -> None:
        while self._untouched and (self._at_once is None or len(self._first_touches) < self._at_once):
            partition = self._untouched.popleft()
            output = self._outputs[partition]
            if output.touch is Touch.NOT_YET and output.oldest_ask(share=1) is not None:
                output.touch = Touch.PENDING
                self._first_touches.add(partition)
                self._to_touch.append(partition)

    def _serve(self, output: _Output, partition: TopicPartition, now_ms: int) -> _Ask | None:
        """Give a partition that has become free to the task that has waited longest for it."""
        ask = output.oldest_ask(self._share())
        if ask is not None:
            self._grant(output, partition, ask, now_ms)
        return ask

    def _grant(self, output: _Output, partition: TopicPartition, ask: _Ask, now_ms: int) -> None:
        assert ask.wants is not None
        assert output.holder is None
        of = self._inputs[ask.task.input]
        base_sequence, count = output.next_sequence, ask.wants[partition]
        # From here on these sequences are used, whatever happens to the task.
        output.next_sequence = advance_sequence(base_sequence, count)
        output.holder = ask.task
        output.granted = count
        self._free.discard(partition)
        of.held.add(partition)
        of.has_written = True
        self._deadlines[partition] = now_ms + self.lease_timeout_ms
        if not ask.leases:
            self._granted.append(ask)
        ask.leases.append(Lease(*partition, base_sequence, count, self._within_ms))

    def _settle(self, of: _Input, acknowledged: Mapping[TopicPartition, int]) -> None:
        for partition, count in acknowledged.items():
            output = self._outputs[partition]
            of.held.discard(partition)
            of.acknowledged[partition] = of.acknowledged.get(partition, 0) + count
            output.acknowledged += count
            output.holder, output.granted = None, 0
            del self._deadlines[partition]
            self._first_touches.discard(partition)
        self.record_batches += len(acknowledged)

    def _complete(self, of: _Input, ask: _Ask) -> None:
        assert ask.counts is not None
        said = {partition: count for partition, count in ask.counts.items() if count}
        if problem := compare_counts(ask.task, said, of.acknowledged, of.held):
            return self._break(problem)
        counts = tuple((*partition, count) for partition, count in sorted(said.items()))
        of.result = TaskResult(*ask.task, counts, ask.topics)
        self._owners -= 1
        self._reply(ask, Written(of.result))
        for waiting in of.parked:
            self._reply(waiting, Written(of.result))
        of.parked.clear()
        # The result has the same counts. There may be many tasks, and many partitions for each.
        of.ask, of.acknowledged = None, {}
        return None

    def _lose(self, task: TaskAttempt, why: str, now_ms: int) -> None:
        of = self._inputs.get(task.input)
        if of is None or self.broken or self.finished:
            return
        if of.owner != task:
            of.parked = [ask for ask in of.parked if ask.task != task]
        elif of.result is None and of.has_written:
            self._break(f"{task} was lost after it had begun to write: {why}")
        elif of.result is None:
            if of.ask is not None:
                of.ask.is_over = True
            of.owner = of.ask = None
            self._owners -= 1
            # The copy that waited longest takes over. Its question may in turn answer the others.
            waiting, of.parked = of.parked, []
            for ask in waiting:
                self._admit(ask, now_ms)

    def _break(self, reason: str, is_fatal: bool = False) -> None:
        if self.broken or self.finished:
            return
        self.broken = MustAbort(reason, is_fatal)
        self._effects.append(self.broken)
        self._to_touch.clear()
        for of in self._inputs.values():
            for ask in [*([of.ask] if of.ask else []), *of.parked]:
                if not ask.is_over:
                    self._reply(ask, LeaseRefused(reason, is_fatal))
            of.parked.clear()

    def _reply(self, ask: _Ask, outcome: Outcome) -> None:
        assert not ask.is_over, "a ticket is answered once"
        ask.is_over = True
        self._effects.append(Reply(ask.ticket, outcome))

    def _take(self) -> list[Effect]:
        for ask in self._granted:
            if not ask.is_over:
                self._reply(ask, Granted(tuple(ask.leases)))
        self._granted.clear()
        effects, self._effects = self._effects, []
        if self._to_touch:
            effects.append(FirstTouch(tuple(self._to_touch)))
            self._to_touch = []
        return effects


def _check(wants: Mapping[TopicPartition, int]) -> None:
    """Raises ValueError for a senseless question: such a task is disconnected."""
    if not wants:
        raise ValueError("leases are asked for one or more partitions")
    for (topic, partition), count in wants.items():
        if not topic or partition < 0 or not 0 < count <= MAX_SEQUENCE:
            raise ValueError(f"a lease of {topic!r}-{partition} for {count} records")
