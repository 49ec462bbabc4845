"""CRC-32C of any part of a file, in about the same time however long the part is.

A search for batches in damaged bytes asks for the checksums of many long parts that overlap. Here every block is read
once for the checksums from the beginning up to each block. A CRC is linear, so that of a part follows from these two:

    crc(a + b) = crc(a) * x^(8 * len(b))  xor  crc(b)           modulo the polynomial

Bits are reflected, as in zlib's `crc32_combine`: the highest bit is the coefficient of x^0.
"""

from __future__ import annotations

from fencepost.protocol.crc import crc32c
from fencepost.server.storage.heads import Read

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
    """Of the file that `read` reads, from `begin` on."""

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
