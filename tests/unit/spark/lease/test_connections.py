"""Who is let in to the lease port, and who gives way: the same with and without TLS."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from fencepost.spark.lease import connections
from fencepost.spark.lease.client import DriverUnreachable, LeaseAddress, LeaseClient
from fencepost.spark.lease.messages import Finished, TaskAttempt, TaskResult
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.lease.tls import LeaseTls, make_tls
from tests.unit.spark.lease.attack import BEGUN_HANDSHAKE, Attack
from tests.unit.spark.lease.micro_batch import REFUNDS, WAIT_S, MicroBatch, eventually, is_waiting, write


@pytest.fixture(scope="module")
def certificate() -> LeaseTls:
    return make_tls()


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def tls(request: pytest.FixtureRequest, certificate: LeaseTls) -> LeaseTls | None:
    return certificate if request.param else None


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as running:
        yield running


def stranger(batch: MicroBatch) -> socket.socket:
    return socket.create_connection(batch.address[:2], timeout=WAIT_S)


def test_no_more_connections_than_allowed_are_open(tls: LeaseTls | None) -> None:
    with LeaseServer("127.0.0.1", max_connections=2, tls=tls) as server:
        batch = MicroBatch(server)
        with batch.client(0), batch.client(1), pytest.raises(DriverUnreachable, match=r"closed|reset|Broken"):
            LeaseClient(batch.address, TaskAttempt(1, 2, 102), room_timeout_s=0.15)
        assert eventually(lambda: not server._service.connections.open)
        with batch.client(2) as client:
            assert write(client, REFUNDS) == 0


def test_a_task_for_which_there_is_no_room_waits_until_another_is_done(
    tls: LeaseTls | None, pool: ThreadPoolExecutor
) -> None:
    with LeaseServer("127.0.0.1", max_connections=2, tls=tls) as server:
        batch = MicroBatch(server)
        with batch.client(0), batch.client(1) as second:
            waiting = pool.submit(batch.client, 2)
            assert is_waiting(waiting)
            second.close()
            with waiting.result(WAIT_S) as third:
                assert write(third, REFUNDS) == 0


def test_a_task_tries_again_after_a_driver_that_closes_the_connection_at_once(
    tls: LeaseTls | None, pool: ThreadPoolExecutor
) -> None:
    fingerprint = "" if tls is None else tls.fingerprint
    with socket.create_server(("127.0.0.1", 0)) as full:
        address = LeaseAddress("127.0.0.1", full.getsockname()[1], "token", fingerprint)
        full.settimeout(WAIT_S)
        task = pool.submit(LeaseClient, address, TaskAttempt(1, 0, 1))
        for _ in range(3):
            turned_away, _ = full.accept()
            turned_away.close()
    with pytest.raises(DriverUnreachable, match="refused"):
        task.result(WAIT_S)


def test_tasks_that_are_turned_away_again_and_again_cost_two_lines_of_the_log(
    tls: LeaseTls | None, caplog: pytest.LogCaptureFixture
) -> None:
    with LeaseServer("127.0.0.1", max_connections=1, tls=tls) as server:
        batch = MicroBatch(server)
        with batch.client(0):
            for number in range(1, 21):
                with pytest.raises(DriverUnreachable):
                    LeaseClient(batch.address, TaskAttempt(1, number, number), room_timeout_s=0)
    first, count = [record.message for record in caplog.records if "is turned away" in record.message]
    assert first.startswith("a connection from 127.0.0.1 is turned away")
    assert count.startswith("19 more times: a connection from 127.0.0.1 is turned away")


@pytest.mark.parametrize("says_something", [False, True], ids=["silent", "begins"])
def test_a_peer_that_does_not_say_who_it_is_is_disconnected_after_a_while(
    tls: LeaseTls | None, says_something: bool
) -> None:
    now_ms = 0
    with LeaseServer("127.0.0.1", clock_ms=lambda: now_ms, tls=tls) as server:
        batch = MicroBatch(server)
        with stranger(batch) as silent, batch.client(0):
            if says_something:
                silent.sendall(BEGUN_HANDSHAKE if tls else b"\0\0")
            now_ms = connections.HELLO_TIMEOUT_MS + 1
            assert silent.recv(1) == b""
            assert server._service.current().connections


def test_a_connection_that_is_gone_before_it_is_accepted_does_not_end_the_service(
    tls: LeaseTls | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = [OSError(errno.EINVAL, "what macOS says then")]

    def refuse_once(sock: socket.socket) -> None:
        if problems:
            raise problems.pop()

    monkeypatch.setattr(connections, "keep_alive", refuse_once)
    with LeaseServer("127.0.0.1", tls=tls) as server:
        batch = MicroBatch(server)
        with stranger(batch) as gone, suppress(ConnectionResetError):
            assert gone.recv(1) == b""
        with batch.client(0) as client:
            assert write(client, REFUNDS) == 0


def test_who_has_not_said_who_it_is_gives_way_the_oldest_first_and_a_task_does_not(
    tls: LeaseTls | None, caplog: pytest.LogCaptureFixture
) -> None:
    with LeaseServer("127.0.0.1", max_connections=4, tls=tls) as server, ExitStack() as open_:
        batch = MicroBatch(server)
        first = open_.enter_context(batch.client(0))
        silent, open_now = [], server._service.connections.open
        for number in range(2, 5):
            silent.append(open_.enter_context(stranger(batch)))
            assert eventually(lambda number=number: len(open_now) == number)  # type: ignore[misc]
        for number, gives_way in enumerate(silent, 1):
            task = open_.enter_context(batch.client(number))
            assert gives_way.recv(1) == b""
            assert write(task, REFUNDS) == 10 * (number - 1)
        with pytest.raises(DriverUnreachable):
            LeaseClient(batch.address, TaskAttempt(1, 4, 104), room_timeout_s=0)
        assert write(first, REFUNDS) == 30
    assert [record.message.partition(":")[0] for record in caplog.records if "give way" in record.message] == [
        "connections that belong to no task of this micro-batch give way to new ones, first that from 127.0.0.1",
        "2 more times",
    ]


def test_a_thousand_strangers_neither_stop_a_write_nor_fill_the_log(
    tls: LeaseTls | None, caplog: pytest.LogCaptureFixture, pool: ThreadPoolExecutor
) -> None:
    results: list[TaskResult] = []

    def run(number: int) -> int:
        with batch.client(number) as task:
            sequence = write(task, REFUNDS)
            results.append(task.done({REFUNDS: 10}))
        return sequence

    with caplog.at_level(logging.INFO), LeaseServer("127.0.0.1", max_connections=50, tls=tls) as server:
        batch = MicroBatch(server)
        with Attack(batch.address[:2]) as attack:
            assert eventually(lambda: attack.count > 200)
            sequences = list(pool.map(run, range(40)))
            assert eventually(lambda: attack.count > 1000)
            sequences.append(run(40))
        assert sorted(sequences) == list(range(0, 410, 10))
        assert server.finish(results, {1: 41}) == Finished({REFUNDS: 410})
    assert 0 < len(caplog.records) <= 6, caplog.text
