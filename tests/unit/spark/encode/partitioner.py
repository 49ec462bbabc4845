"""Java's default partitioner, key by key, as in Kafka's source: the reference for the vectorized one."""

from __future__ import annotations


def murmur2(key: bytes) -> int:
    """`org.apache.kafka.common.utils.Utils.murmur2`, as a signed 32-bit number."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if len(key) > whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - (1 << 32) if h & 1 << 31 else h


def partition_for(key: bytes, count: int) -> int:
    """`BuiltInPartitioner.partitionForKey`."""
    return (murmur2(key) & 0x7FFFFFFF) % count
