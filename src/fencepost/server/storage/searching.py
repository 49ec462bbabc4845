"""The search for whole batches in bytes of which some are damaged.

Wherever there may be a header, its checksum decides. The time for that does not depend on the length that the header
claims, and there is a limit for the number of such places: in bytes that were made for it, nearly each may be one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fencepost.protocol.batch import CHECKED_AT, HEADER, HEADER_BYTES, MAGIC_AT, PREFIX_BYTES
from fencepost.protocol.crc import crc32c
from fencepost.server.storage.heads import BadBatch, Placed, Read, walk
from fencepost.server.storage.segment import LOOKUP_CHUNK_BYTES, SCAN_CHUNK_BYTES

# The most places that may look like a header and be none. Random bytes have two or three in a million.
MOST_FALSE_HEADERS = 1_000_000

# From the magic on: the checksum, attributes that are known, numbers that are not negative up to the record count.
_MAY_BE_HEADER = re.compile(rb"\x02(?=.{4}\x00[\x00-\x7f]{2}.{33}[\x00-\x7f].{3})", re.DOTALL)


class TooManyHeaders(Exception):
    """The search ended at `position`: there may be whole batches behind it."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"the search for whole batches ended at position {position}: up to there, {MOST_FALSE_HEADERS} places "
            "look like the header of a batch and are none"
        )
        self.position = position


def whole_batches(read: Read, position: int, end: int) -> Iterator[Placed]:
    """Every whole batch with the right checksum, wherever it begins. Raises TooManyHeaders."""
    search = _Search(read, position, end)
    while position < end:
        try:
            for placed in walk(read, position, end, LOOKUP_CHUNK_BYTES):
                if not search.is_right(position, placed[6], placed[7]):
                    break
                yield placed
                position += placed[1]
        except BadBatch:
            pass
        if position < end:
            search.count_false_header(position)
            position = search.next_batch(position + 1)


class _Search:
    def __init__(self, read: Read, begin: int, end: int) -> None:
        self._read = read
        self._end = end
        self._crcs = RangeCrc(read, begin)
        self._false_headers = 0

    def is_right(self, position: int, buf: bytes, at: int) -> bool:
        """Whether the batch at `position`, whose header is in `buf`, has the checksum that the header says."""
        _, length, _, _, crc, *_ = HEADER.unpack_from(buf, at)
        return bool(self._crcs.crc(position + CHECKED_AT, position + PREFIX_BYTES + length) == crc)

    def next_batch(self, position: int) -> int:
        """Where the next whole batch begins, from `position` on; the end if there is none."""
        end = self._end
        chunk_bytes = LOOKUP_CHUNK_BYTES  # The next one is often near.
        while end - position >= HEADER_BYTES:
            buf = self._read(position, min(chunk_bytes, end - position))
            chunk_bytes = SCAN_CHUNK_BYTES
            for match in _MAY_BE_HEADER.finditer(buf, MAGIC_AT):
                at = match.start() - MAGIC_AT
                if _may_be_header(buf, at, end - position - at) and self.is_right(position + at, buf, at):
                    return position + at
                self.count_false_header(position + at)
            if len(buf) < HEADER_BYTES:
                break
            position += len(buf) - HEADER_BYTES + 1
        return end

    def count_false_header(self, position: int) -> None:
        self._false_headers += 1
        if self._false_headers > MOST_FALSE_HEADERS:
            raise TooManyHeaders(position)


def _may_be_header(buf: bytes, at: int, room: int) -> bool:
    base_offset, length, _, _, _, _, delta, _, _, producer_id, epoch, _, count = HEADER.unpack_from(buf, at)
    return bool(
        base_offset >= 0
        and HEADER_BYTES <= length + PREFIX_BYTES <= room
        and count <= delta + 1
        and producer_id >= -1
        and epoch >= -1
    )


BLOCK_BYTES = 4096

_POLYNOMIAL = 0x82F63B78
_ONE = 1 << 31


def multiply(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo that of CRC-32C."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


def _x_to_the(exponent: int) -> int:
    power, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            power = multiply(power, square)
        square = multiply(square, square)
        exponent >>= 1
    return power


_BLOCK = _x_to_the(8 * BLOCK_BYTES)


class RangeCrc:
    """CRC-32C of any part of the file that `read` reads, from `begin` on, in about the same time however long it is.

    A search for batches in damaged bytes asks for the checksums of many long parts that overlap. Here every block is
    read once for the checksums from the beginning up to each block. A CRC is linear, so that of a part follows from
    these two:

        crc(a + b) = crc(a) * x^(8 * len(b))  xor  crc(b)           modulo the polynomial

    Bits are reflected, as in zlib's `crc32_combine`: the highest bit is the coefficient of x^0.
    """

    def __init__(self, read: Read, begin: int) -> None:
        self._read = read
        self._begin = begin
        self._until_block = [0]  # Checksums from the beginning up to each block.
        self._blocks = [_ONE]  # At index n: the factor for a checksum that n blocks follow.

    def crc(self, first: int, last: int) -> int:
        """Of the bytes from `first` to `last`."""
        if last - first <= 2 * BLOCK_BYTES:
            return crc32c(self._read(first, last - first))
        first_block = -((self._begin - first) // BLOCK_BYTES)
        last_block = (last - self._begin) // BLOCK_BYTES
        first_end, last_begin = (self._begin + block * BLOCK_BYTES for block in (first_block, last_block))
        crc = crc32c(self._read(first, first_end - first)) ^ self._crc_until(first_block)
        crc = multiply(crc, self._factor(last_block - first_block)) ^ self._crc_until(last_block)
        return crc32c(self._read(last_begin, last - last_begin), crc)

    def _crc_until(self, block: int) -> int:
        known = self._until_block
        while len(known) <= block:
            known.append(crc32c(self._read(self._begin + (len(known) - 1) * BLOCK_BYTES, BLOCK_BYTES), known[-1]))
        return known[block]

    def _factor(self, blocks: int) -> int:
        known = self._blocks
        while len(known) <= blocks:
            known.append(multiply(known[-1], _BLOCK))
        return known[blocks]
