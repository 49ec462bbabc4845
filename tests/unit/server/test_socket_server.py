"""The socket server without sockets: a transport that records, and a broker whose answers a test decides."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fencepost.broker.acls import NODE
from fencepost.broker.config import parse
from fencepost.broker.node import ANONYMOUS, Frame
from fencepost.broker.rpcs import KEPT_BYTES
from fencepost.machines.log.interface import LogTailUnknown
from fencepost.protocol.schema import Malformed
from fencepost.server import complaints, connection, flow_control, socket_server
from fencepost.server.complaints import Complaints, guess_protocol
from fencepost.server.connection import ClientConnection
from fencepost.server.flow_control import MOVES, ConnectionState
from fencepost.server.live_node import LiveNode
from fencepost.server.operator_log import OperatorLog
from fencepost.server.socket_server import SocketServer
from tests.pure_nodes import PureNodes

KB, MB = 1 << 10, 1 << 20


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class FakeTransport:
    """Does what asyncio would do, on demand. `takes`: how many of the written bytes the client reads."""

    def __init__(self, port: int = 1) -> None:
        self.protocol: ClientConnection
        self.port = port
        self.takes = 1 << 40
        self.written = bytearray()
        self.unsent = 0
        self.is_reading = True
        self.end: str | None = None
        self._high, self._low = 64 * KB, 16 * KB
        self._is_paused = False

    def get_extra_info(self, name: str, default: object = None) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._high, self._low = high, low

    def write(self, data: bytes) -> None:
        assert self.end is None
        self.written += data
        self.unsent += len(data)
        self.drain()

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def drain(self, more: int = 0) -> None:
        self.takes += more
        taken = min(self.takes, self.unsent)
        self.takes -= taken
        self.unsent -= taken
        if self.unsent > self._high and not self._is_paused:
            self._is_paused = True
            self.protocol.pause_writing()
        elif self.unsent <= self._low and self._is_paused:
            self._is_paused = False
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.end is not None

    def close(self) -> None:
        self.end = self.end or "closed"

    def abort(self) -> None:
        self.end = "aborted"

    def lose(self) -> None:
        self.protocol.connection_lost(None)

    def end_of_input(self) -> None:
        """As asyncio does: a protocol that does not want to stay open is closed."""
        if not self.protocol.eof_received():
            self.close()
            self.lose()

    def receive(self, data: bytes) -> int:
        """Bytes arrive; return how many were read."""
        given = 0
        while given < len(data) and self.is_reading and self.end is None:
            buffer = self.protocol.get_buffer(-1)
            part = data[given : given + len(buffer)]
            buffer[: len(part)] = part
            given += len(part)
            self.protocol.buffer_updated(len(part))
        return given


class CheckedConnection(ClientConnection):
    """Fails the test that makes it move in a way that its table does not have."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "state" and hasattr(self, "state"):
            assert value in MOVES[self.state], f"from {self.state} to {value}"
        super().__setattr__(name, value)


class FakeNode:
    """Answers each frame with itself; `wait…` and those in `late` not before `answer`, `bad…` with an error.

    Those in `silent` have no answer.
    """

    def __init__(self, **settings: str) -> None:
        self.cluster = self
        self.config = parse({name.replace("_", "."): value for name, value in settings.items()})
        self.handled: list[bytes] = []
        self.large: list[memoryview] = []  # Requests that were handed over with their memory.
        self.waiting: list[ClientConnection] = []
        self.late: set[bytes] = set()
        self.silent: set[bytes] = set()
        self.gone = 0
        self.errors: dict[bytes, Exception] = {}
        self.on_handle: Callable[[], None] = lambda: None

    def handle(self, data: Frame, connection: ClientConnection, now_ms: int) -> None:
        if isinstance(data, memoryview):
            assert not data.readonly
            self.large.append(data)
            data = bytes(data)
        self.handled.append(data)
        self.on_handle()
        if data[:3] == b"bad":
            raise self.errors[data]
        if data[:4] == b"wait" or data in self.late:
            self.waiting.append(connection)
            connection.on_close(self._go)
        elif data in self.silent:
            connection.reply([])
        elif data[:5] == b"large":
            connection.reply([frame(b"")[:4], bytes(int(data[5:]))])
        else:
            connection.reply([frame(data)[:4], data])

    def _go(self) -> None:
        self.gone += 1

    def answer(self) -> None:
        self.waiting.pop(0).reply([b"answer"])


