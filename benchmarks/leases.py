"""How the leases of a micro-batch behave with many tasks and many partitions. Needs neither Spark nor a broker.

    python -m benchmarks.leases [--tasks N ...] [--partitions N ...] [--service [--tls]] [--json]

The simulation runs the real service and the real rules (`LeaseService`, `LeaseTable`) on a simulated network and a
simulated clock. Every task has one record batch for each partition. Brokers acknowledge a request after `--ack-ms` and
the time that its bytes take. The driver handles one message at a time: for as long as its code takes here, and
`--socket-us` for each frame that it receives or sends.

`--service` instead measures the service over real sockets, with tasks that get their acknowledgements at once: the
CPU time of the driver for a lease, and for a frame. With `--tls` the connections are encrypted.

Example:
    python -m benchmarks.leases --tasks 2000 --partitions 60
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import json
import multiprocessing
import random
import socket
import ssl
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, cast

from fencepost.cli.streams import say
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.client import LeaseAddress
from fencepost.spark.lease.connections import TaskConnection
from fencepost.spark.lease.messages import Finished, TaskResult
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.lease.service import LeaseService
from fencepost.spark.lease.tls import LeaseTls, make_tls
from fencepost.spark.lease.wire import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    encode_frame,
    encode_numbers,
    result_of,
    take_frame,
)
from fencepost.spark.task.writer import WANTS_AT_ONCE

TOPIC = "orders"
RECORDS_A_BATCH = 100
LEASE_TIMEOUT_MS = 3_600_000


class Scenario(NamedTuple):
    tasks: int
    partitions: int
    slots: int  # Tasks that run at the same time.
    encode_ms: float  # From the start of a task to its first record batches.
    ack_ms: float  # From a request to its acknowledgement, without the time for its bytes.
    batch_bytes: int
    task_mb_a_second: float  # What one task can send.
    network_ms: float  # One way, between a task and the driver.
    socket_us: float  # What the kernel and the event loop take for a frame.

    def hold_ms(self, record_batches: int) -> float:
        return self.ack_ms + record_batches * self.batch_bytes / self.task_mb_a_second / 1000


# --- a task, as a conversation ------------------------------------------------------------------------------


class Ask(NamedTuple):
    frame: bytes


class Tell(NamedTuple):
    frame: bytes


class Send(NamedTuple):
    """A request to the brokers, until it is acknowledged."""

    record_batches: int


Talk = Generator[Ask | Tell | Send, dict[str, Any], TaskResult]


def play_task(number: int, partitions: int, token: str) -> Talk:
    """What a task says to the driver and to the brokers, in the order of `task/writer.py`."""
    hello = {"op": "hello", "version": PROTOCOL_VERSION, "token": token, "task": [0, number, number], "attempt": 0}
    yield Ask(encode_frame(hello))
    order = list(range(partitions))
    if partitions > WANTS_AT_ONCE:
        random.Random(number).shuffle(order)
    waiting = dict.fromkeys(order)
    while waiting:
        answer = yield Ask(encode_frame({"op": "acquire", "wants": numbers(islice(waiting, WANTS_AT_ONCE))}))
        leased = answer["granted"][TOPIC][::2]
        yield Send(len(leased))
        yield Tell(encode_frame({"op": "release", "records": numbers(leased), "bytes": 1}))
        for partition in leased:
            del waiting[partition]
    answer = yield Ask(encode_frame({"op": "done", "counts": numbers(range(partitions)), "topics": {}}))
    return result_of(answer["written"])


def numbers(partitions: Iterable[int]) -> dict[str, list[int]]:
    return encode_numbers((TOPIC, partition, RECORDS_A_BATCH) for partition in partitions)


# --- the simulation -----------------------------------------------------------------------------------------


class Wire:
    """In place of a socket: what the service sends goes to the simulation, which delivers it later."""

    def __init__(self, number: int, sent: list[tuple[int, bytes]]) -> None:
        self.is_closed = False
        self._number = number
        self._sent = sent

    def write(self, data: bytes) -> None:
        self._sent.append((self._number, data))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


@dataclass(slots=True, eq=False)
class SimulatedTask:
    talk: Talk
    connection: TaskConnection
    wire: Wire
    buffer: bytearray = field(default_factory=bytearray)
    asked_at: float = 0.0
    waited_ms: float = 0.0


@dataclass
class Outcome:
    took_s: float = 0.0
    driver_s: float = 0.0
    frames: int = 0
    leases: int = 0
    waited_ms: list[float] = field(default_factory=list)  # By each task, for leases.


class Simulation:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now_ms = 0.0
        self.free_at_ms = 0.0  # When the driver has handled everything that it received.
        self.outcome = Outcome()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._left = iter(range(scenario.tasks))
        self._running: dict[int, SimulatedTask] = {}
        self._results: list[TaskResult] = []
        self._sent: list[tuple[int, bytes]] = []  # By the driver, to the tasks of these numbers.

    async def run(self) -> Outcome:
        listener = socket.socket()
        self.service = LeaseService(listener, 1 << 20, lambda: int(self.now_ms))
        table = LeaseTable(lease_timeout_ms=LEASE_TIMEOUT_MS, first_touches_at_once=1)
        self._token = await self.service.open(table, lambda partitions: None, None)
        for _ in range(self.scenario.slots):
            self._start_task()
        while self._events:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()
            transaction = self.service.current()
            if transaction.adding is not None:
                await transaction.adding
                self._deliver(0.0)
        verdict = await self.service.finish(self._results, {0: self.scenario.tasks})
        assert isinstance(verdict, Finished), verdict
        listener.close()
        self.outcome.took_s = self.now_ms / 1000
        self.outcome.leases = table.record_batches
        return self.outcome

    def _at(self, at_ms: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._numbers), event))

    def _start_task(self) -> None:
        number = next(self._left, None)
        if number is None:
            return
        wire = Wire(number, self._sent)
        connection = TaskConnection(self.service.connections, f"task {number}")
        connection.connection_made(cast(asyncio.Transport, wire))
        task = SimulatedTask(play_task(number, self.scenario.partitions, self._token), connection, wire)
        self._running[number] = task
        self._at(self.now_ms + self.scenario.encode_ms, lambda: self._go_on(number, None))

    def _go_on(self, number: int, answer: dict[str, Any] | None) -> None:
        task = self._running[number]
        try:
            step = next(task.talk) if answer is None else task.talk.send(answer)
            while isinstance(step, Tell):
                self._to_driver(task, step.frame)
                step = next(task.talk)
        except StopIteration as end:
            self._results.append(end.value)
            self.outcome.waited_ms.append(task.waited_ms)
            del self._running[number]
            self._start_task()
            return
        if isinstance(step, Ask):
            task.asked_at = self.now_ms
            self._to_driver(task, step.frame)
        else:
            self._at(self.now_ms + self.scenario.hold_ms(step.record_batches), lambda: self._go_on(number, None))

    def _to_driver(self, task: SimulatedTask, frame: bytes) -> None:
        self._at(self.now_ms + self.scenario.network_ms, lambda: self._handle(task, frame))

    def _handle(self, task: SimulatedTask, frame: bytes) -> None:
        began = time.thread_time_ns()
        task.connection.get_buffer(0)[: len(frame)] = frame
        task.connection.buffer_updated(len(frame))
        cpu_ms = (time.thread_time_ns() - began) / 1e6
        assert not task.wire.is_closed, "the service found a mistake in the frames of this program"
        self._deliver(cpu_ms + self.scenario.socket_us / 1000)
        self.outcome.frames += 1

    def _deliver(self, busy_ms: float) -> None:
        """The driver was busy for so long, and has written answers."""
        busy_ms += len(self._sent) * self.scenario.socket_us / 1000
        self.free_at_ms = max(self.free_at_ms, self.now_ms) + busy_ms
        self.outcome.driver_s += busy_ms / 1000
        self.outcome.frames += len(self._sent)
        for number, data in self._sent:
            self._at(self.free_at_ms + self.scenario.network_ms, partial(self._hear, number, data))
        self._sent.clear()

    def _hear(self, number: int, data: bytes) -> None:
        task = self._running[number]
        task.waited_ms += self.now_ms - task.asked_at
        task.buffer += data
        answer = take_frame(task.buffer, MAX_FRAME_BYTES)
        assert answer is not None, "the service sends whole frames"
        self._go_on(number, answer)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def simulate(scenario: Scenario, most_leases: int) -> dict[str, float]:
    """Fewer tasks if there are too many leases to simulate; the times are those for all tasks."""
    tasks = min(scenario.tasks, max(2 * scenario.slots, most_leases // scenario.partitions))
    outcome = asyncio.run(Simulation(scenario._replace(tasks=tasks)).run())
    factor = scenario.tasks / tasks
    leases = scenario.tasks * scenario.partitions
    return {
        "tasks": scenario.tasks,
        "partitions": scenario.partitions,
        "simulated tasks": tasks,
        "leases": leases,
        "seconds": outcome.took_s * factor,
        "leases/s": outcome.leases / outcome.took_s,
        "driver, CPU s": outcome.driver_s * factor,
        "driver, us a lease": outcome.driver_s * 1e6 / outcome.leases,
        "driver, share busy": outcome.driver_s / outcome.took_s,
        "frames a lease": outcome.frames / outcome.leases,
        "task waits, s (median)": statistics.median(outcome.waited_ms) / 1000,
        "task waits, s (p99)": percentile(outcome.waited_ms, 0.99) / 1000,
        "least s: slots": scenario.tasks
        * (scenario.encode_ms + scenario.hold_ms(scenario.partitions))
        / min(scenario.slots, scenario.tasks)
        / 1000,
        "least s: partitions": scenario.tasks * scenario.hold_ms(1) / 1000,
    }


# --- the service over sockets -------------------------------------------------------------------------------


class Player(asyncio.Protocol):
    """Plays tasks one after another, each on a connection of its own. Acknowledgements come at once."""

    def __init__(self, talk: Talk, ended: Callable[[TaskResult], None]) -> None:
        self._talk = talk
        self._ended = ended
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._go_on(None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        answer = take_frame(self._buffer, MAX_FRAME_BYTES)
        if answer is not None:
            self._go_on(answer)

    def _go_on(self, answer: dict[str, Any] | None) -> None:
        told: list[bytes] = []
        try:
            step = next(self._talk) if answer is None else self._talk.send(answer)
            while not isinstance(step, Ask):
                if isinstance(step, Tell):
                    told.append(step.frame)
                step = next(self._talk)
            self._transport.write(b"".join((*told, step.frame)))
        except StopIteration as end:
            self._transport.close()
            self._ended(end.value)


def play_all(address: LeaseAddress, scenario: Scenario, results: Any) -> None:
    """In a process of its own, so that the driver's time is not shared with that of its tasks."""

    tls = ssl.create_default_context() if address.fingerprint else None
    if tls is not None:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE

    async def slot(numbers: Any, found: list[TaskResult]) -> None:
        loop = asyncio.get_running_loop()
        for number in numbers:
            ended: asyncio.Future[TaskResult] = loop.create_future()
            talk = play_task(number, scenario.partitions, address.token)
            player = partial(Player, talk, ended.set_result)
            await loop.create_connection(player, address.host, address.port, ssl=tls)
            found.append(await ended)

    async def play() -> list[TaskResult]:
        numbers, found = iter(range(scenario.tasks)), list[TaskResult]()
        await asyncio.gather(*(slot(numbers, found) for _ in range(scenario.slots)))
        return found

    results.put([tuple(result) for result in asyncio.run(play())])


