"""What all brokers of one process share: topics, partitions, producer ids, timers and the two coordinators.

The cluster's own facts (topics, ids, features) are one small JSON document that storage replaces atomically;
everything else is in the partitions' logs. `start` brings all of it back; there is no other way in.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from fencepost.broker.config import Config, check_topic_settings
from fencepost.broker.fetches import WaitingFetches
from fencepost.broker.rpcs import SeenRpc
from fencepost.machines.log.interface import Log, LogConfig, Storage, StorageFailed
from fencepost.machines.partition.partition import Partition
from fencepost.machines.rng import Rng
from fencepost.machines.timers import Timers
from fencepost.protocol import errors
from fencepost.protocol.transaction_version import TransactionVersion

TXN_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({TXN_TOPIC, OFFSETS_TOPIC})
_INTERNAL_SETTINGS = {TXN_TOPIC: "transaction.state.log", OFFSETS_TOPIC: "offsets.topic"}
PRODUCER_ID_BLOCK = 1000
MAX_PARTITIONS_PER_TOPIC = 10_000
# A partition takes about 1.5 KB of memory before its first record.
MAX_PARTITIONS = 100_000
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class DataFolderMismatch(Exception):
    """The data folder was made with settings that cannot be changed afterwards."""


class TopicRefused(Exception):
    """A topic cannot be created or changed: Kafka's code, and a sentence for the client."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Broker(NamedTuple):
    node_id: int
    host: str
    port: int


class Disk(NamedTuple):
    """Where the logs are, and how much room there is: -1 if nobody knows."""

    log_dir: str
    total_bytes: int = -1
    usable_bytes: int = -1