class World:
    def __init__(self, **settings: str) -> None:
        self.node = FakeNode(**settings)
        self.lines: list[str] = []
        self.turns = 0
        self.died: list[LogTailUnknown] = []
        self.socket_server = SocketServer(self.node, Complaints(self.lines.append), self._after_work, self.died.append)  # type: ignore[arg-type]
        self.socket_server.make_connection = CheckedConnection
        self._ports = 0

    def _after_work(self) -> None:
        self.turns += 1

    def connect(self, has_entered: bool = True, principal: str = ANONYMOUS) -> FakeTransport:
        self._ports += 1
        transport = FakeTransport(self._ports)
        transport.protocol = self.socket_server.protocol()
        transport.protocol.has_entered = has_entered
        transport.protocol.principal = principal
        transport.protocol.connection_made(transport)  # type: ignore[arg-type]
        return transport


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    run.__name__ = test.__name__
    run.__signature__ = __import__("inspect").signature(test)  # type: ignore[attr-defined]
    return run


# --- the client leaves ------------------------------------------------------------------------------------


@in_loop
async def test_all_that_a_client_sent_before_it_left_is_served() -> None:
    world = World()
    transport = world.connect()
    count = 3 * connection.FRAMES_A_TURN
    transport.receive(b"".join(frame(b"%d" % number) for number in range(count)) + frame(b"not whole")[:-1])
    assert len(world.node.handled) < count
    transport.end_of_input()
    while transport.end is None:
        await asyncio.sleep(0)
    assert world.node.handled == [b"%d" % number for number in range(count)]
    assert transport.written.endswith(frame(b"%d" % (count - 1)))
    assert world.socket_server.held_bytes == 0


@in_loop
async def test_a_connection_that_awaits_an_answer_gets_it_before_it_is_closed() -> None:
    world = World()
    transport = world.connect()
    transport.receive(b"".join(map(frame, [*[b"x"] * connection.FRAMES_A_TURN, b"wait", b"after"])))
    transport.end_of_input()
    await settle()
    assert transport.end is None
    world.node.answer()
    await settle()
    assert world.node.handled[-1] == b"after"
    assert transport.end == "closed"


@in_loop
async def test_a_client_that_leaves_while_it_waits_is_let_go_at_once() -> None:
    world = World()
    transport = world.connect()
    transport.receive(frame(b"wait"))
    transport.end_of_input()
    assert (transport.end, world.node.gone) == ("closed", 1)


# --- cutting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 4, 7, 1000, 1 << 20])
@in_loop
async def test_frames_are_the_same_however_they_are_cut(size: int) -> None:
    world = World()
    transport = world.connect()
    frames = [b"a", b"", b"x" * 300, b"y" * 70_000, b"b", b"z" * 300_000, b"c"]
    stream = b"".join(map(frame, frames))
    for at in range(0, len(stream), size):
        transport.receive(stream[at : at + size])
        if world.socket_server.held_bytes:
            await asyncio.sleep(0)
    await settle()
    assert world.node.handled == frames
    assert transport.written == stream
    assert world.socket_server.held_bytes == 0
    assert not world.socket_server.arriving


@in_loop
async def test_answers_that_are_ready_together_leave_in_one_write() -> None:
    world = World()
    transport = world.connect()
    writes: list[bytes] = []
    transport.write = writes.append  # type: ignore[method-assign, assignment]
    transport.receive(frame(b"a") + frame(b"b") + frame(b"c"))
    assert writes == [frame(b"a") + frame(b"b") + frame(b"c")]


