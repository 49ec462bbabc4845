"""Damage to the files of a stopped broker.

`tear_tails` leaves incomplete writes at the ends of logs, as a kill can: the beginning of a batch, garbage, zeros.
`spoil_derived` deletes, cuts and garbles indexes and snapshots, which recovery derives from the log. `change_a_byte`
changes a complete batch, which no crash does but a bad disk may.
"""

from __future__ import annotations

import random
from pathlib import Path

from fencepost.protocol.batch import decode_header

DERIVED = ("index", "timeindex", "txnindex", "snapshot")


def tear_tails(data: Path, rng: random.Random, count: int) -> list[str]:
    """Append an incomplete batch to `count` logs; return the names of the logs."""
    logs = [path for path in _newest_segments(data) if path.stat().st_size]
    torn = rng.sample(logs, min(count, len(logs)))
    for path in torn:
        with path.open("ab") as file:
            file.write(_torn_write(path.read_bytes(), rng))
    return [path.parent.name for path in torn]


def _torn_write(log: bytes, rng: random.Random) -> bytes:
    match rng.choice(["batch", "batch", "zeros", "garbage"]):
        case "zeros":
            return bytes(rng.randint(1, 6000))
        case "garbage":
            return rng.randbytes(rng.randint(1, 300))
        case _:
            batch = next_batch(log)
            return batch[: rng.randint(1, len(batch) - 1)]


def next_batch(log: bytes) -> bytes:
    """A copy of the last batch with the offsets that come next, as a broker would write it."""
    position = last = 0
    while position < len(log):
        last, position = position, position + decode_header(log, position).size_bytes
    header = decode_header(log, last)
    return (header.last_offset + 1).to_bytes(8, "big") + log[last + 8 :]


def spoil_derived(data: Path, rng: random.Random, count: int) -> list[Path]:
    """Delete, cut or garble `count` indexes and snapshots; return their paths."""
    files = sorted(path for suffix in DERIVED for path in data.glob(f"*/*.{suffix}"))
    spoilt = rng.sample(files, min(count, len(files)))
    for path in spoilt:
        _spoil(path, rng)
    return spoilt


def _spoil(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    how = rng.choice(["deleted", "cut", "garbage", "flipped"])
    if how == "deleted" or not content:
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: rng.randrange(len(content))])
    elif how == "garbage":
        path.write_bytes(rng.randbytes(len(content) + rng.choice([0, 3])))
    else:
        changed = bytearray(content)
        for _ in range(rng.randint(1, 5)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)


def change_a_byte(log: Path, at_least_batches: int) -> int:
    """Change the last byte of a data batch after `at_least_batches` others; return the offset of its first record."""
    data = bytearray(log.read_bytes())
    position = 0
    for _ in range(at_least_batches):
        position += decode_header(data, position).size_bytes
    while (header := decode_header(data, position)).is_control:  # Consumers do not see markers.
        position += header.size_bytes
    data[position + header.size_bytes - 1] ^= 1
    log.write_bytes(data)
    return header.base_offset


def _newest_segments(data: Path) -> list[Path]:
    """The active segment of each log."""
    found: dict[Path, Path] = {}
    for path in sorted(data.glob("*/*.log")):
        found[path.parent] = path
    return [path for directory, path in found.items() if not directory.name.endswith("-delete")]
