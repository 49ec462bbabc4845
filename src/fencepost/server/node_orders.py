"""Orders about the nodes of a running process: stop and start, pause and resume them, and move leaders.

`fencepost cluster` and `fencepost.testing` give them, over the port of any node that is up.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from fencepost.broker.cluster import Cluster
from fencepost.broker.controller import Controller, NodeOrderRefused
from fencepost.broker.peers import DESCRIBE, NodeDescription, NodeOrder
from fencepost.broker.topics import INTERNAL_TOPICS, TXN_TOPIC
from fencepost.machines.log.interface import LogTailUnknown, StorageFailed
from fencepost.server.addresses import CannotListen
from fencepost.server.complaints import shortened
from fencepost.server.live_node import PAUSED, STOPPED, UP, LiveNode, NodeState

MakeCluster = Callable[[int], Cluster]
Serve = Callable[[LiveNode, Sequence[socket.socket]], Awaitable[None]]


# What an order has done, for the broker's log.
_DONE = {
    "stop": "node {0.node_id} was stopped: others lead its partitions",
    "start": "node {0.node_id} was started",
    "pause": "node {0.node_id} was paused: others lead its partitions",
    "resume": "node {0.node_id} was resumed",
    "move-leader": "node {0.node_id} leads {0.topic}-{0.partition}",
    "move-coordinator": "node {0.node_id} coordinates the transactional id {0.transactional_id}",
}


def _in_words(order: NodeOrder) -> str:
    return _DONE[order.order].format(order)


class NodeOrders:
    """`bind` gives the sockets of a node that has stopped; `serve` accepts connections on them.

    `failed` gets bugs, `log` a line for each order that was carried out.
    """

    def __init__(
        self,
        nodes: Iterable[LiveNode],
        controller: Controller,
        now_ms: Callable[[], int],
        make_cluster: MakeCluster,
        bind: Callable[[int], list[socket.socket]],
        serve: Serve,
        failed: Callable[[Exception], None],
        log: Callable[[str], None],
    ) -> None:
        self._nodes = {node.node_id: node for node in nodes}
        self._controller = controller
        self._now_ms = now_ms
        self._make_cluster = make_cluster
        self._bind = bind
        self._serve = serve
        self._failed = failed
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()

    def carry_out(self, order: NodeOrder, then: Callable[[str | None, list[NodeDescription]], None]) -> None:
        """Call `then`, now or later, with the reason why the order cannot be carried out, if so, and with all nodes."""

        async def run() -> None:
            refusal = None
            try:
                await self._carry_out(order)
            except (NodeOrderRefused, CannotListen, StorageFailed, OSError) as e:
                refusal = str(e)
            except Exception as e:  # A bug. The client that gave the order waits for the answer.
                self._failed(e)
                refusal = f"the order failed: {type(e).__name__}: {e}"
            else:
                if order.order != DESCRIBE:
                    self._log(shortened(_in_words(order)))
            then(refusal, self.describe())

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, order: NodeOrder) -> None:
        match order.order:
            case "describe":
                pass
            case "stop":
                self._stop(self._find(order.node_id, UP, PAUSED))
            case "start":
                await self._start(self._find(order.node_id, STOPPED))
            case "pause":
                self._pause(self._find(order.node_id, UP))
            case "resume":
                self._resume(self._find(order.node_id, PAUSED))
            case "move-leader":
                self._find(order.node_id, UP)
                self._controller.move_leader(order.topic, order.partition, order.node_id, self._now_ms())
            case "move-coordinator":
                self._find(order.node_id, UP)
                txns = self._any_up().txns
                index = txns.partition_of(order.transactional_id, self._now_ms())
                self._controller.move_leader(TXN_TOPIC, index, order.node_id, self._now_ms())
            case _:
                raise NodeOrderRefused(f"there is no order {order.order!r}")
        for node in self._nodes.values():
            node.alarm.after_work()

    def describe(self) -> list[NodeDescription]:
        described = []
        for node in self._nodes.values():
            led = self._controller.led_by(node.node_id)
            address = self._controller.address_of(node.node_id)
            coordinated = sum(topic in INTERNAL_TOPICS for topic, _ in led)
            described.append(NodeDescription(*address, node.state.value, len(led) - coordinated, coordinated))
        return described

    def _find(self, node_id: int, *states: NodeState) -> LiveNode:
        node = self._nodes.get(node_id)
        if node is None:
            known = ", ".join(map(str, self._nodes))
            raise NodeOrderRefused(f"there is no node {node_id}\n\nhint: the nodes are {known}")
        if node.state not in states:
            raise NodeOrderRefused(
                f"node {node_id} is {node.state.value}, it would have to be {' or '.join(s.value for s in states)}\n\n"
                "hint: `fencepost cluster nodes` shows all nodes"
            )
        return node

    def _any_up(self) -> Cluster:
        return next(node.cluster for node in self._nodes.values() if node.state is UP)

    def _stop(self, node: LiveNode) -> None:
        if node.state is UP:
            self._controller.leave(node.node_id, self._now_ms())
        self._disconnect(node)
        node.stop()

    async def _start(self, node: LiveNode) -> None:
        sockets = self._bind(node.node_id)
        try:
            # The port first: another program may have it. The socket server turns clients away until it is reopened.
            await self._serve(node, sockets)
            node.take(self._make_cluster(node.node_id))
            node.cluster.begin_timers(self._now_ms())
            node.socket_server.reopen()
            node.connect()
            node.state = UP
            self._controller.rejoin(node.cluster, self._now_ms())
        except BaseException:
            node.stop()
            for sock in sockets:
                with suppress(OSError):
                    sock.close()
            raise

    def _pause(self, node: LiveNode) -> None:
        try:
            node.pause()
            self._controller.expire(node.node_id, self._now_ms())
        except LogTailUnknown:
            raise  # The node must not go on.
        except Exception:
            node.resume()
            raise
        self._disconnect(node)

    def _resume(self, node: LiveNode) -> None:
        self._controller.rejoin(node.cluster, self._now_ms())
        node.resume()

    def _disconnect(self, node: LiveNode) -> None:
        """The connections of other nodes to this one end: it will not answer."""
        for other in self._nodes.values():
            if other is not node:
                other.peers.disconnect(node.node_id)