class Topic:
    __slots__ = ("configs", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, configs: dict[str, str]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.configs = configs
        self.partitions: list[Partition] = []

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


def check_topic_name(name: str) -> None:
    if name in (".", "..") or not _LEGAL_TOPIC.fullmatch(name):
        raise TopicRefused(
            errors.INVALID_TOPIC_EXCEPTION,
            f"topic name {name!r} is not allowed: 1 to 249 letters, digits, '.', '_' or '-', and neither '.' nor '..'",
        )


class Cluster:
    def __init__(
        self,
        storage: Storage,
        config: Config,
        rng: Rng,
        notice: Callable[[str], None] = lambda text: None,
        crash_at: Callable[[str], None] | None = None,
    ) -> None:
        # Imported here, as both coordinators need to know what a cluster is.
        from fencepost.broker.coordinator.groups import GroupCoordinator
        from fencepost.broker.coordinator.txns import TxnCoordinator
        from fencepost.broker.housekeeping import Housekeeping

        self.storage = storage
        self.config = config
        self.rng = rng
        self.notice = notice  # One line for whoever runs the broker.
        self.disk: Callable[[], Disk] = lambda: Disk("memory")
        # The last requests of a transactional id, which the shell remembers.
        self.recent_rpcs: Callable[[str], list[SeenRpc]] = lambda transactional_id: []
        self.crash_at = crash_at
        self.timers = Timers()
        self.fetches = WaitingFetches(self.timers)
        self.brokers: list[Broker] = []
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.topics_version = 0  # Grows when a topic comes, goes or grows.
        self.partition_count = 0
        self.cluster_id = ""
        self.transaction_version = TransactionVersion(int(config["transaction.version"]))
        self.group_version = 1
        self.features_epoch = 0
        self.leader_epoch = 0  # Of every partition.
        self._next_producer_id = 0
        self._producer_id_block_end = 0
        # Inside `one_save`: topics that are deleted with it, and when.
        self._deleted: dict[Topic, int] | None = None
        self._is_unsaved = False
        self.txns = TxnCoordinator(self)
        self.groups = GroupCoordinator(self)
        self.housekeeping = Housekeeping(self)

    # --- starting and stopping ----------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        document = self.storage.load_metadata()
        if document is None:
            self.cluster_id = base64.urlsafe_b64encode(self.rng.randbytes(16)).decode().rstrip("=")
            self._save()
        else:
            self._restore(json.loads(document), now_ms)
        self.txns.load(now_ms)
        self.groups.load(now_ms)
        self.txns.finish_recovery(now_ms, self.storage.note_recovered)
        self.timers.every(self.config["producer.id.expiration.check.interval.ms"], now_ms, self._expire_producers)
        self.housekeeping.start(now_ms)

    def stop(self) -> None:
        """A clean stop: state is snapshotted, so that the next start replays nothing."""
        self.housekeeping.stop()
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.save_snapshot()
        self.storage.close()

    def _restore(self, document: dict[str, Any], now_ms: int) -> None:
        self.cluster_id = document["cluster_id"]
        self.transaction_version = TransactionVersion(document["transaction_version"])
        self.group_version = document.get("group_version", 1)
        self.features_epoch = document.get("features_epoch", 0)
        self._next_producer_id = self._producer_id_block_end = document["next_producer_id"]
        self.leader_epoch = document.get("leader_epoch", 0)
        if self.storage.may_have_lost_appends:
            # Readers that are further than a log now goes are told so, also once it has grown again.
            self.leader_epoch += 1
        self._check_fixed_counts(document["topics"])
        for name, entry in document["topics"].items():
            topic = Topic(name, bytes.fromhex(entry["id"]), entry["configs"])
            self._open_partitions(topic, entry["partitions"], now_ms)
        if self.storage.may_have_lost_appends:
            self._save()

    def _check_fixed_counts(self, topics: Mapping[str, Any]) -> None:
        for name, prefix in _INTERNAL_SETTINGS.items():
            setting = f"{prefix}.num.partitions"
            if name in topics and topics[name]["partitions"] != self.config[setting]:
                raise DataFolderMismatch(
                    f"{setting} is {self.config[setting]}, but {name} in this data folder has "
                    f"{topics[name]['partitions']} partitions: ids would be looked for where they are not\n\n"
                    f"hint: start with --set {setting}={topics[name]['partitions']}, or with a new data folder"
                )

    def _save(self) -> None:
        document = {
            "version": 1,
            "cluster_id": self.cluster_id,
            "transaction_version": self.transaction_version,
            "group_version": self.group_version,
            "features_epoch": self.features_epoch,
            "leader_epoch": self.leader_epoch,
            "next_producer_id": self._producer_id_block_end,
            "topics": {
                t.name: {"id": t.topic_id.hex(), "partitions": len(t.partitions), "configs": t.configs}
                for t in self.topics.values()
            },
        }
        self.storage.save_metadata(json.dumps(document, indent=1).encode())

    @contextmanager
    def one_save(self) -> Iterator[None]:
        """Topics that change inside are saved together at the end: all of them, or none if that raises StorageFailed.

        A request may change thousands, and each save writes all that the cluster knows.
        """
        if self._deleted is not None:
            yield  # It belongs to a larger change.
            return
        before = {topic: len(topic.partitions) for topic in self.topics.values()}
        deleted: dict[Topic, int] = {}
        self._deleted = deleted
        try:
            yield
            if self._is_unsaved:
                self._save()
        except Exception:
            self._take_back(before)
            raise
        finally:
            self._deleted = None
            self._is_unsaved = False
        if deleted:
            self._delete_data(list(deleted), max(deleted.values()))

    def _take_back(self, before: Mapping[Topic, int]) -> None:
        """Back to the topics of before, with as many partitions as they had. The new ones have no records yet."""
        for topic in self.topics.values():
            had = before.get(topic, 0)
            self._close_logs(topic, had)
            del topic.partitions[had:]
        self.topics_version += 1
        self.topics = {topic.name: topic for topic in before}
        self.topics_by_id = {topic.topic_id: topic for topic in before}
        self.partition_count = sum(before.values())

    def _close_logs(self, topic: Topic, first: int = 0) -> None:
        for index in range(first, len(topic.partitions)):
            # Nobody knows of them any more; what stays behind is a stray, which the next start removes.
            with suppress(StorageFailed):
                self.storage.delete_log(topic.name, index)

    def _expire_producers(self, now_ms: int) -> None:
        expiration_ms = self.config["producer.id.expiration.ms"]
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.expire_producers(now_ms, expiration_ms)

    # --- features -----------------------------------------------------------------------------------------

    def change_features(self, transaction_version: TransactionVersion, group_version: int) -> None:
        """Open transactions go on: each request says for itself how its client does transactions.

        Clients believe a change only if it comes with a higher epoch. Raises StorageFailed.
        """
        before = self.transaction_version, self.group_version, self.features_epoch
        self.transaction_version, self.group_version = transaction_version, group_version
        self.features_epoch += 1
        try:
            self._save()
        except Exception:
            self.transaction_version, self.group_version, self.features_epoch = before
            raise

    # --- producer ids -------------------------------------------------------------------------------------

    def allocate_producer_id(self) -> int:
        """A producer id that was never given out, whatever happens: a block is claimed on disk before its use."""
        if self._next_producer_id >= self._producer_id_block_end:
            self._producer_id_block_end += PRODUCER_ID_BLOCK
            try:
                self._save()
            except Exception:
                self._producer_id_block_end -= PRODUCER_ID_BLOCK
                raise
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id

    # --- topics -------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def leader_of(self, index: int) -> Broker:
        """Partitions take turns over the brokers."""
        return self.brokers[index % len(self.brokers)]

    def create_topic(self, name: str, partition_count: int, configs: Mapping[str, str], now_ms: int) -> Topic:
        self.check_new_topic(name, partition_count, configs)
        topic = Topic(name, self.rng.randbytes(16), dict(configs))
        with self.one_save():
            self._open_partitions(topic, partition_count, now_ms)
            self._is_unsaved = True
        return topic

    def check_new_topic(self, name: str, partition_count: int, configs: Mapping[str, str]) -> None:
        check_topic_name(name)
        if name in self.topics:
            raise TopicRefused(errors.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if not 1 <= partition_count <= MAX_PARTITIONS_PER_TOPIC:
            raise TopicRefused(
                errors.INVALID_PARTITIONS,
                f"a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions, {partition_count} were asked for",
            )
        try:
            check_topic_settings(configs)
        except ValueError as e:
            raise TopicRefused(errors.INVALID_CONFIG, str(e)) from None
        if name in INTERNAL_TOPICS:
            # Differs: Kafka lets a client create its internal topics with any number of partitions and any settings.
            own_count = self.config[f"{_INTERNAL_SETTINGS[name]}.num.partitions"]
            if partition_count != own_count:
                raise TopicRefused(
                    errors.INVALID_PARTITIONS,
                    f"{name} has {own_count} partitions on this broker, {partition_count} were asked for",
                )
            self.check_internal_settings(name, configs)
        else:
            self.check_room(partition_count)

    def check_internal_settings(self, name: str, configs: Mapping[str, str]) -> None:
        if self.config.for_topic(configs, "cleanup.policy") != "compact":
            raise TopicRefused(
                errors.INVALID_CONFIG,
                f"cleanup.policy of {name} must be compact: else the broker would forget transactions or offsets",
            )

    def check_room(self, more_partitions: int) -> None:
        if self.partition_count + more_partitions > MAX_PARTITIONS:
            raise TopicRefused(
                errors.POLICY_VIOLATION,
                f"{more_partitions} partitions more than {self.partition_count} would be above {MAX_PARTITIONS}",
            )

    def _open_partitions(self, topic: Topic, partition_count: int, now_ms: int) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self.topics_version += 1
        log_config = self.log_config(topic)
        self.partition_count += partition_count - len(topic.partitions)
        for index in range(len(topic.partitions), partition_count):
            log = self.storage.open_log(topic.name, index, topic.topic_id, log_config)
            topic.partitions.append(
                Partition.recover(
                    log,
                    topic.name,
                    index,
                    self.leader_epoch,
                    now_ms=now_ms,
                    producer_id_expiration_ms=self.config["producer.id.expiration.ms"],
                )
            )
        self.apply_topic_settings(topic)

    def apply_topic_settings(self, topic: Topic) -> None:
        for partition in topic.partitions:
            partition.max_message_bytes = self.config.for_topic(topic.configs, "max.message.bytes")
            partition.log_append_time = (
                self.config.for_topic(topic.configs, "message.timestamp.type") == "LogAppendTime"
            )
            partition.timestamp_before_max_ms = self.config.for_topic(topic.configs, "message.timestamp.before.max.ms")
            partition.timestamp_after_max_ms = self.config.for_topic(topic.configs, "message.timestamp.after.max.ms")
            partition.compacted = "compact" in self.cleanup_policy(topic)

    def cleanup_policy(self, topic: Topic) -> frozenset[str]:
        """`delete`, `compact`, both or neither."""
        policy: str = self.config.for_topic(topic.configs, "cleanup.policy")
        return frozenset(policy.split(","))

    def log_config(self, topic: Topic) -> LogConfig:
        def setting(name: str) -> Any:
            return self.config.for_topic(topic.configs, name)

        is_compacted = "compact" in self.cleanup_policy(topic)
        segment_ms = setting("segment.ms")
        if is_compacted:
            # Kafka: only a closed segment can be cleaned, so it is closed when it has to be.
            segment_ms = min(segment_ms, setting("max.compaction.lag.ms"))
        return LogConfig(setting("segment.bytes"), segment_ms, setting("index.interval.bytes"), is_compacted)

    def ensure_internal_topic(self, name: str, now_ms: int) -> Topic:
        """The internal topic, created with all its partitions when it is first needed."""
        topic = self.topics.get(name)
        if topic is not None:
            return topic
        prefix = _INTERNAL_SETTINGS[name]
        configs = {"cleanup.policy": "compact", "segment.bytes": str(self.config[f"{prefix}.segment.bytes"])}
        return self.create_topic(name, self.config[f"{prefix}.num.partitions"], configs, now_ms)

    def add_partitions(self, topic: Topic, new_count: int, now_ms: int) -> None:
        with self.one_save():
            self._open_partitions(topic, new_count, now_ms)
            self._is_unsaved = True

    def alter_topics(self, changes: Mapping[Topic, dict[str, str]]) -> None:
        """Give topics the settings that were checked, all of them or, if that raises StorageFailed, none."""
        before = {topic: topic.configs for topic in changes}
        for topic, configs in changes.items():
            topic.configs = configs
        try:
            self._save()
        except Exception:
            for topic, configs in before.items():
                topic.configs = configs
            raise
        for topic in changes:
            self.apply_topic_settings(topic)
            for partition in topic.partitions:
                partition.log.configure(self.log_config(topic))

    def delete_topic(self, topic: Topic, now_ms: int) -> None:
        """Forget the topic first, then its data: a crash in between leaves folders that the next start removes."""
        with self.one_save():
            del self.topics[topic.name], self.topics_by_id[topic.topic_id]
            self.topics_version += 1
            self.partition_count -= len(topic.partitions)
            self._is_unsaved = True
            assert self._deleted is not None
            self._deleted[topic] = now_ms

    def _delete_data(self, topics: list[Topic], now_ms: int) -> None:
        self.groups.topics_deleted({topic.name for topic in topics}, now_ms)
        for topic in topics:
            for partition in topic.partitions:
                self.fetches.partition_deleted(partition, now_ms)
            self._close_logs(topic)

    def reach(self, point: str) -> None:
        """A named point at which a test may kill the process."""
        if self.crash_at is not None:
            self.crash_at(point)

    # --- durability ---------------------------------------------------------------------------------------

    def sync(self, logs: list[Log], then: Callable[[], None]) -> None:
        self.storage.sync(logs, then)
