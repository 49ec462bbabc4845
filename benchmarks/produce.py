"""What large Produce requests cost the broker: CPU time per megabyte, for several request sizes.

    python -m benchmarks.produce [--repetitions N] [--megabytes N] [--against DIR] [--json]

A client on plain sockets sends the same record batches again and again and does almost no work itself. `--against`
names the folder of another version of the repository: the brokers of both take turns, and the ratios are those of
neighbouring runs. CPU time is less noisy than throughput on a machine with other work.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import struct
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.contenders import AGAINST, FENCEPOST, contender
from fencepost.cli.streams import say
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import ProduceRequest
from tests.wire.raw_client import encode_frame

TOPIC, PARTITIONS = "bench-produce", 6
CONNECTIONS = 2
IN_FLIGHT = 2  # Requests on each connection that are not answered yet.
PRODUCE_VERSION = 11
VALUE_BYTES = 1024
_INT32 = struct.Struct(">i")


class Shape(NamedTuple):
    """The requests of one measurement."""

    name: str
    partitions: int
    records: int  # In the record batch of each partition.


SHAPES = (
    Shape("1 KiB requests", 1, 1),
    Shape("30 KiB requests", 1, 30),
    Shape("100 KiB requests", 1, 100),
    Shape("1 MB requests", 1, 1000),
    Shape("3 MB requests, 3 partitions", 3, 1000),
)


def request(shape: Shape, first_partition: int) -> bytes:
    """A request with its length, without a producer: so the broker takes the same bytes again and again."""
    batch = encode_batch([(b"%08d" % n, os.urandom(VALUE_BYTES)) for n in range(shape.records)], _now_ms())
    data = [
        ProduceRequest.PartitionProduceData((first_partition + n) % PARTITIONS, batch) for n in range(shape.partitions)
    ]
    frame = encode_frame(
        ProduceRequest(None, -1, 30_000, [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=data)]),
        PRODUCE_VERSION,
    )
    return _INT32.pack(len(frame)) + frame


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Client:
    def __init__(self, port: int, first_partition: int, shape: Shape) -> None:
        self.bytes = request(shape, first_partition)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waiting = 0

    def send(self) -> None:
        if self._waiting == IN_FLIGHT:
            self.receive()
        self._socket.sendall(self.bytes)
        self._waiting += 1

    def receive(self) -> None:
        (size,) = _INT32.unpack(self._exactly(4))
        reply = self._exactly(size)
        # The correlation id, the tags, one topic with its name, its partitions and the index of the first.
        (error,) = struct.unpack_from(">h", reply, 4 + 1 + 1 + 1 + len(TOPIC) + 1 + 4)
        assert error == 0, f"the broker refused the request with error {error}"
        self._waiting -= 1

    def close(self) -> None:
        while self._waiting:
            self.receive()
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            assert more, "the broker closed the connection"
            found += more
        return bytes(found)


def measure(source: Path | None, shape: Shape, megabytes: int) -> float:
    """CPU time of the broker in microseconds per megabyte."""
    kind = FENCEPOST if source is None else AGAINST
    with contender(kind, other=source, topics={TOPIC: PARTITIONS}) as broker:
        clients = [Client(broker.port, n * PARTITIONS // CONNECTIONS, shape) for n in range(CONNECTIONS)]
        for client in clients:
            client.send()
        rounds = max(1, megabytes * 1_000_000 // sum(len(client.bytes) for client in clients))
        # Small requests cost as much in far fewer bytes.
        rounds = min(rounds, 20_000)
        before_s = broker.cpu_s()
        for _ in range(rounds):
            for client in clients:
                client.send()
        for client in clients:
            client.close()
        used_s = broker.cpu_s() - before_s
        return used_s * 1e12 / (rounds * sum(len(client.bytes) for client in clients))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.produce", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--against", type=Path, help="the folder of another version of the repository")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sources: dict[str, Path | None] = {"this": None}
    if options.against is not None:
        sources = {"other": options.against.resolve(), "this": None}
    found: dict[str, dict[str, list[float]]] = {}
    for shape in SHAPES:
        figures = found.setdefault(shape.name, {name: [] for name in sources})
        for _ in range(options.repetitions):
            for name, source in sources.items():
                figures[name].append(measure(source, shape, options.megabytes))
                say(f"{shape.name}, {name}: {figures[name][-1]:,.0f} us of CPU per MB")
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"| broker CPU, us per MB | {' | '.join(sources)} | ratio |")
    print("|---" * (2 + len(sources)) + "|")
    for shape_name, figures in found.items():
        medians = [f"{statistics.median(figures[name]):,.0f}" for name in sources]
        pairs = zip(figures["this"], figures[next(iter(sources))], strict=True)
        ratio = f"{statistics.median(mine / other for mine, other in pairs):.2f}" if len(sources) > 1 else ""
        print(f"| {shape_name} | {' | '.join(medians)} | {ratio} |")


if __name__ == "__main__":
    main()
