"""The lease service as the driver uses it: a thread with an event loop, and calls that are carried out in that loop.

The service outlives transactions, so its port stays the same.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from fencepost.client.oauthbearer import TokenSource
from fencepost.open_files import room_for_connections
from fencepost.spark.lease.client import LeaseAddress
from fencepost.spark.lease.messages import Finished, MustAbort, TaskResult
from fencepost.spark.lease.port import listen
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.service import LeaseService, OnFirstTouch, OnMustAbort
from fencepost.spark.lease.tls import LeaseTls

MAX_CONNECTIONS = 65_536  # As far as the limit of open files allows. Tasks beyond it wait.
T = TypeVar("T")


class LeaseServer:
    """`start`, then for each transaction `open` ... `finish` or `break_transaction` ... `close`; `stop`.

    host: the name that tasks connect to (spark.driver.host); bind_host: the address to listen on, if it is another.
    tls: None: connections are not encrypted.
    """

    def __init__(
        self,
        host: str,
        *,
        bind_host: str | None = None,
        ports: range = range(1),
        tls: LeaseTls | None = None,
        max_connections: int = MAX_CONNECTIONS,
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self.host = host
        listener = listen(bind_host or host, ports)
        listener.setblocking(False)
        self.port: int = listener.getsockname()[1]
        self._fingerprint = tls.fingerprint if tls is not None else ""
        context = tls.context if tls is not None else None
        self._service = LeaseService(listener, room_for_connections(max_connections), clock_ms, context)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self._service.failed(context))
        self._thread = threading.Thread(target=self._loop.run_forever, name="fencepost-leases", daemon=True)

    def start(self) -> LeaseServer:
        self._thread.start()
        self._in_loop(self._service.start())
        return self

    def __enter__(self) -> LeaseServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def open(
        self,
        table: LeaseTable,
        on_first_touch: OnFirstTouch,
        on_must_abort: OnMustAbort | None = None,
        tokens: TokenSource | None = None,
    ) -> LeaseAddress:
        """Let the tasks of a transaction in.

        on_first_touch: adds partitions to the transaction; blocks until they are added, or raises.
        on_must_abort: called once, in a thread of its own, as soon as the transaction can only be aborted.
        tokens: with which the tasks log in to the brokers.
        """
        token = self._in_loop(self._service.open(table, on_first_touch, on_must_abort, tokens))
        return LeaseAddress(self.host, self.port, token, self._fingerprint)

    def offer(self, write_number: int, plan: Mapping[str, object]) -> None:
        """Give the tasks of a write that run in Spark's JVM their plan, when they connect."""
        self._in_loop(self._service.offer(write_number, plan))

    def finish(
        self, results: Iterable[TaskResult], input_partitions: Mapping[int, int] | None = None
    ) -> Finished | MustAbort:
        """Before EndTxn: see `LeaseTable.finish`."""
        return self._in_loop(self._service.finish(results, input_partitions))

    def break_transaction(self, reason: str, *, is_fatal: bool = False) -> None:
        """Refuse every lease from now on, and tell the tasks why. Then the transaction may be aborted."""
        self._in_loop(self._service.break_transaction(reason, is_fatal))

    def close(self) -> None:
        """The transaction has ended: its token is worthless, its tasks are disconnected."""
        self._in_loop(self._service.close())

    def stop(self) -> None:
        """Close the transaction, then every connection, then the port."""
        self._in_loop(self._service.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self._loop.close()

    @property
    def broken(self) -> MustAbort | None:
        transaction = self._service.transaction
        return transaction.table.broken if transaction else None

    @property
    def failure(self) -> Exception | None:
        """The exception of `on_first_touch`, if it broke the transaction."""
        transaction = self._service.transaction
        return transaction.failure if transaction else None

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
