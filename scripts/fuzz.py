"""Send a broker frames that are wrong in every way, and check that it goes on serving.

Usage: python -m scripts.fuzz [FRAMES] [SEED]

The frames are requests of every API in every version: well formed with odd values, mutated, and random bytes, some
with a wrong length before them. A client must be able to decode every reply to its last byte. Meanwhile clients of
`fencepost verify cluster` work on topics that the frames cannot name (`tests/wire/hostile.py`): no request of theirs
may fail, and the checkers of the verifier judge their history. The memory of the broker must not grow, its log must
have no tracebacks, and at the end the broker must stop, start again with its data folder, and serve the same clients.
"""

from __future__ import annotations

import argparse
import random
import select
import socket
import struct
import tempfile
import time
from collections import Counter, deque
from pathlib import Path
from typing import NamedTuple

import psutil

from fencepost.broker.api import APIS
from fencepost.cli.streams import say
from fencepost.client.client import KafkaClient
from fencepost.protocol import messages
from fencepost.testing import Broker, BrokerFailed
from fencepost.verify.history import Begin, TxnEnded, decode
from tests.crash.carrying_out import carry_out
from tests.crash.workload import COPIERS, READER, SETTINGS, UNCOMMITTED_READER, WRITERS, Workload
from tests.wire.hostile import TOPICS, HostileFrames, Identity

CONNECTIONS = 32
# Mostly one request at a time: a broker never reads the requests that follow a malformed one on its connection.
PIPELINED, PIPELINING = 4, 0.02
PATIENCE_S = 0.3  # Long polls are answered late, and some requests never.
CHECKS = 50  # Looks at the broker and its clients, over the whole run.
NOISE, LIES = 0.03, 0.01
SPARE_MB = 64  # How much more memory the broker may have at the end than after a tenth of the frames.
KEPT_FRAMES = 2000  # For the evidence.
TIMEOUT_S = 60.0
MB = 1 << 20
# Few and slow clients: the frames are the subject.
CLIENTS = (WRITERS[0], WRITERS[-1], COPIERS[0], READER, UNCOMMITTED_READER)
API_VERSIONS = 18


class Failed(Exception):
    """The broker did what it must not."""


class Sent(NamedTuple):
    frame: bytes
    identity: Identity