@in_loop
async def test_a_request_waits_for_the_answer_to_the_one_before() -> None:
    world = World()
    transport = world.connect()
    transport.receive(frame(b"wait") + frame(b"a") + frame(b"wait2") + frame(b"b"))
    assert world.node.handled == [b"wait"]
    world.node.answer()
    assert world.node.handled == [b"wait"], "not inside the call that brought the answer"
    await settle()
    assert world.node.handled == [b"wait", b"a", b"wait2"]
    world.node.answer()
    await settle()
    assert transport.written == b"answer" + frame(b"a") + b"answer" + frame(b"b")


@in_loop
async def test_a_request_behind_one_that_a_timer_answers_is_served() -> None:
    """Timers that are due run at the end of a turn, before the connection has kept the requests it did not handle."""
    world = World()
    world.socket_server.after_work = lambda: world.node.answer() if world.node.waiting else None
    transport = world.connect()
    transport.receive(frame(b"wait") + frame(b"a"))
    await settle()
    assert transport.written == b"answer" + frame(b"a")
    assert world.socket_server.held_bytes == 0


@in_loop
async def test_a_second_answer_to_one_request_is_a_bug() -> None:
    transport = World().connect()
    transport.receive(frame(b"a"))
    with pytest.raises(AssertionError, match="an answer without a request: the connection is ready"):
        transport.protocol.reply([b"again"])


def test_every_state_of_a_connection_can_end_and_a_closed_one_stays_closed() -> None:
    assert set(MOVES) == set(ConnectionState)
    assert all(
        ConnectionState.CLOSED in MOVES[state] for state in ConnectionState if state is not ConnectionState.CLOSED
    )
    assert not MOVES[ConnectionState.CLOSED]


@in_loop
async def test_a_deep_pipeline_is_served_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "monotonic", lambda: 0.0)  # On a busy machine a turn may end by its time.
    world = World()
    deep, other = world.connect(), world.connect()
    deep.receive(frame(b"x") * 10_000)
    assert len(world.node.handled) == connection.FRAMES_A_TURN
    other.receive(frame(b"other"))
    assert world.node.handled[-1] == b"other"
    while len(world.node.handled) < 10_001:
        await asyncio.sleep(0)
    assert deep.written == frame(b"x") * 10_000
    assert world.socket_server.held_bytes == 0


@in_loop
async def test_a_turn_ends_early_when_requests_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    for module in (connection, flow_control, socket_server):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    world = World()
    transport = world.connect()

    def take_a_millisecond() -> None:
        now[0] += 0.001

    world.node.on_handle = take_a_millisecond
    transport.receive(frame(b"x") * 100)
    assert len(world.node.handled) == connection.FRAMES_A_LOOK


# --- what is wrong ----------------------------------------------------------------------------------------


@in_loop
async def test_a_malformed_request_ends_the_connection_after_the_answers_before_it() -> None:
    world = World()
    transport = world.connect()
    world.node.errors[b"bad"] = Malformed("it makes no sense")
    transport.receive(frame(b"a") + frame(b"bad") + frame(b"b"))
    assert transport.end == "closed"
    assert transport.written == frame(b"a")
    assert world.lines == ["closed 127.0.0.1:1: malformed request: it makes no sense"]
    assert world.node.handled == [b"a", b"bad"]


@in_loop
async def test_a_bug_costs_its_connection_and_shows_its_place_once() -> None:
    world = World()
    world.node.errors[b"bad"] = KeyError("oops")
    other = world.connect()
    for _ in range(3):
        transport = world.connect()
        transport.receive(frame(b"bad"))
        assert transport.end == "aborted"
    assert sum("Traceback" in line for line in world.lines) == 1
    assert sum("could not be served: KeyError: 'oops'" in line for line in world.lines) == 3
    other.receive(frame(b"a"))
    assert other.written == frame(b"a")


