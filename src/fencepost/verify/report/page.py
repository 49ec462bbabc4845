"""The report as one HTML page, which loads nothing from outside. Pure.

Each anomaly has a timeline in SVG: a lane for each client and partition, events from left to right, faults as bands.
The events have equal distances, because microseconds and minutes do not fit on one scale; their times stand below them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from html import escape

from fencepost.verify.report.document import FoundKind, ShownAnomaly, ShownEvent, ShownFault, VerifyReport

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


# The colours of the workbench.
STYLE = """
:root { color-scheme: light dark; --text: #1c2026; --page: #fbfbf9; --panel: #ffffff; --line: #d5d8dd; --muted: #5c6370;
  --committed: #17693a; --aborted: #b3261e; --open: #8a5300; --marker: #1a5fb4; --fault: #b3261e22; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8ec; --page: #14171b; --panel: #1c2026; --line: #3a404a;
  --muted: #a5adba; --committed: #6fcf97; --aborted: #ff8a80; --open: #f2b45a; --marker: #8ab8ff;
  --fault: #ff8a8033; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
section.anomaly { background: var(--panel); border: 1px solid var(--line); border-radius: 4px; padding: 0.75rem;
  margin: 1rem 0; overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 0.15rem 0.75rem 0.15rem 0; vertical-align: top; }
td.number, th.number { text-align: right; } td, code { overflow-wrap: anywhere; }
td.mono { font-family: ui-monospace, monospace; font-size: 0.9em; }
svg { display: block; max-width: none; font: 12px ui-monospace, monospace; } svg text { fill: var(--text); }
svg .small { font-size: 10px; fill: var(--muted); }
svg .lane { stroke: var(--line); } svg .fault { fill: var(--fault); }
svg .to { stroke: var(--muted); stroke-dasharray: 2 2; }
a { color: var(--marker); }
.good { color: var(--committed); } .bad { color: var(--aborted); } .muted { color: var(--muted); }
"""


def draw_page(report: VerifyReport) -> str:
    """Every text of the history is escaped: it comes from programs that are not trusted."""
    return "\n".join(_page(report)) + "\n"


def _page(report: VerifyReport) -> Iterator[str]:
    verdict = f"Anomalies: {report.anomalies}" if report.anomalies else "No anomaly"
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{verdict}: fencepost verify</title><style>{STYLE}</style></head><body>"
    yield f'<h1 class="{"bad" if report.anomalies else "good"}">{verdict}</h1>'
    yield "<table>"
    for name, value in _facts(report):
        yield f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
    yield "</table>"
    if report.kinds:
        yield '<table><tr><th class="number">count</th><th>anomaly</th><th>name</th></tr>'
        for kind in report.kinds:
            link = f'<a href="#{escape(kind.kind)}">{escape(kind.title)}</a>{_note(kind)}'
            yield f'<tr><td class="number">{kind.count}</td><td>{link}</td><td>{escape(kind.kind)}</td></tr>'
        yield "</table>"
    for kind in report.kinds:
        yield from _kind(kind)
    if report.not_judged:
        yield "<h2>Not judged</h2><ul>"
        yield from (f"<li>{escape(what)}</li>" for what in report.not_judged)
        yield "</ul>"
    yield "</body></html>"


def _facts(report: VerifyReport) -> Iterator[tuple[str, object]]:
    yield from (("seed", report.seed), *report.what.items())
    transactions = f"transactions: {report.committed} committed, {report.aborted} aborted, {report.unknown} in doubt"
    records = f"records: {report.sent} sent, {report.read} read"
    yield (
        "history",
        f"{report.seconds} s; clients: {report.clients}; {transactions}; {records}; faults: {report.faults}",
    )


def _note(kind: FoundKind) -> str:
    return ' <span class="muted">allowed in Kafka</span>' if kind.is_allowed else ""


def _kind(kind: FoundKind) -> Iterator[str]:
    yield f'<h2 id="{escape(kind.kind)}">{escape(kind.title)} ({escape(kind.kind)}): {kind.count}{_note(kind)}</h2>'
    yield f"<p>{escape(kind.meaning)}</p>"
    yield f"<p><strong>Mistake:</strong> {escape(kind.mistake)}.<br>"
    yield f"<strong>What to do:</strong> {escape(kind.remedy)}</p>"
    for anomaly in kind.shown:
        yield from _anomaly(anomaly)
    if kind.count > len(kind.shown):
        yield f'<p class="muted">and {kind.count - len(kind.shown)} more</p>'


def _anomaly(anomaly: ShownAnomaly) -> Iterator[str]:
    yield f'<section class="anomaly"><p>{escape(anomaly.what)}</p>'
    yield draw_swim_lanes(anomaly)
    yield '<table><tr><th class="number">line</th><th class="number">ms</th><th>client</th><th>event</th></tr>'
    for event in anomaly.events:
        numbers = f'<td class="number">{event.line}</td><td class="number">{event.at_ms:.3f}</td>'
        yield f'<tr>{numbers}<td>{escape(event.by)}</td><td class="mono">{escape(event.text)}</td></tr>'
    yield "</table></section>"
