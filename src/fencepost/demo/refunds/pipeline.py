"""One pipeline on one cluster: its topics, its settlements, its runs, and its results."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from fencepost.demo.refunds.driver import JOB, Driver, Event
from fencepost.demo.refunds.job import JobPlan
from fencepost.demo.refunds.settlements import Settlement, due, plan_transactions, write_settlements
from fencepost.demo.refunds.verdict import Found
from fencepost.demo.refunds.watcher import Watcher
from fencepost.demo.report import DemoFailed
from fencepost.demo.topics import QUIET, SEE_LOG, Offsets, Seen, Topics

PARTITIONS = 3
LOCAL_MASTER = "local[2]"
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Engines:
    """Where the pipeline runs, and with which sink."""

    bootstrap_servers: str
    java_home: Path
    sink: str = "fencepost"
    master: str = LOCAL_MASTER
    conf: dict[str, str] = field(default_factory=dict)
    checkpoint: str | None = None  # None: in the pipeline's folder.
    job: str = JOB


class Pipeline:
    """`folder` holds the checkpoint, the job's log and Spark's own files."""

    def __init__(self, engines: Engines, folder: Path, suffix: str = "") -> None:
        self.engines = engines
        self.settlements, self.refunds, self.audit = self.topics = (
            f"settlements{suffix}",
            f"refunds-emitted{suffix}",
            f"refund-audit{suffix}",
        )
        self.group_id = f"refunds{suffix}"
        self.transactional_id = f"refunds-1{suffix}"
        self.due: dict[str, Settlement] = {}
        self.runs = 0
        self._folder = folder
        self._checkpoint = engines.checkpoint or str(folder / "checkpoint")
        self._inputs = Topics(engines.bootstrap_servers, [self.settlements], PARTITIONS)
        self._outputs = Topics(engines.bootstrap_servers, [self.refunds, self.audit], PARTITIONS)

    def create_topics(self) -> None:
        (self._folder / "scratch").mkdir()
        self._inputs.create()
        self._outputs.create()

    def settle(self, count: int, rng: random.Random, prefix: str = "s") -> None:
        """Write more settlements. One refund is due for each of them."""
        plan = plan_transactions(count, rng, prefix)
        self.due |= due(plan)
        write_settlements(self.engines.bootstrap_servers, self.settlements, f"{self.transactional_id}-source", plan)

    def offsets(self) -> int:
        """The number of offsets in the topic of the settlements, including markers and aborted records."""
        return sum(self._inputs.await_stable().values())

    def watch(self) -> Watcher:
        return Watcher(self.engines.bootstrap_servers, dict.fromkeys(self._outputs.ends(), 0))

    def start(
        self,
        offsets_per_batch: int,
        *,
        wait_in_batch: int | None = None,
        wait_at: str = "",
        hear: Callable[[Event], None] = lambda event: None,
        tick: Callable[[], None] = lambda: None,
        plane: str = "auto",
    ) -> Driver:
        """The job, for a `with` block. It ends when it has read all settlements that existed at its start."""
        self.runs += 1
        plan = JobPlan(
            bootstrap_servers=self.engines.bootstrap_servers,
            settlements=self.settlements,
            refunds=self.refunds,
            audit=self.audit,
            group_id=self.group_id,
            transactional_id=self.transactional_id,
            checkpoint=self._checkpoint,
            scratch=str(self._folder / "scratch"),
            offsets_per_batch=offsets_per_batch,
            run=self.runs,
            sink=self.engines.sink,
            plane=plane,
            master=self.engines.master,
            conf=self.engines.conf,
            wait_in_batch=wait_in_batch,
            wait_at=wait_at,
        )
        return Driver(plan, self.engines.java_home, self._folder / "job.log", hear, tick, self.engines.job)

    def uncommitted(self, topic: str | None = None) -> int:
        """The number of refunds, or rows of another output, in the log that read_committed readers do not see yet."""
        ends, stable = self._outputs.ends(), self._outputs.ends(committed=True)
        return sum(ends[where] - stable[where] for where in ends if where[0] == (topic or self.refunds))

    def inputs(self) -> list[Seen]:
        """The committed settlements, as a reader finds them."""
        return self._inputs.read(dict.fromkeys(self._inputs.await_stable(), 0), committed=True)

    def found(self, watcher: Watcher) -> Found:
        """The results, after the job has ended."""
        ends = self._outputs.await_stable(TIMEOUT_S)
        watcher.await_offsets(ends)
        return Found(
            due=self.due,
            refunds_topic=self.refunds,
            audit_topic=self.audit,
            final=self._outputs.read(dict.fromkeys(ends, 0), committed=True),
            watched=list(watcher.seen),
            ends=self._inputs.await_stable(),
            committed=self._committed() if self.engines.sink == "fencepost" else None,
        )

    def _committed(self) -> Offsets:
        consumer = Consumer({"bootstrap.servers": self.engines.bootstrap_servers, "group.id": self.group_id, **QUIET})
        try:
            asked = [TopicPartition(topic, partition) for topic, partition in self._inputs.ends()]
            answers = consumer.committed(asked, timeout=TIMEOUT_S)
        except KafkaException as error:
            raise DemoFailed(f"cannot get the offsets of {self.group_id}: {error.args[0].str()}", SEE_LOG) from None
        finally:
            consumer.close()
        return {(tp.topic, tp.partition): tp.offset for tp in answers if tp.offset >= 0}


def new_suffix() -> str:
    """A suffix for names that do not exist yet on the user's cluster."""
    return f"-{time.strftime('%m%d')}-{uuid.uuid4().hex[:6]}"