@in_loop
async def test_a_log_whose_end_is_unknown_stops_the_process() -> None:
    world = World()
    world.node.errors[b"bad"] = LogTailUnknown("sync failed")
    world.connect().receive(frame(b"bad"))
    assert [str(e) for e in world.died] == ["sync failed"]


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100 * MB + 1])
@in_loop
async def test_a_size_that_cannot_be_ends_the_connection(size: int) -> None:
    world = World()
    transport = world.connect()
    transport.receive(struct.pack(">i", size))
    assert transport.end == "closed"
    assert f"claims {size} bytes" in world.lines[0]


def test_other_protocols_are_recognised() -> None:
    assert guess_protocol(b"GET / HT") == "HTTP"
    assert guess_protocol(b"\x16\x03\x01\x02\0") == "TLS"
    assert guess_protocol(b"\0\0\0\x20") == ""


def test_lines_past_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    lines: list[str] = []
    said = Complaints(lines.append)
    for i in range(complaints.LINES_A_SECOND + 7):
        said.line(f"line {i}")
    assert len(lines) == complaints.LINES_A_SECOND
    now[0] += 1
    said.line("next")
    assert lines[-2:] == ["7 more lines like these within a second", "next"]
    said.flush()
    assert lines[-1] == "next"


def test_a_line_stays_one_line_and_is_cut() -> None:
    lines: list[str] = []
    Complaints(OperatorLog(write=lines.append).warning).line("a\nb\x1b[31m" + "x" * 10_000)
    assert "WARNING a\\nb\\x1b[31mxxx" in lines[0]
    assert len(lines[0]) < 1000


# --- memory -----------------------------------------------------------------------------------------------


@in_loop
async def test_a_client_that_does_not_read_is_not_served() -> None:
    world = World()
    transport = world.connect()
    transport.takes = 0
    transport.receive(frame(b"large20000") * 10)
    assert len(world.node.handled) == 2
    read = transport.receive(frame(b"a") * 1_000_000)
    assert read < 4 * flow_control.MAX_WAITING_BYTES
    assert not transport.is_reading
    transport.drain(1 << 40)
    while not transport.is_reading:
        await asyncio.sleep(0)
    assert len(world.node.handled) > 10


@in_loop
async def test_a_client_that_waits_is_not_read_from_for_ever() -> None:
    world = World()
    transport = world.connect()
    transport.receive(frame(b"wait"))
    assert transport.receive(frame(b"a") * 1_000_000) < 4 * flow_control.MAX_WAITING_BYTES
    assert not transport.is_reading
    world.node.answer()
    while not transport.is_reading:
        await asyncio.sleep(0)
    assert len(world.node.handled) > 10_000


@in_loop
async def test_a_large_request_reserves_the_memory_it_announces_but_uses_only_what_arrived() -> None:
    world = World()
    transport = world.connect()
    transport.receive(struct.pack(">i", 90 * MB) + b"x" * 1000)
    assert world.socket_server.held_bytes == 90 * MB + 4
    assert len(transport.protocol.inbox.data) < 10_000
    transport.lose()
    assert world.socket_server.held_bytes == 0


@in_loop
async def test_a_large_request_is_handed_over_with_its_memory_which_is_not_written_again() -> None:
    world = World()
    transport = world.connect()
    bodies = [b"x" * 300_000, b"small", b"y" * 300_000, b"z" * 5 * MB]
    transport.receive(b"".join(map(frame, bodies)))
    assert world.node.handled == bodies
    assert world.node.large == [bodies[0], bodies[2], bodies[3]]
    world.node.large[0][:] = b"?" * 300_000
    transport.receive(frame(b"w" * 300_000))
    assert world.node.large[1:] == [bodies[2], bodies[3], b"w" * 300_000]
    assert world.socket_server.held_bytes == 0


@in_loop
async def test_after_a_large_request_only_the_beginning_of_the_next_is_read_into_shared_memory() -> None:
    world = World()
    transport = world.connect()
    protocol = transport.protocol
    assert len(protocol.get_buffer(-1)) == socket_server.SCRATCH_BYTES
    transport.receive(frame(bytes(300_000)))
    assert len(protocol.get_buffer(-1)) == flow_control.SMALL_BYTES
    transport.receive(frame(bytes(300_000))[:10])
    assert len(protocol.get_buffer(-1)) == 300_004 - 10
    transport.receive(frame(bytes(300_000))[10:] + frame(b"small"))
    assert len(protocol.get_buffer(-1)) == socket_server.SCRATCH_BYTES


