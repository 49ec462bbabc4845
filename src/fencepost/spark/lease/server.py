"""The lease service on the driver: a `LeaseTable` behind a port that the tasks of one batch may use.

One thread reads and writes all connections; a second adds partitions to the transaction, which may take a while. A
batch's tasks show its token; after the batch nobody with that token is let in. The server itself outlives batches, so
that its port stays the same.
"""

from __future__ import annotations

import errno
import hmac
import logging
import queue
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost.open_files import room_for_connections
from fencepost.spark.lease.client import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    BadFrame,
    LeaseAddress,
    encode_frame,
    keep_alive,
    take_frame,
)
from fencepost.spark.lease.port import listen
from fencepost.spark.lease.rules import (
    Broken,
    Busy,
    Effect,
    Finished,
    FirstTouch,
    Granted,
    LeaseTable,
    Outcome,
    OutputPartition,
    Refused,
    Reply,
    TaskAttempt,
    TaskResult,
    Want,
    Written,
)

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 4096
MAX_HELLO_BYTES = 4096
HELLO_TIMEOUT_MS = 10_000
MAX_UNSENT_BYTES = 1 << 20
IDLE_WAIT_S = 1.0
# How long nobody is accepted when the driver has no file left for a connection.
ACCEPT_PAUSE_MS = 200
NO_FILE_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

OnFirstTouch = Callable[[Sequence[OutputPartition]], None]
OnBroken = Callable[[Broken], None]


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    peer: str
    since_ms: int
    task: TaskAttempt | None = None
    is_asking: bool = False
    is_leaving: bool = False  # Closed once everything is sent.
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)


@dataclass(slots=True, eq=False)
class _Batch:
    table: LeaseTable
    token: str
    on_first_touch: OnFirstTouch
    on_broken: OnBroken | None
    connections: dict[TaskAttempt, _Connection] = field(default_factory=dict)
    warned: bool = False
    failure: BaseException | None = None


