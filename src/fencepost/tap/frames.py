"""Cuts the bytes of one direction of a connection into frames: small ones whole, large ones in pieces, uncopied."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

LENGTH_BYTES = 4
# Frames up to this size are passed on whole. Of a larger frame, at least the head is looked at.
HELD_BYTES = 64 * 1024
HEAD_BYTES = 4 * 1024
MAX_FRAME_BYTES = 1 << 30
PRODUCE, SASL_HANDSHAKE = 0, 17
_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")
_INT16 = struct.Struct(">h")
_FLEXIBLE_PRODUCE = 9


class BrokenFrame(ValueError):
    """The bytes are no frame of Kafka's protocol. The message says what they are."""


class Part(Enum):
    WHOLE = auto()
    BEGIN = auto()
    MORE = auto()
    END = auto()


class Piece(NamedTuple):
    """A frame with its length, or a piece of one."""

    part: Part
    data: memoryview


class FrameCutter:
    """Bytes in, pieces out. `wants_whole` says of the head of a large frame whether the frame has to come whole."""

    def __init__(self, wants_whole: Callable[[memoryview], bool]) -> None:
        self._wants_whole = wants_whole
        self._buf: bytes = b""
        self._pos = 0
        self._left = 0  # Of a frame that comes in pieces.
        self._fed: list[bytes] = []  # What came after the buffer.
        self._missing = 0  # How much more has to come before the next piece.

    def feed(self, data: bytes) -> None:
        self._fed.append(data)
        self._missing -= len(data)

    def next(self) -> Piece | None:
        """None if more bytes are needed. Raises BrokenFrame."""
        if self._missing > 0:
            return None
        if self._fed:
            self._join()
        have = len(self._buf) - self._pos
        if not have:
            return None
        if self._left:
            taken = min(self._left, have)
            self._left -= taken
            return Piece(Part.MORE if self._left else Part.END, self._take(taken))
        if have < LENGTH_BYTES:
            return None
        size = _checked_size(self._buf[self._pos : self._pos + LENGTH_BYTES]) + LENGTH_BYTES
        if have >= size:
            return Piece(Part.WHOLE, self._take(size))
        if size > HELD_BYTES:
            if have < HEAD_BYTES:
                return None
            if not self._wants_whole(memoryview(self._buf)[self._pos + LENGTH_BYTES :]):
                self._left = size - have
                return Piece(Part.BEGIN, self._take(have))
        self._missing = size - have
        return None

    def rest(self) -> bytes:
        """What was fed and not taken. Nothing is left then."""
        self._join()
        rest, self._buf = self._buf[self._pos :], b""
        self._pos = self._left = 0
        return rest

    def _join(self) -> None:
        rest = self._buf[self._pos :]
        self._buf = b"".join((rest, *self._fed)) if rest or len(self._fed) != 1 else self._fed[0]
        self._pos = self._missing = 0
        self._fed.clear()

    def _take(self, size: int) -> memoryview:
        begin, self._pos = self._pos, self._pos + size
        return memoryview(self._buf)[begin : self._pos]


def _checked_size(length: bytes) -> int:
    (size,) = _LENGTH.unpack(length)
    if length[:2] == b"\x16\x03":
        raise BrokenFrame(
            "the bytes begin a TLS handshake\n\nhint: this address of the tap is plain text; give clients "
            "security.protocol=PLAINTEXT, or the tap a certificate"
        )
    if length[:2] == b"\x15\x03":
        raise BrokenFrame("the bytes are an alert of TLS\n\nhint: does the cluster want security.protocol=SSL?")
    if length in (b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP"):
        raise BrokenFrame(
            f"the bytes begin with {length.decode()!r}, which is HTTP\n\nhint: the tap is for Kafka clients"
        )
    if not LENGTH_BYTES <= size <= MAX_FRAME_BYTES:
        raise BrokenFrame(f"a frame claims {size} bytes, expected {LENGTH_BYTES} to {MAX_FRAME_BYTES}")
    return int(size)


class RequestHead(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str
    is_answered: bool  # All requests are, except for Produce with acks=0.


def read_head(frame: memoryview) -> RequestHead:
    """The head of a request, from its first bytes without the length. Raises BrokenFrame."""
    if len(frame) < _HEAD.size:
        raise BrokenFrame(f"a request of {len(frame)} bytes, expected at least {_HEAD.size}")
    api_key, version, correlation_id, size = _HEAD.unpack_from(frame)
    pos = _HEAD.size + max(size, 0)
    if pos > len(frame) and len(frame) < HEAD_BYTES - LENGTH_BYTES:
        raise BrokenFrame(f"a request of {len(frame)} bytes has a client id of {size}")
    client_id = str(frame[_HEAD.size : pos], errors="replace")
    is_answered = api_key != PRODUCE or _acks(frame, pos, version) != 0
    return RequestHead(api_key, version, correlation_id, client_id, is_answered)


def _acks(frame: memoryview, pos: int, version: int) -> int:
    """Of a Produce request: after its transactional id, which may be null. 1 if the head does not reach that far."""
    try:
        if version >= _FLEXIBLE_PRODUCE:
            pos = _after_tags(frame, pos)
            size, pos = _varint(frame, pos)  # And one more.
            size -= 1
        elif version >= 3:
            (size,) = _INT16.unpack_from(frame, pos)
            pos += _INT16.size
        else:
            size = 0
        (acks,) = _INT16.unpack_from(frame, pos + max(size, 0))
    except (struct.error, IndexError):
        return 1
    return int(acks)


def _after_tags(frame: memoryview, pos: int) -> int:
    """The end of the tags that begin at `pos`. Raises IndexError if the frame ends before."""
    count, pos = _varint(frame, pos)
    for _ in range(count):
        _, pos = _varint(frame, pos)
        size, pos = _varint(frame, pos)
        pos += size
    return pos


def _varint(frame: memoryview, pos: int) -> tuple[int, int]:
    """An unsigned number of 32 bits, and its end. Raises IndexError if there is none."""
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[pos]
        value |= (byte & 0x7F) << shift
        pos += 1
        if byte < 0x80:
            return value, pos
    raise IndexError


def is_raw_login(head: RequestHead) -> bool:
    """Whether frames without a header follow, as after version 0 of SaslHandshake."""
    return head.api_key == SASL_HANDSHAKE and head.version == 0