@in_loop
async def test_a_large_request_that_is_complete_while_its_client_does_not_read_is_handled_later() -> None:
    world = World()
    transport = world.connect()
    transport.receive(frame(b"a" * 300_000)[:40_000])
    transport.protocol.pause_writing()
    transport.receive(frame(b"a" * 300_000)[40_000:])
    assert world.node.handled == []
    transport.protocol.resume_writing()
    await settle()
    assert world.node.handled == [b"a" * 300_000]
    assert world.socket_server.held_bytes == 0


@in_loop
async def test_the_last_requests_are_kept_as_they_arrived() -> None:
    world = World()
    transport = world.connect()
    body = b"\0\0" + b"x" * 300_000

    def change_it() -> None:
        world.node.large[-1][:] = bytes(len(body))

    world.node.on_handle = change_it
    transport.receive(frame(body))
    assert transport.protocol.rpcs is not None
    [(_, kept, _, _)] = transport.protocol.rpcs
    assert kept == body[:KEPT_BYTES]


@in_loop
async def test_large_requests_wait_in_line_for_memory() -> None:
    world = World(queued_max_request_bytes=str(2 * MB))
    body = bytes(MB)
    first, second, third, fourth = (world.connect() for _ in range(4))
    for transport in (first, second):
        assert transport.receive(frame(body)[:500_000]) == 500_000
    for transport in (third, fourth):
        assert transport.receive(frame(body)[:500_000]) <= flow_control.SMALL_BYTES
        assert not transport.is_reading
    # Small requests are still served.
    bystander = world.connect()
    bystander.receive(frame(b"a") * 3)
    assert bystander.written == frame(b"a") * 3

    first.receive(frame(body)[500_000:])
    await settle()
    assert third.is_reading
    assert not fourth.is_reading
    third.receive(frame(body)[flow_control.SMALL_BYTES :])
    await settle()
    assert fourth.is_reading
    assert [len(data) for data in world.node.handled] == [1, 1, 1, MB, MB]
    for transport in (second, fourth):
        transport.lose()
    assert world.socket_server.held_bytes == 0


@in_loop
async def test_a_large_request_that_does_not_arrive_gives_its_memory_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    for module in (connection, flow_control, socket_server):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    world = World(queued_max_request_bytes=str(2 * MB))
    stuck, waiting = world.connect(), world.connect()
    stuck.receive(frame(bytes(8 * MB))[:100_000])
    waiting.receive(frame(bytes(MB))[: flow_control.SMALL_BYTES])
    world.socket_server._on_tick()
    assert stuck.end is None
    now[0] = flow_control.ARRIVAL_S + 3
    world.socket_server._on_tick()
    assert stuck.end == "aborted"
    assert "a request of 8388612 bytes is still not there" in world.lines[0]
    await settle()
    assert waiting.is_reading


@in_loop
async def test_less_than_the_length_of_a_request_gives_its_memory_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    for module in (connection, flow_control, socket_server):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    world = World(queued_max_request_bytes=str(2 * MB))
    stuck, large, waiting = world.connect(), world.connect(), world.connect()
    stuck.receive(frame(b"a")[:2])
    large.receive(frame(bytes(8 * MB))[:100_000])
    waiting.receive(frame(bytes(MB))[: flow_control.SMALL_BYTES])
    now[0] = flow_control.ARRIVAL_S + 3
    world.socket_server._on_tick()
    assert stuck.end == "aborted"


