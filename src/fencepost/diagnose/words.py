"""How documents show values: as JSON, and times, shares and lists as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import pairwise
from typing import Any


def plain(value: Any) -> Any:
    """A document as JSON values: a dataclass or named tuple becomes an object, an enum its name in lower case."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain(field) for name, field in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): plain(field) for key, field in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name.lower()
    return value


_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
SHOWN_AT_MOST = 4


def duration(ms: int) -> str:
    """`40 ms`, `2.5 s`, `3 m 20 s`, `7 d 3 h`: at most two units. If a clock is ahead, it is `0 ms`."""
    ms = max(ms, 0)
    if ms < 1000:
        return f"{ms} ms"
    if ms < 9_950:
        return f"{(ms + 50) // 100 / 10:g} s"
    ms = (ms + 500) // 1000 * 1000
    for (name, size), (next_name, next_size) in pairwise(_UNITS):
        if ms >= size:
            rest = ms % size // next_size
            return f"{ms // size} {name}" + (f" {rest} {next_name}" if rest else "")
    return f"{ms // 1000} s"


def instant(ms: int) -> str:
    """A moment in UTC: `2026-03-01 12:00:03.250Z`. Producers choose timestamps, so some have no date."""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms since 1970"
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def listed(items: Iterable[object], at_most: int = SHOWN_AT_MOST) -> str:
    """`a, b and c`; after `at_most` items only the number of the others."""
    words: Sequence[str] = [str(item) for item in items]
    if len(words) > at_most + 1:
        words = [*words[:at_most], f"{len(words) - at_most} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"
