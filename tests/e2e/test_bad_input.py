"""Clients that are broken or hostile: they get the protocol's error or are closed, in one line of the log each, and
the others notice nothing."""

from __future__ import annotations

import random
import resource
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import cramjam
import psutil
import pytest

from fencepost.protocol import errors
from fencepost.protocol.batch import assemble, encode_batch, encode_record
from fencepost.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from fencepost.testing import Broker
from tests.wire.hostile import HostileFrames
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


def test_an_unknown_version_of_api_versions_is_answered_in_v0(memory_broker: Broker) -> None:
    with RawClient(memory_broker.host, memory_broker.port) as client:
        reply = client.send_frame(struct.pack(">hhih", 18, 77, 5, -1) + b"\0\0\0\0")
        response, _ = ApiVersionsResponse.decode(reply, 4, 0)
        assert response.error_code == errors.UNSUPPORTED_VERSION
        assert [key.api_key for key in response.api_keys] == [18]
        # The client tries again on the same connection.
        assert client.call(ApiVersionsRequest("test", "1"), 3).error_code == errors.NONE


def test_a_frame_that_ends_early_is_dropped_with_its_connection(memory_broker: Broker) -> None:
    with connect(memory_broker) as sock:
        sock.sendall(api_versions()[:-3])
    with RawClient(memory_broker.host, memory_broker.port) as client:
        assert client.call(ApiVersionsRequest("test", "1"), 3).error_code == errors.NONE
    assert memory_broker.warnings == []


def test_a_frame_may_come_byte_by_byte(memory_broker: Broker) -> None:
    with connect(memory_broker) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in api_versions() * 2:
            sock.sendall(bytes([byte]))
        reply = sock.recv(1 << 16)
        (size,) = struct.unpack(">i", reply[:4])
        while len(reply) < 2 * (4 + size):
            reply += sock.recv(1 << 16)


def test_a_request_larger_than_allowed_is_refused_before_it_is_read() -> None:
    with memory_broker_with(socket_request_max_bytes=100_000) as broker:
        with connect(broker) as sock:
            sock.sendall(struct.pack(">i", 100_001))
            assert is_closed_by_peer(sock)
        assert "claims 100001 bytes, socket.request.max.bytes is 100000" in broker.log


def test_replies_before_a_malformed_request_still_arrive(memory_broker: Broker) -> None:
    with connect(memory_broker) as sock:
        sock.sendall(api_versions() * 3 + b"\xff\xff\xff\xff")
        data = b""
        while chunk := sock.recv(1 << 16):
            data += chunk
    (size,) = struct.unpack(">i", data[:4])
    assert len(data) == 3 * (4 + size)


def test_random_bytes_do_not_disturb_other_clients(memory_broker: Broker) -> None:
    rng = random.Random(3)
    with unharmed_client(memory_broker):
        for _ in range(300):
            with connect(memory_broker) as sock:
                try:
                    for _ in range(rng.randrange(1, 4)):
                        sock.sendall(rng.randbytes(rng.choice((1, 10, 1000, 100_000))))
                except (ConnectionResetError, BrokenPipeError):
                    pass
    # One line each at first, and then only how many more there were.
    assert len(memory_broker.log.splitlines()) < 150


def test_many_complaints_are_counted_instead_of_logged(memory_broker: Broker) -> None:
    for _ in range(500):
        with connect(memory_broker) as sock:
            sock.sendall(b"\xff" * 4)
            is_closed_by_peer(sock)
    wait_until(lambda: " more lines like these" in memory_broker.log)
    assert len(memory_broker.log.splitlines()) < 250


@pytest.mark.slow
def test_mutated_frames_over_sockets_leave_the_broker_serving(memory_broker: Broker) -> None:
    create_topic(memory_broker, "orders", 3)
    frames = HostileFrames(5, NOW_MS)
    with unharmed_client(memory_broker), ExitStack() as open_sockets:
        socks: list[socket.socket] = []
        for i in range(5_000):
            if len(socks) < 20:
                socks.append(open_sockets.enter_context(connect(memory_broker)))
            sock = socks[i % len(socks)]
            try:
                sock.sendall(framed(frames.next()))
                if i % 7 == 0:
                    sock.setblocking(False)
                    sock.recv(1 << 20)
            except BlockingIOError:
                pass
            except (ConnectionResetError, BrokenPipeError):
                socks.remove(sock)
                sock.close()
            finally:
                sock.close() if sock.fileno() < 0 else sock.settimeout(20)
    # Some of the frames are good enough to delete a topic.
    create_topic(memory_broker, "afterwards")
    with RawClient(memory_broker.host, memory_broker.port) as client:
        assert produce(client, "afterwards", encode_batch([(None, b"v")], NOW_MS)).error_code == errors.NONE


# --- batches ----------------------------------------------------------------------------------------------


def batch_with(
    attributes: int = 0, record_count: int = 1, payload: bytes | None = None, producer_id: int = -1, sequence: int = -1
) -> bytes:
    payload = encode_record(None, b"value") if payload is None else payload
    return assemble(
        payload, record_count, attributes, NOW_MS, NOW_MS, producer_id, 0 if producer_id >= 0 else -1, sequence
    )


