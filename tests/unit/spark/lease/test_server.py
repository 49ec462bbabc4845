"""The lease service over real sockets: many tasks, dead tasks, strangers."""

from __future__ import annotations

import logging
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.client import (
    DriverUnreachable,
    LeaseAddress,
    LeaseClient,
    RefusedByDriver,
)
from fencepost.spark.lease.messages import (
    Effect,
    Finished,
    TaskAttempt,
    TaskResult,
)
from fencepost.spark.lease.port import LeasePortTaken, parse_ports
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.lease.wire import LENGTH, MAX_FRAME_BYTES, PROTOCOL_VERSION, encode_frame, take_frame
from tests.unit.spark.lease.micro_batch import (
    AUDIT,
    REFUNDS,
    WAIT_S,
    MicroBatch,
    acquire,
    is_waiting,
    write,
)

SOURCE = Path(__file__).resolve().parents[4] / "src"


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    with LeaseServer("127.0.0.1") as running:
        yield running


@pytest.fixture
def batch(server: LeaseServer) -> MicroBatch:
    return MicroBatch(server)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as running:
        yield running


# --- many tasks ---------------------------------------------------------------------------------------------


def test_hundreds_of_tasks_write_to_a_few_partitions_without_a_gap(server: LeaseServer) -> None:
    tasks, partitions, batches = 300, 4, 5
    batch = MicroBatch(server)
    next_sequence = [0] * partitions

    def run(partition_id: int) -> TaskResult:
        counts: dict[TopicPartition, int] = {}
        with batch.client(partition_id) as client:
            left = {("t", n): batches for n in range(partitions)}
            while left:
                leases = client.acquire(dict.fromkeys(left, partition_id + 1))
                for lease in leases:
                    # In place of the brokers: no other task writes to this partition meanwhile.
                    assert lease.base_sequence == next_sequence[lease.partition]
                    next_sequence[lease.partition] += lease.record_count
                    at = lease.topic, lease.partition
                    counts[at] = counts.get(at, 0) + lease.record_count
                    left[at] -= 1
                    if not left[at]:
                        del left[at]
                client.release(leases)
            return client.done(counts)

    with ThreadPoolExecutor(tasks) as threads:
        results = list(threads.map(run, range(tasks)))
    expected = batches * sum(range(1, tasks + 1))
    assert server.finish(results, {1: tasks}) == Finished({("t", n): expected for n in range(partitions)})
    assert batch.touched == [("t", 0)], "the first task that writes adds the other partitions with its record batches"


# --- dead tasks ---------------------------------------------------------------------------------------------


def test_a_stage_that_is_run_again_breaks_the_transaction_when_its_first_task_comes(batch: MicroBatch) -> None:
    with batch.client(0, attempt=1, number=0) as first:
        write(first, REFUNDS)
        with batch.client(0, attempt=2, number=1), batch.client(1, attempt=3, number=0):
            assert batch.broken.empty()
        with batch.client(0, attempt=4, number=0) as again:
            assert "Spark runs the stage" in batch.broken.get(timeout=WAIT_S).reason
            with pytest.raises(RefusedByDriver, match="are both attempt 0"):
                acquire(again, REFUNDS)


def test_the_reason_of_a_task_that_gives_up_reaches_the_driver_and_the_other_tasks(batch: MicroBatch) -> None:
    with batch.client(1) as other:
        batch.client(0).fail("topic refunds: a record has 2000000 bytes, 1048588 are allowed", is_fatal=True)
        broken = batch.broken.get(timeout=WAIT_S)
        assert broken.is_fatal
        assert "a record has 2000000 bytes" in broken.reason
        with pytest.raises(RefusedByDriver, match="a record has 2000000 bytes") as refused:
            acquire(other, REFUNDS)
        assert refused.value.is_fatal


