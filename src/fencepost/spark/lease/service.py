"""The lease service inside its event loop: one open transaction, its table, and the connections of its tasks.

Tasks show a token, which is worthless after the transaction. Requests that block are made in other threads: those that
add partitions to the transaction, and those for the token with which tasks log in to the brokers.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost.client.failures import Unreachable
from fencepost.client.oauthbearer import TokenSource
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.connections import Connections, TaskConnection
from fencepost.spark.lease.messages import (
    Effect,
    Finished,
    FirstTouch,
    MustAbort,
    Reply,
    TaskAttempt,
    TaskResult,
)
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.wire import (
    PROTOCOL_VERSION,
    BadFrame,
    encode_frame,
    encode_outcome,
    encode_refusal,
    encode_token,
    integer_of,
    numbers_of,
    topics_of,
)

log = logging.getLogger(__name__)

# The longest time between two looks at the clock. Leases last longer, so the service sees each deadline in time.
TICK_S = 0.5

OnFirstTouch = Callable[[Sequence[TopicPartition]], None]
OnMustAbort = Callable[[MustAbort], None]


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """One attempt at a micro-batch, while its tasks may ask for leases."""

    table: LeaseTable
    token: str = field(repr=False)
    on_first_touch: OnFirstTouch
    on_must_abort: OnMustAbort | None
    tokens: TokenSource | None  # With which tasks log in to the brokers. None: not with a token.
    connections: dict[TaskAttempt, TaskConnection] = field(default_factory=dict)
    # By the number of the write: the greeting of its tasks in Spark's JVM, with their plan.
    greetings: dict[int, bytes] = field(default_factory=dict, repr=False)
    to_add: list[TopicPartition] = field(default_factory=list)
    adding: asyncio.Task[None] | None = None
    failure: Exception | None = None
    to_log_in: list[TaskConnection] = field(default_factory=list)
    logging_in: asyncio.Task[None] | None = None


class LeaseService:
    """All of it is called in one event loop, so nothing here needs a lock."""

    def __init__(
        self,
        listener: socket.socket,
        max_connections: int,
        clock_ms: Callable[[], int],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.transaction: OpenTransaction | None = None
        self.connections = Connections(listener, max_connections, clock_ms, self._handle, self._lost, tls)
        self._clock_ms = clock_ms
        self._background: list[asyncio.Task[None]] = []

    # --- the driver's calls ---------------------------------------------------------------------------------

    async def start(self) -> None:
        self._background = [
            asyncio.create_task(self._repeat(self.connections.accept)),
            asyncio.create_task(self._repeat(self._watch_the_clock)),
        ]

    async def open(
        self,
        table: LeaseTable,
        on_first_touch: OnFirstTouch,
        on_must_abort: OnMustAbort | None,
        tokens: TokenSource | None = None,
    ) -> str:
        """Returns the token that the tasks have to show."""
        assert self.transaction is None, "one transaction at a time"
        self.transaction = OpenTransaction(table, secrets.token_urlsafe(32), on_first_touch, on_must_abort, tokens)
        return self.transaction.token

    async def offer(self, write_number: int, plan: Mapping[str, object]) -> None:
        self.current().greetings[write_number] = encode_frame({"ok": True, "plan": plan})

    async def finish(
        self, results: Iterable[TaskResult], input_partitions: Mapping[int, int] | None
    ) -> Finished | MustAbort:
        transaction = self.current()
        verdict, effects = transaction.table.finish(results, input_partitions)
        self._carry_out(transaction, effects)
        await self._await_additions(transaction)
        return verdict

    async def break_transaction(self, reason: str, is_fatal: bool) -> None:
        transaction = self.current()
        self._carry_out(transaction, transaction.table.break_transaction(reason, is_fatal=is_fatal))
        await self._await_additions(transaction)

    async def close(self) -> None:
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            effects = transaction.table.break_transaction("the micro-batch is over")
            self._carry_out(transaction, [e for e in effects if isinstance(e, Reply)])
            logging_in = self.connections.open.intersection(transaction.to_log_in)
            for connection in (*transaction.connections.values(), *logging_in):
                self.connections.dismiss(connection)
            if transaction.logging_in is not None:
                transaction.logging_in.cancel()
            await self._await_additions(transaction)

    async def stop(self) -> None:
        await self.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self.connections.close()

    def current(self) -> OpenTransaction:
        assert self.transaction is not None, "no transaction is open"
        return self.transaction

    # --- background -----------------------------------------------------------------------------------------

    async def _repeat(self, turn: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await turn()
            except Exception as e:
                self.failed({"message": "an error in the background", "exception": e})
                await asyncio.sleep(TICK_S)

    async def _watch_the_clock(self) -> None:
        transaction = self.transaction
        deadline_ms = transaction.table.next_deadline_ms if transaction is not None else None
        until_s = TICK_S if deadline_ms is None else (deadline_ms - self._clock_ms()) / 1000
        await asyncio.sleep(min(max(until_s, 0.001), TICK_S))
        self.connections.drop_silent()
        self.connections.warnings.report()
        transaction = self.transaction
        if transaction is not None:
            self._carry_out(transaction, transaction.table.tick(self._clock_ms()))

    def failed(self, context: Mapping[str, Any]) -> None:
        """A bug: break the transaction, because its tasks might wait for an answer for ever. Serve the next one."""
        error = context.get("exception")
        log.error("the lease service failed: %s", context["message"], exc_info=error)
        transaction = self.transaction
        if transaction is not None:
            reason = f"the lease service failed: {error!r}"
            self._carry_out(transaction, transaction.table.break_transaction(reason))

    async def _add_partitions(self, transaction: OpenTransaction) -> None:
        """Add partitions until none is left. Those that are named during one request go into the next."""
        while transaction.to_add and self._is_open(transaction):
            partitions, transaction.to_add = tuple(transaction.to_add), []
            try:
                await asyncio.to_thread(transaction.on_first_touch, partitions)
                if self.transaction is transaction:
                    self._carry_out(transaction, transaction.table.touched(partitions, self._clock_ms()))
            except Exception as e:
                transaction.failure = e
                names = ", ".join(f"{topic}-{partition}" for topic, partition in partitions)
                reason = f"{names} could not be added to the transaction: {e}"
                self._carry_out(transaction, transaction.table.break_transaction(reason))
        transaction.adding = None

    def _is_open(self, transaction: OpenTransaction) -> bool:
        table = transaction.table
        return self.transaction is transaction and table.broken is None and table.finished is None

    async def _await_additions(self, transaction: OpenTransaction) -> None:
        """A partition that is added after EndTxn would open the transaction again, so EndTxn has to wait."""
        if transaction.adding is not None:
            await transaction.adding

    # --- tasks ----------------------------------------------------------------------------------------------

    def _handle(self, connection: TaskConnection, message: Mapping[str, Any]) -> None:
        now_ms = self._clock_ms()
        transaction, task, op = self.transaction, connection.task, message["op"]
        if task is None or transaction is None:
            if op not in ("hello", "login"):
                raise BadFrame("the first frame is not a greeting")
            return self._greet(connection, message) if op == "hello" else self._log_in(connection, message)
        table = transaction.table
        if op in ("acquire", "done"):
            if connection.is_asking:
                raise BadFrame("a question before the last one was answered")
            connection.is_asking = True
        if op == "acquire":
            effects = table.acquire(connection, task, numbers_of(message["wants"]), now_ms)
        elif op == "release":
            effects = table.release(task, numbers_of(message["records"]), now_ms, integer_of(message["bytes"]))
        elif op == "done":
            effects = table.done(connection, task, numbers_of(message["counts"]), now_ms, topics_of(message["topics"]))
        elif op == "fail":
            effects = table.fail(task, f"{task}: {message['reason']}", message["fatal"] is True, now_ms)
        elif op == "dispute":
            effects = table.break_transaction(f"{task}: {message['reason']}")
        else:
            raise BadFrame(f"unknown operation {op!r}")
        return self._carry_out(transaction, effects)

    def _recognize(self, connection: TaskConnection, message: Mapping[str, Any]) -> OpenTransaction | None:
        """The transaction whose token the peer shows. None: the peer is turned away."""
        transaction, token = self.transaction, message.get("token")
        if (
            transaction is None
            or not isinstance(token, str)
            or not hmac.compare_digest(token.encode(), transaction.token.encode())
        ):
            if transaction is not None:
                self.connections.warnings.warn(
                    "a connection from %s is refused: it does not have the token of this micro-batch. It is a task of "
                    "an earlier micro-batch that still runs, or another program that found the port",
                    connection.peer,
                )
            self._turn_away(connection, "this micro-batch is over: the driver has moved on to another")
            return None
        if message.get("version") != PROTOCOL_VERSION:
            self._turn_away(
                connection,
                f"the driver speaks version {PROTOCOL_VERSION} of the lease protocol, the task "
                f"{message.get('version')}: driver and executors have different versions of fencepost",
            )
            return None
        return transaction

    def _greet(self, connection: TaskConnection, message: Mapping[str, Any]) -> None:
        transaction = self._recognize(connection, message)
        if transaction is None:
            return None
        task = TaskAttempt(*(integer_of(part) for part in message["task"]))
        if task in transaction.connections:
            return self._turn_away(connection, f"{task} is connected already")
        self.connections.admit(connection, task)
        transaction.connections[task] = connection
        if "attempt" in message:
            self._carry_out(transaction, transaction.table.met(task, integer_of(message["attempt"])))
        if message.get("plan") is True:
            return connection.send_frame(transaction.greetings[task.write_number])
        return connection.send({"ok": True})

    def _log_in(self, connection: TaskConnection, message: Mapping[str, Any]) -> None:
        transaction = self._recognize(connection, message)
        if transaction is None or connection in transaction.to_log_in:
            return
        if transaction.tokens is None:
            self._turn_away(connection, "the brokers of this transaction want no token")
            return
        transaction.to_log_in.append(connection)
        if transaction.logging_in is None:
            transaction.logging_in = asyncio.create_task(self._answer_logins(transaction, transaction.tokens))

    async def _answer_logins(self, transaction: OpenTransaction, tokens: TokenSource) -> None:
        """All tasks that ask meanwhile get the same answer: with a new token, every executor asks at once."""
        try:
            answer = encode_token(await asyncio.to_thread(tokens.token), time.time())
        except Exception as e:
            answer = encode_refusal(str(e), is_fatal=not isinstance(e, Unreachable))
        asking, transaction.to_log_in, transaction.logging_in = transaction.to_log_in, [], None
        for connection in asking:
            if connection in self.connections.open:
                connection.send(answer)
                self.connections.dismiss(connection)

    def _turn_away(self, connection: TaskConnection, reason: str) -> None:
        connection.send(encode_refusal(reason, is_fatal=True))
        self.connections.dismiss(connection)

    def _lost(self, connection: TaskConnection, task: TaskAttempt) -> None:
        transaction = self.transaction
        if transaction is None:
            return
        del transaction.connections[task]
        self._carry_out(transaction, transaction.table.lost(task, self._clock_ms()))

    def _carry_out(self, transaction: OpenTransaction, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                connection = effect.ticket
                assert isinstance(connection, TaskConnection)
                connection.is_asking = False
                if connection in self.connections.open:
                    connection.send(encode_outcome(effect.outcome))
            elif isinstance(effect, FirstTouch):
                transaction.to_add += effect.partitions
                if transaction.adding is None:
                    transaction.adding = asyncio.create_task(self._add_partitions(transaction))
            elif transaction.on_must_abort is not None:
                threading.Thread(
                    target=transaction.on_must_abort, args=(effect,), name="fencepost-must-abort", daemon=True
                ).start()
