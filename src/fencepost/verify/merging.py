"""One history from the parts that the clients of a run wrote. Pure."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator

_AT = re.compile(rb'"at":\s*(-?\d+)')


def merge(parts: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """The lines of all parts in the order of their times. Each part is in this order already.

    The last line of a client that was killed may be incomplete: it is left out.
    """
    return (line for _, _, line in heapq.merge(*(_timed(number, part) for number, part in enumerate(parts))))


def _timed(number: int, part: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    for line in part:
        if line.endswith(b"\n"):
            found = _AT.search(line)
            assert found is not None, f"no time in {line!r}"
            yield int(found[1]), number, line