def test_a_bug_in_the_service_breaks_the_transaction_and_not_the_next_one(
    batch: MicroBatch, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[Effect]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(batch.server._service.current().table, "tick", fail)
    assert batch.broken.get(timeout=WAIT_S).reason == "the lease service failed: RuntimeError('a bug')"
    with batch.client(0) as client, pytest.raises(RefusedByDriver, match="a bug"):
        acquire(client, REFUNDS)
    assert "the lease service failed" in caplog.text
    batch.server.close()
    again = MicroBatch(batch.server, timeout_ms=200)
    with again.client(0) as client:
        acquire(client, REFUNDS)
        assert "held the lease" in again.broken.get(timeout=WAIT_S).reason


# --- first touches ------------------------------------------------------------------------------------------


def test_a_partition_that_cannot_be_added_breaks_the_transaction_and_the_error_is_kept(server: LeaseServer) -> None:
    def refuse(partitions: Sequence[TopicPartition]) -> None:
        raise PermissionError("TOPIC_AUTHORIZATION_FAILED (29)")

    table = LeaseTable(lease_timeout_ms=30_000)
    address = server.open(table, refuse)
    problem = r"refunds-0 could not be added.*TOPIC_AUTHORIZATION_FAILED \(29\)"
    with LeaseClient(address, TaskAttempt(1, 0, 1)) as client, pytest.raises(RefusedByDriver, match=problem):
        acquire(client, REFUNDS)
    assert isinstance(server.failure, PermissionError)


def test_a_transaction_is_ended_after_a_partition_that_is_being_added_and_none_is_added_later(
    server: LeaseServer, pool: ThreadPoolExecutor
) -> None:
    is_adding, adds = threading.Event(), threading.Event()
    added: list[TopicPartition] = []

    def slow(partitions: Sequence[TopicPartition]) -> None:
        is_adding.set()
        assert adds.wait(WAIT_S)
        added.extend(partitions)

    address = server.open(LeaseTable(lease_timeout_ms=30_000, first_touches_at_once=None), slow)
    with LeaseClient(address, TaskAttempt(1, 0, 1)) as one, LeaseClient(address, TaskAttempt(1, 1, 2)) as other:
        asked = [pool.submit(acquire, one, REFUNDS)]
        assert is_adding.wait(WAIT_S)
        asked.append(pool.submit(acquire, other, AUDIT))
        assert is_waiting(asked[1])
        ended = pool.submit(server.break_transaction, "the micro-batch is being aborted")
        for answer in asked:
            with pytest.raises(RefusedByDriver, match="the micro-batch is being aborted"):
                answer.result(WAIT_S)
        assert is_waiting(ended), "an abort now would be followed by the partition"
        adds.set()
        ended.result(WAIT_S)
    server.close()
    server.open(LeaseTable(lease_timeout_ms=30_000), added.extend)
    assert added == [REFUNDS]


# --- one after another --------------------------------------------------------------------------------------


def test_the_next_batch_has_the_same_port_and_another_token(server: LeaseServer, pool: ThreadPoolExecutor) -> None:
    first = MicroBatch(server)
    holder, zombie = first.client(0), first.client(1)
    acquire(holder, REFUNDS)
    waiting = pool.submit(acquire, zombie, REFUNDS)
    assert is_waiting(waiting)
    server.close()
    with pytest.raises(RefusedByDriver, match="the micro-batch is over"):
        waiting.result(WAIT_S)
    second = MicroBatch(server)
    assert first.address[:2] == second.address[:2]
    assert first.address.token != second.address.token
    with pytest.raises(RefusedByDriver, match="this micro-batch is over"):
        first.client(2)
    with pytest.raises((RefusedByDriver, DriverUnreachable)):
        acquire(holder, REFUNDS)
    with second.client(0) as client:
        assert write(client, REFUNDS) == 0
    assert first.broken.empty(), "a driver that closes a micro-batch needs no notice"


# --- tasks in Spark's JVM -------------------------------------------------------------------------------------


def ask(address: LeaseAddress, *messages: dict[str, object]) -> list[dict[str, object]]:
    """Say hello with the first message, send the others, and read until the service closes or two answers are there."""
    hello = {"op": "hello", "version": PROTOCOL_VERSION, "token": address.token}
    answers: list[dict[str, object]] = []
    buffer = bytearray()
    with socket.create_connection(address[:2], timeout=WAIT_S) as sock:
        sock.sendall(b"".join(map(encode_frame, ({**hello, **messages[0]}, *messages[1:]))))
        while len(answers) < min(2, len(messages)) and (data := sock.recv(65_536)):
            buffer += data
            while (frame := take_frame(buffer, MAX_FRAME_BYTES)) is not None:
                answers.append(frame)
    return answers


def test_a_task_in_the_jvm_gets_the_plan_of_its_write_with_its_greeting(batch: MicroBatch) -> None:
    batch.server.offer(1, {"topic": "refunds"})
    hello: dict[str, object] = {"task": [1, 0, 7], "plan": True}
    assert ask(batch.address, hello) == [{"ok": True, "plan": {"topic": "refunds"}}]
    [refusal] = ask(batch.address._replace(token="guess"), hello)
    assert "plan" not in refusal, "it has secrets"


# --- strangers ----------------------------------------------------------------------------------------------


def test_a_wrong_token_is_refused_and_logged_once(batch: MicroBatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for attempt in range(3):
            with pytest.raises(RefusedByDriver):
                LeaseClient(batch.address._replace(token="guess"), TaskAttempt(1, 0, attempt))
    assert sum("does not have the token" in record.message for record in caplog.records) == 1
    assert batch.address.token not in caplog.text
    assert batch.address.token not in repr(batch.address)


def test_a_task_with_another_version_of_the_package_is_refused_with_the_reason(batch: MicroBatch) -> None:
    with socket.create_connection(batch.address[:2], timeout=WAIT_S) as sock:
        sock.sendall(encode_frame({"op": "hello", "version": 99, "token": batch.address.token, "task": [1, 0, 1]}))
        assert b"different versions of fencepost" in sock.recv(65_536)


def test_the_same_attempt_is_let_in_once(batch: MicroBatch) -> None:
    with batch.client(0, attempt=1), pytest.raises(RefusedByDriver, match="connected already"):
        batch.client(0, attempt=1)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: driver\r\n\r\n",
        LENGTH.pack(2**31) + b"x" * 100,
        LENGTH.pack(5) + b"[1,2]",
        LENGTH.pack(3) + b"\xff\xff\xff",
        LENGTH.pack(4000) + b"[" * 4000,
        encode_frame({"op": "acquire", "wants": {"refunds": [0, 1]}}),
        encode_frame({}),
    ],
    ids=["http", "too long", "a list", "not utf-8", "deep", "no greeting", "empty"],
)
def test_a_client_that_breaks_the_protocol_is_disconnected_and_the_others_stay(batch: MicroBatch, sent: bytes) -> None:
    with batch.client(0) as client, socket.create_connection(batch.address[:2], timeout=WAIT_S) as stranger:
        acquire(client, REFUNDS)
        stranger.sendall(sent)
        with suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
        assert client.acquire({REFUNDS: 1}) == []
    assert batch.broken.get(timeout=WAIT_S).reason.startswith("task 100"), "it left without being done"


