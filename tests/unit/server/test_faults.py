"""Faults between a socket server and its broker, without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.faults.fault import BadFault, parse_fault
from fencepost.protocol import errors
from fencepost.protocol.messages import HeartbeatRequest, InitProducerIdRequest, ProduceRequest
from fencepost.protocol.schema import Message
from fencepost.server.complaints import Complaints
from fencepost.server.faults import Faults
from fencepost.server.socket_server import SocketServer
from tests.pure_broker import START_MS, PureBroker, PureConnection
from tests.wire.raw_client import decode_reply, encode_frame

BEAT = HeartbeatRequest("g", -1, "m")


class World:
    """A broker behind a socket server, and faults for it."""

    def __init__(self) -> None:
        self.broker = PureBroker()
        self.lines: list[str] = []
        self.socket_server = SocketServer(self.broker.node, Complaints(self.lines.append), lambda: None)
        self.normal = self.socket_server.handle
        self.faults = Faults([self.socket_server], lambda: self.broker.now_ms)

    @property
    def is_normal(self) -> bool:
        return self.socket_server.handle == self.normal

    def send(self, request: Message, version: int, client_id: str = "svc-1") -> PureConnection:
        connection = PureConnection()
        self.socket_server.handle(encode_frame(request, version, 1, client_id), connection, self.broker.now_ms)
        return connection

    def error(self, request: Message, version: int, client_id: str = "svc-1") -> Any:
        [frame] = self.send(request, version, client_id).frames
        return decode_reply(request, version, frame).error_code


def test_a_broker_without_faults_is_as_it_was() -> None:
    world = World()
    assert world.is_normal
    world.faults.add(parse_fault("error", at="request", api="Heartbeat", error="NOT_COORDINATOR", times=1))
    assert not world.is_normal
    assert world.error(BEAT, 4) == errors.NOT_COORDINATOR
    assert world.is_normal
    number = world.faults.add(parse_fault("drop", at="reply", client_id="svc-1"))
    assert not world.is_normal
    world.faults.remove(number)
    assert world.is_normal


def test_the_fault_that_was_set_first_strikes_first() -> None:
    world = World()
    for error in ("NOT_COORDINATOR", "REBALANCE_IN_PROGRESS"):
        world.faults.add(parse_fault("error", at="request", api="Heartbeat", error=error, times=1))
    assert [world.error(BEAT, 4) for _ in range(3)] == [
        errors.NOT_COORDINATOR,
        errors.REBALANCE_IN_PROGRESS,
        errors.UNKNOWN_MEMBER_ID,
    ]


def test_a_client_is_named_or_a_pattern() -> None:
    world = World()
    world.faults.add(parse_fault("error", at="reply", api="Heartbeat", error=16, client_id="svc-1"))
    world.faults.add(parse_fault("error", at="reply", api="Heartbeat", error=27, client_id="job-*"))
    struck = {client: world.error(BEAT, 4, client) for client in ("svc-1", "svc-10", "job-", "job-7", "Job-7")}
    passed = errors.UNKNOWN_MEMBER_ID
    assert struck == {"svc-1": 16, "svc-10": passed, "job-": 27, "job-7": 27, "Job-7": passed}


def test_a_connection_without_an_answer_is_closed_with_its_fault() -> None:
    world = World()
    number = world.faults.add(parse_fault("drop", at="request", client_id="svc-1"))
    hanging = world.send(BEAT, 4)
    assert (hanging.is_answered, hanging.closed) == (False, None)
    world.faults.clear()
    assert hanging.closed == ""
    assert world.faults.hits(number) == 1


def test_a_disconnect_at_the_reply_comes_after_the_work() -> None:
    world = World()
    world.faults.add(parse_fault("disconnect", at="reply", api="InitProducerId", times=1))
    request = InitProducerIdRequest("t", 60_000, -1, -1)
    connection = world.send(request, 4)
    assert (connection.frames, connection.closed) == ([], "")
    txn = world.broker.cluster.txns.find("t")
    assert txn is not None
    assert txn.producer_epoch == 0


def test_a_producer_that_wants_no_answer_gets_no_error() -> None:
    world = World()
    number = world.faults.add(parse_fault("error", at="request", api="Produce", error="NOT_ENOUGH_REPLICAS", times=1))
    connection = world.send(ProduceRequest(None, 0, 1000, []), 9)
    assert connection.is_answered
    assert connection.frames == []
    assert world.faults.hits(number) == 1


def test_requests_see_the_moved_clock() -> None:
    world = World()
    world.faults.advance_clock(5000)
    world.faults.advance_clock(5000)
    assert world.faults.now_ms() == START_MS + 10_000
    assert world.error(InitProducerIdRequest("t", 60_000, -1, -1), 4) == errors.NONE
    txn = world.broker.cluster.txns.find("t")
    assert txn is not None
    assert txn.updated_ms == START_MS + 10_000


def test_an_error_without_an_api_and_a_negative_delay_are_refused() -> None:
    with pytest.raises(BadFault, match="an error needs the name of an API"):
        parse_fault("error", at="request", error="NOT_COORDINATOR")
    with pytest.raises(BadFault, match="must not be negative"):
        parse_fault("delay", at="reply", api="Fetch", ms=-1)
