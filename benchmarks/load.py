"""Many clients for a long time: does the broker leak anything, and what does it use?

    python -m benchmarks.load [--seconds 600] [--connections 2000] [--producers 200]

It holds that many connections open. Some are transactional producers (aiokafka), each with one
transaction of three records a second. A hundred readers wait for their records; the other readers wait for a topic that
gets none. Once a minute it prints how long transactions took, and the broker's memory, files and share of a core. At
the end all clients disconnect. The exit code is 1 if the broker's memory grew or it kept files open.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
import tempfile
import time

import psutil
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import percentile
from fencepost.protocol.messages import FetchRequest
from fencepost.testing import Broker
from tests.wire.raw_client import decode_reply, encode_frame

BUSY, QUIET = "busy", "quiet"
BUSY_READERS = 100
PARTITIONS = 50
TXN_EVERY_S = 1.0
LONG_POLL_MS = 20_000
READ_COMMITTED = 1
FETCH_VERSION = 12
SETTLE_S = 15.0
# Memory may grow by this much from the second minute to the last.
FLAT_MB = 24.0
_LENGTH = struct.Struct(">i")


def say(text: str) -> None:
    print(text, flush=True)


class Health:
    """The memory, files, connections and CPU time of the broker's process."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._cpu_s, self._at = self._used(), time.monotonic()

    def _used(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def memory_mb(self) -> float:
        return float(self._process.memory_info().rss) / 1e6

    def files(self) -> int:
        return int(self._process.num_fds())

    def connections(self) -> int:
        return sum(c.status == psutil.CONN_ESTABLISHED for c in self._process.net_connections())

    def core_share(self) -> float:
        """The share since the last call."""
        before, then = self._cpu_s, self._at
        self._cpu_s, self._at = self._used(), time.monotonic()
        return (self._cpu_s - before) / (self._at - then)


class Crowd:
    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.latencies_ms: list[float] = []
        self.records_read = 0
        self.is_over = asyncio.Event()

    async def produce(self, number: int) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=f"{self._host}:{self._port}",
            transactional_id=f"load-{number}",
            client_id=f"load-{number}",
            metadata_max_age_ms=3_600_000,
        )
        await asyncio.sleep(number % 50 / 10)  # Not all at once.
        await producer.start()
        try:
            while not self.is_over.is_set():
                began = time.perf_counter()
                async with producer.transaction():
                    for n in range(3):
                        await producer.send(BUSY, b"x" * 100, partition=(number * 3 + n) % PARTITIONS)
                took_s = time.perf_counter() - began
                self.latencies_ms.append(took_s * 1000)
                await self._pause(max(0.0, TXN_EVERY_S - took_s))
        finally:
            await producer.stop()

    async def read(self, topic: str, partition: int) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        offset = 0
        over = asyncio.ensure_future(self.is_over.wait())
        try:
            while not over.done():
                wanted = FetchRequest.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
                request = FetchRequest(
                    max_wait_ms=LONG_POLL_MS,
                    min_bytes=1,
                    isolation_level=READ_COMMITTED,
                    topics=[FetchRequest.FetchTopic(topic, partitions=[wanted])],
                )
                frame = encode_frame(request, FETCH_VERSION)
                writer.write(_LENGTH.pack(len(frame)) + frame)
                answer = asyncio.ensure_future(self._frame(reader))
                await asyncio.wait((answer, over), return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    answer.cancel()
                    return
                found = decode_reply(request, FETCH_VERSION, answer.result()).responses[0].partitions[0]
                assert found.error_code == 0, found
                if found.last_stable_offset > offset:
                    self.records_read += found.last_stable_offset - offset
                    offset = found.last_stable_offset
        finally:
            over.cancel()
            writer.close()

    @staticmethod
    async def _frame(reader: asyncio.StreamReader) -> bytes:
        (size,) = _LENGTH.unpack(await reader.readexactly(4))
        return await reader.readexactly(size)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.is_over.wait(), seconds)
        except TimeoutError:
            return


def create_topics(servers: str, **partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic(name, count, 1) for name, count in partitions.items()]
    for made in admin.create_topics(topics).values():
        made.result(60)


async def hold(broker: Broker, connections: int, producers: int, seconds: float) -> bool:
    create_topics(broker.bootstrap_servers, **{BUSY: PARTITIONS, QUIET: PARTITIONS})
    health = Health(broker.pid)
    await asyncio.sleep(1)
    files_before = health.files()
    say(f"before: {health.memory_mb():.0f} MB, {files_before} files")
    crowd = Crowd(broker.host, broker.port)
    tasks = [asyncio.ensure_future(crowd.produce(n)) for n in range(producers)]
    for n in range(connections - producers):
        if n < BUSY_READERS:
            tasks.append(asyncio.ensure_future(crowd.read(BUSY, n % PARTITIONS)))
        else:
            tasks.append(asyncio.ensure_future(crowd.read(QUIET, n % PARTITIONS)))
        if n % 50 == 0:
            await asyncio.sleep(0.05)
    say("minute  connections  transactions  median, ms  p99, ms  longest, ms  memory, MB  files  of a core")
    health.core_share()
    memory: list[float] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        await asyncio.sleep(min(60.0, max(0.1, ends - time.monotonic())))
        for task in tasks:
            if task.done():
                task.result()  # A client ends early only because of an error, which this raises.
        took, crowd.latencies_ms = sorted(crowd.latencies_ms), []
        memory.append(health.memory_mb())
        say(
            f"{len(memory):6}  {health.connections():11}  {len(took):12}  {percentile(took, 0.5):10.1f}"
            f"  {percentile(took, 0.99):7.1f}  {took[-1]:11.1f}  {memory[-1]:10.0f}  {health.files():5}"
            f"  {health.core_share():9.2f}"
        )
    crowd.is_over.set()
    await asyncio.gather(*tasks)
    kept = await until_gone(health, files_before)
    say(f"after: {health.memory_mb():.0f} MB, {health.files()} files, {health.connections()} connections")
    grown = memory[-1] - memory[min(1, len(memory) - 1)]
    say(f"{crowd.records_read:,} records read; memory changed by {grown:+.0f} MB from the second minute to the last")
    if kept > 0:
        say(f"failed: {kept} more files are open than before")
    if grown > FLAT_MB:
        say(f"failed: memory grew by more than {FLAT_MB:.0f} MB")
    return kept <= 0 and grown <= FLAT_MB


async def until_gone(health: Health, files_before: int) -> int:
    """How many files stay open, without those of the logs that were written to, which the broker keeps open."""
    allowed = files_before + 4 * PARTITIONS
    deadline = time.monotonic() + SETTLE_S
    while (health.connections() or health.files() > allowed) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    return max(health.files() - allowed, health.connections())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--producers", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fencepost-load-") as data, Broker(data=data) as broker:
        return 0 if asyncio.run(hold(broker, given.connections, given.producers, given.seconds)) else 1


if __name__ == "__main__":
    sys.exit(main())
