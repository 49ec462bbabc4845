"""Addresses of batches that the next reads are likely to ask for, so that they need no index.

`offsets` and `addresses` are those of the newest batches, for consumers at the end of the log. Beside them, the places
where reads ended are remembered, for consumers that continue there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

_NEWEST_BATCHES = 256
_READ_ENDS = 64


class Places:
    __slots__ = ("_read_ends", "addresses", "offsets")

    def __init__(self) -> None:
        # An append adds to both directly.
        self.offsets = array("q")
        self.addresses = array("q")
        self._read_ends: dict[int, int] = {}

    def trim(self) -> None:
        if len(self.offsets) > 2 * _NEWEST_BATCHES:
            del self.offsets[:-_NEWEST_BATCHES]
            del self.addresses[:-_NEWEST_BATCHES]

    def find(self, offset: int) -> int | None:
        """The address of the batch that contains `offset`, which is below the end of the log."""
        address = self._read_ends.get(offset)
        if address is None and self.offsets and offset >= self.offsets[0]:
            return self.addresses[bisect_right(self.offsets, offset) - 1]
        return address

    def is_new(self, address: int) -> bool:
        """Whether `address` is among the newest batches."""
        return bool(self.addresses) and address >= self.addresses[0]

    def last_before(self, limit: int) -> int:
        """The greatest address of a new batch that is not above `limit`. Needs one that is not."""
        return self.addresses[bisect_right(self.addresses, limit) - 1]

    def remember(self, offset: int, address: int) -> None:
        """A read ended here, and its consumer will ask for `offset` next."""
        if len(self._read_ends) >= _READ_ENDS:
            del self._read_ends[next(iter(self._read_ends))]
        self._read_ends[offset] = address

    def forget_below(self, address: int) -> None:
        """The batches below `address` are gone, or have moved."""
        self._read_ends.clear()
        below = bisect_left(self.addresses, address)
        del self.offsets[:below]
        del self.addresses[:below]
