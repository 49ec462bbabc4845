"""Send a broker frames that are wrong in every way, and check that it goes on serving.

Usage: python -m scripts.fuzz [FRAMES] [SEED]

The frames are requests of every API in every version: well formed with odd values, mutated, and random bytes, some
with a wrong length before them. A client must be able to decode every reply to its last byte. From time to time a real
client (confluent-kafka) commits a transaction and reads it back. The memory of the broker must not grow, its log must
have no tracebacks, and at the end the broker must stop, and start again with its data folder.
"""

from __future__ import annotations

import argparse
import random
import select
import shutil
import socket
import struct
import tempfile
import time
from collections import Counter, deque
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.broker.api import APIS
from fencepost.cli.streams import say
from fencepost.protocol import messages
from fencepost.testing import Broker, BrokerFailed
from tests.readers.reading import IMPATIENT
from tests.wire.hostile import TOPICS, HostileFrames, Identity

CONNECTIONS = 32
# Mostly one request at a time: a broker never reads the requests that follow a malformed one on its connection.
PIPELINED, PIPELINING = 4, 0.02
PATIENCE_S = 0.3  # Long polls are answered late, and some requests never.
CHECKS = 50  # By the real client, over the whole run.
NOISE, LIES = 0.03, 0.01
SPARE_MB = 64  # How much more memory the broker may have at the end than after a tenth of the frames.
KEPT_FRAMES = 2000  # For the evidence.
TIMEOUT_S = 60.0
MB = 1 << 20
# Small segments, so that there are many. All other settings have their defaults.
SETTINGS = {"log.segment.bytes": "200000", "transaction.state.log.segment.bytes": "200000"}
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


class Fuzz:
    def __init__(self, broker: Broker, frames: int, seed: int) -> None:
        self.broker = broker
        self.frames = frames
        self.hostile = HostileFrames(seed, int(time.time() * 1000))
        self.rng = random.Random(seed + 1)
        self.counts: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.sent = 0
        self.last_frames: deque[bytes] = deque(maxlen=KEPT_FRAMES)
        self.connections = [self._connect() for _ in range(CONNECTIONS)]

    def run(self, until: int) -> None:
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
        if not connection.waiting or self.rng.random() < PIPELINING:
            return self._send(connection)
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


class Bystander:
    """A real client that works on its own topic meanwhile."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._number = 0
        self.slowest_s = 0.0
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic("bystander", 1), *(NewTopic(name, 3) for name in TOPICS[:2])]
        for created in admin.create_topics(topics).values():
            created.result(TIMEOUT_S)
        self.connect()

    def connect(self) -> None:
        config = IMPATIENT | {"bootstrap.servers": self._servers}
        self._producer = Producer(config | {"transactional.id": "bystander"})
        self._producer.init_transactions(TIMEOUT_S)
        self._consumer = Consumer(
            config
            | {
                "group.id": "bystander",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe(["bystander"])

    def check(self) -> None:
        """Commit one record and read it back."""
        began = time.monotonic()
        self._number += 1
        value = str(self._number).encode()
        self._producer.begin_transaction()
        self._producer.produce("bystander", value)
        self._producer.commit_transaction(TIMEOUT_S)
        read: bytes | None = b""
        while read != value:
            message = self._consumer.poll(TIMEOUT_S)
            if message is None:
                raise Failed(f"the bystander committed {value!r}, and read nothing in {TIMEOUT_S:g} s")
            if message.error():
                raise Failed(f"the bystander cannot read: {message.error()}")
            read = message.value()
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def count_topics(self) -> int:
        return len(self._consumer.list_topics(timeout=TIMEOUT_S).topics)

    def close(self) -> None:
        self._consumer.close()


def main() -> int:
    options = parse_arguments()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-fuzz-"))
    say(f"seed {options.seed}: {options.frames:,} frames")
    broker = Broker(data=folder / "data", settings=SETTINGS)
    broker.start()
    fuzz = Fuzz(broker, options.frames, options.seed)
    try:
        fuzz_all(broker, fuzz)
    except KeyboardInterrupt:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)
        say(f"\ninterrupted after {fuzz.sent:,} frames; nothing was found wrong until then")
        return 130
    except Exception as error:
        broker.kill()
        (folder / "broker.log").write_text(broker.log)
        (folder / "last-frames.txt").write_text("\n".join(frame.hex() for frame in fuzz.last_frames))
        print(f"FAIL after {fuzz.sent:,} frames, seed {options.seed}: {type(error).__name__}: {error}")
        print(f"\nhint: the data folder, broker.log and the last {len(fuzz.last_frames):,} frames are in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def fuzz_all(broker: Broker, fuzz: Fuzz) -> None:
    bystander = Bystander(broker.bootstrap_servers)
    bystander.check()
    process = psutil.Process(broker.pid)
    memory_mb: list[int] = []
    began = time.monotonic()
    for number in range(1, CHECKS + 1):
        fuzz.run(fuzz.frames * number // CHECKS)
        bystander.check()
        memory_mb.append(process.memory_info().rss // MB)
        check_log(broker)
        if number % 5 == 0:
            say(f"{fuzz.sent:,} frames, {fuzz.counts['replies']:,} replies; the broker has {memory_mb[-1]} MB")
    took_s = time.monotonic() - began
    fuzz.close()
    early_mb, late_mb = max(memory_mb[: CHECKS // 10]), memory_mb[-1]
    if late_mb > early_mb + SPARE_MB:
        raise Failed(f"the broker had {early_mb} MB after a tenth of the frames, and has {late_mb} MB at the end")
    topics = bystander.count_topics()
    unreached = sorted({api.name for api in APIS.values()} - fuzz.answered.keys())
    broker.stop()
    broker.start()
    bystander.check()
    bystander.close()
    check_log(broker)
    broker.stop()
    print(
        f"{fuzz.sent:,} frames in {took_s:.0f} s: {fuzz.counts['replies']:,} replies, all well formed, from "
        f"{len(fuzz.answered)} of {len(APIS)} APIs"
        + (f" (not {', '.join(unreached)})" if unreached else "")
        + f"; {fuzz.counts['closed']:,} connections closed for a frame that is none"
    )
    print(
        f"memory: {early_mb} MB after a tenth, {max(memory_mb)} MB at most, {late_mb} MB at the end, for the {topics} "
        f"topics that are left; the bystander's {CHECKS + 2} transactions took {bystander.slowest_s:.2f} s at most"
    )
    print("the broker serves on")


def check_log(broker: Broker) -> None:
    if not broker.is_running:
        raise BrokerFailed(f"the broker ended with exit code {broker.wait_for_exit()}\n{broker.log[-4000:]}")
    if "Traceback" in broker.log:
        raise Failed(f"the broker has a bug:\n{broker.log[broker.log.index('Traceback') :][:4000]}")


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