GOOD = batch_with()
SMALL_BOMB = bytes(cramjam.gzip.compress(bytes(3 * MB)))


@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(GOOD[:-1] + b"?", errors.CORRUPT_MESSAGE, id="checksum"),
        pytest.param(GOOD[:16] + b"\1" + GOOD[17:], errors.INVALID_RECORD, id="magic 1"),
        pytest.param(GOOD[:16] + b"\7" + GOOD[17:], errors.CORRUPT_MESSAGE, id="magic 7"),
        pytest.param(batch_with(record_count=5), errors.INVALID_RECORD, id="too few records"),
        pytest.param(batch_with(record_count=0), errors.INVALID_RECORD, id="no records"),
        pytest.param(batch_with(record_count=-5), errors.INVALID_RECORD, id="negative count"),
        pytest.param(batch_with(record_count=2**31 - 1), errors.INVALID_RECORD, id="huge count"),
        pytest.param(batch_with(payload=bytes(2 * MB)), errors.MESSAGE_TOO_LARGE, id="too large"),
        pytest.param(batch_with(attributes=7), errors.UNSUPPORTED_COMPRESSION_TYPE, id="unknown codec"),
        pytest.param(batch_with(attributes=0x20), errors.INVALID_RECORD, id="control batch"),
        pytest.param(batch_with(attributes=1), errors.INVALID_RECORD, id="gzip that is none"),
        pytest.param(batch_with(attributes=1, payload=SMALL_BOMB), errors.INVALID_RECORD, id="small gzip bomb"),
        pytest.param(batch_with(producer_id=7), errors.INVALID_RECORD, id="producer without a sequence"),
        pytest.param(None, errors.INVALID_RECORD, id="null"),
        pytest.param(b"", errors.INVALID_RECORD, id="empty"),
        pytest.param(b"\0", errors.INVALID_RECORD, id="one byte"),
        pytest.param(GOOD + GOOD, errors.INVALID_RECORD, id="two batches"),
        pytest.param(GOOD[:40], errors.INVALID_RECORD, id="half a batch"),
        pytest.param(GOOD[:8] + b"\x80\0\0\0" + GOOD[12:], errors.CORRUPT_MESSAGE, id="negative length"),
    ],
)
def test_a_bad_batch_gets_its_error_and_the_connection_lives(
    shared_broker: Broker, records: bytes | None, error: int
) -> None:
    before, lines = rss(shared_broker), shared_broker.log
    with RawClient(shared_broker.host, shared_broker.port) as client:
        last_offset = produce(client, "orders", GOOD).base_offset
        refused = produce(client, "orders", records)
        assert (refused.error_code, refused.base_offset) == (error, -1)
        accepted = produce(client, "orders", GOOD)
        assert (accepted.error_code, accepted.base_offset) == (errors.NONE, last_offset + 1)
    assert shared_broker.log == lines
    assert rss(shared_broker) - before < 60 * MB


def test_a_batch_that_unpacks_to_gigabytes_stays_packed(memory_broker: Broker) -> None:
    """The broker stores the batch compressed, and a lookup by timestamp stops unpacking it early."""
    create_topic(memory_broker, "orders")
    bomb = batch_with(attributes=1, payload=bytes(cramjam.gzip.compress(bytes(900 * MB))))
    before = rss(memory_broker)
    with RawClient(memory_broker.host, memory_broker.port) as client:
        produce(client, "orders", bomb)
        wanted = ListOffsetsRequest.ListOffsetsPartition(0, timestamp=NOW_MS - 1)
        request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic("orders", [wanted])])
        worked_before_s = cpu_s(memory_broker)
        found = client.call(request, 5).topics[0].partitions[0]
        assert found.error_code == errors.NONE
        assert cpu_s(memory_broker) - worked_before_s < 2
    assert rss(memory_broker) - before < 100 * MB


def test_a_failed_produce_without_acks_closes_the_connection(memory_broker: Broker) -> None:
    create_topic(memory_broker, "orders")
    data = ProduceRequest.TopicProduceData("orders", partition_data=[ProduceRequest.PartitionProduceData(0, GOOD[:40])])
    with connect(memory_broker) as sock:
        sock.sendall(framed(encode_frame(ProduceRequest(None, 0, 1000, [data]), 9)))
        assert is_closed_by_peer(sock)
    assert "acks=0" in memory_broker.log


# --- clients that do not read -----------------------------------------------------------------------------


def test_a_client_that_pipelines_and_never_reads_is_not_read_from(memory_broker: Broker) -> None:
    before = rss(memory_broker)
    frames = framed(encode_frame(MetadataRequest(None), 12)) * 100
    sent = 0
    with unharmed_client(memory_broker), connect(memory_broker, receive_buffer=4096) as sock:
        sock.settimeout(2)
        with pytest.raises(TimeoutError):
            while sent < 200 * MB:
                sent += sock.send(frames)
        assert rss(memory_broker) - before < 10 * MB


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


