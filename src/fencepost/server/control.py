"""Orders to a running broker, for tests: a line of JSON on stdin, a line of JSON back on stdout.

Only the parent process has the other ends of the two pipes, so only it can give orders. When stdin closes, the parent
has ended, and the broker stops.

    {"order": "add_fault", "action": "disconnect", "api": "EndTxn", "at": "reply", "times": 1}
    {"result": 1}                       or {"refused": "what is wrong\n\nhint: what to do"}
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost.broker.coordinator.txns import TxnCoordinator
from fencepost.broker.peers import NodeOrder
from fencepost.machines.txn.states import ONGOING, Txn
from fencepost.protocol import errors
from fencepost.spelling import did_you_mean

if TYPE_CHECKING:
    from fencepost.server.app import App


Answer = Callable[[Any], None]


class OrderImpossible(ValueError):
    """The order cannot be carried out. The message says why, and what to do."""


class Control:
    """Reads stdin in a thread from the start of the process, so that its end is noticed; obeys once a broker runs."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._app: App | None = None
        self._orders: Orders | None = None

    def start(self) -> None:
        threading.Thread(target=self._follow, daemon=True).start()

    def serve(self, app: App) -> None:
        """From now on, carry out orders for `app` on this event loop."""
        self._app = app
        self._loop = asyncio.get_running_loop()

    def _follow(self) -> None:
        unread = b""
        while chunk := os.read(0, 4096):
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                # The parent gives orders only after the broker has printed that it is ready.
                if self._loop is not None:
                    self._loop.call_soon_threadsafe(self._obey, line)
        os.kill(os.getpid(), signal.SIGTERM)

    def _obey(self, line: bytes) -> None:
        assert self._app is not None
        try:
            if self._orders is None:
                self._orders = Orders(self._app)
            given = json.loads(line)
            self._orders.carry_out(given.pop("order"), given, lambda result: _say({"result": result}))
        except ValueError as e:
            _say({"refused": str(e)})
        except Exception as e:
            _say({"refused": f"{type(e).__name__}: {e}"})


def _say(document: dict[str, Any]) -> None:
    print(json.dumps(document), file=sys.stdout, flush=True)


class Orders:
    """The orders: actions that no client can request."""

    def __init__(self, app: App) -> None:
        # Imported at the first order, so that a broker without orders starts faster.
        from fencepost.server.faults import Faults

        self._app = app
        self._faults = Faults(app.socket_servers, app.now_ms)

    def carry_out(self, order: str, given: dict[str, Any], answer: Answer) -> None:
        """Raises ValueError if it cannot be done."""
        if order == "fence":
            self._fence(given["transactional_id"], answer)
            return
        if order == "order_nodes":
            self._order_nodes(NodeOrder(**given["node_order"]), answer)
            return
        result = None
        if order == "add_fault":
            from fencepost.faults.fault import parse_fault
            from fencepost.server.faults import POSSIBLE

            result = self._faults.add(parse_fault(**given, actions=POSSIBLE))
        elif order == "hits":
            result = self._faults.hits(given["fault"])
        elif order == "remove_fault":
            self._faults.remove(given["fault"])
        elif order == "clear_faults":
            self._faults.clear()
        elif order == "advance_clock":
            self._advance_clock(given["ms"])
        elif order == "time_out":
            self._time_out(given["transactional_id"])
        elif order == "unplug_nodes":
            self._app.unplug_nodes()
        elif order == "plug_nodes":
            self._app.plug_nodes()
        elif order == "crash_at":
            self._crash_at(given["point"], given["times"])
        else:
            raise OrderImpossible(f"there is no order {order!r}")
        answer(result)

    def _order_nodes(self, order: NodeOrder, answer: Answer) -> None:
        self._app.node_orders.carry_out(order, lambda refusal, nodes: answer({"refusal": refusal, "nodes": nodes}))

    def _advance_clock(self, ms: int) -> None:
        if ms < 0:
            raise OrderImpossible(
                f"the clock cannot go back by {-ms} ms\n\nhint: start another broker for an earlier time"
            )
        self._faults.advance_clock(ms)
        self._app.now_ms = self._faults.now_ms
        self._app.ring()

    def _crash_at(self, point: str, times: int) -> None:
        from fencepost.server.control import POINTS

        if point not in POINTS:
            hint = did_you_mean(point, POINTS) or f"the points are {', '.join(POINTS)}"
            raise OrderImpossible(f"{point!r} is no point at which the broker can crash\n\nhint: {hint}")
        if times < 1:
            raise OrderImpossible(f"times={times} never happens\n\nhint: 1 or more")
        self._app.crash_points.set(point, times)
        for cluster in self._app.clusters:
            cluster.crash_at = self._app.crash_points.reach

    def _time_out(self, transactional_id: str) -> None:
        (txns, txn), now_ms = self._find(transactional_id), self._app.now_ms()
        shard = txns.shard_of(transactional_id, now_ms)
        if txn.state is not ONGOING or transactional_id in shard.pending:
            raise OrderImpossible(
                f"transaction {transactional_id!r} is {txn.state.kafka_name}, only an open one can time out\n\n"
                "hint: begin one, and send and flush a record, before you let it time out"
            )
        txns.time_out(shard, txn, now_ms)
        self._app.ring()

    def _fence(self, transactional_id: str, answer: Answer) -> None:
        """As a new producer with the same id would."""
        txns, txn = self._find(transactional_id)
        txns.init_producer_id(
            transactional_id,
            -1,
            -1,
            txn.timeout_ms,
            self._app.now_ms(),
            lambda error, _producer_id, _epoch: answer(errors.name_of(error)),
        )
        self._app.ring()

    def _find(self, transactional_id: str) -> tuple[TxnCoordinator, Txn]:
        """The transaction and its coordinator."""
        coordinators = [cluster.txns for cluster in self._app.clusters]
        for txns in coordinators:
            txn = txns.find(transactional_id)
            if txn is not None:
                return txns, txn
        found = sorted(txn.transactional_id for txns in coordinators for txn in txns.all_txns())
        known = ", ".join(found[:5]) or "none so far"
        raise OrderImpossible(f"there is no transactional id {transactional_id!r}\n\nhint: known are: {known}")


POINTS = (
    "txn.prepare.before",
    "txn.prepare.after",
    "txn.marker.before",
    "txn.marker.after",
    "txn.complete.before",
    "txn.complete.after",
    "offsets.append.before",
    "offsets.append.after",
    "segment.roll",
    "index.write",
    "snapshot.write",
    "metadata.save",
    "retention.delete",
    "clean.install",
    "clean.swap.before",
    "clean.swap.after",
)


class CrashPoints:
    """Named points at which a test may kill the process: `fencepost.crash.at=POINT[:N]`, or an order.

    Kills the process when it reaches the given point for the Nth time.
    """

    def __init__(self, wanted: str) -> None:
        point, _, times = wanted.partition(":")
        self.set(point, int(times or 1))

    def set(self, point: str, times: int) -> None:
        self._point = point
        self._left = times

    def reach(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