class LeaseServer:
    """`start`, then for each attempt at a batch `open` ... `finish` or `break_transaction` ... `close`; `stop`.

    host: what tasks connect to (spark.driver.host); bind_host: where to listen, if that is not the same.
    """

    def __init__(
        self,
        host: str,
        *,
        bind_host: str | None = None,
        ports: range = range(1),
        max_connections: int = MAX_CONNECTIONS,
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self.host = host
        self._clock_ms = clock_ms
        self._max_connections = room_for_connections(max_connections)
        self._lock = threading.RLock()
        self._batch: _Batch | None = None
        self._connections: set[_Connection] = set()
        # Those that belong to no task (yet, or any more), oldest first.
        self._strangers: dict[_Connection, None] = {}
        self._accepts_from_ms: int | None = None  # None: now.
        self._warned: set[str] = set()
        self._to_send: set[_Connection] = set()
        self._silent_checked_ms = 0
        self._touches: queue.SimpleQueue[tuple[_Batch, tuple[OutputPartition, ...]] | None] = queue.SimpleQueue()
        self._touching = threading.Lock()  # Held while partitions are being added.
        self._is_stopping = False
        self._listener = listen(bind_host or host, ports)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wakes, self._wake = socket.socketpair()
        for sock in (self._listener, self._wakes):
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ)
        self._wake.setblocking(False)
        self._threads = [
            threading.Thread(target=self._serve, name="fencepost-leases", daemon=True),
            threading.Thread(target=self._add_partitions, name="fencepost-first-touch", daemon=True),
        ]

    def start(self) -> LeaseServer:
        for thread in self._threads:
            thread.start()
        return self

    def __enter__(self) -> LeaseServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- the driver's side ----------------------------------------------------------------------------------

    def open(self, table: LeaseTable, on_first_touch: OnFirstTouch, on_broken: OnBroken | None = None) -> LeaseAddress:
        """Let the tasks of a batch in.

        on_first_touch: adds partitions to the transaction; blocks until they are added, or raises. Called by a thread
        of its own. on_broken: told once, in a thread of its own, as soon as the transaction cannot be committed.
        """
        with self._lock:
            assert self._batch is None, "one batch at a time"
            self._warned.clear()
            self._batch = _Batch(table, secrets.token_urlsafe(32), on_first_touch, on_broken)
            return LeaseAddress(self.host, self.port, self._batch.token)

    def finish(
        self, results: Iterable[TaskResult], input_partitions: Mapping[int, int] | None = None
    ) -> Finished | Broken:
        """Before EndTxn: see `LeaseTable.finish`."""
        with self._lock:
            batch = self._current()
            verdict, effects = batch.table.finish(results, input_partitions)
            self._carry_out(batch, effects)
        self._wake_up()
        self._await_touches()
        return verdict

    def break_transaction(self, reason: str, *, is_fatal: bool = False) -> None:
        """Refuse every lease from now on, and tell the tasks why. Then the transaction may be aborted."""
        with self._lock:
            batch = self._current()
            self._carry_out(batch, batch.table.break_transaction(reason, is_fatal=is_fatal))
        self._wake_up()
        self._await_touches()

    def _await_touches(self) -> None:
        """A partition that is added after EndTxn would open the transaction again: one that is being added is
        waited for, and no other is begun."""
        with self._touching:
            pass

    def close(self) -> None:
        """The batch is over, one way or the other: its token is worthless, its tasks are sent away."""
        with self._lock:
            batch, self._batch = self._batch, None
            if batch is not None:
                effects = batch.table.break_transaction("the batch is over")
                self._carry_out(batch, [e for e in effects if isinstance(e, Reply)])
                for connection in batch.connections.values():
                    self._dismiss(connection)
        self._wake_up()

    def stop(self) -> None:
        """Close the batch, then every connection, then the port."""
        self.close()
        self._is_stopping = True
        self._touches.put(None)
        self._wake_up()
        if self._threads[0].is_alive():
            self._threads[0].join(timeout=10)
        with self._lock:
            for connection in list(self._connections):
                self._drop(connection)
            self._listener.close()
        self._wake.close()

    @property
    def broken(self) -> Broken | None:
        with self._lock:
            return self._batch.table.broken if self._batch else None

    @property
    def failure(self) -> BaseException | None:
        """What `on_first_touch` raised, if that is what broke the transaction."""
        with self._lock:
            return self._batch.failure if self._batch else None

    def _current(self) -> _Batch:
        assert self._batch is not None, "no batch is open"
        return self._batch

    # --- the thread that adds partitions --------------------------------------------------------------------

    def _add_partitions(self) -> None:
        while (item := self._touches.get()) is not None:
            batch, partitions = item
            # What came in meanwhile goes into the same request; what belongs to a batch that is over, nowhere.
            while not self._touches.empty():
                more = self._touches.get()
                if more is None:
                    return
                batch, partitions = (batch, partitions + more[1]) if more[0] is batch else more
            with self._touching:
                if self._is_open(batch):
                    self._add(batch, partitions)
            self._wake_up()

    def _is_open(self, batch: _Batch) -> bool:
        with self._lock:
            return self._batch is batch and batch.table.broken is None and batch.table.finished is None

    def _add(self, batch: _Batch, partitions: tuple[OutputPartition, ...]) -> None:
        try:
            batch.on_first_touch(partitions)
        except BaseException as e:
            batch.failure = e
            reason = f"{', '.join(f'{t}-{p}' for t, p in partitions)} could not be added to the transaction: {e}"
            with self._lock:
                self._carry_out(batch, batch.table.break_transaction(reason))
        else:
            with self._lock:
                if self._batch is batch:
                    self._carry_out(batch, batch.table.touched(partitions, self._clock_ms()))

    # --- the thread that serves connections -----------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._is_stopping:
                self._serve_once()
        except Exception as e:
            # Tasks would wait for ever for a thread that is gone.
            log.exception("the lease service failed")
            with self._lock:
                if self._batch is not None:
                    self._carry_out(
                        self._batch, self._batch.table.break_transaction(f"the lease service failed: {e!r}")
                    )
                for connection in list(self._connections):
                    connection.socket.close()
                self._connections.clear()
                self._strangers.clear()
                self._listener.close()
        finally:
            self._selector.close()
            self._wakes.close()

    def _serve_once(self) -> None:
        events = self._selector.select(self._patience_s())
        is_called = False
        with self._lock:
            for key, mask in events:
                if key.fileobj is self._listener:
                    is_called = True
                elif key.fileobj is self._wakes:
                    self._wakes.recv(4096)
                elif key.data in self._connections:
                    if mask & selectors.EVENT_READ:
                        self._read(key.data)
                    if mask & selectors.EVENT_WRITE and key.data in self._connections:
                        self._send(key.data)
            if is_called:
                # Last: who has said by now who it is need not give way.
                self._accept()
            self._look_at_the_clock()
            to_send, self._to_send = self._to_send, set()
            for connection in to_send & self._connections:
                self._send(connection)

    def _patience_s(self) -> float:
        with self._lock:
            deadlines = [self._batch.table.next_deadline_ms if self._batch else None, self._accepts_from_ms]
        now_ms = self._clock_ms()
        waits = [max(0.0, (deadline_ms - now_ms) / 1000) for deadline_ms in deadlines if deadline_ms is not None]
        return min([IDLE_WAIT_S, *waits])

    def _look_at_the_clock(self) -> None:
        now_ms = self._clock_ms()
        batch = self._batch
        if batch is not None:
            self._carry_out(batch, batch.table.tick(now_ms))
        if self._accepts_from_ms is not None and now_ms >= self._accepts_from_ms:
            self._accepts_from_ms = None
            self._selector.register(self._listener, selectors.EVENT_READ)
        if now_ms - self._silent_checked_ms < 1000:
            return
        self._silent_checked_ms = now_ms
        for connection in list(self._strangers):
            if now_ms - connection.since_ms > HELLO_TIMEOUT_MS:
                self._drop(connection)

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError as e:
            if e.errno in NO_FILE_LEFT and not self._make_room():
                self._pause_accepting(e)
            return
        if len(self._connections) >= self._max_connections and not self._make_room():
            log.warning("a connection from %s is turned away: %d are open", address[0], len(self._connections))
            sock.close()
            return
        connection = _Connection(sock, f"{address[0]}:{address[1]}", self._clock_ms())
        try:
            sock.setblocking(False)
            keep_alive(sock)
            self._selector.register(sock, selectors.EVENT_READ, connection)
        except OSError:
            # Its peer is gone already: macOS then refuses every option.
            sock.close()
            return
        self._connections.add(connection)
        self._strangers[connection] = None

    def _make_room(self) -> bool:
        """Who has connected and not said who it is gives way, the oldest first. False: all of them are tasks."""
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        self._warn_once(
            "connections that belong to no task of this batch give way to new ones, first that from %s: %d are open",
            oldest.peer,
            len(self._connections),
        )
        self._drop(oldest)
        return True

    def _pause_accepting(self, why: OSError) -> None:
        # The connection stays in the port's queue, so the port would call again at once.
        self._warn_once(
            "tasks have to wait for a connection to the lease service: %s, with %d connections\n\n"
            "hint: raise the limit of open files (ulimit -n) of the driver",
            why.strerror,
            len(self._connections),
        )
        self._selector.unregister(self._listener)
        self._accepts_from_ms = self._clock_ms() + ACCEPT_PAUSE_MS

    def _warn_once(self, text: str, *given: object) -> None:
        """Once a batch: whoever causes it may do so as often as it likes."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning(text, *given)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(65_536)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            return self._drop(connection)
        if connection.is_leaving:
            return None
        connection.received += data
        try:
            while connection in self._connections and not connection.is_leaving:
                limit = MAX_HELLO_BYTES if connection.task is None else MAX_FRAME_BYTES
                message = take_frame(connection.received, limit)
                if message is None:
                    break
                self._handle(connection, message)
        except (ValueError, TypeError, LookupError) as e:
            # BadFrame, or a frame whose fields are not what they should be.
            log.warning("%s (%s) is disconnected: %s", connection.peer, connection.task or "no task", e)
            self._drop(connection)
        return None

    def _handle(self, connection: _Connection, message: Mapping[str, Any]) -> None:
        now_ms = self._clock_ms()
        batch, task, op = self._batch, connection.task, message["op"]
        if task is None or batch is None:
            if op != "hello":
                raise BadFrame("the first frame is not a greeting")
            return self._greet(connection, message)
        if op in ("acquire", "done"):
            if connection.is_asking:
                raise BadFrame("a question before the last one was answered")
            connection.is_asking = True
        if op == "acquire":
            effects = batch.table.acquire(
                connection, task, [Want(*_partition(w), _count(w)) for w in message["wants"]], now_ms
            )
        elif op == "release":
            where, count, size_bytes = _partition(message["lease"]), message["count"], message["bytes"]
            effects = batch.table.release(task, where, _integer(count), now_ms, _integer(size_bytes))
        elif op == "done":
            counts = {_partition(c): _count(c) for c in message["counts"]}
            effects = batch.table.done(connection, task, counts, now_ms)
        elif op == "fail":
            effects = batch.table.fail(task, f"{task}: {message['reason']}", message["fatal"] is True, now_ms)
        elif op == "dispute":
            effects = batch.table.dispute(f"{task}: {message['reason']}")
        else:
            raise BadFrame(f"unknown operation {op!r}")
        return self._carry_out(batch, effects)

    def _greet(self, connection: _Connection, message: Mapping[str, Any]) -> None:
        batch = self._batch
        token = message.get("token")
        if batch is None or not isinstance(token, str) or not hmac.compare_digest(token.encode(), batch.token.encode()):
            if batch is not None and not batch.warned:
                batch.warned = True
                log.warning(
                    "a connection from %s is refused: it does not have the token of this batch. A task of an earlier "
                    "batch that still runs does that, and so does anybody else who finds the port",
                    connection.peer,
                )
            return self._leave(connection, "this batch is over: the driver has moved on to another")
        if message.get("version") != PROTOCOL_VERSION:
            return self._leave(
                connection,
                f"the driver speaks version {PROTOCOL_VERSION} of the lease protocol, the task "
                f"{message.get('version')}: driver and executors have different versions of fencepost",
            )
        task = TaskAttempt(*(_integer(part) for part in message["task"]))
        if task in batch.connections:
            return self._leave(connection, f"{task} is connected already")
        connection.task = task
        del self._strangers[connection]
        batch.connections[task] = connection
        if "attempt" in message:
            self._carry_out(batch, batch.table.met(task, _integer(message["attempt"])))
        return self._put(connection, {"ok": True})

    # --- answers --------------------------------------------------------------------------------------------

    def _carry_out(self, batch: _Batch, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                connection = effect.ticket
                assert isinstance(connection, _Connection)
                connection.is_asking = False
                if connection in self._connections:
                    self._put(connection, _encode_outcome(effect.outcome))
            elif isinstance(effect, FirstTouch):
                self._touches.put((batch, effect.partitions))
            elif batch.on_broken is not None:
                threading.Thread(target=batch.on_broken, args=(effect,), name="fencepost-broken", daemon=True).start()

    def _put(self, connection: _Connection, message: Mapping[str, object]) -> None:
        connection.unsent += encode_frame(message)
        self._to_send.add(connection)

    def _leave(self, connection: _Connection, reason: str) -> None:
        self._put(connection, {"broken": reason, "fatal": True})
        self._dismiss(connection)

    def _dismiss(self, connection: _Connection) -> None:
        """Close it as soon as everything is sent, or has had its time."""
        connection.task = None
        connection.is_leaving = True
        connection.since_ms = self._clock_ms()
        self._strangers.pop(connection, None)
        self._strangers[connection] = None
        self._to_send.add(connection)

    def _send(self, connection: _Connection) -> None:
        try:
            while connection.unsent:
                del connection.unsent[: connection.socket.send(connection.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            return self._drop(connection)
        if connection.is_leaving and not connection.unsent:
            return self._drop(connection)
        if len(connection.unsent) > MAX_UNSENT_BYTES:
            return self._drop(connection)
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        if self._selector.get_key(connection.socket).events != wanted:
            self._selector.modify(connection.socket, wanted, connection)
        return None

    def _drop(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._strangers.pop(connection, None)
        if self._selector.get_map() is not None:
            self._selector.unregister(connection.socket)
        connection.socket.close()
        batch, task = self._batch, connection.task
        connection.task = None
        if batch is not None and task is not None:
            del batch.connections[task]
            self._carry_out(batch, batch.table.lost(task, self._clock_ms()))

    def _wake_up(self) -> None:
        try:
            self._wake.send(b"x")
        except OSError as e:
            # A full pipe wakes as well as an empty one; a closed one has nobody left to wake.
            if e.errno not in (errno.EAGAIN, errno.EPIPE, errno.EBADF):
                raise


def _encode_outcome(outcome: Outcome) -> dict[str, object]:
    match outcome:
        case Granted():
            return {"granted": list(outcome)}
        case Busy():
            return {"busy": True}
        case Written(result):
            return {"written": list(result)}
        case Refused(reason, is_fatal):
            return {"broken": reason, "fatal": is_fatal}


def _integer(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise BadFrame(f"expected a number, found {value!r}")
    return value


def _partition(value: Sequence[Any]) -> OutputPartition:
    if not isinstance(value[0], str):
        raise BadFrame(f"expected a topic, found {value[0]!r}")
    return value[0], _integer(value[1])


def _count(value: Sequence[Any]) -> int:
    return _integer(value[2])