def measure_service(scenario: Scenario, tls: LeaseTls | None) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with LeaseServer("127.0.0.1", tls=tls) as server:
        table = LeaseTable(lease_timeout_ms=LEASE_TIMEOUT_MS, first_touches_at_once=1)

        def add(partitions: Sequence[TopicPartition]) -> None:
            pass

        async def cpu_s() -> float:
            return time.thread_time()

        address = server.open(table, add)
        tasks = context.Process(target=play_all, args=(address, scenario, results))
        before, began = server._in_loop(cpu_s()), time.perf_counter()
        tasks.start()
        found = [TaskResult(*result) for result in results.get()]
        took_s, driver_s = time.perf_counter() - began, server._in_loop(cpu_s()) - before
        tasks.join()
        verdict = server.finish(found, {0: scenario.tasks})
        assert isinstance(verdict, Finished), verdict
    return {
        "tasks": scenario.tasks,
        "partitions": scenario.partitions,
        "leases/s": table.record_batches / took_s,
        "driver, CPU s": driver_s,
        "driver, us a lease": driver_s * 1e6 / table.record_batches,
        "leases/s, driver alone": table.record_batches / driver_s,
    }


def show(found: Sequence[dict[str, float]]) -> None:
    print("| " + " | ".join(found[0]) + " |")
    print("|---" * len(found[0]) + "|")
    for row in found:
        print("| " + " | ".join(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in row.values()) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.leases", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, nargs="+", default=[200, 2_000, 10_000])
    parser.add_argument("--partitions", type=int, nargs="+", default=[60, 1_000])
    parser.add_argument("--slots", type=int, default=200, help="tasks that run at the same time")
    parser.add_argument(
        "--encode-ms", type=float, default=100, help="from the start of a task to its first record batch"
    )
    parser.add_argument("--ack-ms", type=float, default=4, help="from a request to its acknowledgement")
    parser.add_argument("--batch-bytes", type=int, default=16 << 10, help="the size of a record batch")
    parser.add_argument("--task-mb-a-second", type=float, default=200, help="what one task can send to the brokers")
    parser.add_argument("--network-ms", type=float, default=0.2, help="one way between a task and the driver")
    parser.add_argument("--socket-us", type=float, default=15, help="of the driver for each frame, beside its code")
    parser.add_argument("--most-leases", type=int, default=600_000, help="simulate fewer tasks beyond this many leases")
    parser.add_argument("--service", action="store_true", help="the service over real sockets, without a simulation")
    parser.add_argument("--tls", action="store_true", help="with --service: over encrypted connections")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found, tls = [], make_tls() if options.tls else None
    for partitions, tasks in itertools.product(options.partitions, options.tasks):
        say(f"{tasks} tasks, {partitions} partitions")
        scenario = Scenario(
            tasks,
            partitions,
            options.slots,
            options.encode_ms,
            options.ack_ms,
            options.batch_bytes,
            options.task_mb_a_second,
            options.network_ms,
            options.socket_us,
        )
        found.append(measure_service(scenario, tls) if options.service else simulate(scenario, options.most_leases))
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)


if __name__ == "__main__":
    main()
