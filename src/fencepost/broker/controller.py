"""The controller: the one owner of the cluster's document, of which nodes are alive, and of who leads which partition.

It is to the nodes of this process what KRaft's quorum is to the brokers of Kafka. A change of the document is decided
on a draft, saved, and then applied by every living node (`Cluster.apply`). `start` applies the document that it finds
in the same way. Everything that the disk can refuse comes before the first node hears of a change; an error after that
stops the process (HalfDone).

Every change of leaders gets a leader epoch above all epochs before. The document keeps the newest one, so no epoch
comes twice. Who leads is decided anew at each start.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fencepost.broker.config import Config
from fencepost.broker.leaders import NO_LEADER, Leader, Replicas, replicas, spread
from fencepost.broker.metadata import Metadata, MetadataDraft, TopicMetadata, decode_metadata, encode_metadata
from fencepost.broker.topics import SETTINGS_PREFIX, log_config
from fencepost.machines.log.interface import HalfDone, Log, LogTailUnknown, Storage, StorageFailed
from fencepost.machines.rng import Rng
from fencepost.machines.txn.states import Txn
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TransactionVersion

PRODUCER_ID_BLOCK = 1000
LOGIN_SECRET_BYTES = 32
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


class NodeOrderRefused(ValueError):
    """An order about nodes or leaders cannot be carried out. The message says why, and what to do."""


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int


@dataclass(slots=True)
class TxnCounts:
    """Counts since the start of the process, of all nodes."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    fenced: int = 0  # Requests refused because a newer producer has the id.
    unverified: int = 0  # Writes that belong to no transaction (KIP-890).


class LogToLead(NamedTuple):
    """A log that a node leads from now on, or is about to."""

    log: Log
    leader_epoch: int


