"""The broker's process in a simulated world: how it starts, works, dies, and starts again.

The broker is the real one, `Node` and `Cluster` over the real storage, on a simulated disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from fencepost.broker.cluster import BrokerAddress, Cluster
from fencepost.broker.controller import Controller
from fencepost.broker.metadata import logs_in
from fencepost.broker.peers import Answered
from fencepost.machines.log.interface import LogTailUnknown, StorageFailed
from fencepost.machines.timers import Timers
from fencepost.protocol.records import iter_batches
from fencepost.protocol.schema import Message
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.server.control import POINTS
from fencepost.server.storage.folder import DataFolder
from fencepost.server.storage.syncing import Defer, run_at_once
from tests.simulation.checker import check_same, describe_state
from tests.simulation.disk.content import ROOT, Directory, File
from tests.simulation.disk.disk import Disk
from tests.simulation.disk.faults import Killed
from tests.simulation.disk.mounting import mounted
from tests.simulation.history import PLACES, Violation
from tests.simulation.network import Call, Clock
from tests.simulation.nodes import Nodes

if TYPE_CHECKING:
    from tests.simulation.world import World

COMMIT_POINTS = [point for point in POINTS if point.startswith(("txn.", "offsets."))]
COMMIT_POINTS += [point for point in POINTS if point.startswith("txn.marker.")] * 2  # There are several markers.


class BrokerProcess:
    """`losses` grows with each power loss, and again when the start after it knows what was kept."""

    def __init__(self, world: World, disk: Disk) -> None:
        self._world = world
        self.disk = disk
        self.is_up = False
        self.losses = 0
        self.nodes: Nodes
        self._life = 0  # Grows with each start and each death: what an earlier process began is not continued.
        self._calls: dict[Call, None] = {}  # Requests that have no answer yet.
        self._point: tuple[str, int] | None = None  # Where it dies: the crash point, and at which visit to it.
        self._death = "kill"
        self._lost: dict[TopicPartition, bytes] | None = None  # The logs as they were when power was lost.

    def start(self) -> None:
        self._life += 1
        self.is_up = True
        self.enter(self._recover)
        if self.is_up and self._lost is not None:
            before, self._lost = self._lost, None
            kept = {where: _common_end(before.get(where, b""), _raw_log(self.disk, where)) for where in PLACES}
            self._world.note("disk", "kept of the logs: %s", kept)
            self._world.history.power_was_lost(kept)
            self.losses += 1  # Fetches since the power loss asked for positions that may be gone.

    def _recover(self) -> None:
        try:
            self.nodes = Nodes(self, self._world, self._open_broker(self.disk, self._world.node_count, self._defer))
        except (OSError, StorageFailed) as error:
            if not self.disk.faults.full:
                raise
            self._world.note("broker", "cannot start: %s", error)
            raise Killed from error

    @property
    def cluster(self) -> Cluster:
        """As one node has it that is not paused."""
        return self.nodes.awake[0]

    def _open_broker(self, disk: Disk, node_count: int = 1, defer: Defer = run_at_once) -> list[Cluster]:
        """Start a broker on a disk, which must be mounted."""
        folder = DataFolder(
            ROOT,
            flush=self._world.flush,
            defer=defer,
            report=lambda line: self._world.note("disk", line),
            at=self._reach,
            max_open_segments=16,
            pwrite=disk.descriptors.pwrite,
            logs_in=logs_in,
            boot=lambda: str(disk.boot),
        )
        rng = random.Random(self._world.seed + self._life)
        controller = Controller(folder, self._world.config, rng)
        controller.addresses = [BrokerAddress(n, "127.0.0.1", 9091 + n) for n in range(1, node_count + 1)]
        clusters = []
        for node_id in range(1, node_count + 1):
            cluster = self.make_cluster(controller, node_id)
            # Requests of a start, before there is a network: no answer, and they are sent again.
            cluster.peers = Unconnected(cluster.timers, self._world.clock)
            controller.join(cluster)
            clusters.append(cluster)
        controller.start(self._world.clock.now_ms)
        folder.note_cluster(controller.metadata.cluster_id)
        folder.delete_strays()
        return clusters

    def make_cluster(self, controller: Controller, node_id: int) -> Cluster:
        return Cluster(
            controller.storage,
            self._world.config,
            controller.rng,
            lambda line: self._world.note("broker", line),
            self._reach,
            node_id=node_id,
            controller=controller,
        )

    def enter(self, work: Callable[[], None]) -> None:
        """Run code of the broker, and handle its death."""
        try:
            work()
        except Killed:
            self._die(self._death)
        except LogTailUnknown:
            self._die(self._death)  # The real process stops itself in this case.
        except Violation:
            raise
        except Exception as error:
            raise Violation("the broker failed", f"{type(error).__name__}: {error}") from error

    def target_of(self, request: Message) -> int:
        """The node that a client asks which has just asked for metadata."""
        return self.nodes.target_of(request) if self.is_up else 1

    def deliver(self, target: int, request: Message, version: int, who: str, call: Call) -> None:
        self._calls[call] = None
        self.enter(lambda: self.nodes.deliver(target, request, version, who, call))

    def break_off(self, call: Call) -> None:
        """The node of this connection has ended."""
        self._calls.pop(call, None)
        call.break_off()

    def break_off_all(self, node_id: int) -> None:
        for call in [call for call in self._calls if call.target == node_id]:
            self.break_off(call)

    def enter_if_same(self, nodes: Nodes, work: Callable[[], None]) -> None:
        """Run code of these nodes, unless their process has ended."""
        if self.is_up and nodes is self.nodes:
            self.enter(work)

    def end_of(self, where: TopicPartition) -> int:
        """The end of a partition's log."""
        [log] = self.cluster.storage.open_logs([where])
        return log.end_offset

    def next_timer(self) -> tuple[int, Cluster] | None:
        """The earliest deadline of the nodes that are not paused."""
        found = None
        for cluster in self.nodes.awake if self.is_up else ():
            deadline_ms = cluster.timers.next_deadline_ms()
            if deadline_ms is not None and (found is None or deadline_ms < found[0]):
                found = deadline_ms, cluster
        return found

    def strike_nodes(self) -> None:
        if self.is_up and not self._world.is_calm:
            self.enter(self.nodes.strike)

    def answered(self, call: Call) -> None:
        """If the process dies now, this request has its answer."""
        self._calls.pop(call, None)

    def _defer(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """The thread that syncs: it is slow, and ends with the process."""
        life = self._life

        def run() -> None:
            if life == self._life:
                self.enter(work_now)

        def work_now() -> None:
            error = None
            try:
                work()
            except Exception as e:
                error = e
            self._world.clock.after(self._world.rng.randint(0, 3), lambda: finish(error))

        def finish(error: Exception | None) -> None:
            if life == self._life:
                self.enter(lambda: done(error))

        self._world.clock.after(self._world.rng.randint(0, 6), run)

    def _reach(self, point: str) -> None:
        if self._point is not None and point == self._point[0]:
            self._point = (point, self._point[1] - 1)
            if self._point[1] <= 0:
                self._world.note("broker", "dies at %s", point)
                self.disk.faults.dead = True
                raise Killed

    def calm_down(self) -> None:
        """No fault that was planned strikes any more."""
        self._point = self.disk.faults.fuse = None
        self.disk.faults.full = False

    def strike(self) -> None:
        """Kill the broker: now, in one of the next writes, or at a crash point between the steps of a commit."""
        if not self.is_up or self._world.is_calm:
            return
        rng = self._world.rng
        loses_power = rng.random() < (0.6 if self._world.flush else 0.08)
        self._death = "power" if loses_power else "kill"
        how = rng.random()
        if how < 0.1:
            self._world.note("broker", "is stopped")
            self.enter(self._stop)
        elif how < 0.25:
            self._die(self._death)
        elif how < 0.5:
            self.disk.faults.fuse = rng.randint(0, 25)
        else:
            self._point = (rng.choice(COMMIT_POINTS), rng.randint(1, 3))

    def _stop(self) -> None:
        for cluster in self.nodes.awake:
            cluster.save_snapshots()
        self.cluster.storage.close()
        self._die("stop")

    def _die(self, death: str) -> None:
        rng = self._world.rng
        self._world.note("broker", "dies: %s", death)
        self.bury()
        self._point = None
        if death == "power":
            if self._lost is None:
                self._lost = {where: _raw_log(self.disk, where) for where in PLACES}
            self.disk.lose_power()
            self.losses += 1
            self._world.history.is_forgetful |= not self._world.flush
        else:
            self.disk.restart()
        self._death = "kill" if death == "stop" else death
        for call in list(self._calls):
            call.break_off()
        self._calls.clear()
        self._world.clock.after(rng.choice((1, 5, 50, 300)), self._start_again)

    def bury(self) -> None:
        """End the process, so that nothing of it touches the disk later, for example when Python collects it."""
        self.disk.faults.dead = True
        self.is_up = False
        self._life += 1
        for cluster in self.nodes.clusters.values() if hasattr(self, "nodes") else ():
            while cluster.housekeeping._jobs:
                with suppress(Killed):
                    cluster.housekeeping.stop()

    def _start_again(self) -> None:
        if self.is_up:
            return
        if self._world.rng.random() < 0.2:
            self._check_recovery()
        if not self._world.is_calm and self._world.rng.random() < 0.25:
            self.disk.faults.fuse = self._world.rng.randint(0, 40)
        self._world.note("broker", "starts")
        self.start()

    def _check_recovery(self) -> None:
        """Two recoveries from copies of the disk give the same state, and so does a second recovery on each copy."""
        states = []
        point, self._point = self._point, None
        for disk in (self.disk.copy(), self.disk.copy()):
            with mounted(disk):
                for _ in range(2):
                    [cluster] = self._open_broker(disk)
                    cluster.timers.advance(self._world.clock.now_ms)
                    states.append(describe_state(cluster))
                    disk.restart()
        self._point = point
        check_same(states)


def _raw_log(disk: Disk, where: TopicPartition) -> bytes:
    directory = disk.tree.root.names.get(f"{where[0]}-{where[1]}")
    if not isinstance(directory, Directory):
        return b""
    files = sorted((name, node) for name, node in directory.names.items() if name.endswith(".log"))
    return b"".join([bytes(node.data) for _, node in files if isinstance(node, File)])


def _common_end(before: bytes, after: bytes) -> int:
    """The offset up to which two logs are equal."""
    end = 0
    with suppress(ValueError):  # The tail of the older log may be torn.
        for (header, batch), (_, other) in zip(iter_batches(before), iter_batches(after)):
            if bytes(batch) != bytes(other):
                break
            end = header.last_offset + 1
    return end


class Unconnected:
    """The peers of nodes that start: there is no answer."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock

    def send(self, node_id: int, request: Message, version: int, then: Answered) -> None:
        self._timers.at(self._clock.now_ms, lambda at_ms: then(None, at_ms))
