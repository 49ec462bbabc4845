"""The plots of the results, as SVG: a few bars and lines need no library.

Colours are those of the workbench in its light form. A contender has the same colour everywhere, and a word or a mark
goes with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from benchmarks.cases import CASES, GROWTH, THROUGHPUT
from benchmarks.contenders import FENCEPOST, KAFKA, MOCK, TITLES
from benchmarks.figures import SHARES, median, ratio
from benchmarks.goals import GOALS
from benchmarks.results import ROOT, Results

STYLE = ROOT / "src/fencepost/web/static/style.css"
COLOUR_OF = {FENCEPOST: "marker", KAFKA: "muted", MOCK: "open"}
SHAPE_OF = {FENCEPOST: "circle", KAFKA: "square", MOCK: "circle"}
WIDTH = 860
NOT_MEASURED = "not measured"
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"


def colour(name: str) -> str:
    """One of the colours that mean something in the workbench."""
    found = re.search(rf"--{name}: (#[0-9a-f]+);", STYLE.read_text())
    assert found is not None, name
    return found[1]


def text(x: float, y: float, words: str, *, anchor: str = "start", of: str = "text", bold: bool = False) -> str:
    """With an edge in the colour of the ground, so that it can be read on lines too."""
    edge = f'paint-order="stroke" stroke="{colour("panel")}" stroke-width="3"'
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour(of)}" {edge}{weight}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, *, of: str = "line", dashed: bool = False) -> str:
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour(of)}"{dash}/>'


def bar(x: float, y: float, width: float, height: float, kind: str) -> str:
    paint = f'fill="{colour(COLOUR_OF[kind])}"'
    if kind == MOCK:
        paint = f'fill="none" stroke="{colour(COLOUR_OF[kind])}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" {paint}/>'


def mark(x: float, y: float, kind: str) -> str:
    paint = colour(COLOUR_OF[kind])
    if SHAPE_OF[kind] == "square":
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="{paint}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{paint}"/>'


def picture(title: str, height: float, parts: Sequence[str]) -> str:
    """A whole file; `title` is also what a screen reader says."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'font-family="{FONT}" font-size="12">'
    )
    ground = f'<rect width="{WIDTH}" height="{height:.0f}" fill="{colour("panel")}"/>'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", ground, text(16, 24, title, bold=True), *parts, "</svg>\n"]
    )


def ticks(most: float, about: int = 5) -> list[float]:
    """Round steps from 0 to at least `most`."""
    rough = most / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [n * step for n in range(math.ceil(most / step - 1e-9) + 1)]


# --- bars -------------------------------------------------------------------------------------------------


class Bars(NamedTuple):
    """A row of a plot with horizontal bars: a label, and one value for each contender that has one."""

    label: str
    values: dict[str, float]
    shown: dict[str, str]
    goal: float | None = None


LEFT, RIGHT, TOP, BAR, GAP = 330, 90, 66, 12, 10


def legend(kinds: Sequence[str], has_goals: bool) -> Iterator[str]:
    x = 16.0
    for kind in kinds:
        yield bar(x, 36, 18, 11, kind)
        yield text(x + 24, 46, TITLES[kind])
        x += 44 + 7 * len(TITLES[kind])
    if has_goals:
        yield line(x + 4, 34, x + 4, 49, of="danger")
        yield text(x + 12, 46, "goal of Fencepost")


def bar_plot(title: str, rows: Sequence[Bars], one: float | None = None) -> str:
    """`one` is where a dashed line is drawn: the contender that the others are compared with."""
    if not rows:
        return picture(title, TOP, [text(16, 48, NOT_MEASURED)])
    kinds = list(dict.fromkeys(kind for row in rows for kind in row.values))
    most = max(max([*row.values.values(), row.goal or 0]) for row in rows)
    scale = ticks(most)
    wide = (WIDTH - LEFT - RIGHT) / scale[-1]
    parts = list(legend(kinds, any(row.goal for row in rows)))
    y = float(TOP)
    for row in rows:
        tall = BAR * len(row.values)
        parts.append(text(LEFT - 10, y + tall / 2 + 4, row.label, anchor="end"))
        for number, (kind, value) in enumerate(row.values.items()):
            parts.append(bar(LEFT, y + number * BAR, value * wide, BAR - 2, kind))
        if row.goal:
            parts.append(line(LEFT + row.goal * wide, y - 3, LEFT + row.goal * wide, y + tall + 1, of="danger"))
        for number, (kind, value) in enumerate(row.values.items()):
            parts.append(text(LEFT + value * wide + 5, y + number * BAR + 10, row.shown[kind], of="muted"))
        y += tall + GAP
    for tick in scale:
        x = LEFT + tick * wide
        parts.insert(0, line(x, TOP - 6, x, y, of="line", dashed=one is not None and tick == one))
        parts.append(text(x, y + 14, f"{tick:g}", anchor="middle", of="muted"))
    if one is not None:
        parts.append(line(LEFT + one * wide, TOP - 6, LEFT + one * wide, y, of="muted", dashed=True))
    return picture(title, y + 26, parts)