class Connection:
    """One socket, and the requests on it that are not answered yet."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._received = bytearray()
        self.waiting: deque[Sent] = deque()
        self.sent_at = 0.0

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes, sent: Sent) -> bool:
        """False if the other end has closed the connection, or takes nothing more."""
        self.waiting.append(sent)
        self.sent_at = time.monotonic()
        try:
            return self._socket.send(data) == len(data)
        except OSError:
            return False

    def receive(self) -> list[bytes] | None:
        """The replies that have come; None if the connection is closed and there are none."""
        is_closed = False
        try:
            while data := self._socket.recv(1 << 18):
                self._received += data
            is_closed = True
        except BlockingIOError:
            pass
        except OSError:
            is_closed = True
        frames = []
        while len(self._received) >= 4:
            size = struct.unpack_from(">i", self._received)[0]
            if len(self._received) < 4 + size:
                break
            frames.append(bytes(self._received[4 : 4 + size]))
            del self._received[: 4 + size]
        return None if is_closed and not frames else frames

    def close(self) -> None:
        self._socket.close()


class Sender:
    """Sends the frames, over many connections, and checks the replies."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.hostile = HostileFrames(seed, int(time.time() * 1000))
        self.rng = random.Random(seed + 1)
        self.counts: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.sent = 0
        self.last_frames: deque[bytes] = deque(maxlen=KEPT_FRAMES)
        self.connections: list[Connection] = []

    def run(self, until: int) -> None:
        while len(self.connections) < CONNECTIONS:
            self.connections.append(self._connect())
        while self.sent < until:
            before = self.sent
            for slot, connection in enumerate(self.connections):
                if not self._turn(connection):
                    connection.close()
                    self.connections[slot] = self._connect()
            if self.sent == before:
                select.select(self.connections, [], [], 0.01)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    def _connect(self) -> Connection:
        self.counts["connections"] += 1
        return Connection((self.broker.host, self.broker.port))

    def _turn(self, connection: Connection) -> bool:
        """Read the replies that have come, and send one more request; False if the connection can be given up."""
        replies = connection.receive()
        if replies is None:
            self.counts["closed"] += 1
            return False
        for reply in replies:
            self._check_reply(connection, reply)
        if not connection.waiting:
            count = PIPELINED if self.rng.random() < PIPELINING else 1
            return all(self._send(connection) for _ in range(count))
        if time.monotonic() - connection.sent_at < PATIENCE_S:
            return True
        # Hang up, or go on without the answer.
        return self.rng.random() < 0.5 and len(connection.waiting) < PIPELINED and self._send(connection)

    def _send(self, connection: Connection) -> bool:
        rng = self.rng
        self.sent += 1
        roll = rng.random()
        frame = rng.randbytes(rng.choice([0, 1, 7, 8, 30, 300])) if roll < NOISE else self.hostile.next()
        self.last_frames.append(frame)
        size = len(frame)
        if NOISE <= roll < NOISE + LIES:
            self.counts["lies"] += 1
            size = rng.choice([-1, -(2**31), 2**31 - 1, size + 1, max(size - 1, 0), size + 100_000])
        return connection.send(struct.pack(">i", size) + frame, Sent(frame, self.hostile.identity))

    def _check_reply(self, connection: Connection, reply: bytes) -> None:
        self.counts["replies"] += 1
        # Requests without an answer are those that were sent before the one that is answered here.
        while connection.waiting:
            sent = connection.waiting.popleft()
            if sent.frame[4:8] == reply[:4]:
                break
        else:
            return  # A frame with a wrong length: the broker read other frames than were sent.
        api_key, version = struct.unpack_from(">hh", sent.frame)
        if api_key not in APIS:
            return
        api = APIS[api_key]
        kind = getattr(messages, f"{api.name}Response")
        version = version if api.first <= version <= api.last else 0
        start = 5 if kind.is_flexible(version) and api_key != API_VERSIONS else 4
        try:
            response, end = kind.decode(reply, start, version)
        except ValueError as error:
            raise Failed(f"{api.name} v{version}: {error}\nframe {sent.frame.hex()}\nreply {reply.hex()}") from error
        if end != len(reply):
            raise Failed(f"{api.name} v{version}: {len(reply) - end} bytes are left over\nframe {sent.frame.hex()}")
        self.answered[api.name] += 1
        self.hostile.learn(response, sent.identity)


