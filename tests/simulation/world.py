"""One seed: a broker on a simulated disk, clients on a simulated network, and their faults.

The seed decides everything: settings, clients, delays, faults and crashes. The broker is the real one (`process.py`).
Faults happen until the horizon. Then clients finish, timeouts pass, and `checker` compares the broker's data with the
answers that clients received.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.broker.config import Config, parse
from fencepost.machines.partition import producers
from fencepost.machines.txn import decisions
from fencepost.protocol import errors
from fencepost.protocol.batch import MAX_PRODUCER_EPOCH
from fencepost.protocol.messages import EndTxnRequest, InitProducerIdRequest, OffsetFetchRequest
from fencepost.protocol.schema import Message
from fencepost.protocol.transaction_version import TV1, TV2
from tests.simulation.checker import check_all
from tests.simulation.clients import Instance, Role
from tests.simulation.disk.disk import Disk
from tests.simulation.disk.faults import Killed
from tests.simulation.disk.mounting import mounted
from tests.simulation.history import INPUTS, OTHERS, OUTPUTS, PLACES, TOPICS, History, Violation
from tests.simulation.network import Call, Clock, Weather
from tests.simulation.patching import Patch, patched
from tests.simulation.process import BrokerProcess
from tests.simulation.processors import GroupProcessor, Processor
from tests.simulation.producers import PlainProducer, Writer
from tests.simulation.readers import Observer, Reader
from tests.simulation.reading import fetched_offsets
from tests.simulation.trace import describe

START_MS = 1_700_000_000_000
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
        disk = Disk(random.Random(seed + 1), has_syncfs=has_syncfs, now_ms=lambda: self.clock.now_ms)
        self.settings = self._choose_settings()
        self.config: Config = parse(self.settings)
        # A draw of its own, so that a seed with one node plays as it did before there were several.
        self.node_count = random.Random(seed + 2).choice((1, 3))
        self.horizon_ms = START_MS + rng.choice((500, 1000, 1500, 2000))
        self.is_calm = False  # The faults are over.
        self.is_settled = False  # All clients except readers have finished.
        self.late = 0  # Requests under way whose clients have given up on them.
        self._writing: list[Role] = []
        self.broker = BrokerProcess(self, disk)

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
        with mounted(self.broker.disk), ending_epochs(self.last_epoch):
            try:
                self.broker.start()
                for topic, count in TOPICS.items():
                    self.broker.cluster.create_topic(topic, count, {}, self.clock.now_ms)
                self._cast()
                self._plan_faults()
                self._run_until(self.horizon_ms)
                self._calm_down()
                while not self.broker.is_up or self.late or any(role.alive for role in self._writing):
                    if self.clock.now_ms > self.horizon_ms + LONGEST_CALM_MS:
                        raise Violation("no end", "a client has not finished, although there are no faults any more")
                    self._run_until(self.clock.now_ms + 100)
                self._run_until(self.clock.now_ms + self.txn_timeout_ms + 500)
                self.is_settled = True
                self._run_until(None)
                check_all(self)
            except Killed:
                raise AssertionError("the broker was killed outside `BrokerProcess.enter`") from None
            finally:
                self.broker.bury()

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
            self.clock.after(rng.randint(50, self.horizon_ms - START_MS), self.broker.strike)
        if rng.random() < 0.15:
            self.clock.after(rng.randint(50, self.horizon_ms - START_MS), self._fill_disk)
        for _ in range(rng.randint(2, 8) if self.node_count > 1 else 0):
            self.clock.after(rng.randint(50, self.horizon_ms - START_MS), self.broker.strike_nodes)

    def _fill_disk(self) -> None:
        if not self.is_calm:
            self.note("disk", "is full")
            self.broker.disk.faults.full = True

            def empty() -> None:
                self.broker.disk.faults.full = False

            self.clock.after(self.rng.randint(20, 600), empty)

    def _calm_down(self) -> None:
        self.note("world", "calm")
        self.is_calm = True
        self.weather = Weather()
        self.broker.calm_down()

    def _run_until(self, end_ms: int | None) -> None:
        """Run events and the broker's timers in the order of their times, up to `end_ms`; None: until none is left."""
        clock = self.clock
        for _ in range(MOST_STEPS):
            event_ms = clock.next_ms()
            timer = self.broker.next_timer()
            timer_ms = None if timer is None else timer[0] + self.timer_lag_ms
            if end_ms is None and event_ms is None:
                return
            if timer_ms is not None and (event_ms is None or timer_ms < event_ms):
                if end_ms is not None and timer_ms > end_ms:
                    break
                clock.now_ms = max(clock.now_ms, timer_ms)
                assert timer is not None
                self.broker.enter(lambda timers=timer[1].timers: timers.advance(clock.now_ms))  # type: ignore[misc]
            elif event_ms is None or (end_ms is not None and event_ms > end_ms):
                break
            else:
                clock.run_next()
        else:
            raise Violation("no end", f"{MOST_STEPS} steps were not enough")
        assert end_ms is not None
        clock.now_ms = max(clock.now_ms, end_ms)

    # --- answers and the trace ------------------------------------------------------------------------------

    def answered(self, call: Call, response: Any) -> None:
        """Note an answer of the broker, whether or not it reaches the client."""
        request = call.request
        self.note(call.who, "-> %s", response)
        if isinstance(request, InitProducerIdRequest) or (isinstance(request, EndTxnRequest) and call.version >= 5):
            if response.error_code == errors.NONE:
                ends = {where: self.broker.end_of(where) for where in PLACES}
                whose = request.transactional_id or call.who
                is_early = isinstance(request, EndTxnRequest) and self.config["fencepost.endtxn.reply"] == "prepare"
                self.history.note_grant(whose, call.who, response.producer_id, response.producer_epoch, ends, is_early)
        elif isinstance(request, OffsetFetchRequest):
            self.history.note_offsets(self.group, fetched_offsets(response))

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
