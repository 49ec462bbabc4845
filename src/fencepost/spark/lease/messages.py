"""The messages of the lease service: questions of a task, answers to it, and orders to the driver.

Pure values. `rules.py` decides with them, `wire.py` puts them on a connection.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from fencepost.protocol.topic_partition import TopicPartition

Ticket = Hashable
Topics = tuple[tuple[str, bytes, int], ...]  # The name, the id and the number of partitions of each.
InputPartition = tuple[int, int]  # The number of the write, and the partition of its DataFrame.


class TaskAttempt(NamedTuple):
    """One attempt of Spark at one input partition of one write.

    Only the task attempt id is unique: `attemptNumber` starts at 0 again when Spark runs a stage again.
    """

    write_number: int
    partition_id: int
    task_attempt_id: int

    @property
    def input(self) -> InputPartition:
        return self.write_number, self.partition_id

    def __str__(self) -> str:
        return f"task {self.task_attempt_id} (write {self.write_number}, input partition {self.partition_id})"


class TaskResult(NamedTuple):
    """The records that the owner of an input partition wrote. Every attempt yields the result of the owner."""

    write_number: int
    partition_id: int
    task_attempt_id: int
    counts: tuple[tuple[str, int, int], ...]  # Topic, partition and number of records, in order.
    topics: Topics = ()  # As the owner found them.


# --- outcomes: the answer to a ticket -----------------------------------------------------------------------


class Lease(NamedTuple):
    """The right to write one record batch to one partition, at this sequence."""

    topic: str
    partition: int
    base_sequence: int
    record_count: int
    within_ms: int  # The task stops retrying by then, so that it reports its error before the lease expires.


class Granted(NamedTuple):
    """One lease or several, of different partitions. Each can be given back alone."""

    leases: tuple[Lease, ...]


class Busy(NamedTuple):
    """No partition is free. A task that holds a lease must not wait for another: two such tasks could deadlock."""


class Written(NamedTuple):
    """The input partition is written, by this attempt or by another: yield this result, write nothing more."""

    result: TaskResult


class LeaseRefused(NamedTuple):
    reason: str
    is_fatal: bool  # Running the micro-batch again would end the same way.


Outcome = Granted | Busy | Written | LeaseRefused


# --- effects: orders for the driver -------------------------------------------------------------------------


class Reply(NamedTuple):
    ticket: Ticket
    outcome: Outcome


class FirstTouch(NamedTuple):
    """Add these partitions to the transaction, then call `LeaseTable.touched`."""

    partitions: tuple[TopicPartition, ...]


class MustAbort(NamedTuple):
    """The transaction can only be aborted. The table says it once; it refuses every request from then on."""

    reason: str
    is_fatal: bool


Effect = Reply | FirstTouch | MustAbort


class Finished(NamedTuple):
    """Everything is acknowledged: the number of records in each output partition."""

    counts: Mapping[TopicPartition, int]
