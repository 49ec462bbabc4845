"""Clients that are broken or hostile: they get the protocol's error or are closed, in one line of the log each, and
the others notice nothing."""

from __future__ import annotations

import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
import pytest

from fencepost.protocol import errors
from fencepost.protocol.batch import assemble, encode_record
from fencepost.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    MetadataRequest,
    ProduceRequest,
)
from fencepost.testing import Broker
from tests.wire.raw_client import Closed, RawClient, encode_frame

MB = 1 << 20
NOW_MS = int(time.time() * 1000)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def api_versions() -> bytes:
    return framed(encode_frame(ApiVersionsRequest("test", "1"), 3))


def connect(broker: Broker, receive_buffer: int | None = None) -> socket.socket:
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(20)
    sock.connect((broker.host, broker.port))
    return sock


def is_closed_by_peer(sock: socket.socket, timeout_s: float = 5) -> bool:
    sock.settimeout(timeout_s)
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def is_answered_or_closed(sock: socket.socket) -> bool:
    try:
        sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


def fetched_bytes(broker: Broker) -> int:
    with RawClient(broker.host, broker.port) as client:
        try:
            return len(client.send_frame(fetch_frame("orders", 0)[4:]))
        except Closed:
            return 0


def rss(broker: Broker) -> int:
    size: int = psutil.Process(broker.pid).memory_info().rss
    return size


def cpu_s(broker: Broker) -> float:
    """What the broker has worked so far: unlike the clock, this does not depend on who else is at work."""
    times = psutil.Process(broker.pid).cpu_times()
    return float(times.user + times.system)


def wait_until(is_so: Callable[[], bool], timeout_s: float = 15) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def memory_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
        assert "Traceback" not in broker.log


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    with Broker() as broker:
        create_topic(broker, "orders")
        yield broker
        assert "Traceback" not in broker.log


def memory_broker_with(**settings: object) -> Broker:
    return Broker(settings={name.replace("_", "."): str(value) for name, value in settings.items()})


@contextmanager
def unharmed_client(broker: Broker, patience_s: float = 5.0) -> Iterator[list[float]]:
    """A client that goes about its business meanwhile, on one connection; it must never wait long.

    The wait is measured as the CPU time of the broker meanwhile: the work that it did for other clients first.
    """
    times: list[float] = []
    failure: list[BaseException] = []
    started, done = threading.Event(), threading.Event()

    def run() -> None:
        try:
            with RawClient(broker.host, broker.port, timeout_s=20) as client:
                client.call(FindCoordinatorRequest("group"), 2)  # The first one creates a topic.
                is_last = False
                while not is_last:
                    is_last = done.is_set()
                    start = cpu_s(broker)
                    reply = client.call(FindCoordinatorRequest("group"), 2)
                    times.append(cpu_s(broker) - start)
                    started.set()
                    assert reply.error_code == errors.NONE
                    time.sleep(0.001)
        except BaseException as e:
            failure.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(20)
    try:
        yield times
    finally:
        done.set()
        thread.join(30)
    if failure:
        raise failure[0]
    assert max(times) < patience_s, f"the broker worked {max(times):.3f} s for others, and a bystander waited"


def create_topic(broker: Broker, name: str, partitions: int = 1) -> None:
    with RawClient(broker.host, broker.port) as client:
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1)
        assert client.call(CreateTopicsRequest([topic], 1000), 5).topics[0].error_code == errors.NONE


def produce(client: RawClient, topic: str, records: bytes | None, version: int = 9) -> Any:
    data = ProduceRequest.TopicProduceData(topic, partition_data=[ProduceRequest.PartitionProduceData(0, records)])
    reply = client.call(ProduceRequest(None, -1, 1000, [data]), version)
    return reply.responses[0].partition_responses[0]


def fetch_frame(topic: str, max_wait_ms: int, max_bytes: int = 100 * MB, min_bytes: int = 1, offset: int = 0) -> bytes:
    wanted = FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchRequest.FetchTopic(topic, partitions=[wanted])]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)
    return framed(encode_frame(request, 11))


