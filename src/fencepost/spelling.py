"""The names that a user probably meant, for hints such as `did you mean EndTxn?`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches


def similar_to(
    given: str,
    known: Iterable[str],
    at_most: int = 3,
    *,
    cutoff: float = 0.6,
    folded: Callable[[str], str] = str.lower,
) -> tuple[str, ...]:
    """The known names that look like the given one, the most similar first. `folded` removes what does not matter."""
    names: dict[str, list[str]] = {}
    for name in known:
        names.setdefault(folded(name), []).append(name)
    close = get_close_matches(folded(given), names, at_most, cutoff)
    return tuple(name for fold in close for name in names[fold])[:at_most]


def did_you_mean(
    given: str, known: Iterable[str], *, cutoff: float = 0.6, folded: Callable[[str], str] = str.lower
) -> str | None:
    """The hint; None if no known name looks like the given one."""
    near = similar_to(given, known, 1, cutoff=cutoff, folded=folded)
    return f"did you mean {near[0]}?" if near else None