@pytest.mark.parametrize(
    "message",
    [
        {"op": "acquire", "wants": {}},
        {"op": "acquire", "wants": []},
        {"op": "acquire", "wants": {"refunds": []}},
        {"op": "acquire", "wants": {"refunds": [0]}},
        {"op": "acquire", "wants": {"refunds": [0, 1, 1]}},
        {"op": "acquire", "wants": {"refunds": [0, 1, 0, 1]}},
        {"op": "acquire", "wants": {"refunds": ["0", 1]}},
        {"op": "acquire", "wants": {"refunds": [0, True]}},
        {"op": "acquire", "wants": {"refunds": [-1, 1]}},
        {"op": "acquire", "wants": {"refunds": [0, 1 << 63]}},
        {"op": "acquire", "wants": {"refunds": {"0": 1}}},
        {"op": "acquire", "wants": 7},
        {"op": "release", "records": {"refunds": [1]}, "bytes": 1},
        {"op": "release", "records": {"refunds": [1, 2]}},
        {"op": "done"},
        {"op": "done", "counts": {}, "topics": []},
        {"op": "done", "counts": {}, "topics": {"refunds": ["no id", 1]}},
        {"op": "done", "counts": {}, "topics": {"refunds": [5, 1]}},
        {"op": "dance"},
        {},
    ],
    ids=str,
)
def test_a_task_that_sends_nonsense_is_disconnected(batch: MicroBatch, message: dict[str, object]) -> None:
    with batch.client(0) as client:
        client._driver.tell(message)
        assert client._driver._socket.recv(1) == b""
    with batch.client(0) as client:
        assert write(client, REFUNDS) == 0


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 12_000, reason="the hard limit of open files is low"
)
def test_more_than_4096_tasks_are_connected_at_the_same_time(server: LeaseServer) -> None:
    batch, tasks = MicroBatch(server), 4100
    with ExitStack() as open_:
        for number in range(tasks):
            open_.enter_context(LeaseClient(batch.address, TaskAttempt(1, number, number), room_timeout_s=0))
        assert len(server._service.current().connections) == tasks


# --- open files ---------------------------------------------------------------------------------------------


