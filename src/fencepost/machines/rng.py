"""The source of randomness for pure code: `random.SystemRandom` in the broker, since secrets come from it; a seeded one
in a simulation.
"""

from __future__ import annotations

from typing import Protocol


class Rng(Protocol):
    def randbytes(self, n: int, /) -> bytes: ...

    def randrange(self, start: int, stop: int, /) -> int: ...
