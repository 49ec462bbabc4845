"""One seed: a broker on a simulated disk, clients on a simulated network, and their faults.

The seed decides everything: settings, clients, delays, faults and crashes. The broker is the real one, `Node` and
`Cluster` over the real storage. Faults happen until the horizon. Then clients finish, timeouts pass, and `checker`
compares the broker's data with the answers that clients received.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fencepost.broker.cluster import BrokerAddress, Cluster
from fencepost.broker.config import Config, parse
from fencepost.broker.metadata import logs_in
from fencepost.broker.node import Node
from fencepost.machines.log.interface import LogTailUnknown, StorageFailed
from fencepost.machines.partition import producers
from fencepost.machines.txn import decisions
from fencepost.protocol import errors
from fencepost.protocol.batch import MAX_PRODUCER_EPOCH
from fencepost.protocol.messages import EndTxnRequest, InitProducerIdRequest, OffsetFetchRequest
from fencepost.protocol.records import iter_batches
from fencepost.protocol.schema import Message
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV1, TV2
from fencepost.server.crash import POINTS
from fencepost.server.storage.deferring import Defer, run_at_once
from fencepost.server.storage.folder import DataFolder
from tests.simulation.checker import check_all, check_same, describe_state
from tests.simulation.clients import Instance, Role
from tests.simulation.disk.content import ROOT, Directory, File
from tests.simulation.disk.disk import Disk
from tests.simulation.disk.faults import Killed
from tests.simulation.disk.mounting import mounted
from tests.simulation.history import INPUTS, OTHERS, OUTPUTS, PLACES, TOPICS, History, Violation
from tests.simulation.network import Call, Clock, Weather
from tests.simulation.patching import Patch, patched
from tests.simulation.processors import GroupProcessor, Processor
from tests.simulation.producers import PlainProducer, Writer
from tests.simulation.readers import Observer, Reader
from tests.simulation.reading import fetched_offsets
from tests.simulation.trace import describe

START_MS = 1_700_000_000_000
COMMIT_POINTS = [point for point in POINTS if point.startswith(("txn.", "offsets."))]
COMMIT_POINTS += [point for point in POINTS if point.startswith("txn.marker.")] * 2  # There are several markers.
MOST_STEPS = 5000
LONGEST_CALM_MS = 60_000


class World:
    group = "g"

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.clock = Clock(START_MS)
        self.history = History()
        self.trace: list[tuple[int, str, str, tuple[Any, ...]]] = []
        self.weather = Weather.of(rng)
        self.client_death = rng.choice((0, 0.01, 0.04))
        self.client_freeze = rng.choice((0, 0.01, 0.04))
        self.dawdling = rng.choice((0, 0.05, 0.3))
        self.txn_timeout_ms = rng.choice((400, 1000, 1000))
        self.flush = rng.random() < 0.4
        self.last_epoch = rng.choice((5, 9)) if rng.random() < 0.15 else MAX_PRODUCER_EPOCH
        self.timer_lag_ms = rng.choice((0, 1, 5, 30))
        has_syncfs = rng.random() < 0.5
        self.disk = Disk(random.Random(seed + 1), has_syncfs=has_syncfs, now_ms=lambda: self.clock.now_ms)
        self.settings = self._choose_settings()
        self.config: Config = parse(self.settings)
        self.horizon_ms = START_MS + rng.choice((500, 1000, 1500, 2000))
        self.is_calm = False  # The faults are over.
        self.is_settled = False  # All clients except readers have finished.
        self.losses = 0  # Grows with each power loss, and again when the start after it knows what was kept.
        self.late = 0  # Requests under way whose clients have given up on them.
        self._writing: list[Role] = []
        # The process.
        self.is_up = False
        self.life = 0
        self.cluster: Cluster
        self.node: Node
        self._calls: dict[Call, None] = {}
        self._point: tuple[str, int] | None = None
        self._death = "kill"
        self._lost: dict[TopicPartition, bytes] | None = None  # The logs as they were when power was lost.

    def _choose_settings(self) -> dict[str, str]:
        rng = self.rng
        segment_bytes = rng.choice(("1024", "2048", "1048576"))
        return {
            "transaction.state.log.num.partitions": "2",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.segment.bytes": segment_bytes,
            "offsets.topic.segment.bytes": segment_bytes,
            "log.segment.bytes": rng.choice(("1024", "4096", "1048576")),
            "log.index.interval.bytes": rng.choice(("0", "300", "4096")),
            "group.min.session.timeout.ms": "100",
            "fencepost.state.clean.bytes": "1024",
            "log.cleaner.backoff.ms": rng.choice(("150", "500")),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "150",
            "transaction.version": rng.choice(("2", "2", "2", "1")),
            "fencepost.endtxn.reply": rng.choice(("complete", "prepare")),
            "fencepost.recovery.ongoing": rng.choice(("keep", "abort")),
            "fencepost.flush.on.commit": str(self.flush).lower(),
        }

    # --- the story ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the seed. Raises Violation."""
        self.note("world", "seed %s, last epoch %s: %s", self.seed, self.last_epoch, self.settings)
        with mounted(self.disk), ending_epochs(self.last_epoch):
            try:
                self._start()
                for topic, count in TOPICS.items():
                    self.cluster.create_topic(topic, count, {}, self.clock.now_ms)
                self._cast()
                self._plan_faults()
                self._run_until(self.horizon_ms)
                self._calm_down()
                while not self.is_up or self.late or any(role.alive for role in self._writing):
                    if self.clock.now_ms > self.horizon_ms + LONGEST_CALM_MS:
                        raise Violation("no end", "a client has not finished, although there are no faults any more")
                    self._run_until(self.clock.now_ms + 100)
                self._run_until(self.clock.now_ms + self.txn_timeout_ms + 500)
                self.is_settled = True
                self._run_until(None)
                check_all(self)
            except Killed:
                raise AssertionError("the broker was killed outside `_enter`") from None
            finally:
                self._bury()

    def _cast(self) -> None:
        rng = self.rng
        has_tv2 = self.settings["transaction.version"] == "2"
        roles: list[tuple[type[Instance], dict[str, Any]]] = []
        for _ in range(rng.choice((1, 2, 2, 3))):
            roles.append((Writer, {"places": rng.choice((INPUTS, INPUTS + OTHERS, PLACES[:3]))}))
        pipeline = rng.random()
        if pipeline < 0.35:
            roles += [(GroupProcessor, {"outputs": OUTPUTS}), (GroupProcessor, {"outputs": OUTPUTS})]
            self.client_freeze = 0.05
            self.txn_timeout_ms = 1000
        elif pipeline < 0.75:
            roles.append((Processor, {"inputs": INPUTS, "outputs": OUTPUTS}))
        if pipeline < 0.75:
            roles.append((Observer, {"places": INPUTS}))
        for kind, options in roles:
            if kind is not Observer:
                options["transaction_version"] = TV2 if has_tv2 and rng.random() < 0.6 else TV1
        # With flush, power losses are frequent and lose plain writes, which are not synced. So there are none then.
        if not self.flush and rng.random() < 0.3:
            roles.append((PlainProducer, {"place": rng.choice(OTHERS)}))
        roles.append((Reader, {"places": PLACES, "read_committed": True}))
        roles.append((Reader, {"places": rng.choice((PLACES, INPUTS)), "read_committed": rng.random() < 0.4}))
        for number, (kind, options) in enumerate(roles):
            role = Role(self, f"{kind.letter}{number}", kind, **options)
            self.clock.after(rng.randint(0, 100), role.spawn)
            if kind.is_mortal:
                self._writing.append(role)

    def _plan_faults(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            self.clock.after(rng.randint(50, self.horizon_ms - START_MS), self._strike)
        if rng.random() < 0.15:
            self.clock.after(rng.randint(50, self.horizon_ms - START_MS), self._fill_disk)

    def _calm_down(self) -> None:
        self.note("world", "calm")
        self.is_calm = True
        self.weather = Weather()
        self._point = self.disk.faults.fuse = None
        self.disk.faults.full = False

    def _run_until(self, end_ms: int | None) -> None:
        """Run events and the broker's timers in the order of their times, up to `end_ms`; None: until none is left."""
        clock = self.clock
        for _ in range(MOST_STEPS):
            event_ms = clock.next_ms()
            timer_ms = self.cluster.timers.next_deadline_ms() if self.is_up else None
            if timer_ms is not None:
                timer_ms += self.timer_lag_ms
            if end_ms is None and event_ms is None:
                return
            if timer_ms is not None and (event_ms is None or timer_ms < event_ms):
                if end_ms is not None and timer_ms > end_ms:
                    break
                clock.now_ms = max(clock.now_ms, timer_ms)
                self._enter(lambda: self.cluster.timers.advance(clock.now_ms))
            elif event_ms is None or (end_ms is not None and event_ms > end_ms):
                break
            else:
                clock.run_next()
        else:
            raise Violation("no end", f"{MOST_STEPS} steps were not enough")
        assert end_ms is not None
        clock.now_ms = max(clock.now_ms, end_ms)

    # --- the broker's process -------------------------------------------------------------------------------

    def _start(self) -> None:
        self.life += 1
        self.is_up = True
        self._enter(self._recover)
        if self.is_up and self._lost is not None:
            before, self._lost = self._lost, None
            kept = {where: _common_end(before.get(where, b""), self.raw_log(where)) for where in PLACES}
            self.note("disk", "kept of the logs: %s", kept)
            self.history.power_was_lost(kept)
            self.losses += 1  # Fetches since the power loss asked for positions that may be gone.

    def _recover(self) -> None:
        try:
            self.cluster, self.node = self.open_broker(self.disk, self._defer)
        except (OSError, StorageFailed) as error:
            if not self.disk.faults.full:
                raise
            self.note("broker", "cannot start: %s", error)
            raise Killed from error

    def open_broker(self, disk: Disk, defer: Defer = run_at_once) -> tuple[Cluster, Node]:
        """Start a broker on a disk, which must be mounted."""
        folder = DataFolder(
            ROOT,
            flush=self.flush,
            defer=defer,
            report=lambda line: self.note("disk", line),
            at=self._reach,
            max_open_segments=16,
            pwrite=disk.descriptors.pwrite,
            logs_in=logs_in,
            boot=lambda: str(disk.boot),
        )
        rng = random.Random(self.seed + self.life)
        cluster = Cluster(folder, self.config, rng, lambda line: self.note("broker", line), self._reach)
        cluster.brokers = [BrokerAddress(1, "127.0.0.1", 9092)]
        cluster.start(self.clock.now_ms)
        folder.note_cluster(cluster.cluster_id)
        folder.delete_strays()
        return cluster, Node(1, cluster)

    def _enter(self, work: Callable[[], None]) -> None:
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

    def deliver(self, frame: bytes, call: Call) -> None:
        self._calls[call] = None
        self._enter(lambda: self.node.handle(frame, call, self.clock.now_ms))

    def _defer(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """The thread that syncs: it is slow, and ends with the process."""
        life = self.life

        def run() -> None:
            if life == self.life:
                self._enter(work_now)

        def work_now() -> None:
            error = None
            try:
                work()
            except Exception as e:
                error = e
            self.clock.after(self.rng.randint(0, 3), lambda: finish(error))

        def finish(error: Exception | None) -> None:
            if life == self.life:
                self._enter(lambda: done(error))

        self.clock.after(self.rng.randint(0, 6), run)

    def _reach(self, point: str) -> None:
        if self._point is not None and point == self._point[0]:
            self._point = (point, self._point[1] - 1)
            if self._point[1] <= 0:
                self.note("broker", "dies at %s", point)
                self.disk.faults.dead = True
                raise Killed

    def _strike(self) -> None:
        """Kill the broker: now, in one of the next writes, or at a crash point between the steps of a commit."""
        if not self.is_up or self.is_calm:
            return
        rng = self.rng
        loses_power = rng.random() < (0.6 if self.flush else 0.08)
        self._death = "power" if loses_power else "kill"
        how = rng.random()
        if how < 0.1:
            self.note("broker", "is stopped")
            self._enter(self._stop)
        elif how < 0.25:
            self._die(self._death)
        elif how < 0.5:
            self.disk.faults.fuse = rng.randint(0, 25)
        else:
            self._point = (rng.choice(COMMIT_POINTS), rng.randint(1, 3))

    def _stop(self) -> None:
        self.cluster.stop()
        self._die("stop")

    def _fill_disk(self) -> None:
        if not self.is_calm:
            self.note("disk", "is full")
            self.disk.faults.full = True

            def empty() -> None:
                self.disk.faults.full = False

            self.clock.after(self.rng.randint(20, 600), empty)

    def _die(self, death: str) -> None:
        rng = self.rng
        self.note("broker", "dies: %s", death)
        self._bury()
        self._point = None
        if death == "power":
            if self._lost is None:
                self._lost = {where: self.raw_log(where) for where in PLACES}
            self.disk.lose_power()
            self.losses += 1
            self.history.is_forgetful |= not self.flush
        else:
            self.disk.restart()
        self._death = "kill" if death == "stop" else death
        for call in list(self._calls):
            call.break_off()
        self._calls.clear()
        self.clock.after(rng.choice((1, 5, 50, 300)), self._start_again)

    def _bury(self) -> None:
        """End the process, so that nothing of it touches the disk later, for example when Python collects it."""
        self.disk.faults.dead = True
        self.is_up = False
        self.life += 1
        housekeeping = self.cluster.housekeeping if hasattr(self, "cluster") else None
        while housekeeping is not None and housekeeping._jobs:
            with suppress(Killed):
                housekeeping.stop()

    def _start_again(self) -> None:
        if self.is_up:
            return
        if self.rng.random() < 0.2:
            self._check_recovery()
        if not self.is_calm and self.rng.random() < 0.25:
            self.disk.faults.fuse = self.rng.randint(0, 40)
        self.note("broker", "starts")
        self._start()

    def _check_recovery(self) -> None:
        """Two recoveries from copies of the disk give the same state, and so does a second recovery on each copy."""
        states = []
        point, self._point = self._point, None
        for disk in (self.disk.copy(), self.disk.copy()):
            with mounted(disk):
                for _ in range(2):
                    cluster, _ = self.open_broker(disk)
                    cluster.timers.advance(self.clock.now_ms)
                    states.append(describe_state(cluster))
                    disk.restart()
        self._point = point
        check_same(states)

    def raw_log(self, where: TopicPartition) -> bytes:
        directory = self.disk.tree.root.names.get(f"{where[0]}-{where[1]}")
        if not isinstance(directory, Directory):
            return b""
        files = sorted((name, node) for name, node in directory.names.items() if name.endswith(".log"))
        return b"".join([bytes(node.data) for _, node in files if isinstance(node, File)])

    # --- answers and the trace ------------------------------------------------------------------------------

    def answered(self, call: Call, response: Any) -> None:
        """Note an answer of the broker, whether or not it reaches the client."""
        self._calls.pop(call, None)
        request = call.request
        self.note(call.who, "-> %s", response)
        if isinstance(request, InitProducerIdRequest) or (isinstance(request, EndTxnRequest) and call.version >= 5):
            if response.error_code == errors.NONE:
                ends = {(t, i): self.cluster.topics[t].partitions[i].log.end_offset for t, i in PLACES}
                whose = request.transactional_id or call.who
                self.history.note_grant(whose, call.who, response.producer_id, response.producer_epoch, ends)
        elif isinstance(request, OffsetFetchRequest):
            for where, offset in fetched_offsets(response).items():
                self.history.note_offset(self.group, where, offset)

    def note(self, who: str, what: str, *args: Any) -> None:
        self.trace.append((self.clock.now_ms - START_MS, who, what, args))

    def lines(self, last: int | None = None) -> Iterator[str]:
        """The trace as text: time, who, what."""
        for at_ms, who, what, args in self.trace[-last:] if last else self.trace:
            words = tuple(describe(arg) if isinstance(arg, Message) else arg for arg in args)
            yield f"{at_ms:>6} {who:<7} {what % words if words else what}"

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()


@contextmanager
def ending_epochs(last_epoch: int) -> Iterator[None]:
    """Let the epochs of a producer id run out after a few transactions; otherwise that would take weeks."""
    patches: list[Patch] = [
        (decisions, "MAX_PRODUCER_EPOCH", last_epoch),
        (decisions, "EXHAUSTED_EPOCH", last_epoch - 1),
        (producers, "MAX_PRODUCER_EPOCH", last_epoch),
    ]
    with patched(patches):
        yield


def _common_end(before: bytes, after: bytes) -> int:
    """The offset up to which two logs are equal."""
    end = 0
    with suppress(ValueError):  # The tail of the older log may be torn.
        for (header, batch), (_, other) in zip(iter_batches(before), iter_batches(after)):
            if bytes(batch) != bytes(other):
                break
            end = header.last_offset + 1
    return end
