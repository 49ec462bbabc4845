"""The last requests of transactional producers, decoded from the bytes that the shell keeps.

For the last few transactional requests of each connection the shell keeps the first bytes of request and answer. It
does not decode them, so this costs about 0.2 us a request; DescribeRpcs decodes them here. A request that is cut off
still has its producer and transactional id, since these fields come first. An answer that is cut off still has the
errors of its first partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from fencepost.protocol import errors, messages
from fencepost.protocol.batch import HEADER_BYTES, Corrupt, decode_header
from fencepost.protocol.schema import Malformed, read_uvarint, skip_tags

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
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_WHO = struct.Struct(">qh")
BROKERS_ONLY = 4  # Only brokers send AddPartitionsToTxn from this version on.
INIT_NAMES_PRODUCER = 3


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
        read = _Reader(frame, topic_names)
        if read.nullable_string() != transactional_id:
            return None
        producer_id, epoch, about = _READERS[read.api_key](read)
    except (struct.error, IndexError, UnicodeDecodeError, Malformed, KeyError):
        return None
    return SeenRpc(
        at_ms,
        NAMES[read.api_key],
        read.version,
        read.client_id,
        host,
        port,
        producer_id,
        epoch,
        about,
        errors.NONE if reply is None else _error_in(reply, read.api_key, read.version),
        -1 if reply is None else max(done_ns // 1000 - at_ms * 1000, 0),
    )


class _Fields:
    """The beginning of a message, field by field."""

    def __init__(self, buf: bytes, pos: int, is_flexible: bool) -> None:
        self.buf = buf
        self.pos = pos
        self.is_flexible = is_flexible

    def tags(self) -> None:
        if self.is_flexible:
            count, self.pos = read_uvarint(self.buf, self.pos)
            self.pos = skip_tags(self.buf, self.pos, count)

    def nullable_string(self) -> str | None:
        if self.is_flexible:
            size, self.pos = read_uvarint(self.buf, self.pos)
            size -= 1
        else:
            size = self.number(_INT16)
        if size < 0:
            return None
        raw = self.buf[self.pos : self.pos + size]
        if len(raw) < size:
            raise IndexError
        self.pos += size
        return raw.decode()

    def count(self) -> int:
        """How many elements an array has."""
        if not self.is_flexible:
            return self.number(_INT32)
        size, self.pos = read_uvarint(self.buf, self.pos)
        return size - 1

    def number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self.buf, self.pos)
        self.pos += layout.size
        return int(value)


class _Reader(_Fields):
    """The beginning of a request."""

    def __init__(self, frame: bytes, topic_names: Callable[[bytes], str]) -> None:
        self.topic_names = topic_names
        self.api_key, self.version, _, client_id_size = _HEADER.unpack_from(frame)
        pos = 10 + max(client_id_size, 0)
        self.client_id = frame[10:pos].decode() if client_id_size >= 0 else None
        request_class = getattr(messages, f"{NAMES[self.api_key]}Request")
        super().__init__(frame, pos, request_class.is_flexible(self.version))
        self.tags()

    def who(self) -> tuple[int, int]:
        producer_id, epoch = _WHO.unpack_from(self.buf, self.pos)
        self.pos += _WHO.size
        return producer_id, epoch


Read = tuple[int, int, str]


def _read_init(read: _Reader) -> Read:
    timeout_ms = read.number(_INT32)
    about = f"timeout {timeout_ms} ms"
    return (*read.who(), about) if read.version >= INIT_NAMES_PRODUCER else (-1, -1, about)


def _read_add_partitions(read: _Reader) -> Read:
    if read.version >= BROKERS_ONLY:
        raise KeyError
    who = read.who()
    return *who, ", ".join(_or_cut_off(_partitions(read)))


def _partitions(read: _Reader) -> Iterator[str]:
    for _ in range(read.count()):
        topic = read.nullable_string()
        for _ in range(read.count()):
            yield f"{topic}-{read.number(_INT32)}"
        if read.is_flexible:
            read.pos += 1


def _or_cut_off(parts: Iterator[str]) -> Iterator[str]:
    """The kept part of a list, with "..." if the rest was cut off."""
    try:
        yield from parts
    except (struct.error, IndexError, UnicodeDecodeError):
        yield "..."


def _read_add_offsets(read: _Reader) -> Read:
    who = read.who()
    return *who, f"group {read.nullable_string()}"


def _read_end(read: _Reader) -> Read:
    who = read.who()
    return *who, "commit" if read.buf[read.pos] else "abort"


def _read_commit_offsets(read: _Reader) -> Read:
    group = read.nullable_string()
    return *read.who(), f"group {group}"


def _read_produce(read: _Reader) -> Read:
    read.pos += 6  # Acks and timeout.
    read.count()
    if read.version >= 13:
        topic = read.topic_names(read.buf[read.pos : read.pos + 16])
        read.pos += 16
    else:
        topic = read.nullable_string() or ""
    read.count()
    partition = read.number(_INT32)
    if read.is_flexible:
        _, read.pos = read_uvarint(read.buf, read.pos)
    else:
        read.number(_INT32)
    about = f"{topic}-{partition}"
    if len(read.buf) - read.pos < HEADER_BYTES:
        return -1, -1, about
    try:
        header = decode_header(read.buf, read.pos)
    except Corrupt:
        return -1, -1, about
    return header.producer_id, header.producer_epoch, about


_READERS: dict[int, Callable[[_Reader], Read]] = {
    PRODUCE: _read_produce,
    INIT: _read_init,
    ADD_PARTITIONS: _read_add_partitions,
    ADD_OFFSETS: _read_add_offsets,
    END: _read_end,
    COMMIT_OFFSETS: _read_commit_offsets,
}


def _error_in(reply: bytes, api_key: int, version: int) -> int:
    """The first error in an answer."""
    response_class = getattr(messages, f"{NAMES[api_key]}Response")
    try:
        response, _ = response_class.decode(reply, 0, version)
        codes = _codes(response, api_key)
    except Malformed:
        if api_key not in (PRODUCE, ADD_PARTITIONS, COMMIT_OFFSETS):
            return errors.NONE
        codes = _codes_of_cut(_Fields(reply, 0, response_class.is_flexible(version)), api_key, version)
    try:
        return next((code for code in codes if code), errors.NONE)
    except (struct.error, IndexError, UnicodeDecodeError, Malformed):
        return errors.NONE  # The part that was kept has no error.


def _codes_of_cut(read: _Fields, api_key: int, version: int) -> Iterator[int]:
    """The error codes of an answer that was cut off. Raises where the kept bytes end."""
    if api_key != PRODUCE:
        read.number(_INT32)  # How long the client was throttled.
    for _ in range(read.count()):
        if api_key == PRODUCE and version >= 13:
            read.pos += 16
        else:
            read.nullable_string()
        for _ in range(read.count()):
            read.number(_INT32)
            yield read.number(_INT16)
            if api_key == PRODUCE:
                _skip_rest_of_produced(read, version)
            read.tags()
        read.tags()


def _skip_rest_of_produced(read: _Fields, version: int) -> None:
    read.pos += 8 * (1 + (version >= 2) + (version >= 5))  # Base offset, append time, start offset.
    if version >= 8:
        for _ in range(read.count()):
            read.number(_INT32)
            read.nullable_string()
            read.tags()
        read.nullable_string()


def _codes(response: Any, api_key: int) -> Iterator[int]:
    if api_key == PRODUCE:
        yield from (p.error_code for t in response.responses for p in t.partition_responses)
    elif api_key == ADD_PARTITIONS:
        yield from (
            p.partition_error_code for t in response.results_by_topic_v3_and_below for p in t.results_by_partition
        )
    elif api_key == COMMIT_OFFSETS:
        yield from (p.error_code for t in response.topics for p in t.partitions)
    else:
        yield response.error_code
