"""A task's side of the lease service: asks the driver before it sends record batches, and blocks until the answer.

LeaseError                     everything below
+-- DriverUnreachable          no connection to the driver, or it ended: where, and which setting to change
+-- RefusedByDriver            the transaction is over, and why
AlreadyWritten                 not an error: another attempt at this task wrote the rows; yield its result
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fencepost.client.oauthbearer import Token
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.messages import Lease, TaskAttempt, TaskResult
from fencepost.spark.lease.port import host_port
from fencepost.spark.lease.wire import (
    CLOSED,
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    encode_frame,
    encode_numbers,
    encode_topics,
    keep_alive,
    leases_of,
    result_of,
    take_frame,
    token_of,
)

CONNECT_TIMEOUT_S = 10.0
# The driver may have to ask a token endpoint first.
LOGIN_TIMEOUT_S = 20.0
# How long a task waits for a place if the driver has as many connections as it may open files.
ROOM_TIMEOUT_S = 600.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


class LeaseError(Exception):
    pass


class DriverUnreachable(LeaseError):
    pass


class RefusedByDriver(LeaseError):
    def __init__(self, reason: str, is_fatal: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_fatal = is_fatal

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.is_fatal)


class AlreadyWritten(Exception):
    def __init__(self, result: TaskResult) -> None:
        super().__init__(f"already written: {result}")
        self.result = result


class LeaseAddress(NamedTuple):
    """Where the tasks of a transaction find the driver, and their token. Travels with the job; keep it out of logs."""

    host: str
    port: int
    token: str
    fingerprint: str = ""  # Of the certificate of the driver. Empty: the connection is not encrypted.

    def __repr__(self) -> str:
        return f"LeaseAddress({host_port(self.host, self.port)})"


class DriverConnection:
    """Frames to the lease service and back. `who` is the name of this side, for messages.

    Answers to the first question have a deadline, until `wait_for_ever` is called.
    """

    def __init__(self, address: LeaseAddress, who: str, timeout_s: float) -> None:
        self._address = address
        self._who = who
        self._buffer = bytearray()
        try:
            self._socket = socket.create_connection((address.host, address.port), timeout_s)
            keep_alive(self._socket)
        except OSError as e:
            raise self._unreachable(e) from e

    def introduce(self, op: str, hello: Mapping[str, object]) -> dict[str, Any]:
        """The first question, after the handshake of TLS. A driver without a place closes the connection meanwhile."""
        if self._address.fingerprint:
            from fencepost.spark.lease.tls import connect_tls

            try:
                self._socket = connect_tls(self._socket, self._address.fingerprint)
            except OSError as e:
                raise self._unreachable(e) from e
        return self.ask({"op": op, "version": PROTOCOL_VERSION, "token": self._address.token, **hello})

    def wait_for_ever(self) -> None:
        """From now on: a lease may be held by another task."""
        self._socket.settimeout(None)

    def close(self) -> None:
        self._socket.close()

    def ask(self, message: Mapping[str, object]) -> dict[str, Any]:
        self.tell(message)
        try:
            answer = self._receive()
        except OSError as e:
            raise self._unreachable(e) from e
        if "broken" in answer:
            raise RefusedByDriver(answer["broken"], answer["fatal"])
        return answer

    def tell(self, message: Mapping[str, object]) -> None:
        try:
            self._socket.sendall(encode_frame(message))
        except OSError as e:
            raise self._unreachable(e) from e

    def _receive(self) -> dict[str, Any]:
        while True:
            frame = take_frame(self._buffer, MAX_FRAME_BYTES)
            if frame is not None:
                return frame
            data = self._socket.recv(65_536)
            if not data:
                raise ConnectionError(CLOSED)
            self._buffer += data

    def _unreachable(self, why: OSError) -> DriverUnreachable:
        host, port = self._address.host, self._address.port
        return DriverUnreachable(
            f"{self._who} on {socket.gethostname()} cannot reach the driver's lease service at "
            f"{host_port(host, port)}: {why or type(why).__name__}\n\n"
            "hint: executors open a connection to the driver there. Let it through, or "
            "set fencepost.lease.port to a port (or a range FROM-TO) that is open, fencepost.lease.host to a name of "
            "the driver that executors can resolve, fencepost.lease.bind to the address of the driver to listen on"
        )


def ask_for_token(address: LeaseAddress, timeout_s: float = LOGIN_TIMEOUT_S) -> Token:
    """The token with which the tasks of the transaction log in to the brokers. The driver makes it."""
    connection = DriverConnection(address, "a task", timeout_s)
    try:
        return token_of(connection.introduce("login", {}), time.time())
    finally:
        connection.close()


class LeaseClient:
    """Connects at once, so that a task that cannot reach its driver fails before its first row.

    attempt_number: Spark's number of this attempt at the input partition, within one attempt at its stage.
    wants_plan: the settings of the write, which have secrets, come with the answer to the greeting.
    room_timeout_s: how long to wait for a place. A driver without one closes the connection without an answer.
    """

    def __init__(
        self,
        address: LeaseAddress,
        task: TaskAttempt,
        attempt_number: int | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        room_timeout_s: float = ROOM_TIMEOUT_S,
        *,
        wants_plan: bool = False,
    ) -> None:
        hello: dict[str, object] = {"task": list(task)}
        hello = hello if attempt_number is None else {**hello, "attempt": attempt_number}
        hello = {**hello, "plan": True} if wants_plan else hello
        deadline, pause_s = time.monotonic() + room_timeout_s, FIRST_PAUSE_S
        while True:
            self._driver = DriverConnection(address, str(task), connect_timeout_s)
            try:
                self.plan: Mapping[str, Any] | None = self._driver.introduce("hello", hello).get("plan")
                self._driver.wait_for_ever()
                return
            except DriverUnreachable as e:
                self.close()
                is_full = isinstance(e.__cause__, ConnectionError)
                if not is_full or time.monotonic() + pause_s > deadline:
                    raise
            except BaseException:
                self.close()
                raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def __enter__(self) -> LeaseClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. For the driver the task is lost, unless it has called `done`."""
        self._driver.close()

    def acquire(self, wants: Mapping[TopicPartition, int]) -> list[Lease]:
        """Leases of these partitions, for record batches of so many records: as many as are free.

        None at all: no partition is free, and this task holds another lease. The task then has to give back its leases
        first. A task that holds no lease waits here until it gets one.
        """
        named = encode_numbers((*where, count) for where, count in wants.items())
        return leases_of(self._ask({"op": "acquire", "wants": named}), wants)

    def release(self, leases: Iterable[Lease], size_bytes: int = 0) -> None:
        """Give the leases back: the brokers acknowledged all their records, which took `size_bytes` in all."""
        records = encode_numbers((lease.topic, lease.partition, lease.record_count) for lease in leases)
        self._driver.tell({"op": "release", "records": records, "bytes": size_bytes})

    def done(self, counts: Mapping[TopicPartition, int], topics: Iterable[tuple[str, bytes, int]] = ()) -> TaskResult:
        """Report the number of records written, and the topics: name, id and number of partitions.

        Returns the result to yield, which may be that of another attempt.
        """
        try:
            written = encode_numbers((*partition, count) for partition, count in counts.items())
            self._ask({"op": "done", "counts": written, "topics": encode_topics(topics)})
        except AlreadyWritten as e:
            return e.result
        raise LeaseError("the driver gave no result for a task that is done")

    def fail(self, reason: str, *, is_fatal: bool) -> None:
        """Give up, and say why. `is_fatal`: every other attempt would fail as well."""
        self._driver.tell({"op": "fail", "reason": reason[:10_000], "fatal": is_fatal})
        self.close()

    def dispute(self, reason: str) -> None:
        """After AlreadyWritten: that result is not complete. Breaks the transaction, so the micro-batch runs again."""
        self._driver.tell({"op": "dispute", "reason": reason})
        self.close()

    def _ask(self, message: Mapping[str, object]) -> dict[str, Any]:
        answer = self._driver.ask(message)
        if "written" in answer:
            raise AlreadyWritten(result_of(answer["written"]))
        return answer
