"""Retention deletes old segments and the cleaner compacts logs; the rules are in `machines/partition/deletion.py` and
`machines/partition/compaction.py`.

Both run at their intervals, in small steps with pauses between them, so that requests are hardly delayed. If a log
fails, the job prints one warning, skips that log and tries it again in its next run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from fencepost.broker.topics import cleanup_policy
from fencepost.machines.log.interface import LogTailUnknown, StorageFailed
from fencepost.machines.partition.compaction import Dirt, Policy, compact, find_dirt
from fencepost.machines.partition.deletion import Retention, apply_retention
from fencepost.machines.partition.partition import Partition

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster
    from fencepost.broker.topics import Topic

PAUSE_MS = 3
# Logs that are examined between two pauses. Retention is slower: it may have to read an index for a segment's age.
LOGS_TO_CLEAN = 512
LOGS_TO_SHORTEN = 32
KEY_BYTES = 256
KEEP_ALL = Retention()


class Housekeeping:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._config = cluster.config
        self._jobs: dict[str, Iterator[None]] = {}
        self._told: dict[tuple[Partition, str], str] = {}

    def start(self, now_ms: int) -> None:
        timers = self._cluster.timers
        timers.every(self._config["log.retention.check.interval.ms"], now_ms, self.apply_retention)
        if self._config["log.cleaner.enable"]:
            timers.every(max(1, self._config["log.cleaner.backoff.ms"]), now_ms, self.clean)

    def stop(self) -> None:
        """Stop both jobs. Segments that the cleaner has not swapped in yet are discarded."""
        while self._jobs:
            job = self._jobs.popitem()[1]
            job.close()  # type: ignore[attr-defined]

    def apply_retention(self, now_ms: int) -> None:
        self._begin("retention", self._apply_retention(now_ms), now_ms)

    def clean(self, now_ms: int) -> None:
        self._begin("cleaner", self._clean(now_ms), now_ms)

    def _begin(self, name: str, job: Iterator[None], now_ms: int) -> None:
        self._told = {key: text for key, text in self._told.items() if self._is_there(key[0])}
        if name not in self._jobs:  # Otherwise its last run is still under way.
            self._jobs[name] = job
            self._go_on(name, now_ms)

    def _go_on(self, name: str, now_ms: int) -> None:
        job = self._jobs.get(name)
        if job is None:
            return
        try:
            next(job)
        except StopIteration:
            del self._jobs[name]
        except Exception:
            del self._jobs[name]
            raise
        else:
            self._cluster.timers.at(now_ms + PAUSE_MS, partial(self._go_on, name))

    def _partitions(self, at_a_time: int) -> Iterator[tuple[Topic, Partition] | None]:
        """Every partition, although topics come and go meanwhile; None after every `at_a_time`, for a pause."""
        count = 0
        for topic in list(self._cluster.topics.values()):
            for partition in list(topic.partitions.values()):
                if self._is_there(partition):
                    yield topic, partition
                count += 1
                if count % at_a_time == 0:
                    yield None

    def _is_there(self, partition: Partition) -> bool:
        return self._cluster.partition(partition.topic, partition.index) is partition

    @contextmanager
    def _one_of_many(self, partition: Partition, what: str) -> Iterator[None]:
        """Report a failure with one log, even one caused by a bug, so that the job continues with the others."""
        try:
            yield
        except LogTailUnknown:
            raise
        except Exception as e:
            self._tell(partition, what, e)
        else:
            self._told.pop((partition, what), None)

    def _tell(self, partition: Partition, what: str, error: Exception) -> None:
        if not self._is_there(partition):
            return  # Its topic has been deleted.
        why = str(error) if isinstance(error, StorageFailed) else f"{type(error).__name__}: {error}"
        text = f"{partition.topic}-{partition.index} cannot be {what} now: {why}"
        if self._told.get((partition, what)) != text:
            self._told[partition, what] = text
            self._cluster.notice(text)

    # --- retention ----------------------------------------------------------------------------------------

    def _apply_retention(self, now_ms: int) -> Iterator[None]:
        for found in self._partitions(LOGS_TO_SHORTEN):
            if found is None:
                yield
                continue
            topic, partition = found
            with self._one_of_many(partition, "shortened"):
                if apply_retention(partition, self._retention_of(topic), now_ms):
                    yield

    def _retention_of(self, topic: Topic) -> Retention:
        if "delete" not in cleanup_policy(self._config, topic.configs):
            return KEEP_ALL
        settings = self._config.for_topic
        return Retention(settings(topic.configs, "retention.ms"), settings(topic.configs, "retention.bytes"))

    # --- the cleaner --------------------------------------------------------------------------------------

    def _clean(self, now_ms: int) -> Iterator[None]:
        """All logs that are dirty enough, the dirtiest first."""
        dirty: list[tuple[float, int, Topic, Partition]] = []
        for found in self._partitions(LOGS_TO_CLEAN):
            if found is None:
                yield
                continue
            topic, partition = found
            if not partition.compacted:
                continue
            if topic.is_internal and self._close_segment(partition):
                yield
            dirt = self._find_dirt(topic, partition, now_ms)
            if dirt is not None:
                dirty.append((dirt.ratio, -len(dirty), topic, partition))
        for _, _, topic, partition in sorted(dirty, reverse=True):
            with self._one_of_many(partition, "cleaned"):
                yield from self._clean_log(topic, partition, now_ms)

    def _clean_log(self, topic: Topic, partition: Partition, now_ms: int) -> Iterator[None]:
        """Compact in as many rounds as it takes: the memory for keys may be too small for one."""
        log = partition.log
        while self._is_there(partition):
            dirt = self._find_dirt(topic, partition, now_ms)
            if dirt is None:
                return
            clean_before = log.clean_offset
            yield from compact(log, dirt, partition.producers.by_id, self._policy_of(topic), now_ms)
            if log.clean_offset == clean_before:
                return

    def _find_dirt(self, topic: Topic, partition: Partition, now_ms: int) -> Dirt | None:
        """The dirty part of a log, if it is large or old enough to compact."""
        if partition.unindexed:
            return None  # The index of aborted transactions is not complete yet.
        try:
            if topic.is_internal:
                return self._find_dirt_of_our_own(partition, now_ms)
            lag_ms = self._config.for_topic(topic.configs, "min.compaction.lag.ms")
            dirt = find_dirt(partition.log, partition.last_stable_offset, lag_ms, now_ms)
        except LogTailUnknown:
            raise
        except Exception as e:
            self._tell(partition, "cleaned", e)
            return None
        oldest_wanted_ms = now_ms - self._config.for_topic(topic.configs, "max.compaction.lag.ms")
        is_due = dirt.dirty_bytes > 0 and 0 <= dirt.oldest_ms < oldest_wanted_ms
        is_dirty = dirt.ratio > self._config.for_topic(topic.configs, "min.cleanable.dirty.ratio")
        return dirt if is_due or is_dirty else None

    def _find_dirt_of_our_own(self, partition: Partition, now_ms: int) -> Dirt | None:
        dirt = find_dirt(partition.log, partition.last_stable_offset, 0, now_ms)
        enough = self._config["fencepost.state.clean.bytes"]
        return dirt if dirt.dirty_bytes >= max(enough, dirt.clean_bytes) else None

    def _close_segment(self, partition: Partition) -> bool:
        """Close the last segment of an internal topic early. Only closed segments are compacted."""
        # Differs: Kafka compacts a segment of `__transaction_state` or `__consumer_offsets` only when it is full, at
        # 100 MiB. Fencepost closes it at `fencepost.state.clean.bytes`, because a restart reads these topics whole.
        segments = partition.log.segments()
        if not segments or segments[-1].size < self._config["fencepost.state.clean.bytes"]:
            return False
        try:
            partition.log.roll()
        except StorageFailed as e:
            self._tell(partition, "cleaned", e)
        partition.save_snapshot()
        return True

    def _policy_of(self, topic: Topic) -> Policy:
        settings = self._config.for_topic
        return Policy(
            delete_retention_ms=settings(topic.configs, "delete.retention.ms"),
            segment_bytes=settings(topic.configs, "segment.bytes"),
            max_keys=self._config["log.cleaner.dedupe.buffer.size"] // KEY_BYTES,
            # Differs: Kafka keeps the markers of a compacted topic for `delete.retention.ms` after their data. In
            # internal topics Fencepost removes both together: only a coordinator that loads reads these topics, and it
            # reads them whole.
            keeps_markers=not topic.is_internal,
        )
