"""Measures requests, for metrics: bytes, latencies, errors by API. Used only if there is a metrics port."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from contextlib import suppress
from time import perf_counter

from fencepost.broker.api import APIS
from fencepost.broker.node import Frame
from fencepost.protocol.batch import Part
from fencepost.protocol.schema import Malformed
from fencepost.protocol.walking import error_codes
from fencepost.server.connection import ClientConnection
from fencepost.server.listener import Listener

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


class Latencies:
    """How long the requests of one API took, from the complete frame to the answer."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        found, total = [], 0
        for limit, count in zip((*map(str, SECONDS), "+Inf"), self.counts, strict=True):
            total += count
            found.append((limit, float(total)))
        return found


class Traffic:
    """Bytes, latencies and errors of all connections."""

    def __init__(self) -> None:
        self.latencies: dict[int, Latencies] = {}
        self.errors: Counter[tuple[int, int]] = Counter()  # By API key and error code.
        self.bytes_in = 0
        self.bytes_out = 0

    def took(self, api_key: int, seconds: float) -> None:
        found = self.latencies.get(api_key)
        if found is None:
            found = self.latencies[api_key] = Latencies()
        found.add(seconds)

    def answered(self, api_key: int, version: int, parts: list[Part]) -> None:
        """Count the errors in an answer, whose first part is its header."""
        self.bytes_out += sum(map(len, parts))
        if len(parts) > 1 and api_key in APIS:
            # A client must get its answer even if it cannot be read here.
            with suppress(Malformed, KeyError):
                self.errors.update((api_key, code) for code in set(error_codes(api_key, version, parts[1:])))


class MeasuredConnection(ClientConnection):
    """Measures the time to each answer. At most one request is unanswered, so one start time is enough."""

    __slots__ = ("_api_key", "_began", "_traffic", "_version")

    def __init__(self, listener: Listener, traffic: Traffic) -> None:
        super().__init__(listener)
        self._traffic = traffic
        self._api_key = self._version = -1
        self._began = 0.0

    def begin(self, frame: Frame) -> None:
        self._api_key, self._version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        self._began = perf_counter()

    def buffer_updated(self, nbytes: int) -> None:
        self._traffic.bytes_in += nbytes
        super().buffer_updated(nbytes)

    def reply(self, parts: list[Part]) -> None:
        self._traffic.took(self._api_key, perf_counter() - self._began)
        self._traffic.answered(self._api_key, self._version, parts)
        super().reply(parts)


def measure(listener: Listener, traffic: Traffic) -> None:
    """From now on, measure the requests of this listener."""
    handle = listener.handle

    def begin_and_handle(frame: Frame, connection: MeasuredConnection, now_ms: int) -> None:
        connection.begin(frame)
        handle(frame, connection, now_ms)

    listener.handle = begin_and_handle
    listener.make_connection = lambda listener: MeasuredConnection(listener, traffic)
