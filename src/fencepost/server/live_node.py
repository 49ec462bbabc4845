"""One node of the process with its ports: up, paused or stopped.

A paused node does nothing: requests, answers of other nodes and its timers wait. When it goes on it first hears from
the controller that others lead its partitions, and then takes up what waited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from fencepost.broker.cluster import Cluster
from fencepost.broker.node import Frame, Node
from fencepost.broker.peers import Answered
from fencepost.machines.timers import Timers
from fencepost.server.peers import NodePeers
from fencepost.server.socket_server import SocketServer


class Alarm:
    """Runs the timers of one node when they are due. `failed` gets what a timer raised."""

    def __init__(self, now_ms: Callable[[], int], failed: Callable[[Exception], None]) -> None:
        self._timers = Timers()
        self._now_ms = now_ms
        self._failed = failed
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self.is_paused = False

    def watch(self, timers: Timers) -> None:
        """Run these timers from now on, and not those of before."""
        self._timers.on_earlier = None
        self._timers = timers
        timers.on_earlier = self._set

    def after_work(self) -> None:
        """Run the timers that are due. The alarm is for a node that has nothing else to do."""
        deadline_ms = self._timers.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self._now_ms():
            self.ring()

    def ring(self) -> None:
        """Run the timers that are due, and set the alarm for the next one."""
        self.cancel()
        if self.is_paused:
            return
        try:
            self._timers.advance(self._now_ms())
        except Exception as e:
            self._failed(e)
        deadline_ms = self._timers.next_deadline_ms()
        if deadline_ms is not None:
            self._set(deadline_ms)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _set(self, deadline_ms: int) -> None:
        if self._handle is not None:
            if self._due_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._due_ms = deadline_ms
        delay_s = max(deadline_ms - self._now_ms(), 0) / 1000
        self._handle = asyncio.get_running_loop().call_later(delay_s, self.ring)


class NodeState(Enum):
    UP = "up"
    PAUSED = "paused"
    STOPPED = "stopped"


UP, PAUSED, STOPPED = NodeState


class LiveNode:
    """`others`: the socket servers of the nodes that are not stopped, by node id."""

    def __init__(
        self,
        cluster: Cluster,
        others: dict[int, SocketServer],
        now_ms: Callable[[], int],
        failed: Callable[[Exception], None],
    ) -> None:
        self.node_id = cluster.node_id
        self.state = UP
        self.alarm = Alarm(now_ms, failed)
        self.peers = NodePeers(cluster.node_id, others, self._answered)
        self.socket_server: SocketServer
        self.servers: list[asyncio.Server] = []  # One for each listener.
        self._others = others
        self._now_ms = now_ms
        self._failed = failed
        self._held: list[Callable[[], None]] = []
        self._held_bytes = 0  # Of requests, also of clients that have left.
        self.take(cluster)

    def take(self, cluster: Cluster) -> None:
        """Run this part of the cluster from now on."""
        self.cluster = cluster
        cluster.peers = self.peers  # Before recovery, which may have to ask other nodes.
        self.node = Node(cluster.node_id, cluster)
        self.alarm.watch(cluster.timers)

    def connect(self) -> None:
        """Let other nodes, which exist, reach this one."""
        self._others[self.node_id] = self.socket_server

    def handle(self, frame: Frame, connection: Any, now_ms: int) -> None:
        if self.state is not PAUSED:
            self.node.handle(frame, connection, now_ms)
        elif self._held_bytes + len(frame) > self.socket_server.max_held_bytes:
            connection.abort(f"its node is paused, and holds {self._held_bytes} bytes of requests already")
        else:
            self._held_bytes += len(frame)
            self._held.append(partial(self._handle_late, frame, connection))

    def _handle_late(self, frame: Frame, connection: Any) -> None:
        self.socket_server.handle_late(self.node.handle, frame, connection, self._now_ms())

    def _answered(self, then: Answered, response: Any) -> None:
        """Another node has answered, or will not."""
        if self.state is PAUSED:
            self._held.append(partial(self._answered, then, response))
            return
        try:
            then(response, self._now_ms())
        except Exception as e:
            self._failed(e)
        self.alarm.after_work()

    def pause(self) -> None:
        self.state = PAUSED
        self.alarm.is_paused = True
        self.cluster.housekeeping.stop()  # Two leaders must not clean the same log.
        self.peers.disconnect()

    def resume(self) -> None:
        """Take up what waited. The node has heard from the controller before."""
        self.state = UP
        self.alarm.is_paused = False
        held, self._held, self._held_bytes = self._held, [], 0
        for work in held:
            work()
        self.alarm.ring()

    def stop(self) -> None:
        """Close the ports and all connections."""
        self._others.pop(self.node_id, None)
        self.peers.disconnect()
        self.alarm.cancel()
        # A node that was paused has not heard that others lead its partitions: what it meant to do must not happen.
        self.alarm.watch(Timers())
        self.alarm.is_paused = False
        self._held.clear()
        self._held_bytes = 0
        self.socket_server.close()
        for server in self.servers:
            server.close()
        self.servers.clear()
        self.state = STOPPED  # At the end: a stop that broke off can be ordered again.