@contextmanager
def driver_with(limits: str, then: str = "pass") -> Iterator[subprocess.Popen[str]]:
    """A process with a lease service, which counts calls of accept: runs `limits` before the start, `then` after it.

    At a first line on stdin it closes its files, at a second it ends.
    """
    whole = (
        "import os, resource, sys\n"
        "from contextlib import suppress\n"
        "from fencepost.spark.lease.server import LeaseServer\n"
        "from fencepost.spark.lease.rules import LeaseTable\n"
        "from fencepost.spark.lease.connections import Connections\n"
        "calls, accept = 0, Connections.accept\n"
        "async def count_and_accept(self):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    await accept(self)\n"
        "Connections.accept = count_and_accept\n"
        f"{limits}\n"
        "with LeaseServer('127.0.0.1') as server:\n"
        "    address = server.open(LeaseTable(lease_timeout_ms=60_000), lambda partitions: None)\n"
        f"    {then}\n"
        "    print(*address, flush=True)\n"
        "    sys.stdin.readline()\n"
        "    files = None\n"
        "    sys.stdin.readline()\n"
        "    print(calls)\n"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", whole]
    env = {"PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as driver:
        try:
            yield driver
        finally:
            driver.kill()


def address_of(driver: subprocess.Popen[str]) -> LeaseAddress:
    assert driver.stdout is not None
    host, port, token = driver.stdout.readline().split()
    return LeaseAddress(host, int(port), token)


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1000, reason="the hard limit of open files is low")
def test_more_tasks_are_let_in_than_the_soft_limit_of_open_files_allows() -> None:
    lower = "resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))"
    with driver_with(lower) as driver, ExitStack() as open_:
        address = address_of(driver)
        for number in range(100):
            open_.enter_context(LeaseClient(address, TaskAttempt(1, number, number)))
        driver.communicate("\n\n", WAIT_S)


def test_a_driver_without_a_file_for_a_connection_says_so_once_and_lets_the_task_in_later(
    pool: ThreadPoolExecutor,
) -> None:
    take_all = "files = []\n    with suppress(OSError):\n        while True: files.append(open(os.devnull))"
    with driver_with("resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))", take_all) as driver:
        assert driver.stdin is not None
        assert driver.stderr is not None
        address = address_of(driver)
        task = pool.submit(LeaseClient, address, TaskAttempt(1, 0, 1), None, WAIT_S)
        assert "Too many open files" in pool.submit(driver.stderr.readline).result(WAIT_S)
        time.sleep(0.5)  # Enough for many calls, if it did not pause.
        driver.stdin.write("\n")
        driver.stdin.flush()
        with task.result(WAIT_S) as client:
            assert client.done({}) == TaskResult(1, 0, 1, ())
        calls, complaints = driver.communicate("\n", WAIT_S)
        assert complaints.count("Too many open files") <= 1, "how often it had to wait"
        assert int(calls) < 50, "it does not try again and again"


# --- addresses ----------------------------------------------------------------------------------------------


def test_a_task_that_cannot_reach_the_driver_says_where_it_looked_and_what_to_set() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(DriverUnreachable) as unreachable:
        LeaseClient(LeaseAddress("127.0.0.1", port, "secret"), TaskAttempt(1, 3, 42))
    said = str(unreachable.value)
    for part in (f"127.0.0.1:{port}", "task 42", "fencepost.lease.port", "fencepost.lease.host", "refused"):
        assert part in said
    assert "secret" not in said


def test_a_driver_that_does_not_answer_is_unreachable_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(DriverUnreachable, match="timed out"):
        LeaseClient(LeaseAddress("127.0.0.1", mute.getsockname()[1], "t"), TaskAttempt(1, 0, 1), connect_timeout_s=0.2)


def test_the_first_free_port_of_a_range_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with LeaseServer("127.0.0.1", ports=range(port, min(port + 50, 65_536))) as server:
            assert port < server.port < port + 50
        with pytest.raises(LeasePortTaken, match=rf"127.0.0.1:{port}.*in use[\s\S]*fencepost.lease.port"):
            LeaseServer("127.0.0.1", ports=range(port, port + 1))


def test_an_address_that_is_not_ours_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(LeasePortTaken, match=r"fencepost\.lease.bind"):
        LeaseServer("192.0.2.1")


def test_the_service_may_listen_elsewhere_than_where_tasks_are_sent() -> None:
    with LeaseServer("driver.example", bind_host="127.0.0.1") as server:
        address = MicroBatch(server).address
        assert address.host == "driver.example"
        with LeaseClient(address._replace(host="127.0.0.1"), TaskAttempt(1, 0, 1)) as client:
            assert write(client, REFUNDS) == 0


@pytest.mark.parametrize(
    ("text", "ports"), [("0", range(1)), ("40000", range(40_000, 40_001)), ("40000-40002", range(40_000, 40_003))]
)
def test_ports_are_one_or_a_range(text: str, ports: range) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "5-4", "70000", "0-5", "1-2-3"])
def test_ports_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"fencepost\.lease.port"):
        parse_ports(text)
