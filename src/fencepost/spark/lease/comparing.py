"""Checks that the tasks, Spark and the brokers count the same written records. Pure.

Each function returns the difference in words, or None if there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.messages import InputPartition, TaskAttempt, TaskResult
from fencepost.spark.lease.wording import described, input_name_of, listed, name_of


def compare_counts(
    task: TaskAttempt,
    counted: Mapping[TopicPartition, int],
    acknowledged: Mapping[TopicPartition, int],
    held: Collection[TopicPartition],
) -> str | None:
    """A task is done: does its count of records agree with the brokers', and has it given back all its leases?"""
    if held:
        return f"{task} says it is done, but holds {', '.join(map(name_of, sorted(held)))}"
    if counted != acknowledged:
        return f"{task} counted {listed(counted)}, but the brokers acknowledged {listed(acknowledged)}"
    return None


def compare_results(
    accepted: Iterable[TaskResult],
    written: Mapping[InputPartition, TaskResult],
    owners: Mapping[InputPartition, TaskAttempt],
    input_partitions: Mapping[int, int],
) -> str | None:
    """The job is over: did Spark accept exactly what was written, from every task?

    accepted: the results that Spark accepted. written: those of the tasks that are done. owners: the tasks that may
    have written. input_partitions: the number of input partitions of each write.
    """
    seen: set[InputPartition] = set()
    for result in accepted:
        task = TaskAttempt(*result[:3])
        if task.input in seen:
            return f"Spark accepted two results for {input_name_of(task.input)}"
        seen.add(task.input)
        if task.input not in written:
            return f"Spark accepted a result of {task}, which never said that it was done"
        if written[task.input] != result:
            return f"Spark accepted {described(result)}, but {described(written[task.input])} was written"
    for input_, owner in owners.items():
        if input_ not in seen:
            return f"{owner} wrote to the transaction, but Spark accepted no result for {input_name_of(input_)}"
    for write, count in input_partitions.items():
        missing = [i for i in range(count) if (write, i) not in seen]
        if missing:
            return f"Spark accepted no result for {input_name_of((write, missing[0]))} ({len(missing)} of {count})"
    return None
