"""The timeline of an anomaly as SVG: a lane for each client and partition, events from left to right, faults as bands.

Pure. The events have equal distances, because microseconds and minutes do not fit on one scale; their times stand below
them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from html import escape

from fencepost.verify.report.document import ShownAnomaly, ShownEvent, ShownFault

STEP = 64  # Between two events.
LANE = 34
TOP = 24  # For the names of faults.
BOTTOM = 24  # For the times.
LETTER = 7.5  # The width of a letter in the names of lanes.
# The shape of an event says as much as its colour: what is asked for is hollow, what is answered is filled.
HOLLOW = {"begin", "send", "end", "offsets"}
COLOURS = {"ended": "committed", "acked": "committed", "poll": "marker", "fault": "aborted", "end": "open"}


def lanes_of(events: Sequence[ShownEvent]) -> list[str]:
    """The clients, and then the partitions, each in the order of its first event."""
    clients = dict.fromkeys(event.by for event in events)
    partitions = dict.fromkeys(event.partition for event in events if event.partition is not None)
    return [*clients, *(name for name in partitions if name not in clients)]


def draw_swim_lanes(anomaly: ShownAnomaly) -> str:
    return "\n".join(_drawing(anomaly)) if anomaly.events else ""


def _drawing(anomaly: ShownAnomaly) -> Iterator[str]:
    lanes = lanes_of(anomaly.events)
    left = 16 + LETTER * max(map(len, lanes))
    width, height = left + STEP * len(anomaly.events), TOP + LANE * len(lanes) + BOTTOM
    rows = {name: TOP + LANE * n + LANE / 2 for n, name in enumerate(lanes)}
    yield f'<svg role="img" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">'
    yield f"<title>{escape(anomaly.what)}</title>"
    times = [event.at_ms for event in anomaly.events]
    for fault in anomaly.faults:
        yield from _band(fault, times, left, height)
    yield f'<text class="small" x="8" y="{height - 8}">ms</text>'
    for name, y in rows.items():
        yield f'<text x="8" y="{y + 4:.0f}">{escape(name)}</text>'
        yield f'<line class="lane" x1="{left:.0f}" y1="{y:.0f}" x2="{width:.0f}" y2="{y:.0f}"/>'
    for n, event in enumerate(anomaly.events):
        yield from _event(event, left + STEP * (n + 0.5), rows, height)
    yield "</svg>"


def _label(event: ShownEvent) -> str:
    """One word: for the end of a transaction, how it is to end or has ended."""
    words = escape(event.text).split()
    return {"end": words[0], "ended": words[2] if len(words) > 2 else "ended"}.get(event.event, escape(event.event))


def _band(fault: ShownFault, times: Sequence[float], left: float, height: int) -> Iterator[str]:
    """A fault covers the events of its time; between two events it begins and ends half way."""
    first = bisect_right(times, fault.at_ms)
    last = bisect_right(times, fault.at_ms + fault.seconds * 1000)
    x, width = left + STEP * first, max(STEP * (last - first), 4)
    yield f'<rect class="fault" x="{x:.0f}" y="0" width="{width:.0f}" height="{height - BOTTOM}">'
    yield f"<title>{escape(fault.what)}</title></rect>"
    yield f'<text class="small" x="{x + 2:.0f}" y="12">{escape(fault.what)}</text>'


def _event(event: ShownEvent, x: float, rows: dict[str, float], height: int) -> Iterator[str]:
    y = rows[event.by]
    title = f"<title>line {event.line}, {event.at_ms:.3f} ms, {escape(event.by)}: {escape(event.text)}</title>"
    colour = COLOURS.get(event.event, "text")
    if event.event == "ended" and " committed" not in event.text:
        colour = "aborted"
    yield f"<g>{title}"
    if event.partition is not None and rows[event.partition] != y:
        below = rows[event.partition]
        yield f'<line class="to" x1="{x:.0f}" y1="{y:.0f}" x2="{x:.0f}" y2="{below:.0f}"/>'
        yield f'<rect x="{x - 4:.0f}" y="{below - 4:.0f}" width="8" height="8" fill="var(--{colour})"/>'
    fill = "var(--panel)" if event.event in HOLLOW else f"var(--{colour})"
    yield f'<circle cx="{x:.0f}" cy="{y:.0f}" r="6" fill="{fill}" stroke="var(--{colour})" stroke-width="2"/>'
    yield f'<text class="small" x="{x:.0f}" y="{y - 9:.0f}" text-anchor="middle">{_label(event)}</text>'
    yield f'<text class="small" x="{x:.0f}" y="{height - 8}" text-anchor="middle">{event.at_ms:.1f}</text></g>'
