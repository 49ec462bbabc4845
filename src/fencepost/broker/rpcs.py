"""The last requests of transactional producers, decoded from the bytes that the shell keeps.

For the last few transactional requests of each connection the shell keeps the first bytes of request and answer. It
does not decode them, so this costs about 0.2 us a request; DescribeRpcs decodes them here. A request that is cut off
still has its producer and transactional id, since these fields come first. An answer that is cut off still has the
errors of its first partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from fencepost.protocol import errors
from fencepost.protocol.batch import Corrupt, decode_header
from fencepost.protocol.schema import Malformed
from fencepost.protocol.walking import EndsTooEarly, error_codes, named, values_in_request

PRODUCE, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 0, 22, 24, 25, 26, 28
NAMES = {
    PRODUCE: "Produce",
    INIT: "InitProducerId",
    ADD_PARTITIONS: "AddPartitionsToTxn",
    ADD_OFFSETS: "AddOffsetsToTxn",
    END: "EndTxn",
    COMMIT_OFFSETS: "TxnOffsetCommit",
}
KEPT_KEYS = frozenset(key.to_bytes(2, "big") for key in NAMES)  # As a request begins.
KEPT_BYTES = 256
KEPT_REPLY_BYTES = 1024
KEPT_PER_CONNECTION = 16
_HEADER = struct.Struct(">hhih")


# A request as the shell keeps it: its arrival (ms), its first bytes, those of the answer (None: not answered yet,
# empty: it has no answer), and the time of the answer (ns).
KeptRpc = tuple[int, bytes, bytes | None, int]


class SeenRpc(NamedTuple):
    at_ms: int
    name: str
    version: int
    client_id: str | None
    host: str
    port: int
    producer_id: int
    producer_epoch: int
    about: str
    error_code: int
    duration_us: int  # -1: not answered yet.


def find_rpcs(
    transactional_id: str,
    kept: Iterable[tuple[str, int, Iterable[KeptRpc]]],
    topic_names: Callable[[bytes], str] = bytes.hex,
) -> list[SeenRpc]:
    """The kept requests of one transactional id in the order of their answers; requests without an answer come last.

    `kept` is (host, port, requests) of each connection; `topic_names` returns the name of a topic id.
    """
    found = [
        seen
        for host, port, rpcs in kept
        for rpc in rpcs
        if (seen := read_rpc(transactional_id, rpc, host, port, topic_names)) is not None
    ]
    return sorted(found, key=lambda rpc: (rpc.duration_us < 0, rpc.at_ms * 1000 + rpc.duration_us))


def read_rpc(
    transactional_id: str, rpc: KeptRpc, host: str, port: int, topic_names: Callable[[bytes], str] = bytes.hex
) -> SeenRpc | None:
    """One request decoded; None if it has another transactional id."""
    at_ms, frame, reply, done_ns = rpc
    if transactional_id.encode() not in frame:
        return None
    try:
        api_key, version, _, client_id_size = _HEADER.unpack_from(frame)
        client_id = frame[10 : 10 + client_id_size].decode() if client_id_size >= 0 else None
        values, is_whole = _values_in(api_key, version, frame)
        if not values or (values[0][0].removeprefix(OLD), values[0][1]) != ("transactional_id", transactional_id):
            return None
        read = _read(api_key, values, is_whole, topic_names)
    except (struct.error, UnicodeDecodeError, Malformed, KeyError):
        return None
    if read is None:
        return None
    producer_id, epoch, about = read
    return SeenRpc(
        at_ms,
        NAMES[api_key],
        version,
        client_id,
        host,
        port,
        producer_id,
        epoch,
        about,
        errors.NONE if reply is None else _error_in(reply, api_key, version),
        -1 if reply is None else max(done_ns // 1000 - at_ms * 1000, 0),
    )


def _values_in(api_key: int, version: int, frame: bytes) -> tuple[list[tuple[str, Any]], bool]:
    """The values that describe the request, and whether all of them were kept."""
    values: list[tuple[str, Any]] = []
    try:
        for value in values_in_request(api_key, version, frame, _WANTED[api_key]):
            values.append(value)
    except EndsTooEarly:
        return values, False
    return values, True


def _error_in(reply: bytes, api_key: int, version: int) -> int:
    """The first error in an answer, or in the part of it that was kept."""
    try:
        return next(error_codes(api_key, version, [reply]), errors.NONE)
    except Malformed:
        return errors.NONE


OLD = "v3_and_below_"  # Of fields that the requests of clients to AddPartitionsToTxn have.
_WHO = ("transactional_id", "producer_id", "producer_epoch")
_WANTED = {
    PRODUCE: named("transactional_id", "name", "topic_id", "index", "records"),
    INIT: named(*_WHO, "transaction_timeout_ms"),
    # Only brokers send it with other fields, from v4 on.
    ADD_PARTITIONS: named(*(OLD + name for name in _WHO), "name", "partitions"),
    ADD_OFFSETS: named(*_WHO, "group_id"),
    END: named(*_WHO, "committed"),
    COMMIT_OFFSETS: named(*_WHO, "group_id"),
}


def _read(
    api_key: int, values: Sequence[tuple[str, Any]], is_whole: bool, topic_names: Callable[[bytes], str]
) -> tuple[int, int, str] | None:
    """The producer of a request, and what is particular to its API; None if that was cut off."""
    first = {name.removeprefix(OLD): value for name, value in reversed(values)}
    partitions = _partitions(values, topic_names)
    if api_key == PRODUCE:
        is_there = partitions and (is_whole or "records" in first)
        return (*_producer_of(first.get("records", b"")), partitions[0]) if is_there else None
    who = first.get("producer_id", -1), first.get("producer_epoch", -1)
    if api_key == ADD_PARTITIONS:
        about = ", ".join(partitions if is_whole else [*partitions, "..."])
        return (*who, about) if "producer_epoch" in first else None
    if not is_whole:
        return None
    if api_key == INIT:
        return *who, f"timeout {first['transaction_timeout_ms']} ms"
    if api_key == END:
        return *who, "commit" if first["committed"] else "abort"
    return *who, f"group {first['group_id']}"


def _partitions(values: Sequence[tuple[str, Any]], topic_names: Callable[[bytes], str]) -> list[str]:
    topic, found = "", []
    for name, value in values:
        if name == "name":
            topic = value
        elif name == "topic_id":
            topic = topic_names(value)
        elif name in ("partitions", "index"):
            found.append(f"{topic}-{value}")
    return found


def _producer_of(batch: bytes) -> tuple[int, int]:
    try:
        header = decode_header(batch, 0)
    except Corrupt:
        return -1, -1
    return header.producer_id, header.producer_epoch
