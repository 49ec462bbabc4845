"""The open transaction of one micro-batch, as the user's function sees it. Takes any number of DataFrames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.spark.driver.dataframes import select_columns
from fencepost.spark.driver.planes import Plane
from fencepost.spark.failures import BatchBroken
from fencepost.spark.lease.messages import TaskResult
from fencepost.spark.task.plan import WritePlan
from fencepost.spark.task.topics import PinnedTopic


class BatchTransaction:
    """For functions under `@sink.batch`. The sink commits or aborts it."""

    def __init__(
        self,
        batch_id: int,
        default_topic: str | None,
        plane: Plane,
        plan: WritePlan,
        pin: Callable[[str], PinnedTopic],
    ) -> None:
        self.batch_id = batch_id
        self._default_topic = default_topic
        self._plane = plane
        self._plan = plan
        self._pin = pin
        self.results: list[TaskResult] = []
        self.input_partitions: dict[int, int] = {}
        self._writes = 0
        self._pinned: dict[str, PinnedTopic] = {}
        self._topic_ids: dict[str, set[bytes]] = {}

    def write(self, frame: Any, topic: str | None = None) -> int:
        """Write a DataFrame into the transaction. Returns the number of records, which are visible after the commit.

        Runs a Spark job. Call it from one thread, and do not catch its exceptions: they abort the micro-batch.
        """
        topic = topic or self._default_topic
        rows = select_columns(frame, topic)
        # Each write has a number of its own. Otherwise tasks of a failed write would pass for tasks of the next one.
        number, self._writes = self._writes, self._writes + 1
        topics = {} if topic is None else {topic: self._pin_once(topic)}
        plan = self._plan._replace(write_number=number, topic=topic, topics=topics)
        accepted = self._plane.write(rows, plan)
        for task in accepted:
            self.results.append(task.result)
            for name, topic_id in task.topics.items():
                self._topic_ids.setdefault(name, set()).add(topic_id)
        self.input_partitions[number] = len(accepted)
        return sum(n for task in accepted for _, _, n in task.result.counts)

    def _pin_once(self, topic: str) -> PinnedTopic:
        """Until the end of the transaction a topic keeps its size, even if it grows: a key keeps its partition."""
        if topic not in self._pinned:
            self._pinned[topic] = self._pin(topic)
        return self._pinned[topic]

    def check(self) -> None:
        """Raises BatchBroken if a topic was replaced by another one of the same name."""
        for topic, ids in self._topic_ids.items():
            # Brokers do not notice it if the requests name topics by name and not by id.
            if ids != {self._pin(topic).topic_id}:
                raise BatchBroken(
                    f"topic {topic} was deleted and created again while the micro-batch was written to it"
                )