class ClusterNode(Protocol):
    """A node, as the controller sees it: it is told what changes, and nothing of it is read."""

    node_id: int

    def learn(self, after: Metadata) -> None:
        """This document is valid from now on. What it says about topics comes with `apply`."""
        ...

    def apply(
        self, after: Metadata, names: Iterable[str], opened: Mapping[TopicPartition, LogToLead], now_ms: int
    ) -> None:
        """Make the node what the document says about the topics `names`; it leads `opened`."""
        ...

    def save_snapshots_of(self, partitions: Iterable[TopicPartition]) -> None:
        """Spare the next leaders of these partitions the replay."""
        ...

    def get_ready(self, opened: Mapping[TopicPartition, LogToLead], now_ms: int) -> None:
        """Read these logs, of known topics. Nothing changes yet. Raises StorageFailed, StateLogDamaged."""
        ...

    def resign(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Other nodes lead these partitions from now on."""
        ...

    def lead(self, opened: Mapping[TopicPartition, LogToLead]) -> None:
        """Lead these partitions, which it has got ready for, through these handles on their logs."""
        ...

    def coordinate(self, opened: Mapping[TopicPartition, LogToLead], now_ms: int) -> None:
        """Load the groups of these partitions, and finish what their coordinators have decided."""
        ...

    def rejoin(self, after: Metadata, now_ms: int) -> None:
        """Lead nothing any more, and make the node what the document says: it may have missed changes."""
        ...

    def known_txns(self) -> Iterable[Txn]:
        """The transactions of its coordinator."""
        ...

    def finish_recovery(self, known: Sequence[Txn], now_ms: int, then: Callable[[], None]) -> None:
        """Continue where the last process stopped. `known`: the transactions of all coordinators."""
        ...

    def begin_timers(self, now_ms: int) -> None: ...


@contextmanager
def _whole(what: str) -> Iterator[None]:
    """A change that the nodes have begun to hear of must not stop half-way."""
    try:
        yield
    except LogTailUnknown:
        raise
    except Exception as e:
        raise HalfDone(f"{what} have changed in part", e) from e


class Controller:
    def __init__(self, storage: Storage, config: Config, rng: Rng) -> None:
        self.storage = storage
        self.config = config
        self.rng = rng
        self.metadata = Metadata("", TransactionVersion(int(config["transaction.version"])))
        self.addresses: list[BrokerAddress] = []  # Of all nodes, also of those that are down.
        self._members: dict[int, ClusterNode] = {}  # The living nodes.
        self._leaders: dict[str, list[Leader]] = {}  # By topic; the index is that of the partition.
        self._next_producer_id = 0
        self.txn_counts = TxnCounts()  # Of all nodes, also of those that are down.

    # --- nodes --------------------------------------------------------------------------------------------

    def join(self, member: ClusterNode) -> None:
        """Count a node among the living, before `start`."""
        self._members[member.node_id] = member

    def rejoin(self, member: ClusterNode, now_ms: int) -> None:
        """Count a node among the living that was not: a new one, or one whose session had expired."""
        member.learn(self.metadata)
        member.rejoin(self.metadata, now_ms)
        self._members[member.node_id] = member

    def leave(self, node_id: int, now_ms: int) -> None:
        """A node stops: it gives up its partitions, and others lead them.

        Raises NodeOrderRefused, or why a log cannot be read or the document not be saved. Then nothing has changed.
        """
        self._move_all_from(node_id, now_ms)
        self._members.pop(node_id, None)  # The order may be given a second time.

    def expire(self, node_id: int, now_ms: int) -> None:
        """A node does not answer: others lead its partitions, and it does not know. Raises as `leave` does."""
        member = self._members.get(node_id)
        try:
            self._members.pop(node_id, None)
            self._move_all_from(node_id, now_ms)
        except Exception:
            if member is not None:
                self._members[node_id] = member
                member.learn(self.metadata)
            raise

    def _move_all_from(self, node_id: int, now_ms: int) -> None:
        others = [other for other in self._members if other != node_id]
        if not others:
            hint = "start or resume another one first"
            if len(self.addresses) == 1:
                hint = "this broker has one node; `fencepost broker --brokers 3` has three"
            raise NodeOrderRefused(f"node {node_id} is the last one that is up\n\nhint: {hint}")
        self._move({where: spread(*where, others) for where in self.led_by(node_id)}, now_ms)

    def is_alive(self, node_id: int) -> bool:
        return node_id in self._members

    def living_brokers(self) -> list[BrokerAddress]:
        return [address for address in self.addresses if address.node_id in self._members]

    # --- starting -----------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        document = self.storage.load_metadata()
        if document is None:
            cluster_id = base64.urlsafe_b64encode(self.rng.randbytes(16)).decode().rstrip("=")
            # An earlier document may be lost, and clients may still have its producer ids.
            first_id = first_producer_id_after_loss(0, now_ms) if self.storage.may_have_lost_appends else 0
            self.save(
                self.metadata._replace(
                    cluster_id=cluster_id,
                    next_producer_id=first_id,
                    first_producer_id_after_loss=first_id,
                    login_secret=self.rng.randbytes(LOGIN_SECRET_BYTES),
                )
            )
            self._next_producer_id = first_id
        else:
            self.restore(decode_metadata(document), now_ms)
        self._finish_recovery(now_ms)
        for member in self._members.values():
            member.begin_timers(now_ms)

    def restore(self, found: Metadata, now_ms: int) -> None:
        """Take over the document that the last process left."""
        self._check_fixed_counts(found.topics)
        opened = self._open_logs(found, found.topics)
        after = found
        if self.storage.may_have_lost_appends:  # Opening a log may find that out.
            # A reader may be beyond the end of the shortened log. The new epoch shows it, even if the log grows again.
            first_id = first_producer_id_after_loss(found.next_producer_id, now_ms)
            after = found._replace(
                leader_epoch=found.leader_epoch + 1, next_producer_id=first_id, first_producer_id_after_loss=first_id
            )
        elif len(self._members) > 1:
            # Other nodes may lead than before.
            after = found._replace(leader_epoch=found.leader_epoch + 1)
        if not after.login_secret:  # An earlier version wrote the document.
            after = after._replace(login_secret=self.rng.randbytes(LOGIN_SECRET_BYTES))
        if after is not found:
            self.save(after)
        self._next_producer_id = after.next_producer_id
        self._apply(after, after.topics, opened, now_ms)

    def _check_fixed_counts(self, topics: Mapping[str, TopicMetadata]) -> None:
        for name, prefix in SETTINGS_PREFIX.items():
            setting = f"{prefix}.num.partitions"
            if name in topics and topics[name].partition_count != self.config[setting]:
                raise DataFolderMismatch(
                    f"{setting} is {self.config[setting]}, but {name} in this data folder has "
                    f"{topics[name].partition_count} partitions: ids would be looked for where they are not\n\n"
                    f"hint: start with --set {setting}={topics[name].partition_count}, or with a new data folder"
                )

    def _finish_recovery(self, now_ms: int) -> None:
        known = [txn for member in self._members.values() for txn in member.known_txns()]
        unfinished = set(self._members)

        def finished(node_id: int) -> None:
            unfinished.discard(node_id)
            if not unfinished:
                self.storage.note_recovered()

        for node_id, member in self._members.items():
            member.finish_recovery(known, now_ms, lambda node_id=node_id: finished(node_id))  # type: ignore[misc]

    # --- the document -------------------------------------------------------------------------------------

    def save(self, after: Metadata) -> None:
        """Raises StorageFailed, and then nothing has changed."""
        self.storage.save_metadata(encode_metadata(after))
        with _whole("the nodes' copies of the document"):
            self._publish(after)

    def _publish(self, after: Metadata) -> None:
        self.metadata = after
        for member in self._members.values():
            member.learn(after)

    def commit(self, draft: MetadataDraft, now_ms: int) -> None:
        """Save the draft and apply it: all of it, or nothing if that raises StorageFailed."""
        if not draft.changed:
            return
        after = draft.document()
        opened: dict[TopicPartition, Log] = {}
        try:
            self._open_logs(after, draft.changed, opened)
            self.storage.save_metadata(encode_metadata(after))
        except LogTailUnknown:
            raise
        except Exception:
            # The document does not name these logs. What cannot be deleted is a stray, which the next start removes.
            self._delete_logs(opened)
            raise
        with _whole("topics"):
            self._apply(after, draft.changed, opened, now_ms, draft.leaders)

    def _open_logs(
        self, after: Metadata, names: Iterable[str], opened: dict[TopicPartition, Log] | None = None
    ) -> dict[TopicPartition, Log]:
        """Open the logs that the document `after` has and the cluster does not have yet, into `opened`."""
        opened = {} if opened is None else opened
        for name in names:
            wanted = after.topics.get(name)
            if wanted is None:
                continue
            configured = log_config(self.config, name, wanted.configs)
            for index in range(len(self._leaders.get(name, ())), wanted.partition_count):
                opened[name, index] = self.storage.open_log(name, index, wanted.topic_id, configured)
        return opened

    def _apply(
        self,
        after: Metadata,
        names: Iterable[str],
        opened: Mapping[TopicPartition, Log],
        now_ms: int,
        chosen: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Have all nodes apply the document. A start and a change both end here.

        `chosen`: the leaders of new partitions, where a request names them.
        """
        deleted: list[TopicPartition] = []
        for name in names:
            wanted = after.topics.get(name)
            leaders = self._leaders.setdefault(name, [])
            if wanted is None:
                deleted += [(name, index) for index in range(len(leaders))]
                del self._leaders[name]
                continue
            for index in range(len(leaders), wanted.partition_count):
                epochs = opened[name, index].leader_epochs()
                epoch = max(after.leader_epoch, epochs[-1][0] if epochs else 0)
                node_id = (chosen or {}).get((name, index), -1)
                is_up = node_id in self._members
                leaders.append(Leader(node_id if is_up else spread(name, index, list(self._members)), epoch))
        self._publish(after)
        led: dict[int, dict[TopicPartition, LogToLead]] = {node_id: {} for node_id in self._members}
        for (name, index), log in opened.items():
            node_id, epoch = self._leaders[name][index]
            led[node_id][name, index] = LogToLead(log, epoch)
        for node_id, member in self._members.items():
            member.apply(after, names, led[node_id], now_ms)
        # A crash from here on leaves folders that the next start removes.
        self._delete_logs(deleted)

    def _delete_logs(self, partitions: Iterable[TopicPartition]) -> None:
        for topic, index in partitions:
            with suppress(StorageFailed):
                self.storage.delete_log(topic, index)

    def allocate_producer_id(self) -> int:
        """A producer id that was never given out. A block of them is claimed on disk before its first use."""
        if self._next_producer_id >= self.metadata.next_producer_id:
            claimed = self.metadata.next_producer_id + PRODUCER_ID_BLOCK
            self.save(self.metadata._replace(next_producer_id=claimed))
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id

    # --- leaders ------------------------------------------------------------------------------------------

    def leader_of(self, topic: str, index: int) -> Leader:
        """NO_LEADER if there is no such partition."""
        leaders = self._leaders.get(topic, ())
        return leaders[index] if 0 <= index < len(leaders) else NO_LEADER

    def replicas_of(self, topic: str, index: int) -> Replicas:
        """The nodes that a partition, which exists, is said to be on."""
        nodes = [address.node_id for address in self.addresses]
        return replicas(
            self.leader_of(topic, index).node_id, self.metadata.topics[topic].replication_factor, nodes, self._members
        )

    def address_of(self, node_id: int) -> BrokerAddress:
        return next(address for address in self.addresses if address.node_id == node_id)

    def led_by(self, node_id: int) -> list[TopicPartition]:
        return [
            (topic, index)
            for topic, leaders in self._leaders.items()
            for index, leader in enumerate(leaders)
            if leader.node_id == node_id
        ]

    def move_leader(self, topic: str, index: int, node_id: int, now_ms: int) -> None:
        """Have a node lead a partition. Raises as `leave` does."""
        if self.leader_of(topic, index) == NO_LEADER:
            last = len(self._leaders.get(topic, ())) - 1
            hint = f"the last one is {topic}:{last}" if last >= 0 else "`fencepost topic list` shows the topics"
            raise NodeOrderRefused(f"there is no partition {topic}:{index}\n\nhint: {hint}")
        if node_id not in self._members:
            living = ", ".join(map(str, sorted(self._members)))
            raise NodeOrderRefused(f"node {node_id} is not up\n\nhint: choose one of {living}")
        if self.leader_of(topic, index).node_id != node_id:
            self._move({(topic, index): node_id}, now_ms)

    def _move(self, moves: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Have other nodes lead these partitions.

        Raises StorageFailed, or why a log cannot be read. Then nothing has changed.
        """
        if not moves:
            return
        before: dict[int, list[TopicPartition]] = {}
        for where in moves:
            before.setdefault(self.leader_of(*where).node_id, []).append(where)
        epoch = max(self.metadata.leader_epoch, *(self.leader_of(*where).epoch for where in moves)) + 1
        to_lead: dict[int, dict[TopicPartition, LogToLead]] = {}
        for (where, node_id), log in zip(moves.items(), self.storage.open_logs(moves), strict=True):
            to_lead.setdefault(node_id, {})[where] = LogToLead(log, epoch)
        for node_id, member in self._members.items():
            member.save_snapshots_of(before.get(node_id, ()))
        # Before anyone resigns: a log that cannot be read stays where it is.
        for node_id, opened in to_lead.items():
            self._members[node_id].get_ready(opened, now_ms)
        self.save(self.metadata._replace(leader_epoch=epoch))
        with _whole("leaders"):
            # Fenced first: what a node does when it resigns cannot reach a log that another one has read.
            for node_id, opened in to_lead.items():
                for topic, index in opened:
                    opened[topic, index] = LogToLead(self.storage.take_over(topic, index), epoch)
                    self._leaders[topic][index] = Leader(node_id, epoch)
            for node_id, member in self._members.items():
                if node_id in before:
                    member.resign(before[node_id], now_ms)
            for node_id, opened in to_lead.items():
                self._members[node_id].lead(opened)
            for node_id, opened in to_lead.items():
                self._members[node_id].coordinate(opened, now_ms)
