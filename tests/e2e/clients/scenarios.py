"""What every client is asked to do, as tables; each test file plays them with its own client."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.records import iter_batches

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

# Enough alike that every codec makes it smaller.
TEXTS = [f"order {number}: two espressos, one with milk" for number in range(50)]


class Step(NamedTuple):
    producer: str
    action: str
    value: str = ""


def steps(text: str) -> list[Step]:
    return [Step(*line.split()) for line in text.strip().splitlines()]


# Two transactional producers and a plain one take turns on one partition.
INTERLEAVED = steps("""
    a      send    a1
    b      send    b1
    plain  send    p1
    a      send    a2
    b      abort
    b      send    b2
    a      commit
    a      send    a3
    plain  send    p2
    b      commit
    b      send    b3
    a      abort
    b      abort
    a      send    a4
    plain  send    p3
    a      commit
""")
ABORTED = {"b1", "a3", "b3"}
READ_UNCOMMITTED = [step.value for step in INTERLEAVED if step.action == "send"]
# In offset order too: when a transaction commits makes no difference to it.
READ_COMMITTED = [value for value in READ_UNCOMMITTED if value not in ABORTED]


def stored_batches(data: Path, topic: str, partition: int = 0) -> list[tuple[BatchHeader, bytes]]:
    """The record batches of a partition as they lie on the broker's disk."""
    segments = sorted((data / f"{topic}-{partition}").glob("*.log"))
    return [(header, bytes(batch)) for segment in segments for header, batch in iter_batches(segment.read_bytes())]
