"""A task's side of the lease service: asks the driver before every batch, and blocks until it is answered.

LeaseError                     everything below
+-- DriverUnreachable          no connection to the driver, or it ended: where, and which setting to change
+-- TransactionBroken          the driver refused: the transaction is over, and why
AlreadyWritten                 not an error: another attempt of this task wrote the rows; yield its result

A frame is four bytes of length and a JSON document. A task asks one question at a time; `release` and `fail` are
statements and get no answer.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fencepost.spark.lease.rules import Granted, OutputPartition, TaskAttempt, TaskResult, Want

PROTOCOL_VERSION = 1
LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 4 << 20
CONNECT_TIMEOUT_S = 10.0
# A peer that is gone without a word is noticed after about half a minute.
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES = 15, 5, 4


class LeaseError(Exception):
    pass


class DriverUnreachable(LeaseError):
    pass


class TransactionBroken(LeaseError):
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
    """Where a batch's tasks find the driver, and how it knows them. Travels with the tasks; keep it out of logs."""

    host: str
    port: int
    token: str

    def __repr__(self) -> str:
        return f"LeaseAddress({self.host}:{self.port})"


class LeaseClient:
    """Connects at once, so that a task which cannot reach its driver says so before its first row.

    attempt_number: as Spark counts the tries at one partition, within one try at a stage.
    """

    def __init__(
        self,
        address: LeaseAddress,
        task: TaskAttempt,
        attempt_number: int | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._address = address
        self._task = task
        self._buffer = bytearray()
        try:
            self._socket = socket.create_connection((address.host, address.port), connect_timeout_s)
        except OSError as e:
            raise self._unreachable(e) from e
        try:
            keep_alive(self._socket)
            # The greeting has a deadline; later answers take as long as others hold the lease.
            hello = {"op": "hello", "version": PROTOCOL_VERSION, "token": address.token, "task": list(task)}
            self._ask(hello if attempt_number is None else {**hello, "attempt": attempt_number})
            self._socket.settimeout(None)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LeaseClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave. Without `done` before it, this says that the task is lost."""
        self._socket.close()

    def acquire(self, wants: Iterable[Want]) -> Granted | None:
        """The lease of one of these partitions. None: nothing is free now, and this task holds another lease.

        Then give back what is held first. A task that holds nothing waits here for as long as it takes.
        """
        answer = self._ask({"op": "acquire", "wants": [list(want) for want in wants]})
        granted = answer.get("granted")
        return None if granted is None else Granted(*granted)

    def release(self, lease: Granted, size_bytes: int = 0) -> None:
        """The brokers acknowledged every record of the lease, which were this many bytes."""
        where, count = [lease.topic, lease.partition], lease.record_count
        self._tell({"op": "release", "lease": where, "count": count, "bytes": size_bytes})

    def done(self, counts: Mapping[OutputPartition, int]) -> TaskResult:
        """Report how much was written; the result is for the task to yield. It may be that of another attempt."""
        try:
            self._ask({"op": "done", "counts": [[*partition, count] for partition, count in counts.items()]})
        except AlreadyWritten as e:
            return e.result
        raise LeaseError("the driver gave no result for a task that is done")

    def fail(self, reason: str, *, is_fatal: bool) -> None:
        """Give up, and say why. `is_fatal`: so would every other attempt, so Spark need not try."""
        self._tell({"op": "fail", "reason": reason[:10_000], "fatal": is_fatal})
        self.close()

    def dispute(self, reason: str) -> None:
        """After AlreadyWritten: that cannot be all. Ends the transaction, and the batch is run again."""
        self._tell({"op": "dispute", "reason": reason})
        self.close()

    # --- frames -------------------------------------------------------------------------------------------

    def _ask(self, message: Mapping[str, object]) -> dict[str, Any]:
        self._tell(message)
        try:
            answer = self._receive()
        except OSError as e:
            raise self._unreachable(e) from e
        if "broken" in answer:
            raise TransactionBroken(answer["broken"], answer["fatal"])
        if "written" in answer:
            write_number, partition_id, task_attempt_id, counts = answer["written"]
            rows = tuple((topic, partition, count) for topic, partition, count in counts)
            raise AlreadyWritten(TaskResult(write_number, partition_id, task_attempt_id, rows))
        return answer

    def _tell(self, message: Mapping[str, object]) -> None:
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
                raise ConnectionError("the driver closed the connection")
            self._buffer += data

    def _unreachable(self, why: OSError) -> DriverUnreachable:
        host, port, _ = self._address
        return DriverUnreachable(
            f"{self._task} on {socket.gethostname()} cannot reach the driver's lease service at {host}:{port}: "
            f"{why or type(why).__name__}\n\nhint: executors open a connection to the driver there. Let it through, or "
            "set fencepost.lease.port to a port (or a range FROM-TO) that is open, fencepost.lease.host to a name of "
            "the driver that executors can resolve, fencepost.lease.bind to the address of the driver to listen on"
        )


class BadFrame(ValueError):
    """The peer does not speak this protocol."""


def encode_frame(message: Mapping[str, object]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(body)) + body


def take_frame(buffer: bytearray, max_bytes: int) -> dict[str, Any] | None:
    """Take the first frame out of what was received; None: it is not complete yet."""
    if len(buffer) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(buffer)
    if length > max_bytes:
        raise BadFrame(f"a frame of {length} bytes; {max_bytes} are allowed")
    end = LENGTH.size + length
    if len(buffer) < end:
        return None
    body = bytes(buffer[LENGTH.size : end])
    del buffer[:end]
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise BadFrame(f"not JSON: {e}") from e
    if not isinstance(message, dict):
        raise BadFrame("not a JSON object")
    return message


def keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # macOS calls the first of them by another name.
    for names, value in (
        (("TCP_KEEPIDLE", "TCP_KEEPALIVE"), KEEPALIVE_IDLE_S),
        (("TCP_KEEPINTVL",), KEEPALIVE_INTERVAL_S),
        (("TCP_KEEPCNT",), KEEPALIVE_PROBES),
        # Probes are not sent while there is something else to be acknowledged.
        (("TCP_USER_TIMEOUT",), (KEEPALIVE_IDLE_S + KEEPALIVE_PROBES * KEEPALIVE_INTERVAL_S) * 1000),
    ):
        option = next((getattr(socket, name) for name in names if hasattr(socket, name)), None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
