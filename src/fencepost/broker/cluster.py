"""The cluster as one node has it: the topics, the partitions that the node leads, its timers and its two coordinators.

The nodes of a process share the storage and the cluster's document, which the controller owns (`controller.py`), and
nothing else. A change of the document is decided on a draft and committed by the controller, which tells every node
what to apply. A node leads only some partitions: it has no `Partition` for the others, and no coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fencepost.broker.acls import authorizer_of
from fencepost.broker.config import Config
from fencepost.broker.controller import BrokerAddress as BrokerAddress
from fencepost.broker.controller import Controller, LogToLead
from fencepost.broker.coordinator.groups import GroupCoordinator
from fencepost.broker.coordinator.txn_shard import TxnShard
from fencepost.broker.coordinator.txn_trace import Trace
from fencepost.broker.coordinator.txns import TxnCoordinator
from fencepost.broker.damage_reports import DamageReports
from fencepost.broker.fetches import WaitingFetches
from fencepost.broker.housekeeping import Housekeeping
from fencepost.broker.leaders import Leader
from fencepost.broker.metadata import Metadata, MetadataDraft, TopicMetadata
from fencepost.broker.peers import Alone, CarryOut, Peers, take_no_orders
from fencepost.broker.rpcs import SeenRpc
from fencepost.broker.topics import (
    OFFSETS_TOPIC,
    SETTINGS_PREFIX,
    TXN_TOPIC,
    Topic,
    apply_settings,
    check_new_topic,
    default_replication_factor,
    log_config,
)
from fencepost.machines.acl.acls import Denial
from fencepost.machines.log.interface import Log, Storage
from fencepost.machines.partition.partition import Partition
from fencepost.machines.partition.recovery import recover
from fencepost.machines.rng import Rng
from fencepost.machines.timers import Timers
from fencepost.machines.txn.states import Txn
from fencepost.protocol import errors
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TransactionVersion


class Disk(NamedTuple):
    """Where the logs are, and how much room there is: -1 if that is not known."""

    log_dir: str
    total_bytes: int = -1
    usable_bytes: int = -1


class Cluster:
    """What one node knows and has: handlers and coordinators find the controller, topics and the storage here."""

    def __init__(
        self,
        storage: Storage,
        config: Config,
        rng: Rng,
        notice: Callable[[str], None] = lambda text: None,
        crash_at: Callable[[str], None] | None = None,
        trace: Trace | None = None,
        node_id: int = 1,
        controller: Controller | None = None,
    ) -> None:
        """Without a `controller`, the node is alone and has one of its own; else it has to join."""
        self.node_id = node_id
        self.controller = Controller(storage, config, rng) if controller is None else controller
        self.storage = storage
        self.config = config
        self.rng = rng
        self.notice = notice  # Prints one line for the operator.
        self.damage_reports = DamageReports(notice)
        self.trace = trace  # Takes an event for whatever happens to a transaction.
        self.disk: Callable[[], Disk] = lambda: Disk("memory")
        # The last requests of a transactional id, which the shell remembers.
        self.recent_rpcs: Callable[[str], list[SeenRpc]] = lambda transactional_id: []
        self.order_nodes: CarryOut = take_no_orders  # The shell carries out orders about nodes.
        self.crash_at = crash_at
        self.peers: Peers = Alone()
        self.timers = Timers()
        self.fetches = WaitingFetches(self.timers)
        # The addresses of the brokers by listener and node id, for clients of that listener.
        self.addresses: Mapping[str, Mapping[int, BrokerAddress]] = {}
        self.metadata = self.controller.metadata  # The controller replaces it.
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.topics_version = 0  # Grows when a topic comes, goes or gets partitions, or may be seen by others.
        # None unless `authorizer.class.name` is set, which never changes. A change of the ACLs makes a new one.
        self.authorizer = authorizer_of(config, self.metadata.acls)
        self.on_denied: Callable[[Denial], None] = lambda denial: None
        self._ready: dict[TopicPartition, tuple[Partition, TxnShard | None]] = {}  # What it is about to lead.
        self.txns = TxnCoordinator(self)
        self.groups = GroupCoordinator(self)
        self.housekeeping = Housekeeping(self)
        if controller is None:
            self.controller.join(self)

    # --- starting and stopping ----------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Start the controller, and with it this node and all others that have joined."""
        self.controller.start(now_ms)
        if self.metadata.acls and self.authorizer is None:
            self.notice(
                f"the data folder has {len(self.metadata.acls)} ACLs, but authorizer.class.name is not set: nothing is "
                "checked, and every client may do everything"
            )

    def known_txns(self) -> Iterable[Txn]:
        return self.txns.all_txns()

    def finish_recovery(self, known: Sequence[Txn], now_ms: int, then: Callable[[], None]) -> None:
        self.txns.finish_recovery(known, now_ms, then)

    def begin_timers(self, now_ms: int) -> None:
        self.txns.begin_timers(now_ms)
        self.groups.begin_timers(now_ms)
        self.timers.every(self.config["producer.id.expiration.check.interval.ms"], now_ms, self._expire_producers)
        self.housekeeping.start(now_ms)

    def stop(self) -> None:
        """A clean stop of a node that is alone: the next start replays nothing."""
        self.save_snapshots()
        self.storage.close()

    def save_snapshots(self) -> None:
        self.housekeeping.stop()
        for topic in self.topics.values():
            for partition in topic.partitions.values():
                partition.save_snapshot()

    def _expire_producers(self, now_ms: int) -> None:
        expiration_ms = self.config["producer.id.expiration.ms"]
        for topic in self.topics.values():
            for partition in topic.partitions.values():
                partition.expire_producers(now_ms, expiration_ms)

    # --- the document -------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        return self.metadata.cluster_id

    @property
    def transaction_version(self) -> TransactionVersion:
        return self.metadata.transaction_version

    def draft(self) -> MetadataDraft:
        return MetadataDraft(self.controller.metadata)

    def commit(self, draft: MetadataDraft, now_ms: int) -> None:
        """Save the draft and apply it: all of it, or nothing if that raises StorageFailed."""
        self.controller.commit(draft, now_ms)

    def save(self, after: Metadata) -> None:
        """Save a document, which is valid from then on. What it says about topics is applied elsewhere."""
        self.controller.save(after)

    def learn(self, after: Metadata) -> None:
        if after.acls != self.metadata.acls:
            self.authorizer = authorizer_of(self.config, after.acls)
            self.topics_version += 1  # Patterns of subscriptions match the topics that a member may see.
        self.metadata = after

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
        """A producer id that was never given out. Raises StorageFailed."""
        return self.controller.allocate_producer_id()

    # --- what the controller says -------------------------------------------------------------------------

    def apply(
        self, after: Metadata, names: Iterable[str], opened: Mapping[TopicPartition, LogToLead], now_ms: int
    ) -> None:
        deleted: list[Topic] = []
        has_grown = False
        for name in names:
            live, wanted = self.topics.get(name), after.topics.get(name)
            if live is not None and (wanted is None or wanted.topic_id != live.topic_id):
                del self.topics[name], self.topics_by_id[live.topic_id]
                deleted.append(live)
                live = None
            if wanted is None:
                continue
            if live is None:
                live = self.topics[name] = self.topics_by_id[wanted.topic_id] = Topic(
                    name, wanted.topic_id, wanted.configs
                )
            elif live.configs != wanted.configs:
                for partition in live.partitions.values():
                    partition.log.configure(log_config(self.config, name, wanted.configs))
            live.configs = wanted.configs
            has_grown = has_grown or live.partition_count != wanted.partition_count
            live.partition_count = wanted.partition_count
            apply_settings(self.config, live)
        self.get_ready(opened, now_ms)
        self.lead(opened)
        if has_grown or deleted:
            self.topics_version += 1
        if deleted:
            self.groups.topics_deleted({topic.name for topic in deleted}, now_ms)
            for topic in deleted:
                for partition in topic.partitions.values():
                    self.fetches.partition_gone(partition, now_ms)
        for index, partition in self._groups_of(opened).items():
            self.groups.lead(index, partition, now_ms)

    def save_snapshots_of(self, partitions: Iterable[TopicPartition]) -> None:
        for name, index in partitions:
            partition = self.partition(name, index)
            if partition is not None:
                partition.save_snapshot()

    def get_ready(self, opened: Mapping[TopicPartition, LogToLead], now_ms: int) -> None:
        """Make partitions of the logs, and load transactional ids; groups are loaded later."""
        self._ready = {}
        for (name, index), (log, leader_epoch) in opened.items():
            expiration_ms = self.config["producer.id.expiration.ms"]
            partition = recover(log, name, index, leader_epoch, now_ms=now_ms, producer_id_expiration_ms=expiration_ms)
            self._ready[name, index] = partition, self.txns.read(partition) if name == TXN_TOPIC else None

    def lead(self, opened: Mapping[TopicPartition, LogToLead]) -> None:
        for (name, index), (log, _) in opened.items():
            partition, shard = self._ready[name, index]
            partition.log = log
            self.topics[name].partitions[index] = partition
            if shard is not None:
                self.txns.shards[index] = shard
        self._ready = {}
        for name in {name for name, _ in opened}:
            apply_settings(self.config, self.topics[name])

    def coordinate(self, opened: Mapping[TopicPartition, LogToLead], now_ms: int) -> None:
        """Transactions go on at once, groups a little later."""
        self.groups.lead_soon(self._groups_of(opened), now_ms)
        self.txns.go_on([index for name, index in opened if name == TXN_TOPIC], now_ms)

    def _groups_of(self, opened: Iterable[TopicPartition]) -> dict[int, Partition]:
        return {index: self.topics[name].partitions[index] for name, index in opened if name == OFFSETS_TOPIC}

    def resign(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        self.housekeeping.stop()  # Its runs begin again at their intervals, with the partitions that are left.
        resigned = []
        for name, index in partitions:
            topic = self.topics.get(name)
            partition = None if topic is None else topic.partitions.pop(index, None)
            if partition is None:
                continue
            resigned.append(partition)
            if name == TXN_TOPIC:
                self.txns.resign(index)
            elif name == OFFSETS_TOPIC:
                self.groups.resign(index)
        for partition in resigned:
            self.fetches.partition_gone(partition, now_ms)

    def rejoin(self, after: Metadata, now_ms: int) -> None:
        self.resign([(name, index) for name, topic in self.topics.items() for index in list(topic.partitions)], now_ms)
        self.apply(after, {*self.topics, *after.topics}, {}, now_ms)

    @property
    def brokers(self) -> list[BrokerAddress]:
        """The living nodes."""
        return self.controller.living_brokers()

    @brokers.setter
    def brokers(self, addresses: Sequence[BrokerAddress]) -> None:
        self.controller.addresses = list(addresses)

    def leader_of(self, topic: str, index: int) -> Leader:
        """NO_LEADER if there is no such partition."""
        return self.controller.leader_of(topic, index)

    def is_leader(self, partition: Partition) -> bool:
        """Whether the controller still has this node as the leader, in the epoch of `partition`."""
        leader = Leader(self.node_id, partition.leader_epochs.current)
        return self.controller.leader_of(partition.topic, partition.index) == leader

    def broker_of(self, topic: str, index: int) -> BrokerAddress:
        """The address of the leader of a partition that exists."""
        return self.controller.address_of(self.controller.leader_of(topic, index).node_id)

    # --- topics -------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, if this node leads it; else `why_not_here` says why not."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def has_partition(self, topic: str, index: int) -> bool:
        """Whether the partition exists, on whatever node."""
        found = self.topics.get(topic)
        return found is not None and 0 <= index < found.partition_count

    def why_not_here(self, topic: str, index: int) -> int:
        """The error for a partition that this node does not lead."""
        if self.has_partition(topic, index):
            return errors.NOT_LEADER_OR_FOLLOWER
        return errors.UNKNOWN_TOPIC_OR_PARTITION

    def draft_topic(
        self,
        draft: MetadataDraft,
        name: str,
        partition_count: int,
        configs: Mapping[str, str],
        replication_factor: int | None = None,
    ) -> TopicMetadata:
        """Put a new topic into the draft. Raises TopicRefused."""
        check_new_topic(draft, self.config, name, partition_count, configs)
        factor = replication_factor or default_replication_factor(self.config, len(self.brokers))
        topic = TopicMetadata(name, self.rng.randbytes(16), partition_count, dict(configs), factor)
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
