"""Arithmetic of measurements: what one run gives, medians of repetitions, ratios of contenders."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

SHARES = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
Figures = dict[str, float]
Repetitions = Mapping[str, Sequence[float]]  # By the name of the figure.


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of values in order: the smallest that is not below this share of them."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def spread(values: Sequence[float]) -> Figures:
    """The percentiles of SHARES, and the largest."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {name: percentile(ordered, share) for name, share in SHARES.items()} | {"max": ordered[-1]}


def derived(answer: Mapping[str, float], cores: int) -> Figures:
    """The figures of a run from what its client counted."""
    count, seconds = answer["count"], answer["seconds"]
    return {
        "per_s": count / seconds,
        "broker_cpu_us": answer["broker_cpu_s"] / count * 1e6,
        "client_cpu_us": answer["client_cpu_s"] / count * 1e6,
        "broker_cores": answer["broker_cpu_s"] / seconds,
        "client_cores": answer["client_cpu_s"] / seconds,
        "others_share": answer["other_cpu_s"] / seconds / cores,
        **{name: answer[name] for name in (*SHARES, "max") if name in answer},
    }


def median(repetitions: Repetitions | None, figure: str) -> float | None:
    """None if it was not measured."""
    values = repetitions.get(figure) if repetitions else None
    return statistics.median(values) if values else None


def ratio(ours: Repetitions | None, theirs: Repetitions | None, figure: str) -> float | None:
    """Our median divided by theirs; None if one of them has no such figure."""
    own, other = median(ours, figure), median(theirs, figure)
    return own / other if own is not None and other else None