def test_a_slow_reader_gets_everything_in_the_end(memory_broker: Broker) -> None:
    create_topic(memory_broker, "orders")
    with RawClient(memory_broker.host, memory_broker.port) as client:
        for _ in range(8):
            produce(client, "orders", batch_with(payload=encode_record(None, bytes(900_000))))
    with connect(memory_broker, receive_buffer=4096) as sock:
        sock.sendall(fetch_frame("orders", 0) * 3 + api_versions())
        time.sleep(1)
        data = bytearray()
        while len(data) < 3 * 7_200_000 + 100:
            chunk = sock.recv(1 << 20)
            assert chunk
            data += chunk


def test_a_deep_pipeline_does_not_starve_others(memory_broker: Broker) -> None:
    frames = framed(encode_frame(HeartbeatRequest("group", 1, "member"), 4)) * 20_000
    stop = threading.Event()

    def pipeline() -> None:
        with connect(memory_broker) as sock:
            while not stop.is_set():
                sock.setblocking(False)
                sent = 0
                while sent < len(frames):
                    ready, writable, _ = select.select([sock], [sock], [], 5)
                    if ready:
                        sock.recv(1 << 20)
                    if writable:
                        sent += sock.send(frames[sent : sent + (1 << 16)])

    threads = [threading.Thread(target=pipeline) for _ in range(2)]
    with unharmed_client(memory_broker, patience_s=2) as times:
        for thread in threads:
            thread.start()
        time.sleep(3)
        stop.set()
        for thread in threads:
            thread.join()
    median = sorted(times)[len(times) // 2]
    assert median < 0.1, f"the broker worked {median:.3f} s for others, and a bystander waited for each answer"


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


def test_idle_connections_are_closed_and_waiting_ones_are_not() -> None:
    with memory_broker_with(connections_max_idle_ms=1_000) as broker:
        create_topic(broker, "orders")
        with connect(broker) as silent, connect(broker) as half, connect(broker) as waiting:
            half.sendall(b"\0\0\1\0half")
            waiting.sendall(fetch_frame("orders", 2_500))
            start = time.monotonic()
            assert is_closed_by_peer(silent, 10)
            assert is_closed_by_peer(half, 10)
            assert time.monotonic() - start < 5
            assert waiting.recv(4), "the answer came when the poll was over"
            assert time.monotonic() - start > 2
            assert is_closed_by_peer(waiting, 10)
        assert broker.log.count("idle for more than 1 s") == 3


def test_past_max_connections_the_silent_ones_make_room() -> None:
    with memory_broker_with(max_connections=50) as broker, ExitStack() as open_sockets:
        client = open_sockets.enter_context(RawClient(broker.host, broker.port))
        client.call(ApiVersionsRequest("test", "1"), 3)
        flood = [open_sockets.enter_context(connect(broker)) for _ in range(80)]
        assert all(is_closed_by_peer(sock) for sock in flood[49:])
        time.sleep(1.1)
        # The connections of the flood are silent, so a new client takes the place of one.
        with RawClient(broker.host, broker.port) as late:
            assert late.call(ApiVersionsRequest("test", "1"), 3).error_code == errors.NONE
        assert client.call(ApiVersionsRequest("test", "1"), 3).error_code == errors.NONE
        assert "max.connections" in broker.log


def test_large_requests_wait_for_memory_and_small_ones_do_not() -> None:
    with memory_broker_with(queued_max_request_bytes=2 * MB) as broker:
        create_topic(broker, "orders")
        before = rss(broker)
        with unharmed_client(broker), ExitStack() as open_sockets:
            holders = [open_sockets.enter_context(connect(broker)) for _ in range(30)]
            for sock in holders:
                sock.setblocking(False)
                with suppress(BlockingIOError):
                    sock.send(struct.pack(">i", MB) + bytes(900_000))
            time.sleep(0.5)
            assert rss(broker) - before < 15 * MB
            waiting = open_sockets.enter_context(RawClient(broker.host, broker.port))
            answers: list[int] = []
            big = batch_with(payload=encode_record(None, bytes(900_000)))
            thread = threading.Thread(target=lambda: answers.append(produce(waiting, "orders", big).error_code))
            thread.start()
            thread.join(0.3)
            assert not answers
            for sock in holders:
                sock.close()
            thread.join(10)
            assert answers == [errors.NONE]


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


def test_requests_sent_during_a_long_poll_are_answered_after_it(memory_broker: Broker) -> None:
    create_topic(memory_broker, "orders")
    with connect(memory_broker) as sock, RawClient(memory_broker.host, memory_broker.port) as client:
        sock.sendall(fetch_frame("orders", 10_000) + api_versions())
        sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(5)
        produce(client, "orders", GOOD)
        data = b""
        while data.count(b"transaction.version") == 0:
            data += sock.recv(1 << 16)


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


def test_a_second_signal_does_not_hurt() -> None:
    with Broker() as broker:
        process = broker._process.running()
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert broker.wait_for_exit(0) == 0
        broker.start()
