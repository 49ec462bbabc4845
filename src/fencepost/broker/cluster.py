"""The state that all brokers of one process share: topics, partitions, producer ids, timers, the two coordinators.

The cluster's own facts are one document (`metadata.py`) that storage replaces atomically; everything else is in the
partitions' logs. A change of the document is decided on a draft, saved, and then applied. `start` applies the document
that it finds in the same way.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from fencepost.broker.config import Config
from fencepost.broker.coordinator.groups import GroupCoordinator
from fencepost.broker.coordinator.txn_trace import Trace
from fencepost.broker.coordinator.txns import TxnCoordinator
from fencepost.broker.fetches import WaitingFetches
from fencepost.broker.housekeeping import Housekeeping
from fencepost.broker.internal_topics import SETTINGS_PREFIX
from fencepost.broker.metadata import Metadata, MetadataDraft, TopicMetadata, decode_metadata, encode_metadata
from fencepost.broker.rpcs import SeenRpc
from fencepost.broker.topic_rules import check_new_topic
from fencepost.broker.topics import Topic, apply_settings, log_config
from fencepost.machines.log.interface import Log, Storage, StorageFailed
from fencepost.machines.partition.partition import Partition
from fencepost.machines.partition.recovery import recover
from fencepost.machines.rng import Rng
from fencepost.machines.timers import Timers
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TransactionVersion

PRODUCER_ID_BLOCK = 1000
# After a loss, producer ids go on at a number made from the clock: this many for each millisecond since 1970, more than
# a broker can give out. Below 2^53 until the year 2248, so that programs that read JSON numbers as doubles keep them.
_PRODUCER_IDS_PER_MS = 1024


class DataFolderMismatch(Exception):
    """The data folder was made with settings that cannot be changed afterwards."""


def first_producer_id_after_loss(next_producer_id: int, now_ms: int) -> int:
    """A producer id above all that were given out, also by a process whose document is lost.

    A restored copy of a data folder has the document of an earlier time, and may be restored more than once.
    """
    return max(next_producer_id, now_ms * _PRODUCER_IDS_PER_MS)


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int


class Disk(NamedTuple):
    """Where the logs are, and how much room there is: -1 if that is not known."""

    log_dir: str
    total_bytes: int = -1
    usable_bytes: int = -1


class Cluster:
    def __init__(
        self,
        storage: Storage,
        config: Config,
        rng: Rng,
        notice: Callable[[str], None] = lambda text: None,
        crash_at: Callable[[str], None] | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.storage = storage
        self.config = config
        self.rng = rng
        self.notice = notice  # Prints one line for the operator.
        self.trace = trace  # Takes an event for whatever happens to a transaction.
        self.disk: Callable[[], Disk] = lambda: Disk("memory")
        # The last requests of a transactional id, which the shell remembers.
        self.recent_rpcs: Callable[[str], list[SeenRpc]] = lambda transactional_id: []
        self.crash_at = crash_at
        self.timers = Timers()
        self.fetches = WaitingFetches(self.timers)
        self.brokers: list[BrokerAddress] = []
        # The addresses of the brokers by listener and node id, for clients of that listener.
        self.addresses: Mapping[str, Mapping[int, BrokerAddress]] = {}
        self.metadata = Metadata("", TransactionVersion(int(config["transaction.version"])))
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.topics_version = 0  # Grows when a topic comes, goes or gets partitions.
        self._next_producer_id = 0
        self.txns = TxnCoordinator(self)
        self.groups = GroupCoordinator(self)
        self.housekeeping = Housekeeping(self)

    # --- starting and stopping ----------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        document = self.storage.load_metadata()
        if document is None:
            cluster_id = base64.urlsafe_b64encode(self.rng.randbytes(16)).decode().rstrip("=")
            # An earlier document may be lost, and clients may still have its producer ids.
            first_id = first_producer_id_after_loss(0, now_ms) if self.storage.may_have_lost_appends else 0
            self.save(
                self.metadata._replace(
                    cluster_id=cluster_id, next_producer_id=first_id, first_producer_id_after_loss=first_id
                )
            )
            self._next_producer_id = first_id
        else:
            self._restore(decode_metadata(document), now_ms)
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

    def _restore(self, found: Metadata, now_ms: int) -> None:
        self._check_fixed_counts(found.topics)
        opened = self._open_partitions(found, found.topics, now_ms)
        if self.storage.may_have_lost_appends:  # Opening a log may find that out.
            # A reader may be beyond the end of the shortened log. The new epoch shows it, even if the log grows again.
            first_id = first_producer_id_after_loss(found.next_producer_id, now_ms)
            found = found._replace(
                leader_epoch=found.leader_epoch + 1, next_producer_id=first_id, first_producer_id_after_loss=first_id
            )
            for partition in opened.values():
                partition.leader_epochs.begin(found.leader_epoch, partition.log.end_offset)
            self.save(found)
        self._next_producer_id = found.next_producer_id
        self._apply(found, found.topics, opened, now_ms)

    def _check_fixed_counts(self, topics: Mapping[str, TopicMetadata]) -> None:
        for name, prefix in SETTINGS_PREFIX.items():
            setting = f"{prefix}.num.partitions"
            if name in topics and topics[name].partition_count != self.config[setting]:
                raise DataFolderMismatch(
                    f"{setting} is {self.config[setting]}, but {name} in this data folder has "
                    f"{topics[name].partition_count} partitions: ids would be looked for where they are not\n\n"
                    f"hint: start with --set {setting}={topics[name].partition_count}, or with a new data folder"
                )

    def _expire_producers(self, now_ms: int) -> None:
        expiration_ms = self.config["producer.id.expiration.ms"]
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.expire_producers(now_ms, expiration_ms)

    # --- the document -------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        return self.metadata.cluster_id

    @property
    def transaction_version(self) -> TransactionVersion:
        return self.metadata.transaction_version

    def draft(self) -> MetadataDraft:
        return MetadataDraft(self.metadata)

    def commit(self, draft: MetadataDraft, now_ms: int) -> None:
        """Save the draft and apply it: all of it, or nothing if that raises StorageFailed."""
        if not draft.changed:
            return
        after = draft.document()
        opened: dict[TopicPartition, Partition] = {}
        try:
            self._open_partitions(after, draft.changed, now_ms, opened)
            self.save(after)
        except Exception:
            # The document does not name these logs. What cannot be deleted is a stray, which the next start removes.
            self._delete_logs(opened)
            raise
        self._apply(after, draft.changed, opened, now_ms)

    def save(self, after: Metadata) -> None:
        """Save a document that changes no topic; it is valid from then on. Raises StorageFailed."""
        self.storage.save_metadata(encode_metadata(after))
        self.metadata = after

    def _open_partitions(
        self,
        after: Metadata,
        names: Iterable[str],
        now_ms: int,
        opened: dict[TopicPartition, Partition] | None = None,
    ) -> dict[TopicPartition, Partition]:
        """Open the logs that the document `after` has and the cluster does not have yet, into `opened`."""
        opened = {} if opened is None else opened
        for name in names:
            wanted = after.topics.get(name)
            if wanted is None:
                continue
            live = self.topics.get(name)
            configured = log_config(self.config, wanted.configs)
            for index in range(0 if live is None else len(live.partitions), wanted.partition_count):
                log = self.storage.open_log(name, index, wanted.topic_id, configured)
                opened[name, index] = recover(
                    log,
                    name,
                    index,
                    after.leader_epoch,
                    now_ms=now_ms,
                    producer_id_expiration_ms=self.config["producer.id.expiration.ms"],
                )
        return opened

    def _apply(
        self, after: Metadata, names: Iterable[str], opened: Mapping[TopicPartition, Partition], now_ms: int
    ) -> None:
        """Make the cluster what the document says about the topics `names`. A start and a change both end here."""
        self.metadata = after
        deleted: list[Topic] = []
        for name in names:
            live, wanted = self.topics.get(name), after.topics.get(name)
            if wanted is None:
                if live is not None:
                    del self.topics[name], self.topics_by_id[live.topic_id]
                    deleted.append(live)
                continue
            if live is None:
                live = self.topics[name] = self.topics_by_id[wanted.topic_id] = Topic(
                    name, wanted.topic_id, wanted.configs
                )
            elif live.configs != wanted.configs:
                for partition in live.partitions:
                    partition.log.configure(log_config(self.config, wanted.configs))
            live.configs = wanted.configs
            live.partitions += [opened[name, i] for i in range(len(live.partitions), wanted.partition_count)]
            apply_settings(self.config, live)
        if opened or deleted:
            self.topics_version += 1
        if deleted:
            # A crash from here on leaves folders that the next start removes.
            self._delete_data(deleted, now_ms)

    def _delete_data(self, topics: list[Topic], now_ms: int) -> None:
        self.groups.topics_deleted({topic.name for topic in topics}, now_ms)
        for topic in topics:
            for partition in topic.partitions:
                self.fetches.partition_deleted(partition, now_ms)
            self._delete_logs((topic.name, index) for index in range(len(topic.partitions)))

    def _delete_logs(self, partitions: Iterable[TopicPartition]) -> None:
        for topic, index in partitions:
            with suppress(StorageFailed):
                self.storage.delete_log(topic, index)

    def change_features(self, transaction_version: TransactionVersion, group_version: int) -> None:
        """Open transactions continue: each request says for itself which version its client has.

        Clients believe a change only if it comes with a higher epoch. Raises StorageFailed.
        """
        self.save(
            self.metadata._replace(
                transaction_version=transaction_version,
                group_version=group_version,
                features_epoch=self.metadata.features_epoch + 1,
            )
        )

    def allocate_producer_id(self) -> int:
        """A producer id that was never given out. A block of them is claimed on disk before its first use."""
        if self._next_producer_id >= self.metadata.next_producer_id:
            claimed = self.metadata.next_producer_id + PRODUCER_ID_BLOCK
            self.save(self.metadata._replace(next_producer_id=claimed))
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id

    # --- topics -------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def leader_of(self, index: int) -> BrokerAddress:
        """Partitions take turns over the brokers."""
        return self.brokers[index % len(self.brokers)]

    def draft_topic(
        self, draft: MetadataDraft, name: str, partition_count: int, configs: Mapping[str, str]
    ) -> TopicMetadata:
        """Put a new topic into the draft. Raises TopicRefused."""
        check_new_topic(draft, self.config, name, partition_count, configs)
        topic = TopicMetadata(name, self.rng.randbytes(16), partition_count, dict(configs))
        draft.put(topic)
        return topic

    def draft_internal_topic(self, draft: MetadataDraft, name: str) -> None:
        """Put an internal topic into the draft, with all its partitions, unless it is there."""
        if name not in draft.topics:
            prefix = SETTINGS_PREFIX[name]
            configs = {"cleanup.policy": "compact", "segment.bytes": str(self.config[f"{prefix}.segment.bytes"])}
            self.draft_topic(draft, name, self.config[f"{prefix}.num.partitions"], configs)

    def create_topic(self, name: str, partition_count: int, configs: Mapping[str, str], now_ms: int) -> Topic:
        draft = self.draft()
        self.draft_topic(draft, name, partition_count, configs)
        self.commit(draft, now_ms)
        return self.topics[name]

    def ensure_internal_topic(self, name: str, now_ms: int) -> Topic:
        """The internal topic, created when it is first needed."""
        if name not in self.topics:
            draft = self.draft()
            self.draft_internal_topic(draft, name)
            self.commit(draft, now_ms)
        return self.topics[name]

    # --- durability ---------------------------------------------------------------------------------------

    def reach(self, point: str) -> None:
        """A named point at which a test may kill the process."""
        if self.crash_at is not None:
            self.crash_at(point)

    def sync(self, logs: list[Log], then: Callable[[], None]) -> None:
        self.storage.sync(logs, then)
