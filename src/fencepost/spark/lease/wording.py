"""How messages of the lease service name partitions, tasks and results."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.messages import InputPartition, TaskAttempt, TaskResult


def name_of(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


def input_name_of(input_: InputPartition) -> str:
    return f"input partition {input_[1]} of write {input_[0]}"


def listed(counts: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{name_of(p)}: {n}" for p, n in sorted(counts.items())) or "nothing"


def described(result: TaskResult) -> str:
    return f"{listed({(t, p): n for t, p, n in result.counts})} by {TaskAttempt(*result[:3])}"