def throughput(results: Results) -> str:
    rows = []
    for case in (name for name in THROUGHPUT if name in results.cases):
        theirs = results.of(case, KAFKA)
        values = {kind: ratio(results.of(case, kind), theirs, "per_s") for kind in (FENCEPOST, MOCK)}
        there = {kind: value for kind, value in values.items() if value is not None}
        goal = next((g.bound for g in GOALS if (g.case, g.figure, g.against) == (case, "per_s", KAFKA)), None)
        to_mock = next((g.bound for g in GOALS if (g.case, g.figure, g.against) == (case, "per_s", MOCK)), None)
        if to_mock is not None and MOCK in there:
            goal = max(goal or 0, to_mock * there[MOCK])
        if there:
            rows.append(Bars(CASES[case].title, there, {kind: f"{v:.2f}x" for kind, v in there.items()}, goal))
    return bar_plot("Throughput, as a multiple of Apache Kafka's", rows, one=1.0)


def cpu(results: Results) -> str:
    rows = []
    for case in (*THROUGHPUT, "commit-to-consumer"):
        values = {kind: median(results.of(case, kind), "broker_cpu_us") for kind in (KAFKA, FENCEPOST)}
        theirs = values[KAFKA]
        if theirs:
            there = {kind: value / theirs for kind, value in values.items() if value is not None}
            shown = {kind: f"{values[kind]:,.3g} us" for kind in there}
            rows.append(Bars(CASES[case].title, there, shown))
    return bar_plot("CPU time of the broker per transaction or record, as a multiple of Apache Kafka's", rows)


# --- lines ------------------------------------------------------------------------------------------------


class Panel(NamedTuple):
    """One plot with lines, among others."""

    title: str
    x_labels: Sequence[str]
    lines: dict[str, list[float | None]]  # By contender, one value for each label.
    is_log: bool = False


PANEL_WIDTH, PANEL_HEIGHT, ACROSS = 400, 210, 2


def panels(title: str, those: Sequence[Panel]) -> str:
    if not those:
        return picture(title, TOP, [text(16, 48, NOT_MEASURED)])
    parts = list(legend(list(dict.fromkeys(kind for each in those for kind in each.lines)), has_goals=False))
    for number, each in enumerate(those):
        left = 16 + number % ACROSS * (PANEL_WIDTH + 26)
        parts += _panel(each, left, 72 + number // ACROSS * (PANEL_HEIGHT + 22))
    rows = math.ceil(len(those) / ACROSS)
    return picture(title, 72 + rows * (PANEL_HEIGHT + 22) + 6, parts)


def _panel(each: Panel, left: float, top: float) -> Iterator[str]:
    values = [value for own in each.lines.values() for value in own if value is not None]
    x0, x1, y0, y1 = left + 44, left + PANEL_WIDTH - 10, top + PANEL_HEIGHT - 22, top + 22
    scale = _log_ticks(min(values), max(values)) if each.is_log else ticks(max(values), 4)

    def height(value: float) -> float:
        if each.is_log:
            low, high = math.log(scale[0]), math.log(scale[-1])
            return y0 - (math.log(value) - low) / (high - low) * (y0 - y1)
        return y0 - value / scale[-1] * (y0 - y1)

    yield text(left, top + 8, each.title, bold=True)
    for tick in scale:
        yield line(x0, height(tick), x1, height(tick))
        yield text(x0 - 6, height(tick) + 4, f"{tick:,g}", anchor="end", of="muted")
    across = [x0 + (x1 - x0) * (n + 0.5) / len(each.x_labels) for n in range(len(each.x_labels))]
    for x, label in zip(across, each.x_labels):
        yield text(x, y0 + 16, label, anchor="middle", of="muted")
    for kind, own in each.lines.items():
        points = [(x, height(value)) for x, value in zip(across, own) if value is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour(COLOUR_OF[kind])}" stroke-width="1.6"/>'
        yield from (mark(x, y, kind) for x, y in points)


def _log_ticks(least: float, most: float) -> list[float]:
    """1, 2 and 5 times the powers of ten around the values."""
    every = [factor * 10.0**power for power in range(-6, 9) for factor in (1, 2, 5)]
    first = max(n for n, tick in enumerate(every) if tick <= least)
    last = min(n for n, tick in enumerate(every) if tick >= most)
    return every[first : max(last, first + 1) + 1]


def latency(results: Results) -> str:
    those = []
    for case in ("transactions-1", "transactions-8", "commit-to-consumer"):
        lines = {
            kind: [median(figures, share) for share in SHARES]
            for kind in (KAFKA, FENCEPOST, MOCK)
            if (figures := results.of(case, kind))
        }
        if lines:
            those.append(Panel(f"{CASES[case].title}, ms", list(SHARES), lines, is_log=True))
    return panels("How long it takes: percentiles", those)


def growth(results: Results) -> str:
    those = []
    for what, (case, points) in GROWTH.items():
        lines = {
            kind: [median(results.of(f"{case}-{point}", kind), "broker_cpu_us") for point in points]
            for kind in (KAFKA, FENCEPOST)
        }
        there = {kind: own for kind, own in lines.items() if any(value is not None for value in own)}
        if there:
            those.append(Panel(what, [f"{point:,}" for point in points], there))
    return panels("CPU time of the broker for a small transaction, in us", those)


PLOTS: dict[str, Callable[[Results], str]] = {each.__name__: each for each in (throughput, latency, cpu, growth)}
