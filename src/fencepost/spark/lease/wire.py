"""The lease protocol on a connection between a task and the driver.

A frame is four bytes of length and a JSON object. A task asks one question at a time: `hello`, `acquire` and `done`
have an answer; `release`, `fail` and `dispute` have none. One number for each partition is written as an object:
{"topic": [partition, number, partition, number ...]}. `done` also tells which topics the task found, as
{"topic": ["uuid", number of partitions]}. A task in Spark's JVM gets the plan of its write with the
answer to `hello`, and returns the result in the answer to `done` as it came.

`login` comes instead of `hello`, on a connection of its own that ends with the answer: the token with which the tasks
of this executor log in to the brokers.
"""

from __future__ import annotations

import json
import socket
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from fencepost.client.oauthbearer import Token
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.lease.messages import (
    Busy,
    Granted,
    Lease,
    LeaseRefused,
    Outcome,
    TaskResult,
    Topics,
    Written,
)

PROTOCOL_VERSION = 5
LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 4 << 20
# A peer whose machine is gone is noticed after about half a minute.
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES = 15, 5, 4
CLOSED = "the driver closed the connection"


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
        case Granted(leases):
            granted = encode_numbers((lease.topic, lease.partition, lease.base_sequence) for lease in leases)
            return {"granted": granted, "within": leases[0].within_ms}
        case Busy():
            return {"busy": True}
        case Written(result):
            return {"written": encode_result(result)}
        case LeaseRefused(reason, is_fatal):
            return encode_refusal(reason, is_fatal)


def encode_refusal(reason: str, is_fatal: bool) -> dict[str, object]:
    return {"broken": reason, "fatal": is_fatal}


def integer_of(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise BadFrame(f"expected a number, found {value!r}")
    return value


def encode_numbers(numbers: Iterable[tuple[str, int, int]]) -> dict[str, list[int]]:
    """Topic, partition and a number of it: [("t", 0, 7), ("t", 1, 9)] is {"t": [0, 7, 1, 9]}."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition, number in numbers:
        by_topic.setdefault(topic, []).extend((partition, number))
    return by_topic


def numbers_of(value: object) -> dict[TopicPartition, int]:
    """The inverse of `encode_numbers`."""
    if not isinstance(value, dict):
        raise BadFrame(f"expected numbers by topic, found {value!r}")
    found: dict[TopicPartition, int] = {}
    for topic, numbers in value.items():
        # As few steps in Python as possible: a frame may name a thousand partitions.
        if type(numbers) is not list or len(numbers) % 2 or not set(map(type, numbers)) <= {int}:
            raise BadFrame(f"expected partitions and numbers of topic {topic!r}, found {numbers!r}")
        if numbers and (min(numbers) < 0 or max(numbers) >= 1 << 63):
            raise BadFrame(f"numbers of topic {topic!r} are out of range")
        found.update(zip(zip(repeat(topic), numbers[::2], strict=False), numbers[1::2], strict=True))
    if 2 * len(found) != sum(map(len, value.values())):
        raise BadFrame("a partition is named twice")
    return found


def leases_of(answer: Mapping[str, Any], wants: Mapping[TopicPartition, int]) -> list[Lease]:
    """The leases that an answer grants; none if every partition is busy."""
    granted, within_ms = numbers_of(answer.get("granted", {})), answer.get("within", 0)
    return [Lease(*where, base_sequence, wants[where], within_ms) for where, base_sequence in granted.items()]


def encode_result(result: TaskResult) -> list[object]:
    return [*result[:3], encode_numbers(result.counts), encode_topics(result.topics)]


def result_of(value: Sequence[Any]) -> TaskResult:
    """The inverse of `encode_result`."""
    write_number, partition_id, task_attempt_id, counts, topics = value
    return TaskResult(
        integer_of(write_number),
        integer_of(partition_id),
        integer_of(task_attempt_id),
        tuple((*where, count) for where, count in numbers_of(counts).items()),
        topics_of(topics),
    )


def encode_topics(topics: Iterable[tuple[str, bytes, int]]) -> dict[str, list[object]]:
    """Name, id and number of partitions: {"topic": ["uuid", partitions]}."""
    return {name: [str(uuid.UUID(bytes=topic_id)), partitions] for name, topic_id, partitions in topics}


def topics_of(value: object) -> Topics:
    """The inverse of `encode_topics`, in the order of the names."""
    if not isinstance(value, dict):
        raise BadFrame(f"expected topics by name, found {value!r}")
    return tuple(
        (name, uuid.UUID(str(id_)).bytes, integer_of(partitions)) for name, (id_, partitions) in sorted(value.items())
    )


def encode_token(token: Token, now_s: float) -> dict[str, object]:
    """With its lifetime, because the clock of an executor may differ."""
    lifetime_ms = max(round((token.expires_at_s - now_s) * 1000), 0)
    return {"token": token.value, "lifetime_ms": lifetime_ms, "extensions": dict(token.extensions)}


def token_of(answer: Mapping[str, Any], now_s: float) -> Token:
    """The inverse of `encode_token`."""
    return Token(str(answer["token"]), now_s + integer_of(answer["lifetime_ms"]) / 1000, answer["extensions"])


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
