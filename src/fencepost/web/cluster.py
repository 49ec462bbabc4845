"""The cluster that the workbench shows: clients to ask it with, and what several pages know of it together.

Every method blocks and may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError

T = TypeVar("T")
MOST_IDLE_CLIENTS = 8
# An answer is kept for this many times the time that it took, so that a slow cluster is not asked without a pause.
KEPT_FOR_ITS_TIMES = 3.0


@runtime_checkable
class Closable(Protocol):
    def close(self) -> None: ...


class NoCluster(ClientError):
    """The workbench was started without a cluster."""


@dataclass(slots=True)
class _Look(Generic[T]):
    """The last answer to a question that pages share."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    value: T | None = None
    error: Exception | None = None
    at: float = float("-inf")
    took_s: float = 0.0
    is_running: bool = False
    # How many of the questions that readers waited for have failed, and why the last one did.
    failures: int = 0
    failure: Exception | None = None

    def is_fresh(self, max_age_s: float) -> bool:
        return time.monotonic() - self.at < self._kept_s(max_age_s)

    def is_outdated(self, every_s: float) -> bool:
        """Whether the answer is older than one that is asked for again and again can be."""
        return time.monotonic() - self.at > 2 * self._kept_s(every_s) + self.took_s

    def _kept_s(self, max_age_s: float) -> float:
        return max(max_age_s, self.took_s * KEPT_FOR_ITS_TIMES)


class WatchedCluster:
    def __init__(
        self, connect: Callable[[], KafkaClient] | None, name: str | None = None, arguments: tuple[str, ...] = ()
    ) -> None:
        """`connect` makes a client that has not connected yet; None: there is no cluster.

        `name` is for pages. `arguments` are the options with which a command line reaches the same cluster.
        """
        self._connect = connect
        self.name = name
        self.arguments = arguments
        self._idle: list[KafkaClient] = []
        self._lock = threading.Lock()
        self._looks: dict[Callable[..., Any], _Look[Any]] = {}
        self._owned: dict[type, Any] = {}
        self._is_closed = False
        # When the cluster was first found not to answer; None: it answers.
        self.away_since_ms: int | None = None

    @property
    def is_named(self) -> bool:
        return self._connect is not None

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            owned = list(self._owned.values())
        for client in idle:
            client.close()
        for each in owned:
            if isinstance(each, Closable):
                each.close()

    # --- clients ------------------------------------------------------------------------------------------

    @contextmanager
    def client(self) -> Iterator[KafkaClient]:
        """A client for the length of a block. Raises ClientError at once if no broker answers."""
        client = self._borrow()
        try:
            yield client
        except BrokerError:
            self._give_back(client)  # The cluster did answer.
            raise
        except BaseException as e:
            client.close()
            if isinstance(e, ClientError):
                self._is_away()
            raise
        else:
            self._give_back(client)

    def _borrow(self) -> KafkaClient:
        if self._connect is None:
            raise NoCluster("no cluster is named\n\nhint: start `fencepost web` with --bootstrap HOST:PORT")
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        # A client retries a cluster that has gone for longer than a reader of a page waits, so it is asked first
        # whether a broker is there.
        if idle is not None:
            with suppress(ClientError):
                idle.refresh()
                self.away_since_ms = None
                return idle
            idle.close()
        client = self._connect()
        try:
            client.refresh()
        except ClientError:
            client.close()
            self._is_away()
            raise
        self.away_since_ms = None
        return client

    def _give_back(self, client: KafkaClient) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < MOST_IDLE_CLIENTS:
                self._idle.append(client)
                return
        client.close()

    def _is_away(self) -> None:
        if self.away_since_ms is None:
            self.away_since_ms = time.time_ns() // 1_000_000

    def check(self) -> None:
        """Raises ClientError if no broker answers."""
        with self.client():
            pass

    # --- answers that pages share --------------------------------------------------------------------------

    def recent(self, collect: Callable[[KafkaClient], T], max_age_s: float = 1.0) -> T:
        """What `collect` returns: asked now, or less than `max_age_s` ago for another page.

        `collect` is the key, so pass a function of a module. Questions at the same time share one answer, or one error:
        if each of them asked a cluster that is away, the last one would wait for all the time limits before its own.
        """
        look = self._look(collect)
        failures = look.failures
        with look.lock:
            if look.failure is not None and look.failures > failures:
                raise look.failure
            if not look.is_fresh(max_age_s) or look.value is None:
                try:
                    self._take(look, collect)
                except Exception as e:
                    look.failure = e
                    look.failures += 1
                    raise
            return look.value  # type: ignore[return-value]  # It was taken just now, or earlier.

    def in_background(self, collect: Callable[[KafkaClient], T], every_s: float) -> T | None:
        """The last result of `collect`, without a wait; None while there is none. Raises its last error.

        If the result is older than `every_s`, a new one is collected meanwhile. A result that is much older, because it
        was not asked for meanwhile, counts as none.
        """
        look = self._look(collect)
        with self._lock:
            # After an error, the cluster may be back soon.
            is_due = not look.is_running and not look.is_fresh(every_s if look.error is None else min(every_s, 1.0))
            look.is_running = look.is_running or is_due
            is_outdated, error, value = look.is_outdated(every_s), look.error, look.value
        if is_due:
            threading.Thread(target=self._take_aside, args=(look, collect), daemon=True).start()
        if is_outdated:
            return None
        if error is not None:
            raise error
        return value

    def own(self, kind: type[T]) -> T:
        """The one object of a class that belongs to this cluster, such as what was counted so far.

        If it has a method `close`, that is called when the workbench ends.
        """
        with self._lock:
            if kind not in self._owned:
                self._owned[kind] = kind()
            found: T = self._owned[kind]
            return found

    def _look(self, collect: Callable[..., Any]) -> _Look[Any]:
        with self._lock:
            return self._looks.setdefault(collect, _Look())

    def _take(self, look: _Look[T], collect: Callable[[KafkaClient], T]) -> None:
        began = time.monotonic()
        with self.client() as client:
            look.value = collect(client)
        look.at = time.monotonic()
        look.took_s = look.at - began
        look.failure = None  # A reader that still waits since before the failure gets the newer value.

    def _take_aside(self, look: _Look[T], collect: Callable[[KafkaClient], T]) -> None:
        try:
            self._take(look, collect)
            look.error = None
        except Exception as e:  # It is raised where the result is asked for.
            look.error, look.at = e, time.monotonic()
        finally:
            look.is_running = False
