"""The bytes of one client that could not be served yet: requests that must wait, and a request that is not complete.

Unread bytes are `data[start:end]`. While a large request arrives, `large_bytes` is its size, and `data[end:]` is room
for more of it. When it is complete, `take_large` hands over this memory with the request in it, so nothing is copied.
"""

from __future__ import annotations

import struct

_LENGTH = struct.Struct(">i")
length_at = _LENGTH.unpack_from

# A large request up to this size gets all of its room at once. A larger one starts with at least `LEAST_ROOM_BYTES`.
ROOM_AT_ONCE_BYTES = 1 << 22
LEAST_ROOM_BYTES = 1 << 12
# Bytes that were read are removed once there are this many, so that the rest is not moved for each request.
REMOVED_AT_ONCE_BYTES = 1 << 16

_EMPTY = bytearray()


class Inbox:
    __slots__ = ("data", "end", "large_bytes", "start")

    def __init__(self) -> None:
        self.data = _EMPTY
        self.start = 0
        self.end = 0
        self.large_bytes = 0

    @property
    def unread_bytes(self) -> int:
        return self.end - self.start

    @property
    def held_bytes(self) -> int:
        """The memory that the inbox takes, or will take when the large request is complete."""
        return self.large_bytes or len(self.data)

    @property
    def begun_bytes(self) -> int:
        """The size of the first request, with its length field; 4 while that field is not complete."""
        return 4 + int(length_at(self.data, self.start)[0]) if self.end - self.start >= 4 else 4

    def has_request(self) -> bool:
        """Whether the first request is complete."""
        unread = self.end - self.start
        return not self.large_bytes and unread >= 4 and unread >= self.begun_bytes

    def append(self, more: memoryview) -> None:
        if self.data:
            self.data += more
        else:
            self.data = bytearray(more)
        self.end += len(more)

    def begin_large(self) -> None:
        """Read the rest of the first request directly into its place."""
        self.large_bytes = self.begun_bytes
        self._make_room()

    def room(self) -> memoryview:
        """Where the next bytes of the large request belong."""
        return memoryview(self.data)[self.end :]

    def fill(self, nbytes: int) -> bool:
        """Count bytes that arrived in `room`; return whether the large request is complete."""
        self.end += nbytes
        if self.end < self.large_bytes:
            if self.end == len(self.data):
                self._make_room()
            return False
        self.large_bytes = 0
        return True

    def take_large(self) -> memoryview:
        """The request that `fill` has just completed, without its length field. Its memory belongs to the caller."""
        assert self.unread_bytes == self.begun_bytes == len(self.data), "the inbox holds more than this request"
        frame = memoryview(self.data)[4:]
        self.clear()
        return frame

    def _make_room(self) -> None:
        """For a very large request, four times what has arrived: a claim alone must not take memory."""
        unread = self.end - self.start
        room_bytes = self.large_bytes
        if room_bytes > ROOM_AT_ONCE_BYTES:
            room_bytes = min(room_bytes, max(4 * unread, LEAST_ROOM_BYTES))
        room = bytearray(room_bytes)
        room[:unread] = memoryview(self.data)[self.start : self.end]
        self.data = room
        self.start, self.end = 0, unread

    def read_to(self, pos: int) -> None:
        """Everything before `data[pos]` was served."""
        if pos == self.end:
            self.clear()
        elif pos > REMOVED_AT_ONCE_BYTES:
            del self.data[:pos]
            self.start = 0
            self.end -= pos
        else:
            self.start = pos

    def clear(self) -> None:
        self.data = _EMPTY
        self.start = self.end = self.large_bytes = 0
