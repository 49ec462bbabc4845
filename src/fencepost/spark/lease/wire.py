"""The lease protocol on a connection between a task and the driver.

A frame is four bytes of length and a JSON object. A task asks one question at a time: `hello`, `acquire` and `done`
have an answer; `release`, `fail` and `dispute` have none. A task in Spark's JVM gets the plan of its write with the
answer to `hello`. When Spark has accepted its tasks, the driver's JVM connects and tells: a `result` for each of them,
then `results`, which has an answer.
"""

from __future__ import annotations

import json
import socket
import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.messages import AcceptedTask, Busy, Granted, LeaseRefused, Outcome, TaskResult, Written

PROTOCOL_VERSION = 2
LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 4 << 20
# A peer whose machine is gone is noticed after about half a minute.
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES = 15, 5, 4


class BadFrame(ValueError):
    """The peer does not speak this protocol."""


def encode_frame(message: Mapping[str, object]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(body)) + body


def take_frame(buffer: bytearray, max_bytes: int) -> dict[str, Any] | None:
    """Remove the first frame from the received bytes and return it; None while it is incomplete."""
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


def encode_outcome(outcome: Outcome) -> dict[str, object]:
    match outcome:
        case Granted():
            return {"granted": list(outcome)}
        case Busy():
            return {"busy": True}
        case Written(result):
            return {"written": list(result)}
        case LeaseRefused(reason, is_fatal):
            return encode_refusal(reason, is_fatal)


def encode_refusal(reason: str, is_fatal: bool) -> dict[str, object]:
    return {"broken": reason, "fatal": is_fatal}


def integer_of(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise BadFrame(f"expected a number, found {value!r}")
    return value


def partition_of(value: Sequence[Any]) -> TopicPartition:
    if not isinstance(value[0], str):
        raise BadFrame(f"expected a topic, found {value[0]!r}")
    return value[0], integer_of(value[1])


def count_of(value: Sequence[Any]) -> int:
    """The number of records in [topic, partition, count]."""
    return integer_of(value[2])


def accepted_of(message: Mapping[str, Any]) -> AcceptedTask:
    """A task whose result Spark accepted, from the frame `result`."""
    write_number, partition_id, task_attempt_id, counts = message["result"]
    result = TaskResult(
        integer_of(write_number),
        integer_of(partition_id),
        integer_of(task_attempt_id),
        tuple((*partition_of(count), count_of(count)) for count in counts),
    )
    return AcceptedTask(result, {name: uuid.UUID(id_).bytes for name, id_ in message["topics"].items()})


def keep_alive(sock: socket.socket) -> None:
    """Send at once, and notice a peer that is gone without closing the connection."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # macOS has another name for the first of these options.
    for names, value in (
        (("TCP_KEEPIDLE", "TCP_KEEPALIVE"), KEEPALIVE_IDLE_S),
        (("TCP_KEEPINTVL",), KEEPALIVE_INTERVAL_S),
        (("TCP_KEEPCNT",), KEEPALIVE_PROBES),
        # The kernel sends no probes while sent data waits for its acknowledgement.
        (("TCP_USER_TIMEOUT",), (KEEPALIVE_IDLE_S + KEEPALIVE_PROBES * KEEPALIVE_INTERVAL_S) * 1000),
    ):
        option = next((getattr(socket, name) for name in names if hasattr(socket, name)), None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