# --- frames that are none --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"\xff\xff\xff\xff", "claims -1 bytes"),
        (b"\x80\0\0\0", "claims -2147483648 bytes"),
        (b"\x7f\xff\xff\xff", "claims 2147483647 bytes"),
        (b"\0\0\0\0", "no room for its header"),
        (framed(b"\0"), "no room for its header"),
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "looks like HTTP"),
        (b"POST /v3/clusters HTTP/1.1\r\n\r\n", "looks like HTTP"),
        (bytes.fromhex("16030100f8010000f40303") + bytes(240), "looks like TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "looks like SSH"),
        (framed(struct.pack(">hhih", 999, 0, 1, -1)), "API key 999 is unknown"),
        (framed(struct.pack(">hhih", -1, 0, 1, -1)), "API key -1 is unknown"),
        (framed(struct.pack(">hhih", 3, 99, 1, -1)), "Metadata v99 is not supported"),
        (framed(struct.pack(">hhih", 0, 1, 1, -1)), "Produce v1 is not supported"),
        (framed(struct.pack(">hhih", 3, 1, 1, 30_000)), "the client id claims 30000 bytes"),
        (framed(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe"), "the client id is not UTF-8"),
        (framed(struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1)), "topics claims 2147483647"),
    ],
)  # fmt: skip
def test_what_is_no_request_ends_the_connection_with_one_line(shared_broker: Broker, data: bytes, line: str) -> None:
    with unharmed_client(shared_broker), connect(shared_broker) as sock:
        port = sock.getsockname()[1]
        sock.sendall(data)
        assert is_closed_by_peer(sock)
    lines = [text for text in shared_broker.log.splitlines() if f":{port}:" in text]
    assert len(lines) == 1
    assert line in lines[0]


# --- batches ----------------------------------------------------------------------------------------------


def batch_with(
    attributes: int = 0, record_count: int = 1, payload: bytes | None = None, producer_id: int = -1, sequence: int = -1
) -> bytes:
    payload = encode_record(None, b"value") if payload is None else payload
    return assemble(
        payload, record_count, attributes, NOW_MS, NOW_MS, producer_id, 0 if producer_id >= 0 else -1, sequence
    )


GOOD = batch_with()


# --- clients that do not read -----------------------------------------------------------------------------


def test_slow_readers_of_large_answers_use_bounded_memory() -> None:
    with memory_broker_with(queued_max_request_bytes=40 * MB) as broker:
        create_topic(broker, "orders")
        big = batch_with(payload=encode_record(None, bytes(900_000)))
        with RawClient(broker.host, broker.port) as client:
            for _ in range(20):
                assert produce(client, "orders", big).error_code == errors.NONE
        before = rss(broker)
        # To read that much for so many takes its time, so a bystander may have to wait for some of it.
        with unharmed_client(broker, patience_s=10), ExitStack() as open_sockets:
            socks = [open_sockets.enter_context(connect(broker, receive_buffer=4096)) for _ in range(50)]
            for sock in socks:
                sock.sendall(fetch_frame("orders", 0))
            wait_until(lambda: all(map(is_answered_or_closed, socks)))
            grown = rss(broker) - before
            # Fifty answers of 18 MB were asked for; 40 MB may be unsent, and one more answer while it is refused.
            assert grown < 120 * MB, f"{grown / MB:.0f} MB"
            assert "unsent" in broker.log
            # The readers that stall give way. A client that reads its answer then gets all of it. On a busy machine it
            # may come to a halt for a second, which looks like a stall too; as any client, it then connects again.
            wait_until(lambda: "it does not read its answers" in broker.log)
            wait_until(lambda: fetched_bytes(broker) > 17 * MB)
        assert "Traceback" not in broker.log


# --- clients that say nothing, or half of it --------------------------------------------------------------


