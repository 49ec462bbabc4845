"""The clock, and a network with the faults that TCP and retrying clients can cause, and no others.

A client has one request under way. The request or its reply may be lost with the connection. Or the request is late:
the client gives up, reconnects and continues, while the old request sits in a buffer and reaches the broker much later.
So requests can arrive twice and out of order, but a reply always belongs to its request.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.broker.node import ANONYMOUS
from fencepost.machines.auth.login import Login
from fencepost.protocol.batch import Part
from fencepost.protocol.schema import Message
from tests.wire.raw_client import decode_reply

if TYPE_CHECKING:
    from tests.simulation.world import World

REQUEST_TIMEOUT_MS = 300
# AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit: below TV2 they do not identify their transaction.
OF_A_TRANSACTION = frozenset({24, 25, 26, 28})


class Clock:
    """Events in the order of their times; events of the same time in the order in which they were added."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, action))

    def next_ms(self) -> int | None:
        return self._events[0][0] if self._events else None

    def run_next(self) -> None:
        at_ms, _, action = heapq.heappop(self._events)
        self.now_ms = max(self.now_ms, at_ms)
        action()


@dataclass
class Weather:
    """How likely each fault of the network is, for one request."""

    lose_request: float = 0.0
    lose_reply: float = 0.0
    be_late: float = 0.0
    most_late_ms: int = 2000

    @classmethod
    def of(cls, rng: random.Random) -> Weather:
        if rng.random() < 0.2:
            return cls()
        return cls(rng.choice((0, 0.02, 0.1)), rng.choice((0, 0.02, 0.1)), rng.choice((0, 0.03, 0.12)))


class Call:
    """One request under way. To the broker it is also the connection on which the request came."""

    host = "127.0.0.1"
    principal = ANONYMOUS

    __slots__ = ("_answer", "_closer", "_is_broken", "_is_stale", "_reply_is_lost", "_world", "is_answered", "is_over",
                 "request", "target", "version", "who")  # fmt: skip

    def __init__(
        self,
        world: World,
        who: str,
        request: Message,
        version: int,
        answer: Callable[[Any], None],
        is_stale: Callable[[], bool],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """`answer` gets the response, or None if the client receives none."""
        self._world = world
        self._answer = answer
        self._closer: Callable[[], None] | None = None
        self._is_stale = is_stale
        self._reply_is_lost = False
        self._is_broken = False  # The broker's end is closed.
        self.who = who
        self.request = request
        self.version = version
        self.is_answered = False  # The broker has answered.
        self.is_over = False  # The client has an answer or has given up.
        self.target = world.broker.target_of(request)  # As the client knows it now; it may move meanwhile.
        clock, rng, weather = world.clock, world.rng, world.weather
        fate = rng.random()
        delay_ms = rng.randint(1, 4)
        if fate < weather.lose_request:
            clock.after(rng.randint(1, 20), self._lose)
            return
        fate -= weather.lose_request
        if fate < weather.be_late:
            delay_ms = rng.randint(timeout_ms, weather.most_late_ms)
            world.late += 1
            clock.after(delay_ms, self._is_late_no_more)
        elif fate < weather.be_late + weather.lose_reply:
            self._reply_is_lost = True
        clock.after(delay_ms, self._arrive)
        clock.after(timeout_ms + rng.randint(0, 20), self._lose)

    def _arrive(self) -> None:
        world = self._world
        if self.is_over and self.request.definition.api_key in OF_A_TRANSACTION and self._is_stale():
            world.note(self.who, "too late for TV1, dropped: %s", self.request)
            return
        if not world.broker.is_up:
            self._lose_soon()
            return
        world.note(self.who, "late: %s v%s" if self.is_over else "%s v%s", self.request, self.version)
        world.broker.deliver(self.target, self.request, self.version, self.who, self)

    def _is_late_no_more(self) -> None:
        self._world.late -= 1

    def _lose(self) -> None:
        """The client gives up on this connection."""
        if not self.is_over:
            self.is_over = True
            if self._closer is not None and not self.is_answered:
                self._world.clock.after(self._world.rng.randint(0, 50), self._hang_up)
            self._world.note(self.who, "no answer to %s", self.request)
            self._answer(None)

    def _lose_soon(self) -> None:
        self._world.clock.after(self._world.rng.randint(1, 5), self._lose)

    def _hang_up(self) -> None:
        closer, self._closer = self._closer, None
        if closer is not None:
            closer()

    def break_off(self) -> None:
        """The broker's end of the connection is closed."""
        self._closer = None
        self._is_broken = self.is_answered = True
        self._lose_soon()

    # Called by the broker; see `fencepost.broker.node.Connection`.

    listener_name = ""
    sends_in_place = False
    login: Login | None = None

    def enter(self, principal: str) -> None:
        raise AssertionError("the simulated listener asks for no login")

    def reply(self, parts: list[Part]) -> None:
        if self._is_broken:
            return
        assert not self.is_answered, f"{self.request} is answered twice"
        self.is_answered = True
        self._closer = None
        world = self._world
        response = decode_reply(self.request, self.version, b"".join(parts)[4:])
        world.broker.answered(self)
        world.answered(self, response)
        if self.is_over:
            return
        if self._reply_is_lost:
            self._lose_soon()
            return

        def arrive() -> None:
            if not self.is_over:
                self.is_over = True
                self._answer(response)

        world.clock.after(world.rng.randint(1, 4), arrive)

    def close(self, reason: str) -> None:
        self._world.note("broker", "closes the connection of %s: %s", self.who, reason)
        self.break_off()

    def on_close(self, action: Callable[[], None]) -> None:
        self._closer = action
