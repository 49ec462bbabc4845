"""The open transaction of one micro-batch, as the user's function sees it. Takes any number of DataFrames."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from fencepost.spark.checkpoint.files import has_gateway
from fencepost.spark.driver.dataframes import select_columns
from fencepost.spark.driver.planes import Plane
from fencepost.spark.failures import BatchBroken, SinkError
from fencepost.spark.lease.messages import TaskResult
from fencepost.spark.task.plan import WritePlan
from fencepost.spark.task.topics import PinnedTopic

SPECULATION = "spark.speculation"


class BatchTransaction:
    """For functions under `@sink.batch`. The sink commits or aborts it."""

    def __init__(
        self,
        batch_id: int,
        default_topic: str | None,
        plane: Plane,
        plan: WritePlan,
        pin: Callable[[str], PinnedTopic],
        around_write: Callable[[Any], AbstractContextManager[None]],
    ) -> None:
        self.batch_id = batch_id
        self._default_topic = default_topic
        self._plane = plane
        self._plan = plan
        self._pin = pin
        self._around_write = around_write
        self.results: list[TaskResult] = []
        self.input_partitions: dict[int, int] = {}
        self._writes = 0
        self._pinned: dict[str, PinnedTopic] = {}
        self._found: dict[str, set[PinnedTopic]] = {}
        self._computed: list[Any] = []
        self._has_ended = False

    def write(self, frame: Any, topic: str | None = None) -> int:
        """Write a DataFrame into the transaction. Returns the number of records, which are visible after the commit.

        Runs a Spark job, so call it in the thread that called your function. Its exceptions abort the micro-batch, even
        if your function catches them.
        A frame that is written twice is computed twice: see `compute_once`.
        """
        self._check_open()
        with self._around_write(frame):
            return self._write(frame, topic)

    def compute_once(self, frame: Any) -> Any:
        """The same frame with its rows computed now, and never again: for several writes that have to agree.

        The rows stay on the executors until the transaction ends. If some of them are lost, Spark fails the next write
        instead of computing them again, and the sink runs the whole micro-batch again.
        """
        self._check_open()
        with self._around_write(frame):
            _check_speculation(frame.sparkSession)
            self._computed.append(frame.localCheckpoint())
        return self._computed[-1]

    def free(self) -> None:
        """The transaction has ended: free the rows of `compute_once`."""
        self._has_ended = True
        for frame in self._computed:
            if has_gateway(frame.sparkSession):  # With Spark Connect the rows live as long as the frame.
                frame._jdf.queryExecution().logical().rdd().unpersist(False)
        self._computed.clear()

    def _check_open(self) -> None:
        if self._has_ended:
            raise SinkError(
                f"the transaction of micro-batch {self.batch_id} has ended: nothing can be written to it any more"
                "\n\nhint: write with the transaction that your function gets, and do not keep it for later"
            )

    def _write(self, frame: Any, topic: str | None) -> int:
        topic = topic or self._default_topic
        rows = select_columns(frame, topic)
        # Each write has a number of its own. Otherwise tasks of a failed write would pass for tasks of the next one.
        number, self._writes = self._writes, self._writes + 1
        if topic is not None:
            self._pin_once(topic)
        plan = self._plan._replace(write_number=number, topic=topic, topics=dict(self._pinned))
        accepted = self._plane.write(rows, plan)
        self.results += accepted
        for name, topic_id, partition_count in (found for result in accepted for found in result.topics):
            pinned = PinnedTopic(topic_id, partition_count)
            self._pinned.setdefault(name, pinned)
            self._found.setdefault(name, set()).add(pinned)
        self.input_partitions[number] = len(accepted)
        return sum(n for result in accepted for _, _, n in result.counts)

    def _pin_once(self, topic: str) -> PinnedTopic:
        """Until the end of the transaction a topic keeps its size, even if it grows: a key keeps its partition."""
        if topic not in self._pinned:
            self._pinned[topic] = self._pin(topic)
        return self._pinned[topic]

    def check(self) -> None:
        """Raises BatchBroken if tasks did not write to the same topic, or wrote as if it had different sizes.

        Where the rows name their topics, each task of the first write looks them up for itself.
        """
        for topic, found in self._found.items():
            # Brokers do not notice it if the requests name topics by name and not by id.
            if {one.topic_id for one in found} != {self._pin(topic).topic_id}:
                raise BatchBroken(
                    f"topic {topic} was deleted and created again while the micro-batch was written to it"
                )
            sizes = sorted(one.partition_count for one in found)
            if len(sizes) > 1:
                raise BatchBroken(
                    f"topic {topic} grew from {sizes[0]} to {sizes[-1]} partitions while the micro-batch was written: "
                    "a key may be in two of them"
                )


def _check_speculation(session: Any) -> None:
    """A copy of a task may store other rows than the task. Without Spark Connect, the sink notices."""
    if not has_gateway(session) and session.conf.get(SPECULATION, "false") == "true":
        raise SinkError(
            f"with Spark Connect compute_once needs {SPECULATION}=false, but it is true: two copies of a task may "
            f"store different rows\n\nhint: start the Spark Connect server with {SPECULATION}=false, or write all "
            "outputs in one write, with a column `topic`"
        )