class Run:
    """`broker` is not started yet."""

    def __init__(self, folder: Path, broker: Broker, frames: int, seed: int) -> None:
        self.broker = broker
        self.frames = frames
        self.sender = Sender(broker, seed)
        self.workload = Workload(broker, folder, seed, CLIENTS, what="fuzz")
        self.memory_mb: list[int] = []
        self.topics = 0
        self.took_s = 0.0
        self.slowest_s = 0.0  # Of the transactions of other clients.
        self._folder = folder

    def go(self) -> None:
        """Raises Failed or Lost, with the evidence."""
        self.broker.start()
        for topic in TOPICS[:2]:
            self.broker.create_topic(topic, 3)
        self.workload.create_topics()
        self.workload.start()
        self._send_all()
        self._check_memory()
        self.workload.rest()
        with KafkaClient({"bootstrap.servers": self.broker.bootstrap_servers}) as client:
            self.topics = len(client.refresh(None))
        self.broker.stop()
        self.broker.start()
        self.workload.start()
        self.workload.rest()
        self._check_transactions()
        self._check_log()
        self.broker.stop()

    def close(self) -> None:
        self.sender.close()
        self.workload.kill()
        self.broker.kill()
        (self._folder / "last-frames.txt").write_text("\n".join(frame.hex() for frame in self.sender.last_frames))

    def _send_all(self) -> None:
        process = psutil.Process(self.broker.pid)
        began = time.monotonic()
        for number in range(1, CHECKS + 1):
            self.sender.run(self.frames * number // CHECKS)
            self.memory_mb.append(process.memory_info().rss // MB)
            self.workload.check()
            self._check_log()
            if number % 5 == 0:
                sent, replies = self.sender.sent, self.sender.counts["replies"]
                say(f"{sent:,} frames, {replies:,} replies; the broker has {self.memory_mb[-1]} MB")
        self.took_s = time.monotonic() - began
        self.sender.close()

    def _check_memory(self) -> None:
        early_mb, late_mb = self.early_mb, self.memory_mb[-1]
        if late_mb > early_mb + SPARE_MB:
            raise Failed(f"the broker had {early_mb} MB after a tenth of the frames, and has {late_mb} MB at the end")

    @property
    def early_mb(self) -> int:
        return max(self.memory_mb[: CHECKS // 10])

    def _check_log(self) -> None:
        log = self.broker.log
        if not self.broker.is_running:
            raise BrokerFailed(f"the broker ended with exit code {self.broker.wait_for_exit()}\n{log[-4000:]}")
        if "Traceback" in log:
            raise Failed(f"the broker has a bug:\n{log[log.index('Traceback') :][:4000]}")

    def _check_transactions(self) -> None:
        """No other fault than the frames happened, so no client hangs, and no transaction ends with an error."""
        if self.workload.faults:
            raise Failed("; ".join(fault.what for fault in self.workload.faults))
        began: dict[str, int] = {}
        with self.workload.history.open("rb") as lines:
            for event in decode(lines)[1]:
                if isinstance(event, Begin):
                    began[event.by] = event.at
                elif isinstance(event, TxnEnded):
                    self.slowest_s = max(self.slowest_s, (event.at - began[event.by]) / 1e9)
                    if event.error:
                        raise Failed(f"transaction {event.txn} of {event.by} failed: {event.error}")


def main() -> int:
    options = parse_arguments()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-fuzz-"))
    say(f"seed {options.seed}: {options.frames:,} frames")
    run = Run(folder, Broker(data=folder / "data", settings=SETTINGS), options.frames, options.seed)
    exit_code = carry_out(run, folder, options.seed, lambda: f"after {run.sender.sent:,} frames")
    if exit_code == 0:
        report(run)
    return exit_code


def report(run: Run) -> None:
    sender, memory_mb = run.sender, run.memory_mb
    unreached = sorted({api.name for api in APIS.values()} - sender.answered.keys())
    print(
        f"{sender.sent:,} frames in {run.took_s:.0f} s: {sender.counts['replies']:,} replies, all well formed, from "
        f"{len(sender.answered)} of {len(APIS)} APIs"
        + (f" (not {', '.join(unreached)})" if unreached else "")
        + f"; {sender.counts['closed']:,} connections closed for a frame that is none"
    )
    print(
        f"memory: {run.early_mb} MB after a tenth, {max(memory_mb)} MB at most, {memory_mb[-1]} MB at the end, for the "
        f"{run.topics} topics that are left"
    )
    print(f"transactions of other clients: {run.workload.counts()}; the slowest took {run.slowest_s:.2f} s")
    print("the broker serves on, and nothing is lost")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.fuzz",
        description=(__doc__ or "").partition("\n")[0],
        epilog="example: python -m scripts.fuzz 1000000 7",
    )
    parser.add_argument("frames", type=int, nargs="?", default=100_000)
    parser.add_argument("seed", type=int, nargs="?", default=random.SystemRandom().randrange(1, 1 << 31))
    options = parser.parse_args()
    if options.frames < CHECKS:
        parser.error(f"FRAMES is {options.frames}, expected {CHECKS} or more")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
