"""Faults on demand: `broker.faults`, of a `Broker` in a test, and `tap.faults`, of a `Tap` in front of any Kafka.

    lost = broker.faults.disconnect_on("EndTxn")
    producer.commit_transaction(30)
    assert lost.hits == 1

The method names are those of Apache Kafka's own fault proxy for integration tests, except `drop_on` and
`duplicate_on`. A fault strikes at the `request`, which the broker then never sees, or at the `reply`, when the broker
has carried out the request. `fencepost.faults` has what a fault is and which requests it strikes.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Protocol

WAIT_TIMEOUT_S = 30.0


class OrderRefused(ValueError):
    """The broker cannot carry out an order of the test. The message says why, and what to do."""


class Order(Protocol):
    def __call__(self, order: str, **given: Any) -> Any: ...


class Fault:
    """A fault that was set. As a context manager it is cleared at the end of the block."""

    def __init__(self, order: Order, number: int, what: str) -> None:
        self._order = order
        self._number = number
        self._what = what

    def __repr__(self) -> str:
        return f"<{self._what}>"

    @property
    def hits(self) -> int:
        """How many requests it has struck so far."""
        return int(self._order("hits", fault=self._number))

    def wait_for_hits(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until it has struck `count` requests. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while (hits := self.hits) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._what}: {hits} hits after {timeout_s:g} s, {count} were expected")
            time.sleep(0.01)

    def clear(self) -> None:
        """End it. Connections that it left without an answer are closed, so that their clients reconnect at once."""
        self._order("remove_fault", fault=self._number)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()


class Faults:
    """The faults of one broker. A fault ends after `times` requests, when it is cleared, or when the broker ends.

    `times=None` means: until it is cleared. `skip` requests pass before the first one that is struck. `client_id` may
    be a pattern, such as `svc-*`. If several faults match a request, the one that was set first strikes.
    """

    def __init__(self, order: Order) -> None:
        self._order = order

    def inject_error(
        self,
        api: str,
        error: str | int,
        *,
        times: int | None = 1,
        client_id: str | None = None,
        skip: int = 0,
        at: str = "request",
    ) -> Fault:
        """Answer with this error. The request is not carried out; with at="reply" it is, in spite of the error."""
        return self._add("error", at, api=api, error=error, times=times, client_id=client_id, skip=skip)

    def delay_on(
        self,
        api: str,
        ms: int,
        *,
        times: int | None = 1,
        client_id: str | None = None,
        skip: int = 0,
        at: str = "reply",
    ) -> Fault:
        """Delay the reply. With at="request": delay the request, which is served even if its client has left."""
        return self._add("delay", at, api=api, ms=ms, times=times, client_id=client_id, skip=skip)

    def drop_on(
        self, api: str, *, times: int | None = 1, client_id: str | None = None, skip: int = 0, at: str = "reply"
    ) -> Fault:
        """Do not answer. The connection stays open and silent until the client gives up."""
        return self._add("drop", at, api=api, times=times, client_id=client_id, skip=skip)

    def disconnect_on(
        self, api: str, *, times: int | None = 1, client_id: str | None = None, skip: int = 0, at: str = "reply"
    ) -> Fault:
        """Close the connection instead of answering."""
        return self._add("disconnect", at, api=api, times=times, client_id=client_id, skip=skip)

    def duplicate_on(self, api: str, *, times: int | None = 1, client_id: str | None = None, skip: int = 0) -> Fault:
        """Send the request twice to the broker, and answer once. Only a `Tap` can do that."""
        return self._add("duplicate", "request", api=api, times=times, client_id=client_id, skip=skip)

    def blackhole_client(self, client_id: str) -> Fault:
        """Drop every request of this client until the fault is cleared: the broker sees a client that is silent."""
        return self._add("drop", "request", client_id=client_id, times=None)

    def clear(self) -> None:
        """End all faults."""
        self._order("clear_faults")

    def _add(self, action: str, at: str, **given: Any) -> Fault:
        number = self._order("add_fault", action=action, at=at, **given)
        target = given.get("api") or f"client {given['client_id']}"
        return Fault(self._order, number, f"{action} at the {at} of {target}")