@in_loop
async def test_requests_of_middling_size_that_do_not_arrive_give_their_memory_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are read like small ones until no memory is left. Then new ones wait, and each holds some memory too."""
    now = [0.0]
    for module in (connection, flow_control, socket_server):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    world = World(queued_max_request_bytes=str(MB))
    stuck = [world.connect() for _ in range(40)]
    for transport in stuck:
        transport.receive(frame(bytes(60_000))[:50_000])
    assert world.socket_server.starved
    client = world.connect()
    sent = client.receive(frame(bytes(20_000)))
    for _ in range(4):
        now[0] += flow_control.ARRIVAL_S + 1
        world.socket_server._on_tick()
        await settle()
        sent += client.receive(frame(bytes(20_000))[sent:])
    assert world.node.handled == [bytes(20_000)]
    assert "aborted" in [transport.end for transport in stuck]


@in_loop
async def test_clients_that_stop_reading_are_closed_when_answers_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    for module in (connection, flow_control, socket_server):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    world = World(queued_max_request_bytes=str(2 * MB))
    slow = [world.connect() for _ in range(3)]
    for transport in slow:
        transport.takes = 0
        transport.receive(frame(b"large600000"))
    # One more would exceed twice the limit, so the newest is closed.
    newest = world.connect()
    newest.takes = 0
    newest.receive(frame(b"large600000"))
    assert newest.end == "aborted"
    now[0] += 0.5
    slow[1].drain(1000)
    world.socket_server._on_tick()
    assert [transport.end for transport in slow] == [None, None, None]
    now[0] += 0.6
    world.socket_server._on_tick()
    assert [transport.end for transport in slow] == ["aborted", None, "aborted"], "the client that reads is not closed"
    assert world.socket_server.unsent_bytes < MB
    assert "does not read its answers" in world.lines[-1]


# --- coming and going -------------------------------------------------------------------------------------


@in_loop
async def test_a_connection_that_waits_for_memory_is_forgotten_when_it_is_lost() -> None:
    world = World()
    transport = world.connect()
    transport.receive(frame(b"wait") + frame(b"a"))
    transport.lose()
    assert world.node.gone == 1
    world.node.answer()
    await settle()
    assert transport.written == b""
    assert world.node.handled == [b"wait"]
    assert not world.socket_server.connections


@in_loop
async def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    for module in (connection, flow_control, socket_server):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    world = World(connections_max_idle_ms="5000")
    idle, waiting, active = (world.connect() for _ in range(3))
    waiting.receive(frame(b"wait"))
    now[0] = 4
    active.receive(frame(b"a"))
    now[0] = 6
    world.socket_server.close_idle()
    assert (idle.end, waiting.end, active.end) == ("aborted", None, None)


@in_loop
async def test_past_the_limit_the_oldest_connection_that_said_nothing_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    for module in (connection, flow_control, socket_server):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    world = World(max_connections="2")
    busy, silent = world.connect(), world.connect()
    busy.receive(frame(b"a"))
    silent.receive(b"\0\0\0\x10half")
    refused = world.connect()
    assert (refused.end, silent.end) == ("aborted", None)
    now[0] = 2
    welcome = world.connect()
    assert (welcome.end, silent.end, busy.end) == (None, "aborted", None)
    silent.lose()
    welcome.receive(frame(b"b"))
    assert world.connect().end == "aborted"


@in_loop
async def test_a_client_that_has_not_logged_in_makes_room_for_others_and_is_closed_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    for module in (connection, flow_control, socket_server):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    world = World(max_connections="2")
    user, stranger = world.connect(has_entered=False), world.connect(has_entered=False)
    for transport in (user, stranger):
        transport.receive(frame(b"a"))  # It asks for versions and says no more.
    user.protocol.enter("User:alice")
    assert world.connect().end == "aborted", "all others are new"
    now[0] = 2
    welcome = world.connect(has_entered=False)
    assert (user.end, stranger.end, welcome.end) == (None, "aborted", None)
    stranger.lose()
    welcome.receive(frame(b"a"))
    now[0] = 31
    world.socket_server._on_tick()
    assert welcome.end is None
    now[0] = 32
    world.socket_server._on_tick()
    assert user.end is None
    assert str(welcome.end) == "aborted"
    assert not world.socket_server.entering
    assert "its TLS handshake or its login was not done after 30 s" in world.lines[-1]
    world.socket_server.close()


@in_loop
async def test_a_stop_closes_every_connection_without_a_log_line() -> None:
    world = World()
    waiting, plain = world.connect(), world.connect()
    waiting.receive(frame(b"wait"))
    plain.receive(frame(b"a"))
    world.socket_server.close()
    assert (waiting.end, plain.end) == ("closed", "closed")
    assert world.connect().end == "aborted"
    assert world.node.gone == 1
    assert len(world.lines) == 1  # For the connection that came too late.


@in_loop
async def test_a_client_that_does_not_read_cannot_hold_up_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CLOSING_S", 0.01)
    world = World()
    transport = world.connect()
    transport.takes = 0
    transport.receive(frame(b"large1000") + b"\xff\xff\xff\xff")
    assert transport.end == "closed"
    await asyncio.sleep(0.05)
    assert transport.end == "aborted"


@in_loop
async def test_little_is_kept_of_a_long_answer() -> None:
    world = World()
    client = world.connect()
    end_txn = (26).to_bytes(2, "big")
    long_one = end_txn + bytes(100 * KB)
    client.receive(frame(long_one))
    ((_, _, kept),) = world.socket_server.kept_rpcs()
    ((_, request, reply, _),) = kept
    assert reply == long_one[:KB]
    assert request == long_one[:256]
    world.node.late.add(end_txn)
    client.receive(frame(end_txn))
    assert client.protocol.rpcs is not None
    assert client.protocol.rpcs[-1][2] is None
    world.node.waiting.pop().reply([b"", long_one])
    assert client.protocol.rpcs[-1][2] == long_one[:KB]


def kept_replies(client: FakeTransport) -> list[bytes | None]:
    return [reply for _, _, reply, _ in client.protocol.rpcs or ()]


@in_loop
async def test_the_answer_to_another_request_is_not_kept_for_one_without_an_answer() -> None:
    world = World()
    client = world.connect()
    produce = (0).to_bytes(2, "big")
    world.node.silent.add(produce)
    client.receive(frame(b"before") + frame(produce))
    assert kept_replies(client) == [b""]
    client.receive(frame(b"wait for the next"))
    world.node.answer()
    assert kept_replies(client) == [b""]
    world.node.late.add(produce)
    client.receive(frame(produce) + frame(b"wait again"))
    assert kept_replies(client) == [b"", None]
    world.node.waiting.pop().reply([])
    await settle()
    world.node.answer()
    assert kept_replies(client) == [b"", b""]


@in_loop
async def test_the_answer_to_another_request_is_not_kept_for_a_large_one_without_an_answer() -> None:
    world = World()
    client = world.connect()
    large = (0).to_bytes(2, "big") + bytes(MB)
    world.node.silent.add(large)
    client.receive(frame(large) + frame(b"wait for the next"))
    world.node.answer()
    assert kept_replies(client) == [b""]


def test_clients_cannot_keep_other_nodes_from_connecting() -> None:
    async def story() -> None:
        world = World(max_connections="1")
        client = world.connect()
        client.receive(frame(b"x"))
        assert world.connect().end == "aborted"
        peer = world.connect(principal=NODE)
        peer.receive(frame(b"markers"))
        assert (client.end, peer.end) == (None, None)
        assert world.node.handled == [b"x", b"markers"]

    asyncio.run(story())


def test_a_paused_node_holds_no_more_requests_than_there_is_memory_for() -> None:
    """Also those of clients that have left count: a client that sends its request again gets no more memory."""

    async def story() -> None:
        world = World(queued_max_request_bytes="100000")
        node = LiveNode(PureNodes(1).clusters[1], {}, lambda: 0, lambda error: None)
        node.socket_server = world.socket_server
        world.socket_server.handle = node.handle
        node.pause()
        for _ in range(3):
            client = world.connect()
            client.receive(frame(bytes(60_000)))
            if client.end is None:
                client.lose()
        assert [line for line in world.lines if "paused" in line]
        assert len(node._held) == 1

    asyncio.run(story())
