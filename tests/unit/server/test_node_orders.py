"""Orders about nodes that fail, over real sockets: nothing has changed, and the order can be given again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any

import pytest

from fencepost.broker.config import parse
from fencepost.broker.peers import NodeDescription, NodeOrder
from fencepost.machines.log.interface import LogTailUnknown, Storage
from fencepost.server.addresses import CannotListen
from fencepost.server.app import App, Settings, new_event_loop
from fencepost.server.operator_log import Level, OperatorLog
from tests.broken_off import Trap

FEW = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "1"}


class Mortal(App):
    """Notes that it has to die."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, OperatorLog(Level.ERROR, lambda line: None))
        self.died: list[LogTailUnknown] = []

    def die(self, error: LogTailUnknown) -> None:
        self.died.append(error)


async def new_app() -> Mortal:
    settings = Settings(port=0, brokers=2, config=parse(FEW), topics={"orders": 4})
    app = Mortal(settings)
    await app.start()
    return app


async def give(app: App, order: str, node_id: int) -> str | None:
    """Why the order was not carried out."""
    answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    app.node_orders.carry_out(NodeOrder(order, node_id), lambda refusal, _: answer.set_result(refusal))
    return await asyncio.wait_for(answer, 60)


def describe(app: App) -> dict[int, NodeDescription]:
    return {node.node_id: node for node in app.node_orders.describe()}


async def is_reachable(app: App, node_id: int) -> bool:
    """Whether a client finds a node there that keeps its connection."""
    address = describe(app)[node_id]
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port)
    except ConnectionRefusedError:
        return False
    writer.write(b"\0\0\0\x0a" + b"\0\x12\0\0" + b"\0\0\0\x01" + b"\xff\xff")  # ApiVersions v0.
    try:
        return len(await reader.read(4)) == 4
    except ConnectionResetError:
        return False
    finally:
        writer.close()


async def check(app: App) -> None:
    """Members are up and reachable, and serve what they lead; only members lead anything."""
    controller = app.nodes[0].cluster.controller
    for live in app.nodes:
        node = describe(app)[live.node_id]
        if controller.is_alive(node.node_id):
            assert node.state == "up", node
            assert await is_reachable(app, node.node_id), node
        elif node.state == "stopped":
            assert not await is_reachable(app, node.node_id), node
        for topic, index in controller.led_by(node.node_id):
            assert controller.is_alive(node.node_id), node
            assert live.cluster.partition(topic, index) is not None, f"{topic}-{index} on node {node.node_id}"


def run(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story)


def listen_before(sock: socket.socket) -> socket.socket:
    """Another program that listens on the port of `sock`, which is bound and does not listen yet."""
    thief = socket.socket()
    thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    thief.bind(sock.getsockname())
    thief.listen()
    return thief


@pytest.mark.parametrize("new_loop", [new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_a_broker_that_lost_its_port_while_it_recovered_does_not_start(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story() -> None:
        app = App(Settings(port=0), OperatorLog(Level.ERROR, lambda line: None))
        recover, thieves = app._recover, []

        def recover_slowly(storage: Storage) -> None:
            recover(storage)
            thieves.append(listen_before(app.listeners[0].sockets[0]))

        app._recover = recover_slowly  # type: ignore[method-assign]
        with pytest.raises(CannotListen, match="Address already in use"):
            await app.start()
        for sock in [*thieves, *app.listeners[0].sockets]:
            sock.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(story())


def test_a_node_whose_port_another_program_took_can_be_started_later() -> None:
    """Another program listens between the bind and the listen of the node."""

    async def story() -> None:
        app = await new_app()
        orders = app.node_orders
        assert await give(app, "stop", 2) is None
        bind = orders._bind
        thieves: list[socket.socket] = []

        def bind_and_lose(node_id: int) -> list[socket.socket]:
            sockets = bind(node_id)
            thieves.extend(listen_before(sock) for sock in sockets)
            return sockets

        orders._bind = bind_and_lose
        refusal = await give(app, "start", 2)
        orders._bind = bind
        for thief in thieves:
            thief.close()
        assert refusal is not None
        assert f"cannot listen on 127.0.0.1:{describe(app)[2].port}: Address already in use" in refusal
        assert describe(app)[2].state == "stopped"
        await check(app)
        assert await give(app, "start", 2) is None
        await check(app)
        assert await give(app, "stop", 1) is None
        await check(app)
        await app.stop()

    run(story())


# What brings the node into the state in which the order is given.
BEFORE: dict[str, Sequence[str]] = {"start": ["stop"], "stop": [], "pause": [], "resume": ["pause"]}
AFTER = {"start": "up", "stop": "stopped", "pause": "paused", "resume": "up"}
BACK: dict[str, Sequence[str]] = {"start": [], "stop": ["start"], "pause": ["resume"], "resume": []}


@pytest.mark.parametrize("order", BEFORE)
def test_an_order_that_breaks_off_can_be_given_again(order: str) -> None:
    async def story() -> None:
        app = await new_app()
        broken = 0
        for number in count(1):
            for earlier in BEFORE[order]:
                assert await give(app, earlier, 2) is None
            trap, carry_out = Trap(number), app.node_orders._carry_out

            async def carry_out_and_break_off(given: NodeOrder) -> None:
                with trap:  # noqa: B023
                    await carry_out(given)  # noqa: B023

            app.node_orders._carry_out = carry_out_and_break_off  # type: ignore[method-assign,assignment]
            refusal = await give(app, order, 2)
            app.node_orders._carry_out = carry_out  # type: ignore[method-assign]
            if not trap.place:
                break
            if app.died:
                await app.stop()
                app = await new_app()
                continue
            if refusal is not None:
                broken += 1
                await check(app)
                if describe(app)[2].state != AFTER[order]:
                    assert await give(app, order, 2) is None, trap.place
            assert describe(app)[2].state == AFTER[order], trap.place
            await check(app)
            for later in BACK[order]:
                assert await give(app, later, 2) is None, trap.place
        assert broken
        await app.stop()

    run(story())