def test_two_thousand_half_open_connections_cost_little(memory_broker: Broker) -> None:
    count = 2_000
    # The test needs as many files as the broker, which raises its own limit.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 200:
        if hard != resource.RLIM_INFINITY and hard < count + 200:
            pytest.skip(f"a process may open only {hard} files here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + 200, hard))
    before = rss(memory_broker)
    with unharmed_client(memory_broker), ExitStack() as open_sockets:
        for i in range(count):
            sock = open_sockets.enter_context(connect(memory_broker))
            if i % 2:
                sock.sendall(struct.pack(">i", 90 * MB) + b"half a frame")
        with RawClient(memory_broker.host, memory_broker.port) as client:
            assert client.call(ApiVersionsRequest("test", "1"), 3).error_code == errors.NONE
        each = (rss(memory_broker) - before) / count
        assert each < 16_000, f"{each:.0f} bytes for each connection"
    wait_until(lambda: psutil.Process(memory_broker.pid).num_fds() < 100)


# --- clients that go away ---------------------------------------------------------------------------------


def abort(sock: socket.socket) -> None:
    """Close with RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.parametrize("go", [socket.socket.close, abort])
def test_clients_may_go_while_they_wait(memory_broker: Broker, go: Callable[[socket.socket], None]) -> None:
    create_topic(memory_broker, "orders")
    protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"meta")
    join = framed(encode_frame(JoinGroupRequest("group", 10_000, 10_000, "", None, "consumer", [protocol]), 3))
    for round_ in range(5):
        before = rss(memory_broker)
        for _ in range(100):
            polling, joining = connect(memory_broker), connect(memory_broker)
            # A request behind the one that waits is forgotten with it.
            polling.sendall(fetch_frame("orders", 2**31 - 1, offset=0) + api_versions())
            joining.sendall(join)
            go(polling)
            go(joining)
        if round_ > 1:
            assert rss(memory_broker) - before < 2 * MB
    wait_until(lambda: psutil.Process(memory_broker.pid).num_fds() < 50)
    with RawClient(memory_broker.host, memory_broker.port) as client:
        assert produce(client, "orders", GOOD).error_code == errors.NONE
    assert memory_broker.warnings == []


# --- stopping ---------------------------------------------------------------------------------------------


def test_a_stop_while_clients_wait_is_clean_and_quick() -> None:
    broker = Broker()
    broker.start()
    create_topic(broker, "orders")
    with ExitStack() as open_sockets:
        waiting = [open_sockets.enter_context(connect(broker)) for _ in range(20)]
        for sock in waiting:
            sock.sendall(fetch_frame("orders", 60_000))
        slow = open_sockets.enter_context(connect(broker, receive_buffer=4096))
        slow.sendall(framed(encode_frame(MetadataRequest(None), 12)) * 1000)
        # The broker accepts connections in their order. One that it accepts while it stops is worth a warning.
        assert select.select([slow], [], [], 60)[0], "no answer"
        start = time.monotonic()
        broker.stop()
        assert time.monotonic() - start < 20, "the stop does not wait for fetches of a minute"
        assert all(is_closed_by_peer(sock) for sock in waiting)
    assert broker.warnings == []


def test_sigterm_under_load_loses_nothing_that_was_acknowledged(tmp_path: object) -> None:
    acknowledged: list[int] = []
    with Broker(data=str(tmp_path)) as broker:
        create_topic(broker, "orders")

        def write() -> None:
            try:
                with RawClient(broker.host, broker.port) as client:
                    while True:
                        acknowledged.append(produce(client, "orders", GOOD).base_offset)
            except (Closed, ConnectionResetError, ConnectionRefusedError, TimeoutError):
                pass

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(acknowledged) > 100)
        broker.stop()
        for thread in threads:
            thread.join(20)
        assert "Traceback" not in broker.log
        broker.restart()
        with RawClient(broker.host, broker.port) as client:
            assert produce(client, "orders", GOOD).base_offset > max(acknowledged)
    assert len(set(acknowledged)) == len(acknowledged) > 100
